"""Visitors in Postgres: one token, one address, a year from the last visit."""

from __future__ import annotations

import asyncio
from typing import TypeAlias

import asyncpg
import pytest

from shared.adapters.postgres.db.readiness import PostgresReadiness, find_newest_revision
from shared.adapters.postgres.people.visitors import PostgresVisitors, generate_token
from shared.adapters.postgres.turns.events import PostgresEvents

Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"


@pytest.mark.control("S05")
async def test_a_token_is_stored_as_a_hash_only(pool: Pool) -> None:
    token = generate_token()
    made = await PostgresVisitors(pool).create(token, site="default", timezone="Europe/Berlin")
    assert made is not None
    rows = await pool.fetch("SELECT v::text FROM visitors v")
    assert len(rows) == 1
    assert token not in rows[0][0]
    contact = await pool.fetchrow("SELECT anonymous, timezone FROM contacts WHERE id = $1", made.contact_id)
    assert contact is not None
    assert (contact["anonymous"], contact["timezone"]) == (True, "Europe/Berlin")
    assert (
        await pool.fetchval("SELECT count(*) FROM session_totals WHERE session_id = $1", made.session_id) == 1
    )


@pytest.mark.control("S05")
async def test_tokens_have_256_bits_and_differ() -> None:
    tokens = {generate_token() for _ in range(100)}
    assert len(tokens) == 100
    assert {len(token) for token in tokens} == {43}


async def test_the_same_new_token_twice_at_once_makes_one_visitor(pool: Pool) -> None:
    visitors, token = PostgresVisitors(pool), generate_token()
    made = await asyncio.gather(*(visitors.create(token, site="default") for _ in range(6)))
    assert len(set(made)) == 1
    assert await pool.fetchval("SELECT count(*) FROM sessions") == 1


@pytest.mark.control("S05")
async def test_visit_renews_the_token_year_and_expired_token_opens_nothing(pool: Pool) -> None:
    visitors, token = PostgresVisitors(pool), generate_token()
    made = await visitors.create(token, site="default")
    await pool.execute(
        "UPDATE visitors SET last_seen_at = now() - interval '300 days', expires_at = now() + interval '1 d'"
    )
    assert await visitors.find(token) == made
    left = await pool.fetchval("SELECT expires_at > now() + interval '364 days' FROM visitors")
    assert left is True
    await pool.execute("UPDATE visitors SET expires_at = now() - interval '1 second'")
    assert await visitors.find(token) is None
    fresh = await visitors.create(token, site="default")
    assert fresh is not None
    assert made is not None
    assert fresh.session_id != made.session_id


async def test_an_unknown_site_makes_nothing(pool: Pool) -> None:
    assert await PostgresVisitors(pool).create(generate_token(), site="nowhere") is None
    assert await pool.fetchval("SELECT count(*) FROM contacts") == 0


async def test_a_session_that_is_not_there_has_no_events(pool: Pool) -> None:
    events = PostgresEvents(pool)
    assert await events.load_head(5) is None
    assert await events.load_newest_seqs([5]) == {}
    assert await events.list_after(5, 0) == ()
    assert await events.list_newest(5) == ()
    assert await events.load_running(5) == {"queued": []}


async def test_readiness_names_the_newest_revision(pool: Pool) -> None:
    assert await pool.fetchval("SELECT version_num FROM alembic_version") == find_newest_revision()
    assert await PostgresReadiness(pool).is_migrated()
