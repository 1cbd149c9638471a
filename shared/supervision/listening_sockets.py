"""Listening sockets that outlive a renewal: clients that connect meanwhile wait and are not refused."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Sequence
from contextlib import suppress

LISTENING_NAME = "EVERTALK_LISTENING"
"""Variable by which a process tells its successor the numbers of its listening sockets."""


def keep_listening_sockets(sockets: Iterable[int]) -> None:
    """Keep these sockets, given by number, open for the program that replaces this process."""
    kept = [os.dup(number) for number in sockets]
    for number in kept:
        os.set_inheritable(number, True)
    os.environ[LISTENING_NAME] = " ".join(map(str, kept))


def take_listening_sockets() -> Sequence[socket.socket]:
    """Return the sockets that the predecessor kept open; what is not a listening socket is left out."""
    words = os.environ.pop(LISTENING_NAME, "").split()
    return [found for word in words if word.isdigit() and (found := _open(int(word))) is not None]


def _open(number: int) -> socket.socket | None:
    with suppress(OSError):
        os.set_inheritable(number, False)
        found = socket.socket(fileno=number)
        if found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            return found
        found.detach()
    return None
