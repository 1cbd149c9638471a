"""The database lists notes and sessions to index or tidy, whichever process writes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import asyncpg
import pytest

from shared.adapters.postgres.db.migrate import migrate
from shared.adapters.postgres.db.pool import Connection, Named, Pool, open_pool
from shared.adapters.postgres.memory import recall_index
from shared.adapters.postgres.memory.consolidation import PostgresConsolidation
from shared.adapters.postgres.memory.recall_index import PostgresRecallIndex
from shared.core.values.errors import StorageUnavailable
from tests.integration.adapters.postgres.db.schemas import FormerNames
from tests.kit.midday import MIDDAY

BEFORE_LISTS = "0070"
PUT_AWAY = "UPDATE notes SET forgotten_at = now(), undo_until = now() + interval '7 days' WHERE id = $1"
BROUGHT_BACK = "UPDATE notes SET forgotten_at = NULL, undo_until = NULL WHERE id = $1"
NEXT_NIGHT = """
UPDATE jobs SET key = key || ' of another day', state = 'done', ended_at = now();
UPDATE due_tidyings SET due_at = now() WHERE due_at < now() + interval '26 hours';
"""
FORMER_NOTES = """
INSERT INTO note_words (note_id, contact_id, terms, vector)
SELECT n.id, n.contact_id, 1, to_tsvector('simple', n.text) FROM notes n
 WHERE NOT EXISTS (SELECT FROM note_words w WHERE w.note_id = n.id)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Someone:
    """A person with one conversation, and the address that leads to it."""

    contact_id: int
    session_id: int
    address_id: int


async def add_someone(pool: Pool, chat: str = "one", *, agent: str = "of-lists") -> Someone:
    agent_id = await pool.fetchval(
        """INSERT INTO agents (name) VALUES ($1)
           ON CONFLICT (name) DO UPDATE SET name = excluded.name RETURNING id""",
        agent,
    )
    contact_id = await pool.fetchval("INSERT INTO contacts (display_name) VALUES ('Ada') RETURNING id")
    session_id = await pool.fetchval(
        "INSERT INTO sessions (contact_id, agent_id) VALUES ($1, $2) RETURNING id", contact_id, agent_id
    )
    address_id = await pool.fetchval(
        """INSERT INTO addresses (channel, account, chat, contact_id, session_id)
           VALUES ('web', 'lists', $1, $2, $3) RETURNING id""",
        chat, contact_id, session_id,
    )  # fmt: skip
    return Someone(contact_id=contact_id, session_id=session_id, address_id=address_id)


@pytest.fixture
async def ada(pool: Pool) -> Someone:
    return await add_someone(pool)


async def add_note(
    pool: Pool | Connection,
    ada: Someone,
    text: str = "Ada likes tea.",
    more: str = "",
) -> int:
    note_id: int = await pool.fetchval(
        f"""INSERT INTO notes (contact_id, scope, kind, text, hash{", durability" if more else ""})
            VALUES ($1, 'of-lists', 'fact', $2, sha256($2::text::bytea){f", '{more}'" if more else ""})
            RETURNING id""",
        ada.contact_id, text,
    )  # fmt: skip
    return note_id


async def index_all(pool: Pool) -> None:
    while await PostgresRecallIndex(pool).index_notes():
        pass


async def is_searchable(pool: Pool, note_id: int) -> bool:
    found: bool = await pool.fetchval("SELECT EXISTS (SELECT FROM note_words WHERE note_id = $1)", note_id)
    return found


async def count(pool: Pool, table: str) -> int:
    number: int = await pool.fetchval(f"SELECT count(*) FROM {table}")
    return number


async def ask(pool: Pool, *, hour: int = 0) -> list[int]:
    return await PostgresConsolidation(pool).request_due(timezone=MIDDAY, hour=hour)


async def test_note_that_commits_late_becomes_searchable(pool: Pool, ada: Someone) -> None:
    async with pool.acquire() as connection:
        late = connection.transaction()
        await late.start()
        first = await add_note(connection, ada)
        second = await add_note(pool, ada, "Ada likes coffee.")
        await index_all(pool)
        await late.commit()
    assert (await is_searchable(pool, second), await is_searchable(pool, first)) == (True, False)
    await index_all(pool)
    assert await is_searchable(pool, first)


