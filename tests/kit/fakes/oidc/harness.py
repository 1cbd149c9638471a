"""Runs the fake provider as a process for a test, and controls it."""

from __future__ import annotations

from typing import Any

import aiohttp

from tests.kit.fakes.running_api import RunningProcess


class RunningProvider(RunningProcess):
    """The fake provider as a process; used as `async with RunningProvider() as provider`."""

    module = "tests.kit.fakes.oidc"

    @property
    def issuer(self) -> str:
        return self.origin

    async def tell(self, **wish: Any) -> dict[str, Any]:
        """Set fields of the provider, and return how often it was asked so far, by kind of request."""
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as http,
            http.post(f"{self.issuer}/_control", json=wish) as answer,
        ):
            asked: dict[str, Any] = (await answer.json())["asked"]
            return asked
