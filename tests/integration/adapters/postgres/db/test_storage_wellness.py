"""What nobody expected while something is stored is storage's own, until storage was seen to be well."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from shared.adapters.postgres.db.pool import WatchedPool, storage_limiter, store_method
from shared.core.values.errors import LeaseLost, StorageUnavailable

CUT_OFF = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = $1"


class Store:
    """Each method meets something that its driver never should have raised."""

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record], other: asyncpg.Connection[asyncpg.Record]) -> None:
        self._pool = pool
        self._other = other
        self.backend = 0

    @store_method
    async def confused(self) -> None:
        async with self._pool.acquire() as connection:
            self.backend = connection.get_server_pid()
            raise asyncpg.InternalClientError(
                "cannot switch to state 12; another operation (2) is in progress"
            )

    @store_method
    async def cut_off(self, error: Exception) -> None:
        """The connection is gone before it says so."""
        async with self._pool.acquire() as connection:
            gone = asyncio.Event()
            connection.add_termination_listener(lambda _: gone.set())
            await self._other.fetchval(CUT_OFF, connection.get_server_pid())
            await asyncio.wait_for(gone.wait(), 30)
            raise error

    @store_method
    async def raises(self, error: Exception) -> None:
        raise error

    @store_method
    async def misuses(self) -> None:
        await self._pool.execute("SELECT $1::int", "no number")

    @store_method
    async def backend_now(self) -> int:
        async with self._pool.acquire() as connection:
            return connection.get_server_pid()


@pytest.fixture
def pool_size() -> int:
    return 1


@pytest.fixture
async def watched_store(pool: WatchedPool, database_url: str) -> AsyncIterator[Store]:
    other = await asyncpg.connect(database_url, timeout=30)
    yield Store(pool, other)
    await other.close(timeout=30)


def nobody_answers(pool: WatchedPool, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away() -> bool:
        return False

    monkeypatch.setattr(pool, "can_write", away)


@pytest.mark.parametrize(
    "error",
    [
        asyncpg.InternalClientError('cannot switch to "idle" state; protocol is in the "failed" state'),
        AttributeError("'NoneType' object has no attribute 'get_settings'"),
        BufferError("unexpected end of the buffer"),
        ExceptionGroup("several", [StorageUnavailable("away")]),
    ],
)
async def test_a_connection_that_died_meanwhile_is_to_blame_for_whatever_was_raised(
    watched_store: Store, error: Exception
) -> None:
    """A new one answers at once: the server was away for a moment only."""
    with pytest.raises(StorageUnavailable) as found:
        await watched_store.cut_off(error)
    assert found.value.__cause__ is error
    assert await watched_store.backend_now() > 0


async def test_without_an_answer_of_a_fresh_connection_storage_is_to_blame(
    watched_store: Store, pool: WatchedPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    nobody_answers(pool, monkeypatch)
    for error in (asyncpg.InternalClientError("not connected"), KeyError("column")):
        with pytest.raises(StorageUnavailable):
            await watched_store.raises(error)


async def test_a_function_that_was_given_the_pool_asks_it_as_well(
    pool: WatchedPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the dashboard's pages read."""
    nobody_answers(pool, monkeypatch)
    with pytest.raises(StorageUnavailable):
        await _reads(pool)


@store_method
async def _reads(_: asyncpg.Pool[asyncpg.Record]) -> None:
    raise asyncpg.InternalClientError("not connected")


async def test_what_goes_wrong_while_storage_is_well_is_our_own_fault(watched_store: Store) -> None:
    for error in (asyncpg.InternalClientError("?"), KeyError("column"), asyncpg.UndefinedTableError("none")):
        with pytest.raises(type(error)):
            await watched_store.raises(error)
    with pytest.raises(asyncpg.DataError):
        await watched_store.misuses()


async def test_a_connection_whose_driver_is_confused_is_never_used_again(watched_store: Store) -> None:
    with pytest.raises(asyncpg.InternalClientError):
        await watched_store.confused()
    assert await watched_store.backend_now() != watched_store.backend


async def test_what_was_expected_is_not_asked_about(
    watched_store: Store, pool: WatchedPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    nobody_answers(pool, monkeypatch)
    with pytest.raises(LeaseLost):
        await watched_store.raises(LeaseLost("turn 7"))
    with pytest.raises(LeaseLost):
        async with storage_limiter(pool):
            raise LeaseLost("turn 7")


async def test_around_several_statements_one_lost_connection_is_enough(
    watched_store: Store, pool: WatchedPool
) -> None:
    with pytest.raises(StorageUnavailable):
        async with storage_limiter(pool):
            with pytest.raises(StorageUnavailable):
                await watched_store.cut_off(asyncpg.ConnectionDoesNotExistError("closed in the middle"))
            raise RuntimeError("of something that was not stored")
    with pytest.raises(RuntimeError):
        async with storage_limiter(pool):
            raise RuntimeError("of our own")


async def test_a_connection_that_was_idle_for_long_enough_was_not_lost(
    pool: WatchedPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pool.acquire() as connection:
        holder: Any = connection._holder
    before = pool.lost
    monkeypatch.setattr(pool, "_minsize", 0)
    holder._deactivate_inactive_connection()
    await asyncio.sleep(0.05)
    assert pool.get_size() == 0
    assert pool.lost == before
