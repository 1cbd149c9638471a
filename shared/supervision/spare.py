"""Spare processes: one that has imported everything waits to take the place of one that dies.

Importing takes most of a start, and on a busy machine half a minute. The supervisor starts the spare when
its process has worked for a while, and writes `go` to the spare's standard input when it is needed. The end
of the input ends the spare.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

SPARE_NAME = "EVERTALK_SPARE"
"""Variable that makes a process wait as a spare."""
GO = b"go\n"
LEAST_AVAILABLE_KIB = 2 * 1024 * 1024
"""Available memory from which a spare is kept: its 118 MiB are a sixteenth of that. Without it everything
needs less than 400 MiB.
"""
_MEMORY = Path("/proc/meminfo")


def wait_as_spare(load: Callable[[], object]) -> bool:
    """Load what the first answer needs, then wait for the go; return false if the supervisor has gone.

    Returns true at once in a process that is no spare.
    """
    if not os.environ.pop(SPARE_NAME, ""):
        return True
    load()
    return _read_go() == GO


def _read_go() -> bytes:
    """Read no byte beyond the line: what follows is for the process itself."""
    found = b""
    while len(found) < len(GO) and (piece := os.read(0, 1)):
        found += piece
    return found


def has_room_for_spare(memory: Path = _MEMORY) -> bool:
    """Return whether the machine has the memory; false where Linux does not say."""
    try:
        lines = memory.read_text().splitlines()
    except OSError:
        return False
    available = next((line.split()[1] for line in lines if line.startswith("MemAvailable:")), "0")
    return int(available) >= LEAST_AVAILABLE_KIB
