"""Listening sockets that stay open while a process replaces itself, so that new connections wait instead of
being refused.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Sequence
from contextlib import suppress

LISTENING_NAME = "EVERTALK_LISTENING"
"""Environment variable with the file descriptors of the listening sockets for the new process."""


def keep_listening_sockets(sockets: Iterable[int]) -> None:
    """Duplicate the sockets with these file descriptors, so that they stay open for the program that replaces
    this process.

    The new descriptors are named in `EVERTALK_LISTENING`.
    """
    kept = [os.dup(number) for number in sockets]
    for number in kept:
        os.set_inheritable(number, True)
    os.environ[LISTENING_NAME] = " ".join(map(str, kept))


def take_listening_sockets() -> Sequence[socket.socket]:
    """Return the listening sockets that the former process kept open, and delete the variable that names
    them.

    Descriptors of anything else are left out.
    """
    words = os.environ.pop(LISTENING_NAME, "").split()
    return [found for word in words if word.isdigit() and (found := _open(int(word))) is not None]


def _open(number: int) -> socket.socket | None:
    """Return the listening socket with this file descriptor; None if it is not one."""
    with suppress(OSError):
        os.set_inheritable(number, False)
        found = socket.socket(fileno=number)
        if found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            return found
        found.detach()
    return None
