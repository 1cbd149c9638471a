"""Runs the fake of the picture server as a process for a test."""

from __future__ import annotations

from tests.kit.fakes.running_api import RunningApi
from tests.kit.fakes.scripted_api import KEY


class RunningImages(RunningApi):
    """The fake of the picture server as a process; used as `async with RunningImages() as server`."""

    module = "tests.kit.fakes.images"

    @property
    def settings(self) -> dict[str, str]:
        """Return the settings, by name, of a deployment that uses this server, at 0.04 USD a picture."""
        return {"picture_url": self.url, "picture_key": KEY, "picture_usd": "0.04"}
