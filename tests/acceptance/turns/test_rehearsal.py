"""What a process does before its first message, so that the first answer costs what the second one does."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from shared.adapters.models.token_counter import VocabularyCounter
from shared.bootstrap.app import App
from shared.core.values.errors import StorageUnavailable
from tests.acceptance.turns.begun_turns import begin
from tests.kit.app_driver import running_app, settings_for, visit
from web.__main__ import warm_up

TURNS = ("UPDATE sessions", "INSERT INTO turns", "FROM turn_entries")
"""Each statement of a turn has one of these."""
STORED = ("sessions", "turns", "entry_rows", "events", "reservations", "spend_days", "usage")
SHARED_CHARS = 200
"""Length from which a text of this test is one that all requests have in common."""


async def prepared(app: App) -> set[str]:
    """Statements of turns that the servers of the two newest connections have prepared."""
    first, second = await app.pool.acquire(), await app.pool.acquire()
    try:
        sql = "SELECT statement FROM pg_prepared_statements"
        rows = [row for each in (first, second) for row in await each.fetch(sql)]
    finally:
        await app.pool.release(second)
        await app.pool.release(first)
    return {row["statement"] for row in rows if any(part in row["statement"] for part in TURNS)}


async def rows_of(app: App) -> list[int]:
    return [await app.pool.fetchval(f"SELECT count(*) FROM {table}") for table in STORED]


async def test_rehearsal_prepares_statements_of_the_first_turn_and_stores_nothing(app: App) -> None:
    before = await rows_of(app)
    await app.sessions.rehearse()
    known = await prepared(app)
    assert len(known) >= 3
    assert await rows_of(app) == before
    guest = await visit(app)
    await app.sessions.check_leases()
    visited = await prepared(app)
    await begin(guest, "Good morning.")
    assert await guest.answered()
    assert await prepared(app) == visited


async def test_rehearsal_counts_what_all_requests_have_in_common(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[str] = []
    count = VocabularyCounter._count_by_vocabulary

    def record(self: VocabularyCounter, text: str) -> int:
        counted.append(text)
        return count(self, text)

    monkeypatch.setattr(VocabularyCounter, "_count_by_vocabulary", record)
    await app.sessions.rehearse()
    assert any(len(text) > SHARED_CHARS for text in counted)
    guest = await visit(app)
    counted.clear()
    await guest.ask("Good morning.")
    assert [text for text in counted if len(text) > SHARED_CHARS] == []


@pytest.mark.parametrize("window", [3_000, 1_000, 300])
async def test_rehearsal_ends_where_a_models_window_holds_no_conversation(
    database_url: str, redis_url: str, tmp_path: Path, window: int
) -> None:
    entry = {"name": "small", "wire": "openai", "base_url": "http://127.0.0.1:9/v1", "window": window}
    models = tmp_path / "models.json"
    models.write_text(json.dumps([{**entry, "max_output": 100, "key_env": ""}]))
    settings = settings_for(database_url, redis_url, models_file=models, model="small")
    async with running_app(settings) as app:
        await app.sessions.rehearse()


class Rehearsing:
    """Parts of an app that note in which order they are warmed."""

    def __init__(self, *, fails: bool) -> None:
        self.order: list[str] = []
        self.fails = fails
        self.warm_up = self.announcer = self.sessions = self

    async def run(self) -> bool:
        self.order.append("models")
        return True

    async def connect(self) -> None:
        self.order.append("redis")

    async def rehearse(self) -> None:
        self.order.append("turn")
        if self.fails:
            raise StorageUnavailable("away")


@pytest.mark.parametrize("fails", [False, True])
async def test_web_process_is_ready_after_its_rehearsal_even_without_storage(fails: bool) -> None:
    parts: Any = Rehearsing(fails=fails)
    warm = asyncio.Event()
    with capture_logs() as logs:
        await warm_up(parts, warm)
    assert parts.order == ["models", "redis", "turn"]
    assert warm.is_set()
    assert [entry["event"] for entry in logs] == ["rehearsal_failed"] * fails + ["web_warmed_up"]
