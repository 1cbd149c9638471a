"""The bench of recall runs over made-up talk and finds what was hidden in it."""

from __future__ import annotations

from dataclasses import replace

import asyncpg
import pytest

from shared.adapters.postgres.db.pool import open_pool
from tests.bench.recall.data import Fact, made_up
from tests.bench.recall.measuring import quality, speed


@pytest.fixture
async def pool(database_url: str) -> asyncpg.Pool[asyncpg.Record]:
    return await open_pool(database_url)


async def test_what_was_said_once_is_found_again(pool: asyncpg.Pool[asyncpg.Record]) -> None:
    talk = made_up(days=6, messages_a_day=50, seed=3)
    facts = tuple(Fact(text=asked.answer, evidence=asked.evidence) for asked in talk.questions[:3])
    found = await quality(pool, [replace(talk, facts=facts)])
    assert found["questions"] == len(talk.questions) > 3
    assert found["recall_at_10"] >= 0.9
    assert found["within_500"] <= found["within_4000"]
    assert found["with_notes"]["recall_at_10"] >= 0.9
    timed = await speed(pool, talk)
    assert timed["statements_300"] == 1
    assert timed["found_300"] >= 0.9
    await pool.close()
