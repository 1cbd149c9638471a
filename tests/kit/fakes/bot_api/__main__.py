"""Runs the fake as a separate process: prints its ports when ready, and ends with SIGTERM or its parent."""

from __future__ import annotations

import argparse
import json

from tests.kit.fakes.bot_api.client import TOKEN, USERNAME
from tests.kit.fakes.bot_api.server import BotApiServer
from tests.kit.fakes.lifetime import live


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.kit.fakes.bot_api")
    parser.add_argument("--port", type=int, default=0, help="for bots; 0 takes a free one")
    parser.add_argument("--control-port", type=int, default=0, help="for tests; 0 takes a free one")
    parser.add_argument("--token", default=TOKEN, help="of the bot that is there from the start")
    parser.add_argument("--username", default=USERNAME, help="of that bot")
    live(parser, _start)


async def _start(arguments: argparse.Namespace) -> None:
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


if __name__ == "__main__":
    main()
