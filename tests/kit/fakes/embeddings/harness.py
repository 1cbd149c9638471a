"""The server as a process for a test."""

from __future__ import annotations

from typing import Any

from tests.kit.fakes.embeddings.server import MODEL
from tests.kit.fakes.running_api import RunningApi
from tests.kit.fakes.scripted_api import KEY


class RunningEmbeddings(RunningApi):
    """`async with RunningEmbeddings() as server`."""

    module = "tests.kit.fakes.embeddings"

    async def change_model(self, **model: Any) -> None:
        """Put another model in place of the present one: `name`, `dimensions` or `salt`."""
        await self._control("POST", "model", model)

    @property
    def settings(self) -> dict[str, str]:
        """By field, for a deployment that uses it."""
        return {"embeddings_url": self.url, "embeddings_key": KEY, "embeddings_model": MODEL}
