"""Runs the fake push service as a process for a test, and subscribes browsers there."""

from __future__ import annotations

from typing import Any

from tests.kit.fakes.push.browser import Browser
from tests.kit.fakes.running_api import RunningApi


class RunningPush(RunningApi):
    """The fake push service as a process; used as `async with RunningPush() as service`."""

    module = "tests.kit.fakes.push"

    @property
    def settings(self) -> dict[str, str]:
        """Return the settings of a deployment that may send messages to this service."""
        return {"EVERTALK_PUSH_SERVICES": self.origin}

    async def subscribe(self, name: str, key: str) -> dict[str, Any]:
        """Create a browser of this name that accepts messages signed by `key`; return its subscription."""
        browser = Browser()
        await self._control("POST", "browsers", {"name": name, "key": key, **browser.kept})
        return browser.subscription(f"{self.url}/push/{name}")
