"""Starts the server as a process for a test, and tells it how to end requests."""

from __future__ import annotations

from tests.kit.fakes.rerank.server import KEY, MODEL
from tests.kit.fakes.transcriptions.harness import RunningTranscriptions


class RunningReranker(RunningTranscriptions):
    """`async with RunningReranker() as server`."""

    module = "tests.kit.fakes.rerank"

    @property
    def settings(self) -> dict[str, str]:
        """By field, for a deployment that uses it."""
        return {"rerank_url": self.url, "rerank_key": KEY, "rerank_model": MODEL}