async def test_note_that_comes_back_becomes_searchable_again(pool: Pool, ada: Someone) -> None:
    note_id = await add_note(pool, ada)
    await index_all(pool)
    await pool.execute(PUT_AWAY, note_id)
    await index_all(pool)
    assert not await is_searchable(pool, note_id)
    await pool.execute(BROUGHT_BACK, note_id)
    await index_all(pool)
    assert await is_searchable(pool, note_id)


async def test_note_stays_listed_when_making_it_searchable_fails(
    pool: Pool, ada: Someone, monkeypatch: pytest.MonkeyPatch
) -> None:
    note_id = await add_note(pool, ada)
    with monkeypatch.context() as broken:
        broken.setattr(recall_index, "_ADD_NOTES", Named("SELECT 1 / length(left(:notes::jsonb::text, 0))"))
        with pytest.raises((asyncpg.DataError, StorageUnavailable)):
            await index_all(pool)
    await index_all(pool)
    assert await is_searchable(pool, note_id)


async def test_notes_that_a_former_process_indexes_leave_the_list(pool: Pool, ada: Someone) -> None:
    note_id = await add_note(pool, ada)
    await pool.execute(FORMER_NOTES)
    await index_all(pool)
    assert await is_searchable(pool, note_id)
    assert await count(pool, "unindexed_notes") == 0


async def test_many_listed_rows_without_a_note_hold_nothing_up(pool: Pool, ada: Someone) -> None:
    await pool.execute("INSERT INTO unindexed_notes SELECT 900000 + n FROM generate_series(1, 450) n")
    note_id = await add_note(pool, ada)
    await index_all(pool)
    assert await is_searchable(pool, note_id)
    assert await count(pool, "unindexed_notes") == 0


async def test_left_session_is_listed_until_its_open_turn_is_searchable(pool: Pool, ada: Someone) -> None:
    other = await add_someone(pool, "two")
    index = PostgresRecallIndex(pool)
    await pool.execute("UPDATE sessions SET next_turn = 3, answered_turn = 1 WHERE id = $1", ada.session_id)
    await pool.execute("UPDATE addresses SET session_id = $1 WHERE id = $2", other.session_id, ada.address_id)
    assert await index.list_unindexed() == [ada.session_id]
    await pool.execute("UPDATE sessions SET indexed_turn = 1 WHERE id = $1", ada.session_id)
    assert await index.list_unindexed() == []
    await pool.execute("UPDATE sessions SET answered_turn = 2 WHERE id = $1", ada.session_id)
    assert await index.list_unindexed() == [ada.session_id]
    await pool.execute("UPDATE sessions SET indexed_turn = 2 WHERE id = $1", ada.session_id)
    assert await index.list_unindexed() == []
    assert await count(pool, "left_sessions") == 0


async def test_turn_that_ends_while_its_address_leaves_becomes_searchable(pool: Pool, ada: Someone) -> None:
    """The turn's end still sees the address, and the address does not see the turn's end."""
    other = await add_someone(pool, "two")
    index = PostgresRecallIndex(pool)
    await pool.execute("UPDATE sessions SET next_turn = 2 WHERE id = $1", ada.session_id)
    async with pool.acquire() as connection:
        ending = connection.transaction()
        await ending.start()
        await connection.execute("UPDATE sessions SET answered_turn = 1 WHERE id = $1", ada.session_id)
        await pool.execute(
            "UPDATE addresses SET session_id = $1 WHERE id = $2", other.session_id, ada.address_id
        )
        assert await index.list_unindexed() == []
        await ending.commit()
    assert await index.list_unindexed() == [ada.session_id]


async def test_session_without_an_address_is_listed_with_each_turn(pool: Pool, ada: Someone) -> None:
    index = PostgresRecallIndex(pool)
    await pool.execute("DELETE FROM addresses WHERE id = $1", ada.address_id)
    assert await index.list_unindexed() == []
    assert await count(pool, "left_sessions") == 0
    await pool.execute("UPDATE sessions SET next_turn = 2, answered_turn = 1 WHERE id = $1", ada.session_id)
    assert await index.list_unindexed() == [ada.session_id]


async def test_note_after_the_days_tidying_is_tidied_after_an_outage(pool: Pool, ada: Someone) -> None:
    await add_note(pool, ada)
    assert len(await ask(pool)) == 1
    await add_note(pool, ada, "Ada likes coffee.")
    assert await ask(pool) == []
    await pool.execute("UPDATE notes SET created_at = now() - interval '3 days'")
    await pool.execute(NEXT_NIGHT)
    assert len(await ask(pool)) == 1
    await pool.execute(NEXT_NIGHT)
    assert await ask(pool) == []
    assert await count(pool, "due_tidyings") == 0


