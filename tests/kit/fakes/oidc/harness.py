"""Starts the provider as a process for a test, and tells it what to do."""

from __future__ import annotations

from typing import Any

import aiohttp

from tests.kit.fakes.running_api import RunningProcess


class RunningProvider(RunningProcess):
    """`async with RunningProvider() as provider`."""

    module = "tests.kit.fakes.oidc"

    @property
    def issuer(self) -> str:
        return self.origin

    async def tell(self, **wish: Any) -> dict[str, Any]:
        """What it was asked so far, by kind."""
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as http,
            http.post(f"{self.issuer}/_control", json=wish) as answer,
        ):
            asked: dict[str, Any] = (await answer.json())["asked"]
            return asked
