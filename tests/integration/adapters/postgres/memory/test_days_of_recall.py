"""What is found is told by the days of the person's zone, and asked for by them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import asyncpg
import pytest

from shared.adapters.models.token_counter import VocabularyCounter
from shared.adapters.postgres.memory.notes import PostgresNotes
from shared.adapters.postgres.memory.recall import PostgresRecall
from shared.adapters.postgres.turns.turns import PostgresTurns
from shared.core.context.memory import note_from
from shared.ports import ToolContext
from shared.runtime import ignore_crash_point
from shared.services.memory.memory_tools import build_memory_tools
from shared.services.memory.recall_tool import RecallTool
from shared.services.turns.artifacts import ArtifactReader
from tests.bench.recall.data import Conversation, Said
from tests.bench.recall.storing import Stored, make_searchable, store

EVENING = datetime(2026, 3, 1, 23, 30, tzinfo=UTC)
"""On the second of March in Auckland, on the first in London."""
ABROAD = "Pacific/Auckland"


@pytest.fixture
async def late_talk(pool: asyncpg.Pool[asyncpg.Record]) -> Stored:
    said = (
        Said(id="m", by_person=True, text="My dentist is Doctor Abernathy.", at=EVENING),
        Said(id="a", by_person=False, text="Noted.", at=EVENING),
    )
    stored = await store(pool, Conversation(name="late", person="", assistant="", said=said, questions=()))
    await make_searchable(pool, stored.session_id)
    return stored


async def ran(
    pool: asyncpg.Pool[asyncpg.Record], stored: Stored, tool: str, timezone: str | None, **arguments: Any
) -> str:
    counter = VocabularyCounter()
    artifacts = ArtifactReader(PostgresTurns(pool), counter)
    tools = (
        *build_memory_tools(PostgresNotes(pool), ignore_crash_point, home="Europe/London"),
        RecallTool(PostgresRecall(pool), artifacts, counter, home="Europe/London"),
    )
    whose = await PostgresNotes(pool).load_owner(stored.session_id)
    context = ToolContext(
        session_id=stored.session_id, contact_id=whose.contact_id, scope=whose.scope,
        turn=stored.last_turn + 1,
        key="k", base_turn=stored.last_turn, timezone=timezone,
    )  # fmt: skip
    return str(await next(one for one in tools if one.spec.name == tool).run(arguments, context=context))


@pytest.mark.parametrize(("timezone", "day"), [(ABROAD, "Monday, 2026-03-02"), (None, "Sunday, 2026-03-01")])
async def test_what_is_recalled_stands_under_the_persons_day(
    pool: asyncpg.Pool[asyncpg.Record], late_talk: Stored, timezone: str | None, day: str
) -> None:
    found = await ran(pool, late_talk, "recall", timezone, query="dentist")
    assert found.splitlines()[0] == f"{day}:"
    assert await ran(pool, late_talk, "recall", timezone, after=day.split()[1], before="20260303") == found


async def test_a_day_begins_where_the_person_lives(
    pool: asyncpg.Pool[asyncpg.Record], late_talk: Stored
) -> None:
    assert "Nothing was found" in await ran(pool, late_talk, "recall", ABROAD, before="2026-03-02")
    assert "Abernathy" in await ran(pool, late_talk, "recall", None, before="2026-03-02")


async def test_a_note_was_made_on_the_persons_day(
    pool: asyncpg.Pool[asyncpg.Record], late_talk: Stored
) -> None:
    notes = PostgresNotes(pool)
    await notes.save(note_from({"text": "Has a dentist."}), await notes.load_owner(late_talk.session_id))
    await pool.execute("UPDATE notes SET observed_at = $1", EVENING)
    assert ", 2026-03-02)" in await ran(pool, late_talk, "search_memory", ABROAD, query="dentist")
    assert ", 2026-03-01)" in await ran(pool, late_talk, "search_memory", None, query="dentist")
