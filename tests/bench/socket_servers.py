"""The two servers of the socket bench, each in a process of its own: the whole house, and a bare echo."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import signal
import sys
import time
from pathlib import Path
from typing import Any

from aiohttp import web

from shared.config.settings import load_settings
from shared.core.session.turns import Delta, RunEnded, RunStarted
from tests.bench.quiet import keep_quiet
from tests.bench.whole import app_with_instant_model
from web.app import WebProcess, build_web_process
from web.ports import ModelInfo
from web.server import http_server
from web.server.rate_limits import ClientLimits

WIDE = ClientLimits(
    frames=10_000_000, messages=10_000_000, sockets_per_session=10_000, sockets_per_address=1_000_000,
    strikes=1_000,
)  # fmt: skip


def stamped(size: int) -> str:
    """When it was written, by the clock that all processes of a machine share and by that of browsers, and
    so much beside it.
    """
    return f"{time.monotonic_ns()} {time.time_ns()} " + "x" * size


class Echo:
    """The least that a WebSocket server can do."""

    def __init__(self) -> None:
        self._hear: set[web.WebSocketResponse] = set()

    async def socket(self, request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse(compress=False)
        await socket.prepare(request)
        if "hear" in request.query:
            self._hear.add(socket)
        async for message in socket:
            await socket.send_str(message.data)
        self._hear.discard(socket)
        return socket

    async def page(self, _: web.Request) -> web.Response:
        return web.json_response({})

    async def deltas(self, request: web.Request) -> web.Response:
        """Sends as many pieces, one every so many seconds, to those who hear."""
        asked = await request.json()
        for _ in range(asked["count"]):
            text = json.dumps({"t": "delta", "text": stamped(asked["size"])})
            for socket in tuple(self._hear):
                with contextlib.suppress(ConnectionError):
                    await socket.send_str(text)
            await asyncio.sleep(asked["every"])
        return web.json_response({})


class House:
    """The web process with a tap for pieces of an answer, as a model would write them."""

    def __init__(self, process: WebProcess, pool: Any) -> None:
        self._process = process
        self._pool = pool
        self._turn = 0

    async def deltas(self, request: web.Request) -> web.Response:
        asked = await request.json()
        session_id = await self._pool.fetchval(
            "SELECT id FROM sessions WHERE public_id = $1", asked["session"]
        )
        self._turn += 1
        hub, turn, offset = self._process.hub, self._turn, 0
        hub.handle_event(session_id, RunStarted(turn=turn, attempt=1))
        for _ in range(asked["count"]):
            text = stamped(asked["size"])
            hub.handle_event(session_id, Delta(turn=turn, attempt=1, offset=offset, text=text))
            offset += len(text)
            await asyncio.sleep(asked["every"])
        hub.handle_event(session_id, RunEnded(turn=turn, state="stopped"))
        return web.json_response({})


async def _serve(app: web.Application, stop: asyncio.Event) -> None:
    runner = web.AppRunner(app, handle_signals=False, shutdown_timeout=1)
    await runner.setup()
    door = http_server.Listener(runner)
    port = await door.start("127.0.0.1", 0)
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    await stop.wait()
    await door.stop_listening()
    await runner.cleanup()


async def _echo(stop: asyncio.Event) -> None:
    echo, app = Echo(), web.Application()
    app.router.add_get("/ws", echo.socket)
    app.router.add_post("/bench", echo.deltas)
    app.router.add_get("/healthz", echo.page)
    await _serve(app, stop)


async def _house(given: argparse.Namespace, stop: asyncio.Event) -> None:
    settings = load_settings(database_url=given.database, redis_url=given.redis, data_dir=Path(given.folder))
    services = await app_with_instant_model(settings, answer="Hello.")
    process = build_web_process(services, model=ModelInfo(name="bench", offline=False), limits=WIDE)
    app = process.app
    app.router.add_post("/bench", House(process, services.pool).deltas)
    process.start()
    try:
        await _serve(app, stop)
    finally:
        await process.stop(drain_seconds=1)
        await services.close()


async def _run(given: argparse.Namespace) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    http_server.MAX_CONNECTIONS = given.most
    await (_house(given, stop) if given.kind == "house" else _echo(stop))


def _loop_factory() -> Any:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.socket_servers")
    parser.add_argument("kind", choices=("house", "echo"))
    parser.add_argument("--database", default="")
    parser.add_argument("--redis", default="")
    parser.add_argument("--folder", default="")
    parser.add_argument("--most", type=int, default=4_096, help="connections")
    given = parser.parse_args()
    keep_quiet()
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_run(given))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
