"""The server as a process for a test."""

from __future__ import annotations

from tests.kit.fakes.running_api import RunningApi
from tests.kit.fakes.scripted_api import KEY


class RunningImages(RunningApi):
    """`async with RunningImages() as server`."""

    module = "tests.kit.fakes.images"

    @property
    def settings(self) -> dict[str, str]:
        """By field, for a deployment that uses it, at 4 cents a picture."""
        return {"picture_url": self.url, "picture_key": KEY, "picture_usd": "0.04"}
