"""People who are renamed while something else changes their rows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeAlias

import asyncpg

from shared.adapters.postgres.db.pool import open_pool
from shared.adapters.postgres.operations.invariants import check_invariants
from tests.kit.dashboard import seed

Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"
ANOTHER = "INSERT INTO sessions (party_id, agent_id) SELECT $1, min(id) FROM agents"
RENAME = "UPDATE parties SET display_name = $2 WHERE id = $1"


@asynccontextmanager
async def pool_that_keeps(database_url: str, promise: str) -> AsyncIterator[Pool]:
    """Afterwards no invariant of that name is broken."""
    pool = await open_pool(database_url, size=4)
    yield pool
    await pool.close()
    connection = await asyncpg.connect(database_url, timeout=60)
    try:
        told = [one for one in await check_invariants(connection) if promise in one.what]
    finally:
        await connection.close()
    assert told == []


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
