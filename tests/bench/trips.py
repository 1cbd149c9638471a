"""How many files, functions and calls a message passes: `python -m tests.bench.trips [--json]`.

A message goes over a WebSocket to the real web process, which runs here, and the offline model answers it.
The second one is counted, when everything is warm. Most of what a process does beside its turns is left out:
the figures differ by a few files from run to run.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from aiohttp import ClientSession, ClientWebSocketResponse, web

from shared.bootstrap.app import open_app
from shared.config.settings import load_settings
from tests.bench.ground import ground, run
from web.app import make_parts, make_web_app, start_parts, stop_parts
from web.parts import ModelShown
from web.server.http_server import Listener

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("shared", "web", "bot", "worker")
SOCKET_SECONDS = 30.0
_IN_THE_BACKGROUND = ("Hub._poll", "._beat", "._watch", "Heart.", "Health.")


class Trip:
    """What was called, as `file:function`."""

    def __init__(self) -> None:
        self.called: dict[str, int] = {}
        self.calls = 0
        self._seen: set[int] = set()
        self._kept: list[FrameType] = []

    def heard(self, frame: FrameType, event: str, _: Any) -> None:
        """A coroutine that goes on is called again: only its beginning counts."""
        name = _name(frame)
        if event != "call" or name is None or id(frame) in self._seen:
            return
        if any(word in name for word in _IN_THE_BACKGROUND):
            return
        self._seen.add(id(frame))
        self._kept.append(frame)
        self.calls += 1
        self.called[name] = self.called.get(name, 0) + 1

    def as_json(self, prefix: str) -> dict[str, Any]:
        return {
            f"{prefix}_files": len({name.partition(":")[0] for name in self.called}),
            f"{prefix}_functions": len(self.called),
            f"{prefix}_calls": self.calls,
        }


def _name(frame: FrameType) -> str | None:
    path = Path(frame.f_code.co_filename)
    if not path.is_relative_to(ROOT):
        return None
    place = path.relative_to(ROOT)
    return f"{place}:{frame.f_code.co_qualname}" if place.parts[0] in PRODUCT else None


@contextmanager
def traced() -> Iterator[Trip]:
    trip = Trip()
    sys.setprofile(trip.heard)
    try:
        yield trip
    finally:
        sys.setprofile(None)


async def measure() -> dict[str, Any]:
    async with ground(durable=False) as (servers, folder):
        settings = load_settings(
            database_url=servers.database_url, redis_url=servers.redis_url, data_dir=folder
        )
        services = await open_app(settings, role="web")
        parts = make_parts(services, model=ModelShown(name="offline", offline=True))
        runner = web.AppRunner(make_web_app(services, parts), handle_signals=False, shutdown_timeout=1)
        await runner.setup()
        door = Listener(runner)
        port = await door.start("127.0.0.1", 0)
        start_parts(parts)
        try:
            return await _message(f"http://127.0.0.1:{port}")
        finally:
            await stop_parts(parts, drain_seconds=1)
            await door.stop_listening()
            await runner.cleanup()
            await services.close()


async def _message(base: str) -> dict[str, Any]:
    async with (
        ClientSession() as client,
        client.ws_connect(f"{base}/ws", headers={"Origin": base}) as socket,
    ):
        hello = {"t": "hello", "v": 1, "site": "default", "token": "", "session": "", "last_seq": 0}
        await socket.send_str(json.dumps({**hello, "locale": "en"}))
        await _until(socket, "welcome")
        await _said(socket, "c1", "Hello there.")
        with traced() as trip:
            await _said(socket, "c2", "How are you today?")
    return trip.as_json("web_message")


async def _said(socket: ClientWebSocketResponse, cid: str, text: str) -> None:
    await socket.send_str(json.dumps({"t": "msg", "cid": cid, "text": text}))
    while (await _until(socket, "run")).get("state") != "done":
        pass


async def _until(socket: ClientWebSocketResponse, kind: str) -> dict[str, Any]:
    while True:
        frame: dict[str, Any] = json.loads((await socket.receive(timeout=SOCKET_SECONDS)).data)
        if frame["t"] == kind:
            return frame


if __name__ == "__main__":
    raise SystemExit(run("trips", __doc__, measure))
