"""Runs the fake of the embeddings server as a process for a test."""

from __future__ import annotations

from typing import Any

from tests.kit.fakes.embeddings.server import MODEL
from tests.kit.fakes.running_api import RunningApi
from tests.kit.fakes.scripted_api import KEY


class RunningEmbeddings(RunningApi):
    """The fake of the embeddings server as a process; used as `async with RunningEmbeddings() as server`."""

    module = "tests.kit.fakes.embeddings"

    async def change_model(self, **model: Any) -> None:
        """Change the served model's `name`, `dimensions` or `salt` for later requests."""
        await self._control("POST", "model", model)

    @property
    def settings(self) -> dict[str, str]:
        """Return the settings, by name, of a deployment that uses this server."""
        return {"embeddings_url": self.url, "embeddings_key": KEY, "embeddings_model": MODEL}
