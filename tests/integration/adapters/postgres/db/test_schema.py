"""The migrations make what the program expects, and each constraint does what it is for."""

from __future__ import annotations

import asyncio
import re
from urllib.parse import urlsplit

import asyncpg
import pytest
from alembic.script import ScriptDirectory
from sqlalchemy import MetaData

from shared.adapters.postgres.dashboard.session_list import Matches, SessionQuery, build_session_page
from shared.adapters.postgres.db.migrate import (
    MIGRATION_LOCK,
    build_alembic_config,
    create_engine,
    migrate,
    read_schema_state,
)
from shared.adapters.postgres.people.admin_store import AgentTable
from tests.integration.adapters.postgres.db.schemas import add_contact, schema_of


async def test_the_rows_of_administration_are_those_of_the_database(database_url: str) -> None:
    """Each column, its type, whether it is of the key, and whether Postgres fills it in."""
    engine = create_engine(database_url)
    async with engine.connect() as connection:
        there = MetaData()
        await connection.run_sync(there.reflect, only=list(AgentTable.metadata.tables))
    await engine.dispose()
    shapes = [
        {
            table.name: {
                column.name: (
                    column.type.compile(engine.dialect),
                    column.primary_key,
                    column.server_default is not None,
                    {key.target_fullname for key in column.foreign_keys},
                )
                for column in table.columns
            }
            for table in metadata.tables.values()
        }
        for metadata in (AgentTable.metadata, there)
    ]
    assert len(shapes[0]) > 10
    assert shapes[0] == shapes[1]


@pytest.mark.parametrize(
    ("sort", "index"),
    [
        ("cache", "list_by_cache"),
        ("context", "list_by_context"),
        ("cost", "list_by_cost"),
        ("input", "list_by_input"),
        ("-output", "list_by_output"),
        ("-turns", "list_by_turns"),
        ("-active", "list_by_activity"),
    ],
)
async def test_each_order_of_the_session_list_has_an_index(sort: str, index: str, database_url: str) -> None:
    statement, values = build_session_page(SessionQuery(sort=sort), Matches(), limit=20)
    connection = await asyncpg.connect(database_url)
    await connection.execute("SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_sort = off")
    plan = "\n".join(row[0] for row in await connection.fetch(f"EXPLAIN {statement}", *values))
    await connection.close()
    assert f"using {index} on session_list" in plan, plan


async def test_a_limit_for_statements_is_none_for_a_migration(empty_database_url: str) -> None:
    """It waits for a rival's, as a role that people wait for may not."""
    name = urlsplit(empty_database_url).path.removeprefix("/")
    rival = await asyncpg.connect(empty_database_url)
    try:
        await rival.execute(f'ALTER DATABASE "{name}" SET statement_timeout = 300')
        async with rival.transaction():
            await rival.execute(f"SELECT pg_advisory_xact_lock({MIGRATION_LOCK})")
            waiting = asyncio.ensure_future(migrate(empty_database_url))
            await asyncio.sleep(1.5)
    finally:
        await rival.close()
    await waiting
    assert (await read_schema_state(empty_database_url)).found is not None


async def test_an_upgrade_from_the_revision_before_keeps_what_is_there(
    database_url: str, empty_database_url: str
) -> None:
    newest = ScriptDirectory.from_config(build_alembic_config()).get_revision("head")
    assert newest is not None
    await migrate(empty_database_url, revision=str(newest.down_revision))
    connection = await asyncpg.connect(empty_database_url)
    await add_contact(connection, "Ada")
    await migrate(empty_database_url)
    assert await connection.fetchval("SELECT display_name FROM contacts") == "Ada"
    await connection.close()
    assert await schema_of(database_url) == await schema_of(empty_database_url)


async def test_four_first_starts_at_once_all_succeed(empty_database_url: str) -> None:
    await asyncio.gather(*(migrate(empty_database_url) for _ in range(4)))
    state = await read_schema_state(empty_database_url)
    assert state.found == state.newest


@pytest.fixture
async def connection(database_url: str) -> asyncpg.Connection:
    connection = await asyncpg.connect(database_url)
    await connection.execute("INSERT INTO contacts DEFAULT VALUES")
    await connection.execute(
        "INSERT INTO sessions (contact_id, agent_id) SELECT p.id, a.id FROM contacts p, agents a"
    )
    return connection


LINK = """INSERT INTO compactions (session_id, kind, from_turn, through_turn, from_seq, through_seq, trigger)
          VALUES (1, 'summary', $1, $2, $1, $2, 'auto')"""


async def test_two_active_links_never_hide_the_same_turn(connection: asyncpg.Connection) -> None:
    await connection.execute(LINK, 1, 5)
    with pytest.raises(asyncpg.ExclusionViolationError):
        await connection.execute(LINK, 5, 9)
    await connection.execute("UPDATE compactions SET active = false")
    await connection.execute(LINK, 5, 9)
    await connection.close()


@pytest.mark.control("S39")
async def test_a_stored_message_cannot_be_changed_or_deleted(connection: asyncpg.Connection) -> None:
    await connection.execute(
        """INSERT INTO entries (session_id, seq, role, author, blocks, tokens)
           VALUES (1, 1, 'user', 'person', '[]', 0)"""
    )
    for change in ("UPDATE entries SET tokens = 5", "DELETE FROM entries"):
        with pytest.raises(asyncpg.IntegrityConstraintViolationError):
            await connection.execute(change)
    await connection.close()


async def test_a_job_is_due_once_per_key_and_runs_once_per_session(connection: asyncpg.Connection) -> None:
    job = "INSERT INTO jobs (kind, session_id, key, state) VALUES ('compact', 1, $1, $2)"
    await connection.execute(job, "a", "due")
    with pytest.raises(asyncpg.UniqueViolationError):
        await connection.execute(job, "a", "due")
    await connection.execute(job, "b", "running")
    with pytest.raises(asyncpg.UniqueViolationError):
        await connection.execute(job, "c", "running")
    await connection.execute(job, "a2", "done")
    await connection.close()


async def test_this_month_has_a_partition_of_its_own(connection: asyncpg.Connection) -> None:
    where = await connection.fetchval(
        """INSERT INTO usage (session_id, contact_id, purpose, model, input_tokens, output_tokens,
                              cache_read_tokens, cache_write_tokens)
           VALUES (1, 1, 'chat', 'm', 1, 1, 0, 0) RETURNING tableoid::regclass::text"""
    )
    assert re.fullmatch(r"usage_\d{4}_\d{2}", where)
    await connection.close()
