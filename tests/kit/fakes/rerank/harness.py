"""Runs the fake of the rerank server as a process for a test."""

from __future__ import annotations

from tests.kit.fakes.rerank.server import MODEL
from tests.kit.fakes.running_api import RunningApi
from tests.kit.fakes.scripted_api import KEY


class RunningReranker(RunningApi):
    """The fake of the rerank server as a process; used as `async with RunningReranker() as server`."""

    module = "tests.kit.fakes.rerank"

    @property
    def settings(self) -> dict[str, str]:
        """Return the settings, by name, of a deployment that uses this server."""
        return {"rerank_url": self.url, "rerank_key": KEY, "rerank_model": MODEL}
