"""How long a fake lives as a process of its own: until SIGTERM, or until whoever started it has gone."""

from __future__ import annotations

import argparse
import asyncio
import errno
import os
import signal
from collections.abc import Awaitable, Callable

HEARTBEAT_SECONDS = 0.25


def live(parser: argparse.ArgumentParser, start: Callable[[argparse.Namespace], Awaitable[None]]) -> None:
    """`start` gets what was said on the command line, and returns when the fake listens."""
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
    """A killed parent may stay as a zombie under its number; that our own parent changes tells it, too."""
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
