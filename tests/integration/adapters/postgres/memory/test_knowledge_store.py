"""What agents know is stored file by file, and read anew when a file has changed."""

from __future__ import annotations

import asyncpg
import pytest

from shared.adapters.postgres.memory.knowledge import PostgresKnowledge
from shared.core.memory.knowledge import Passage

FIRST, SECOND = b"1" * 32, b"2" * 32


@pytest.fixture
async def agent(pool: asyncpg.Pool[asyncpg.Record]) -> int:
    number: int = await pool.fetchval("INSERT INTO agents (name) VALUES ('shop') RETURNING id")
    return number


async def _words(pool: asyncpg.Pool[asyncpg.Record], agent: int) -> dict[str, int]:
    rows = await pool.fetch("SELECT lexeme, passages FROM recall_words WHERE owner = $1", agent)
    return {row["lexeme"]: row["passages"] for row in rows}


async def test_a_file_is_known_by_what_it_said_last(pool: asyncpg.Pool[asyncpg.Record], agent: int) -> None:
    store = PostgresKnowledge(pool)
    texts = [
        Passage(heading="Returns", text="We take goods back."),
        Passage(heading="Hours", text="Nine to five."),
    ]
    await store.replace(agent, "shop.md", sha256=FIRST, passages=texts)
    await store.replace(agent, "shop.md", sha256=SECOND, passages=texts[1:])
    assert await store.load_hashes(agent) == {"shop.md": SECOND}
    assert await pool.fetchval("SELECT array_agg(heading) FROM knowledge") == ["Hours"]
    assert "good" not in await _words(pool, agent)


async def test_a_file_without_text_need_not_be_read_again(
    pool: asyncpg.Pool[asyncpg.Record], agent: int
) -> None:
    store = PostgresKnowledge(pool)
    await store.replace(agent, "scan.pdf", sha256=FIRST, passages=[])
    assert await store.load_hashes(agent) == {"scan.pdf": FIRST}


async def test_removed_files_leave_no_word_behind(pool: asyncpg.Pool[asyncpg.Record], agent: int) -> None:
    store = PostgresKnowledge(pool)
    await store.replace(agent, "a.md", sha256=FIRST, passages=[Passage(heading="", text="Zebras graze.\x00")])
    await store.replace(agent, "b.md", sha256=FIRST, passages=[Passage(heading="", text="猫が好きです")])
    assert (await _words(pool, agent))["好き"] == 1
    await store.remove(agent, ["a.md", "b.md", "never there"])
    assert await store.load_hashes(agent) == {}
    assert await _words(pool, agent) == {}
