"""Runs the fake as its own process: prints its port when ready, leaves with SIGTERM or its parent."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import socket

from aiohttp import web

from tests.fakes.messages_api.server import MessagesApi

HEARTBEAT_SECONDS = 0.25


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fakes.messages_api")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free port")
    parser.add_argument("--window", type=int, help="context window of every model, in tokens")
    parser.add_argument("--seed", type=int, default=0, help="two seeds do not accept each other's thinking")
    parser.add_argument("--parent-pid", type=int, help="leave when this process has gone")
    arguments = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    asyncio.run(_serve(arguments))


async def _serve(arguments: argparse.Namespace) -> None:
    launched_by = os.getppid()
    api = MessagesApi(window=arguments.window, seed=arguments.seed)
    runner = web.AppRunner(api.application(), access_log=None)
    await runner.setup()
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", arguments.port))
    await web.SockSite(runner, listener).start()
    print(json.dumps({"port": listener.getsockname()[1]}), flush=True)
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


if __name__ == "__main__":
    main()
