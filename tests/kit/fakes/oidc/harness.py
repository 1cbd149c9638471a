"""Starts the provider as a process for a test, tells it what to do, and stops it by its pid."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp

ROOT = Path(__file__).parents[4]
STOP_SECONDS = 20.0


class RunningProvider:
    """`async with RunningProvider() as provider`."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self.issuer = ""

    async def __aenter__(self) -> Self:
        command = [sys.executable, "-m", "tests.kit.fakes.oidc", "--parent-pid", str(os.getpid())]
        self._process = await asyncio.create_subprocess_exec(
            *command, cwd=ROOT, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL
        )
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), 20)
        self.issuer = f"http://127.0.0.1:{json.loads(line)['port']}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()
            await asyncio.wait_for(self._process.wait(), STOP_SECONDS)

    async def tell(self, **wish: Any) -> dict[str, Any]:
        """What it was asked so far, by kind."""
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as http,
            http.post(f"{self.issuer}/_control", json=wish) as answer,
        ):
            asked: dict[str, Any] = (await answer.json())["asked"]
            return asked
