"""The list shows of a person what the person's row says, also of conversations that were not told yet."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from shared.adapters.postgres.compaction.jobs import PostgresJobs
from shared.adapters.postgres.compaction.jobs_sql import CONTACTS_COPIED_AT_ONCE, COPY_CONTACTS
from shared.adapters.postgres.dashboard.read_models import Insights, SessionQuery
from shared.adapters.postgres.people.identities import NAME
from tests.integration.adapters.postgres.people.renamed_people import (
    ANOTHER,
    RENAME,
    Pool,
    expect_kept,
    kept_waiting,
    named,
)

OF_BEFORE = "UPDATE sessions SET person_name = NULL, person_kind = NULL, person_anonymous = NULL"
UNTOLD = "SELECT count(*) FROM sessions WHERE person_kind IS NULL"


@pytest.fixture(autouse=True)
async def people_stay_sound(pool: Pool) -> AsyncIterator[None]:
    yield
    await expect_kept(pool, "shows another person")


async def shown(pool: Pool, sort: str = "-active") -> list[tuple[Any, ...]]:
    page = await Insights(pool).load_sessions(SessionQuery(sort=sort))
    return [(row["person"], row["kind"], row["anonymous"]) for row in page["sessions"]]


async def a_crowd(pool: Pool) -> list[tuple[Any, ...]]:
    """A person, a group and a visitor without a name; as the list shows them."""
    await named(pool, "Ada")
    group, visitor = await named(pool, "Book Club"), await named(pool, "")
    await pool.execute("UPDATE contacts SET kind = 'group' WHERE id = $1", group.contact_id)
    await pool.execute("UPDATE contacts SET anonymous = true WHERE id = $1", visitor.contact_id)
    return [("Ada", "person", False), ("Book Club", "group", False), (None, "person", True)]


@pytest.mark.parametrize("sort", ["-active", "person", "state", "cost", "agent", "turns"])
@pytest.mark.parametrize("told", ["before", "after", "some"])
async def test_the_list_shows_each_person(pool: Pool, sort: str, told: str) -> None:
    people = await a_crowd(pool)
    if told != "after":
        await pool.execute(
            OF_BEFORE + (" WHERE id = (SELECT max(id) FROM sessions)" if told == "some" else "")
        )
    assert sorted(await shown(pool, sort), key=str) == sorted(people, key=str)


async def test_names_of_old_conversations_are_filled_in_portions(pool: Pool) -> None:
    ada = await named(pool, "Ada")
    await pool.executemany(ANOTHER, [(ada.contact_id,)] * CONTACTS_COPIED_AT_ONCE)
    await pool.execute(OF_BEFORE)
    upkeep = PostgresJobs(pool)
    assert [await upkeep.backfill_contacts() for _ in range(3)] == [CONTACTS_COPIED_AT_ONCE, 1, 0]
    assert set(await shown(pool)) == {("Ada", "person", False)}


async def test_locked_conversation_is_filled_in_the_next_round(pool: Pool) -> None:
    await named(pool, "Ada")
    await pool.execute(OF_BEFORE)
    upkeep = PostgresJobs(pool)
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute("SELECT FROM sessions FOR UPDATE")
        assert await upkeep.backfill_contacts() == 0
    assert await upkeep.backfill_contacts() == 1


async def test_rename_during_backfill_keeps_the_new_name(pool: Pool) -> None:
    ada = await named(pool, "Ada")
    await pool.execute(OF_BEFORE)
    async with asyncio.TaskGroup() as tasks, pool.acquire() as connection, connection.transaction():
        assert len(await connection.fetch(*COPY_CONTACTS())) == 1
        await kept_waiting(pool, tasks, RENAME, ada.contact_id, "Zoë")
    assert await shown(pool) == [("Zoë", "person", False)]


async def test_person_being_renamed_is_skipped_by_backfill(pool: Pool) -> None:
    ada = await named(pool, "Ada")
    await pool.execute(OF_BEFORE)
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute(RENAME, ada.contact_id, "Zoë")
        assert await PostgresJobs(pool).backfill_contacts() == 0
    assert await shown(pool) == [("Zoë", "person", False)]


async def test_person_renamed_before_backfill_needs_none(pool: Pool) -> None:
    ada = await named(pool, "Ada")
    await pool.execute(OF_BEFORE)
    await pool.execute(*NAME(address_id=ada.address_id, name="Zoë"))
    assert await pool.fetchval(UNTOLD) == 0
    assert await shown(pool) == [("Zoë", "person", False)]


async def test_a_new_conversation_and_one_that_moves_know_their_person_at_once(pool: Pool) -> None:
    ada, other = await named(pool, "Ada"), await named(pool, "Jonas")
    await pool.execute(ANOTHER, ada.contact_id)
    await pool.execute("UPDATE sessions SET contact_id = $1 WHERE id = $2", ada.contact_id, other.session_id)
    assert await pool.fetchval(UNTOLD) == 0
    assert await shown(pool) == [("Ada", "person", False)] * 3


async def test_half_of_a_person_cannot_be_stored(pool: Pool) -> None:
    await named(pool, "Ada")
    with pytest.raises(asyncpg.CheckViolationError, match="session_shows_whole_person"):
        await pool.execute("UPDATE sessions SET person_name = NULL")