async def test_note_that_commits_late_is_tidied(pool: Pool, ada: Someone) -> None:
    async with pool.acquire() as connection:
        late = connection.transaction()
        await late.start()
        await add_note(connection, ada)
        other = await add_someone(pool, "two")
        await add_note(pool, other)
        assert len(await ask(pool)) == 1
        await late.commit()
    assert len(await ask(pool)) == 1


async def test_dated_note_is_looked_at_each_night_until_it_expires(pool: Pool, ada: Someone) -> None:
    await add_note(pool, ada, "Ada is in Rome.", "ephemeral")
    assert len(await ask(pool)) == 1
    await pool.execute("UPDATE notes SET created_at = now() - interval '3 days'")
    for _ in range(3):
        await pool.execute(NEXT_NIGHT)
        assert len(await ask(pool)) == 1
    await pool.execute("UPDATE notes SET expired_at = now()")
    await pool.execute(NEXT_NIGHT)
    assert await ask(pool) == []
    assert await count(pool, "due_tidyings") == 0


async def test_forgotten_note_is_tidied_each_night_after_its_undo_time(pool: Pool, ada: Someone) -> None:
    """A person on hold keeps such notes; the first night after the hold deletes them."""
    note_id = await add_note(pool, ada)
    assert len(await ask(pool)) == 1
    await pool.execute("UPDATE notes SET created_at = now() - interval '3 days'")
    await pool.execute(PUT_AWAY, note_id)
    await pool.execute(NEXT_NIGHT)
    assert await ask(pool) == []
    await pool.execute("UPDATE notes SET undo_until = now()")
    await pool.execute("DELETE FROM due_tidyings WHERE due_at > now()")
    for _ in range(2):
        await pool.execute(NEXT_NIGHT)
        assert len(await ask(pool)) == 1
    await pool.execute("UPDATE notes SET undo_until = NULL, text = ''")
    await pool.execute(NEXT_NIGHT)
    assert await ask(pool) == []
    assert await count(pool, "due_tidyings") == 0


async def test_tidying_of_a_merged_person_is_asked_for_once(pool: Pool, ada: Someone) -> None:
    other = await add_someone(pool, "two")
    await add_note(pool, ada)
    await add_note(pool, other)
    await pool.execute("UPDATE contacts SET merged_into = $1 WHERE id = $2", other.contact_id, ada.contact_id)
    (job_id,) = await ask(pool)
    found = await pool.fetchval("SELECT session_id FROM jobs WHERE id = $1", job_id)
    assert found == other.session_id


async def test_people_listed_more_than_once_are_asked_for_once_a_night(pool: Pool, ada: Someone) -> None:
    for number in range(5):
        await add_note(pool, ada, f"Ada likes tea number {number}.")
    asked = await PostgresConsolidation(pool).request_due(timezone=MIDDAY, hour=0, limit=2)
    assert len(asked) == 1
    assert await count(pool, "due_tidyings") == 1


async def test_upgrade_lists_what_was_waiting(empty_database_url: str) -> None:
    await migrate(empty_database_url, revision=BEFORE_LISTS)
    pool = await open_pool(empty_database_url, size=2)
    try:
        former: Any = FormerNames(pool)
        left, here = await add_someone(former), await add_someone(former, "two")
        await pool.execute("UPDATE sessions SET next_turn = 2, answered_turn = 1")
        await pool.execute("UPDATE addresses SET session_id = $1", here.session_id)
        found, waiting, gone = [await add_note(former, left, text) for text in ("Tea.", "Coffee.", "Water.")]
        await former.execute(FORMER_NOTES)
        await pool.execute("DELETE FROM note_words WHERE note_id = $1", waiting)
        await pool.execute(PUT_AWAY, gone)
        await pool.execute("UPDATE notes SET created_at = now() - interval '3 days' WHERE id <> $1", found)
        await migrate(empty_database_url)
        assert await PostgresRecallIndex(pool).list_unindexed() == [left.session_id]
        assert await PostgresRecallIndex(pool).index_notes() == 1
        assert await is_searchable(pool, waiting)
        assert len(await ask(pool)) == 1
        assert await pool.fetchval("SELECT max(due_at) > now() + interval '6 days' FROM due_tidyings")
    finally:
        await pool.close()
