"""Ports for processes that bind them later: nobody else is given one of them in between."""

from __future__ import annotations

import os
import random
import socket
from itertools import cycle

FIRST, AFTER_LAST = 12_000, 32_000
"""Below those that the system hands out to whoever asks for any, and to each connection."""
RUNS = 8
"""Workers of one run have a part each, and begin anywhere in it: another run may be beside this one."""
_PART = (AFTER_LAST - FIRST) // RUNS


def _own_ports() -> list[int]:
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % RUNS
    first = FIRST + number * _PART
    start = random.Random(os.getpid()).randrange(_PART)
    return [first + (start + one) % _PART for one in range(_PART)]


_ports = cycle(_own_ports())


def free_port() -> int:
    """Not given to anybody else of this process for a long time."""
    for _, port in zip(range(_PART), _ports, strict=False):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise OSError("no port is free")
