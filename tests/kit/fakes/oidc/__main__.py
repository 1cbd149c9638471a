"""Runs the fake provider as a process: it prints its port when ready, and ends at SIGTERM or with its
parent.
"""

from __future__ import annotations

import argparse
import json
import socket

from aiohttp import web

from tests.kit.fakes.lifetime import live
from tests.kit.fakes.oidc.server import Provider


def main() -> None:
    live(argparse.ArgumentParser(prog="python -m tests.kit.fakes.oidc"), _start)


async def _start(arguments: argparse.Namespace) -> None:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    runner = web.AppRunner(Provider(f"http://127.0.0.1:{port}").application(), access_log=None)
    await runner.setup()
    await web.SockSite(runner, listener).start()
    print(json.dumps({"port": port}), flush=True)


if __name__ == "__main__":
    main()
