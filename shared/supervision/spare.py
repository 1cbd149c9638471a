"""Spare processes, which have imported everything and wait to replace a process that dies.

Imports take most of a start, and half a minute on a busy machine. The supervisor starts a spare when its
process has run for a while, and writes `go` to the spare's standard input when it is needed. The end of the
input ends the spare.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

SPARE_NAME = "EVERTALK_SPARE"
"""Environment variable that makes a process wait as a spare."""
GO = b"go\n"
"""Line that starts the work of a spare."""
LEAST_AVAILABLE_KIB = 2 * 1024 * 1024
"""Minimum available memory in KiB for keeping a spare, which takes 118 MiB.

Evertalk without spares needs less than 400 MiB.
"""
_MEMORY = Path("/proc/meminfo")


def wait_as_spare(load: Callable[[], object]) -> bool:
    """Call `load` and wait for the start signal on standard input; return False if the supervisor has ended
    instead.

    In a process that is not a spare, return True at once without calling `load`.
    """
    if not os.environ.pop(SPARE_NAME, ""):
        return True
    load()
    return _read_go() == GO


def _read_go() -> bytes:
    """Return the first line of standard input; later lines are left for the process."""
    found = b""
    while len(found) < len(GO) and (piece := os.read(0, 1)):
        found += piece
    return found


def has_room_for_spare(memory: Path = _MEMORY) -> bool:
    """Return whether `/proc/meminfo` shows enough available memory for a spare; False if there is no such
    file.
    """
    try:
        lines = memory.read_text().splitlines()
    except OSError:
        return False
    available = next((line.split()[1] for line in lines if line.startswith("MemAvailable:")), "0")
    return int(available) >= LEAST_AVAILABLE_KIB
