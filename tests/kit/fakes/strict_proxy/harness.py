"""Starts the proxy as a process before a server, and sets its rules."""

from __future__ import annotations

from typing import Any

import aiohttp

from tests.kit.fakes.running_api import RunningProcess


class RunningProxy(RunningProcess):
    """`async with RunningProxy(upstream=port) as proxy`; browsers go to `proxy.origin`."""

    module = "tests.kit.fakes.strict_proxy"

    def __init__(self, *, upstream: int) -> None:
        super().__init__()
        self.arguments = ("--upstream", str(upstream))

    async def set_rules(self, **rules: Any) -> None:
        """Fields of `Rules`; those that are not named are as at the start."""
        await self._control("POST", "rules", rules)

    async def cut(self) -> None:
        """Break everything that is open."""
        await self._control("POST", "cut")

    async def seen(self) -> dict[str, int]:
        counts: dict[str, int] = await self._control("GET", "seen")
        return counts

    async def _control(self, method: str, what: str, wish: Any = None) -> Any:
        timeout = aiohttp.ClientTimeout(total=10)
        async with (
            aiohttp.ClientSession(timeout=timeout) as http,
            http.request(method, f"{self.origin}/control/{what}", json=wish) as answer,
        ):
            assert answer.status == 200, await answer.text()
            return await answer.json()
