"""Runs the fake as its own process: prints its ports when ready, leaves with SIGTERM or its parent."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal

from tests.fakes.bot_api.client import TOKEN, USERNAME
from tests.fakes.bot_api.server import BotApiServer

HEARTBEAT_SECONDS = 0.25


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fakes.bot_api")
    parser.add_argument("--port", type=int, default=0, help="for bots; 0 takes a free one")
    parser.add_argument("--control-port", type=int, default=0, help="for tests; 0 takes a free one")
    parser.add_argument("--token", default=TOKEN, help="of the bot that is there from the start")
    parser.add_argument("--username", default=USERNAME, help="of that bot")
    parser.add_argument("--parent-pid", type=int, help="leave when this process has gone")
    arguments = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    asyncio.run(_serve(arguments))


async def _serve(arguments: argparse.Namespace) -> None:
    launched_by = os.getppid()
    server = BotApiServer()
    server.world.add_bot(
        arguments.token, username=arguments.username, name="Evertalk", topics=False, privacy=True
    )
    port, control_port = await server.start(port=arguments.port, control_port=arguments.control_port)
    told = {
        "port": port,
        "control_port": control_port,
        "base_url": f"http://127.0.0.1:{port}",
        "token": arguments.token,
    }
    print(json.dumps(told), flush=True)
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
