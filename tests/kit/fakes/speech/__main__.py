"""Runs the fake as its own process: prints its port when ready, leaves with SIGTERM or its parent."""

from __future__ import annotations

import argparse
import json
import socket

from aiohttp import web

from tests.kit.fakes.lifetime import live
from tests.kit.fakes.speech.server import SpeechApi


async def _start(arguments: argparse.Namespace) -> None:
    runner = web.AppRunner(SpeechApi().application(), access_log=None)
    await runner.setup()
    listener = socket.socket()
    listener.bind(("127.0.0.1", arguments.port))
    await web.SockSite(runner, listener).start()
    print(json.dumps({"port": listener.getsockname()[1]}), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=SpeechApi.__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 takes a free port")
    live(parser, _start)
