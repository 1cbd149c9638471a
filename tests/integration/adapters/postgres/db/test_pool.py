"""Statements end whole whoever is cut off, and connections come back as if they were new."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from shared.adapters.postgres.db.pool import open_pool, store_method
from shared.core.values.errors import StorageUnavailable

SLOWLY = "SELECT pg_sleep(0.3)"
FAILS_SLOWLY = "DO $$ BEGIN PERFORM pg_sleep(0.2); RAISE division_by_zero; END $$"


class Store:
    def __init__(self, pool: asyncpg.Pool[asyncpg.Record]) -> None:
        self._pool = pool
        self.ended = 0

    @store_method
    async def write(self, statement: str = SLOWLY) -> None:
        try:
            await self._pool.execute(statement)
        finally:
            self.ended += 1


@pytest.fixture
def pool_size() -> int:
    return 1


async def test_who_is_cancelled_waits_for_the_end_of_the_statement(
    pool: asyncpg.Pool[asyncpg.Record],
) -> None:
    store = Store(pool)
    caller = asyncio.create_task(store.write())
    await asyncio.sleep(0.05)
    caller.cancel()
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert store.ended == 1
    assert await pool.fetchval("SELECT 1") == 1


async def test_a_deadline_does_not_cut_a_statement_off(pool: asyncpg.Pool[asyncpg.Record]) -> None:
    store = Store(pool)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await store.write()
    assert store.ended == 1


async def test_exhausted_pool_raises_storage_unavailable_within_its_timeout(
    pool: asyncpg.Pool[asyncpg.Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.adapters.postgres.db.pool.ACQUIRE_SECONDS", 0.05)
    store = Store(pool)
    async with pool.acquire():
        with pytest.raises(StorageUnavailable):
            await store.write()


async def test_who_is_cancelled_learns_why_the_statement_failed(pool: asyncpg.Pool[asyncpg.Record]) -> None:
    caller = asyncio.create_task(Store(pool).write(FAILS_SLOWLY))
    await asyncio.sleep(0.05)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError) as found:
        await caller
    assert isinstance(found.value.__cause__, asyncpg.DivisionByZeroError)


async def test_a_transaction_that_was_left_open_is_rolled_back(pool: asyncpg.Pool[asyncpg.Record]) -> None:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda loop, context: None)
    try:
        async with pool.acquire() as connection:
            await connection.execute("BEGIN")
            await connection.execute("CREATE TABLE left_behind ()")
    finally:
        loop.set_exception_handler(None)
    assert await pool.fetchval("SELECT to_regclass('left_behind')") is None


async def test_a_reader_that_is_cut_off_gives_its_place_back(pool: asyncpg.Pool[asyncpg.Record]) -> None:
    reader = asyncio.create_task(pool.fetchval(SLOWLY))
    await asyncio.sleep(0.05)
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
    assert await pool.fetchval("SELECT 1") == 1


async def test_a_connection_that_was_closed_makes_room_for_another(
    pool: asyncpg.Pool[asyncpg.Record],
) -> None:
    async with pool.acquire() as connection:
        connection.terminate()
    assert await pool.fetchval("SELECT 1") == 1


async def test_after_a_failover_connections_in_use_are_closed_when_they_come_back(
    pool: asyncpg.Pool[asyncpg.Record],
) -> None:
    async with pool.acquire() as connection:
        before = await connection.fetchval("SELECT pg_backend_pid()")
        await pool.expire_connections()
    assert await pool.fetchval("SELECT pg_backend_pid()") != before


async def test_a_connection_that_has_served_long_enough_is_replaced(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.adapters.postgres.db.pool.QUERIES_PER_CONNECTION", 1)
    pool = await open_pool(database_url, size=1)
    first, second = [await pool.fetchval("SELECT pg_backend_pid()") for _ in range(2)]
    assert first != second
    await pool.close()
