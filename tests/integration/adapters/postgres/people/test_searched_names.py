"""A conversation is searched by the name of whom it belongs to, whatever happens to either meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from shared.adapters.postgres.dashboard.read_models import Insights, SessionQuery
from shared.adapters.postgres.people.account_links_sql import LOCK_SESSIONS
from shared.adapters.postgres.people.identities import NAME
from tests.integration.adapters.postgres.people.renamed_people import (
    ANOTHER,
    RENAME,
    Pool,
    expect_kept,
    kept_waiting,
    named,
)


@pytest.fixture(autouse=True)
async def names_stay_sound(pool: Pool) -> AsyncIterator[None]:
    yield
    await expect_kept(pool, "another name")


async def names(pool: Pool) -> list[str]:
    return [row[0] for row in await pool.fetch("SELECT person FROM sessions ORDER BY id")]


async def test_a_new_name_is_that_of_all_their_conversations(pool: Pool) -> None:
    ada, other = await named(pool, "Ada"), await named(pool, "Jonas")
    await pool.execute(ANOTHER, ada.contact_id)
    await pool.execute(*NAME(address_id=ada.address_id, name="Zoë Ångström"))
    assert await names(pool) == ["zoë ångström", "jonas", "zoë ångström"]
    await pool.execute("UPDATE sessions SET contact_id = $1 WHERE id = $2", ada.contact_id, other.session_id)
    assert await names(pool) == ["zoë ångström"] * 3


@pytest.mark.parametrize("sort", ["-active", "active", "turns", "-output", "cost", "channel"])
@pytest.mark.parametrize("words", ["zo", "ström", "ZOË"])
async def test_renamed_person_is_found_by_the_new_name_only(
    pool: Pool, monkeypatch: pytest.MonkeyPatch, words: str, sort: str
) -> None:
    """Also of a name that very many have, so that nobody is looked up."""
    monkeypatch.setattr("shared.adapters.postgres.dashboard.read_models.is_short", lambda _: True)
    for number in range(6):
        one = await named(pool, "Zoë Ångström" if number % 2 else f"Ann {number}")
        await pool.execute(
            *NAME(address_id=one.address_id, name=f"Ann {number}" if number % 2 else "Zoë Ångström")
        )
    page = await Insights(pool).load_sessions(SessionQuery(search=words, sort=sort, limit=2))
    assert [row["person"] for row in page["sessions"]] == ["Zoë Ångström"] * 2
    rest = await Insights(pool).load_sessions(
        SessionQuery(search=words, sort=sort, limit=2, cursor=page["next"] or "")
    )
    assert [row["person"] for row in rest["sessions"]] == ["Zoë Ångström"]


async def test_a_conversation_that_begins_while_they_are_renamed_hears_of_it(pool: Pool) -> None:
    ada = await named(pool, "Ada")
    async with asyncio.TaskGroup() as tasks, pool.acquire() as connection, connection.transaction():
        await connection.execute(RENAME, ada.contact_id, "Zoë")
        await kept_waiting(pool, tasks, ANOTHER, ada.contact_id)
    assert await names(pool) == ["zoë", "zoë"]


async def test_rename_during_session_creation_waits_for_it(pool: Pool) -> None:
    ada = await named(pool, "Ada")
    async with asyncio.TaskGroup() as tasks, pool.acquire() as connection, connection.transaction():
        await connection.execute(ANOTHER, ada.contact_id)
        await kept_waiting(pool, tasks, *NAME(address_id=ada.address_id, name="Zoë"))
    assert await names(pool) == ["zoë", "zoë"]


async def test_sign_in_with_new_name_waits_for_joins_without_deadlock(
    pool: Pool,
) -> None:
    ada = await named(pool, "Ada")
    async with asyncio.TaskGroup() as tasks, pool.acquire() as connection, connection.transaction():
        await connection.execute(*LOCK_SESSIONS(session_ids=[ada.session_id], contact_ids=[ada.contact_id]))
        await kept_waiting(pool, tasks, *NAME(address_id=ada.address_id, name="Zoë"))
        await connection.execute(RENAME, ada.contact_id, "")
        assert await connection.fetchval("SELECT person FROM sessions") == ""
    assert await names(pool) == ["zoë"]


async def test_nothing_comes_before_the_changes_of_a_session(pool: Pool) -> None:
    """For that Postgres would lock the row each time, and write so down: 60 bytes for each step of a turn."""
    found = await pool.fetch(
        """SELECT tgname FROM pg_trigger
            WHERE tgrelid = 'sessions'::regclass AND tgtype & 1 > 0 AND tgtype & 2 > 0 AND tgtype & 16 > 0"""
    )
    assert found == []
