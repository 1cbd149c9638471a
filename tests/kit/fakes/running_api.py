"""Runs a fake as a process for a test, tells it how to answer, and ends it by its process id."""

from __future__ import annotations

import asyncio
import json
import os
from types import TracebackType
from typing import Any, ClassVar, Self

import aiohttp

from tests.kit.deployment.forks import Hatched
from tests.kit.fakes.forked import run

STOP_SECONDS = 20.0


class RunningProcess:
    """A fake as a process.

    Its module prints the port on which it listens.
    """

    module: ClassVar[str]

    def __init__(self) -> None:
        self._process: Hatched | None = None
        self.origin = ""
        self.arguments: tuple[str, ...] = ()

    async def __aenter__(self) -> Self:
        self._process = await run(self.module, [*self.arguments, "--parent-pid", str(os.getpid())])
        line = await asyncio.wait_for(self._process.stdout.readline(), 60)
        self.origin = f"http://127.0.0.1:{json.loads(line)['port']}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()
            await asyncio.wait_for(self._process.wait(), STOP_SECONDS)


class RunningApi(RunningProcess):
    """A fake as a process whose API is a `ScriptedApi`."""

    @property
    def url(self) -> str:
        return f"{self.origin}/v1"

    async def next(self, *actions: dict[str, Any]) -> None:
        """Set the outcomes of the next requests; later ones are answered as usual."""
        await self._control("POST", "next", list(actions))

    async def requests(self) -> list[dict[str, Any]]:
        """Return the requests since the last call of this method, without binary content."""
        found: list[dict[str, Any]] = await self._control("GET", "requests")
        return found

    async def _control(self, method: str, what: str, wish: Any = None) -> Any:
        url = f"{self.origin}/control/{what}"
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as http,
            http.request(method, url, json=wish) as answer,
        ):
            assert answer.status == 200, await answer.text()
            return await answer.json()
