"""Ports for processes that bind them later; two tests never get the same port in between."""

from __future__ import annotations

import os
import random
import socket
from itertools import cycle

FIRST, AFTER_LAST = 12_000, 32_000
"""Range of the ports, below those that the system itself gives out."""
RUNS = 8
"""Number of parts of the range, one per worker of a test run.

Each process begins anywhere in its part, since another run may be active at the same time.
"""
_PART = (AFTER_LAST - FIRST) // RUNS


def _own_ports() -> list[int]:
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % RUNS
    first = FIRST + number * _PART
    start = random.Random(os.getpid()).randrange(_PART)
    return [first + (start + one) % _PART for one in range(_PART)]


_ports = cycle(_own_ports())


def free_port() -> int:
    """Return a port that is free now and that this process will not get again for long.

    Raises OSError if all are taken.
    """
    for _, port in zip(range(_PART), _ports, strict=False):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise OSError("no port is free")
