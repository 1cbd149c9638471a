"""Runs the fake as a process: it prints its port when ready, and ends at SIGTERM or with its parent."""

from __future__ import annotations

import argparse
import json
import socket
from functools import partial

from aiohttp import web

from tests.kit.fakes.lifetime import live
from tests.kit.fakes.messages_api.server import MessagesApi


def main(api: type[MessagesApi] = MessagesApi) -> None:
    parser = argparse.ArgumentParser(description=api.__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 takes a free port")
    parser.add_argument("--window", type=int, help="context window of every model, in tokens")
    parser.add_argument("--seed", type=int, default=0, help="two seeds do not accept each other's thinking")
    live(parser, partial(_start, api))


async def _start(kind: type[MessagesApi], arguments: argparse.Namespace) -> None:
    api = kind(window=arguments.window, seed=arguments.seed)
    runner = web.AppRunner(api.application(), access_log=None)
    await runner.setup()
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", arguments.port))
    await web.SockSite(runner, listener).start()
    print(json.dumps({"port": listener.getsockname()[1]}), flush=True)


if __name__ == "__main__":
    main()
