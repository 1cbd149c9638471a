"""Event streams through the end of a process and of Postgres: every event comes, once and in order."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest

from tests.kit.deployment.breakable_servers import Case, Plant
from tests.kit.deployment.processes import Process
from tests.kit.deployment.telegram import SECONDS

Frame = dict[str, Any]


class Reader:
    """A browser behind a proxy without WebSockets: says hello again after each end, and resumes."""

    def __init__(self, case: Case, http: aiohttp.ClientSession) -> None:
        self._url = f"http://127.0.0.1:{case.port}"
        self._http = http
        self.token = ""
        self.numbers: list[int] = []
        self.answers = 0
        self.streams = 0

    async def live(self) -> None:
        while True:
            with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
                await self._stream()
            await asyncio.sleep(0.1)

    async def _stream(self) -> None:
        seen = self.numbers[-1] if self.numbers else 0
        hello: Frame = {"t": "hello", "v": 1, "site": "default", "last_seq": seen}
        given = await self._post("stream", {**hello, **({"token": self.token} if self.token else {})})
        self.token = given.get("token", self.token)
        async with self._http.get(
            f"{self._url}/api/v1/stream", params={"ticket": given["ticket"]}
        ) as response:
            response.raise_for_status()
            self.streams += 1
            async for line in response.content:
                if line.startswith(b"data: {"):
                    self._heard(json.loads(line[6:]))

    def _heard(self, frame: Frame) -> None:
        for event in frame["events"] if frame.get("t") == "welcome" else [frame]:
            if isinstance(event.get("event_seq"), int):
                self.numbers.append(event["event_seq"])
                self.answers += event.get("role") == "assistant"

    async def _post(self, path: str, body: Frame) -> Frame:
        headers = {"Origin": self._url} | ({"Authorization": f"Bearer {self.token}"} if self.token else {})
        async with self._http.post(f"{self._url}/api/v1/{path}", json=body, headers=headers) as response:
            response.raise_for_status()
            told: Frame = await response.json()
            return told

    async def ask(self, cid: str) -> None:
        """Until it is acknowledged, under the same id."""
        said = {"t": "msg", "cid": cid, "text": f"Please remember the number {cid}."}
        async with asyncio.timeout(SECONDS):
            while True:
                try:
                    told = await self._post("stream/send", {"site": "default", "frames": [said]})
                    if any(one["t"] == "ack" for one in told["frames"]):
                        return
                except (aiohttp.ClientError, OSError, TimeoutError):
                    pass
                await asyncio.sleep(0.1)

    async def answered(self, times: int) -> None:
        async with asyncio.timeout(SECONDS):
            while self.answers < times:
                await asyncio.sleep(0.05)


async def _terminated(web: Process, plant: Plant) -> None:
    web.send(signal.SIGTERM)
    await web.crashed()
    assert web.exits == [0], web.words()


async def _postgres_restarted(web: Process, plant: Plant) -> None:
    await plant.crash_postgres()
    await plant.start_postgres()
    assert web.exits == [], web.words()


@pytest.mark.parametrize("fault", [_terminated, _postgres_restarted])
async def test_stream_resumes_after_a_fault_without_gap_or_duplicate(
    case: Case, plant: Plant, fault: Callable[[Process, Plant], Awaitable[None]]
) -> None:
    timeout = aiohttp.ClientTimeout(total=None, connect=5)
    async with case.web() as web, aiohttp.ClientSession(timeout=timeout) as http:
        reader = Reader(case, http)
        living = asyncio.create_task(reader.live())
        try:
            async with asyncio.timeout(SECONDS):
                while not reader.streams:
                    await asyncio.sleep(0.05)
            await reader.ask("c1")
            await reader.answered(1)
            await fault(web, plant)
            await reader.ask("c2")
            await reader.answered(2)
        finally:
            living.cancel()
            await asyncio.wait([living])
        assert reader.numbers == list(range(1, len(reader.numbers) + 1))
        assert reader.answers == 2
        await case.promises_hold()
