"""Runs the proxy as a process in front of a server, and sets its rules."""

from __future__ import annotations

from typing import Any

import aiohttp

from tests.kit.fakes.running_api import RunningProcess


class RunningProxy(RunningProcess):
    """The proxy as a process; used as `async with RunningProxy(upstream=port) as proxy`.

    Browsers go to `proxy.origin`.
    """

    module = "tests.kit.fakes.strict_proxy"

    def __init__(self, *, upstream: int) -> None:
        super().__init__()
        self.arguments = ("--upstream", str(upstream))

    async def set_rules(self, **rules: Any) -> None:
        """Set fields of `Rules`; all others return to their defaults."""
        await self._control("POST", "rules", rules)

    async def cut(self) -> None:
        """Break all open connections."""
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
