"""A strict receiver of the compaction hook, run as a process: it checks signature, age and repeated keys.

`python -m tests.kit.fakes.hook_receiver SECRET` prints its port. A POST to `/plan` sets the next answers; a
GET of `/told` returns what was received.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
from aiohttp import web

from tests.kit.fakes.webhook_receiver import Receiver

START_SECONDS = 30


@dataclass(slots=True, kw_only=True)
class HookProcess:
    """A running process of the hook receiver."""

    process: asyncio.subprocess.Process
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    async def plan(self, *answers: dict[str, Any]) -> None:
        """Set the next answers, each with `status`, `body`, `location` and `seconds` of delay.

        Later answers are 200 with `{}`.
        """
        url = f"http://127.0.0.1:{self.port}/plan"
        async with aiohttp.ClientSession() as session, session.post(url, json=list(answers)) as response:
            assert response.status == 200

    async def list_told(self) -> tuple[list[dict[str, Any]], list[str]]:
        """Return the received messages in order, repeated ones included, and the faults found in requests."""
        url = f"http://127.0.0.1:{self.port}/told"
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            told = await response.json()
        return told["messages"], told["faults"]


@asynccontextmanager
async def hook_process(secret: str) -> AsyncIterator[HookProcess]:
    started = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.kit.fakes.hook_receiver", secret, stdout=asyncio.subprocess.PIPE
    )
    assert started.stdout is not None
    try:
        async with asyncio.timeout(START_SECONDS):
            port = int(await started.stdout.readline())
        yield HookProcess(process=started, port=port)
    finally:
        if started.returncode is None:
            started.kill()
        await started.wait()


class _Application:
    def __init__(self, secret: str) -> None:
        self._receiver = Receiver(secret=secret)
        self._planned: list[dict[str, Any]] = []

    async def take(self, request: web.Request) -> web.Response:
        checked = await self._receiver.take(request)
        if checked.status == 401:
            return checked
        answer = self._planned.pop(0) if self._planned else {}
        await asyncio.sleep(answer.get("seconds", 0))
        headers = {"Location": answer["location"]} if "location" in answer else {}
        return web.Response(status=answer.get("status", 200), text=answer.get("body", "{}"), headers=headers)

    async def plan(self, request: web.Request) -> web.Response:
        self._planned = await request.json()
        return web.Response()

    async def told(self, _: web.Request) -> web.Response:
        return web.json_response({"messages": self._receiver.messages, "faults": self._receiver.faults})


async def _serve(secret: str) -> None:
    served = _Application(secret)
    app = web.Application()
    app.router.add_post("/hook", served.take)
    app.router.add_post("/plan", served.plan)
    app.router.add_get("/told", served.told)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    sys.stdout.write(f"{runner.addresses[0][1]}\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1]))
