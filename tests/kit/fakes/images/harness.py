"""Starts the server as a process for a test, and tells it how to end requests."""

from __future__ import annotations

from tests.kit.fakes.images.server import KEY
from tests.kit.fakes.transcriptions.harness import RunningTranscriptions


class RunningImages(RunningTranscriptions):
    """`async with RunningImages() as server`."""

    module = "tests.kit.fakes.images"

    @property
    def settings(self) -> dict[str, str]:
        """By field, for a deployment that uses it, at 4 cents a picture."""
        return {"picture_url": self.url, "picture_key": KEY, "picture_usd": "0.04"}
