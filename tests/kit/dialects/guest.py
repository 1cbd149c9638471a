"""Visitor of the running system whose model is a dialect server."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.kit.app_driver import Visit, running_app, settings_for, visit
from tests.kit.dialects.server import Answer, DialectServer, Json, completion, dialect_server

PRICES = {"input": 2, "output": 9}
"""Prices in dollars per million tokens."""


@asynccontextmanager
async def guest_of(
    database_url: str,
    redis_url: str,
    tmp_path: Path,
    reply: Callable[[Json], Answer],
    prices: Json | None = PRICES,
    **more: Any,
) -> AsyncIterator[tuple[Visit, DialectServer]]:
    """Yield a visitor whose model `odd` is answered by `reply`, and the server.

    The model `other` answers normally.
    """

    def answer(body: Json) -> Answer:
        return completion() if body["model"] == "other" else reply(body)

    async with dialect_server(answer) as server:
        entries = [
            {"name": name, "wire": "openai", "base_url": server.url, "window": 100_000, "prices": prices}
            for name in ("odd", "other")
        ]
        models = tmp_path / "models.json"
        models.write_text(json.dumps(entries))
        settings = settings_for(
            database_url, redis_url, models_file=models, model="odd", summary_model="odd", **more
        )
        async with running_app(settings) as app:
            yield await visit(app), server
