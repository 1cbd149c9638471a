"""The push service as a process for a test, and browsers that are subscribed there."""

from __future__ import annotations

from typing import Any

from tests.kit.fakes.push.browser import Browser
from tests.kit.fakes.running_api import RunningApi


class RunningPush(RunningApi):
    """`async with RunningPush() as service`."""

    module = "tests.kit.fakes.push"

    @property
    def settings(self) -> dict[str, str]:
        """For a deployment that may post to it."""
        return {"EVERTALK_PUSH_SERVICES": self.origin}

    async def subscribe(self, name: str, key: str) -> dict[str, Any]:
        """A new browser by this name, for the key of a server: what its page sends there."""
        browser = Browser()
        await self._control("POST", "browsers", {"name": name, "key": key, **browser.kept})
        return browser.subscription(f"{self.url}/push/{name}")
