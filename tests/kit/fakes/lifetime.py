"""Keeps a fake running as a process until SIGTERM, or until the process that started it has ended."""

from __future__ import annotations

import argparse
import asyncio
import errno
import os
import signal
from collections.abc import Awaitable, Callable

HEARTBEAT_SECONDS = 0.25


def live(parser: argparse.ArgumentParser, start: Callable[[argparse.Namespace], Awaitable[None]]) -> None:
    """Read the command line, call `start` with the arguments, and run until the end of the process.

    `start` returns as soon as the fake listens.
    """
    parser.add_argument("--parent-pid", type=int, help="leave when this process has gone")
    arguments = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    try:
        asyncio.run(_live(arguments, start))
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        parser.exit(1, f"{parser.prog}: the port is in use; --port 0 takes a free one\n")


async def _live(
    arguments: argparse.Namespace, start: Callable[[argparse.Namespace], Awaitable[None]]
) -> None:
    launched_by = os.getppid()
    await start(arguments)
    while not _orphaned(arguments.parent_pid, launched_by=launched_by):
        await asyncio.sleep(HEARTBEAT_SECONDS)


def _orphaned(parent: int | None, *, launched_by: int) -> bool:
    """Return whether the parent process has ended.

    A killed parent may remain as a zombie; a changed parent id reveals that too.
    """
    if parent is None:
        return False
    if launched_by == parent and os.getppid() != parent:
        return True
    try:
        os.kill(parent, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False
