"""The least that a provider of answers can be, as a process: `python -m tests.bench.provider`.

It knows nothing of rules and checks nothing, so that what is measured is not the strict fake of the tests.
"""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import ClientSession, web

from shared.adapters.embedded.process import die_with_parent

ROOT = Path(__file__).resolve().parents[2]
MARK = re.compile(rb"ask-(\d+)-")
WORDS = "so many words here. "
START_SECONDS = 30.0


def _event(name: str, **fields: Any) -> bytes:
    return f"event: {name}\ndata: {json.dumps({'type': name, **fields})}\n\n".encode()


BYTES_PER_TOKEN = 4
"""Bytes of a request for each token that is counted: a count that cannot be right costs each turn another."""
TOKENS_PER_DELTA = 6
_DELTA = _event("content_block_delta", index=0, delta={"type": "text_delta", "text": WORDS})


def _opening(body: bytes) -> bytes:
    usage = {"input_tokens": max(1_000, len(body) // BYTES_PER_TOKEN), "output_tokens": 1}
    return _event(
        "message_start",
        message={
            "id": "msg_bench", "type": "message", "role": "assistant", "model": "claude-sonnet-5-5",
            "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage,
        },
    ) + _event("content_block_start", index=0, content_block={"type": "text", "text": ""})  # fmt: skip


def _closing(deltas: int) -> bytes:
    ended = {"stop_reason": "end_turn", "stop_sequence": None}
    return (
        _event("content_block_stop", index=0)
        + _event("message_delta", delta=ended, usage={"output_tokens": TOKENS_PER_DELTA * deltas})
        + _event("message_stop")
    )


class _Server:
    def __init__(self) -> None:
        self._deltas, self._pace, self._held = 20, 0.0, False
        self._free = asyncio.Event()
        self._waiting = 0
        self._arrivals: dict[str, int] = {}

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        now = time.monotonic_ns()
        if marks := MARK.findall(body[-20_000:]):
            self._arrivals.setdefault(marks[-1].decode(), now)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        if not self._pace and not self._held:
            await response.write(_opening(body) + _DELTA * self._deltas + _closing(self._deltas))
            return response
        await response.write(_opening(body))
        begun, loop = asyncio.get_running_loop().time(), asyncio.get_running_loop()
        for number in range(self._deltas):
            await response.write(_DELTA)
            await asyncio.sleep(max(0.0, begun + (number + 1) * self._pace - loop.time()))
        if self._held:
            self._waiting += 1
            await self._free.wait()
        await response.write(_closing(self._deltas))
        return response

    async def change(self, request: web.Request) -> web.Response:
        asked = await request.json()
        self._deltas, self._pace = asked["deltas"], asked["pace"]
        self._held = asked["held"]
        if not self._held:
            self._waiting = 0
            self._free.set()
            self._free = asyncio.Event()
        return web.json_response({})

    async def tell(self, request: web.Request) -> web.Response:
        return web.json_response({"waiting": self._waiting, "arrivals": self._arrivals})


async def _serve() -> None:
    server, app, stop = _Server(), web.Application(client_max_size=64 * 2**20), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    app.router.add_post("/v1/messages", server.answer)
    app.router.add_post("/bench", server.change)
    app.router.add_get("/bench", server.tell)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    sys.stdout.write(f"{runner.addresses[0][1]}\n")
    sys.stdout.flush()
    await stop.wait()
    await runner.cleanup()


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """The process as a bench sees it."""

    url: str
    pid: int
    _http: ClientSession

    async def answers(self, *, deltas: int, pace: float = 0.0, held: bool = False) -> None:
        """From now on so many pieces, one every so many seconds; held answers end at the next change."""
        asked = {"deltas": deltas, "pace": pace, "held": held}
        async with self._http.post(f"{self.url}/bench", json=asked) as answer:
            answer.raise_for_status()

    async def told(self) -> dict[str, Any]:
        async with self._http.get(f"{self.url}/bench") as answer:
            found: dict[str, Any] = await answer.json()
        return found


@asynccontextmanager
async def running_provider() -> AsyncIterator[Provider]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.bench.provider",
        cwd=ROOT, stdout=asyncio.subprocess.PIPE, preexec_fn=die_with_parent(signal.SIGKILL),
    )  # fmt: skip
    assert process.stdout is not None
    try:
        async with asyncio.timeout(START_SECONDS):
            port = int(await process.stdout.readline())
        async with ClientSession() as http:
            yield Provider(url=f"http://127.0.0.1:{port}", pid=process.pid, _http=http)
    finally:
        if process.returncode is None:
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), 10)
        except TimeoutError:
            process.kill()
            await process.wait()


if __name__ == "__main__":
    from tests.bench.ground import loop_factory

    with asyncio.Runner(loop_factory=loop_factory()) as _runner:
        _runner.run(_serve())
