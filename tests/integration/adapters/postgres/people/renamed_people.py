"""People who are renamed while something else changes their rows."""

from __future__ import annotations

import asyncio
from typing import TypeAlias, cast

import asyncpg

from shared.adapters.postgres.operations.invariants import check_invariants
from tests.kit.dashboard import seed

Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"
ANOTHER = "INSERT INTO sessions (contact_id, agent_id) SELECT $1, min(id) FROM agents"
RENAME = "UPDATE contacts SET display_name = $2 WHERE id = $1"


async def expect_kept(pool: Pool, promise: str) -> None:
    """Expect that no invariant of that name is broken."""
    async with pool.acquire() as connection:
        report = await check_invariants(cast("asyncpg.Connection[asyncpg.Record]", connection))
    assert [one for one in report if promise in one.what] == []


async def named(pool: Pool, name: str) -> seed.Seeded:
    async with pool.acquire() as connection:
        return await seed.a_session(connection, person=name)


async def kept_waiting(pool: Pool, tasks: asyncio.TaskGroup, statement: str, *given: object) -> None:
    """Begins what goes on when those have ended who are at it."""
    task = tasks.create_task(pool.execute(statement, *given))
    async with asyncio.timeout(20):
        while not await pool.fetchval("SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)"):
            assert not task.done(), "nobody kept it"
            await asyncio.sleep(0.01)
