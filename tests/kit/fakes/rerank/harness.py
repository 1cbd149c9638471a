"""The server as a process for a test."""

from __future__ import annotations

from tests.kit.fakes.rerank.server import MODEL
from tests.kit.fakes.running_api import RunningApi
from tests.kit.fakes.scripted_api import KEY


class RunningReranker(RunningApi):
    """`async with RunningReranker() as server`."""

    module = "tests.kit.fakes.rerank"

    @property
    def settings(self) -> dict[str, str]:
        """By field, for a deployment that uses it."""
        return {"rerank_url": self.url, "rerank_key": KEY, "rerank_model": MODEL}
