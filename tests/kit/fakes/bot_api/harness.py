"""Starts and stops the fake for a test, in a separate process or inside the test."""

from __future__ import annotations

import asyncio
import json
import os
from types import TracebackType
from typing import Self

from tests.kit.deployment.forks import Hatched
from tests.kit.fakes.bot_api.client import TOKEN, USERNAME, BotApi
from tests.kit.fakes.bot_api.server import BotApiServer
from tests.kit.fakes.bot_api.shapes import Json
from tests.kit.fakes.forked import run

START_SECONDS = 90.0
STOP_SECONDS = 20.0


class FakeDidNotStart(RuntimeError):
    """Raised if the process ended or stayed silent instead of printing its ports."""


class RunningBotApi(BotApi):
    """Fake in a separate process with one bot (TOKEN), as `async with running_bot_api() as fake`."""

    def __init__(self, *, port: int = 0) -> None:
        super().__init__()
        self._arguments = ["--port", str(port), "--parent-pid", str(os.getpid())]
        self._process: Hatched | None = None

    @property
    def pid(self) -> int:
        if self._process is None:
            raise FakeDidNotStart("not started")
        return self._process.pid

    async def start(self) -> None:
        self._process = await run("tests.kit.fakes.bot_api", self._arguments)
        try:
            told = await self._first_line()
        except BaseException:
            await self.stop()
            raise
        self.port, self.control_port = int(told["port"]), int(told["control_port"])

    async def stop(self) -> None:
        """End the process, whatever it does; no effect if it has ended."""
        await self._hang_up()
        process, self._process = self._process, None
        if process is None:
            return
        if process.returncode is None:
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), STOP_SECONDS)
        except TimeoutError:
            process.kill()
            await asyncio.wait_for(process.wait(), STOP_SECONDS)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def _first_line(self) -> Json:
        process = self._process
        if process is None:
            raise FakeDidNotStart("no output to read")
        try:
            line = await asyncio.wait_for(process.stdout.readline(), START_SECONDS)
        except TimeoutError:
            raise FakeDidNotStart(f"silent for {START_SECONDS:g} s") from None
        if not line:
            raise FakeDidNotStart(f"ended with {await asyncio.wait_for(process.wait(), STOP_SECONDS)}")
        told: Json = json.loads(line)
        return told


class LocalBotApi(BotApi):
    """Fake in the event loop of the test, as `async with local_bot_api() as fake`."""

    def __init__(self) -> None:
        super().__init__()
        self.server = BotApiServer()

    async def start(self) -> None:
        self.port, self.control_port = await self.server.start()
        await self.add_bot(TOKEN, username=USERNAME, name="Evertalk")

    async def stop(self) -> None:
        await self._hang_up()
        await self.server.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()


def running_bot_api(*, port: int = 0) -> RunningBotApi:
    return RunningBotApi(port=port)


def local_bot_api() -> LocalBotApi:
    return LocalBotApi()
