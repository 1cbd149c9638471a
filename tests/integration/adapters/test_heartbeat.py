"""A heart beats beside its loop, vouches for it only so long, and knows when it is nobody's any more."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import asyncpg
import pytest

from shared.adapters.postgres.db import workers as rows
from shared.adapters.postgres.db.pool import measure_longest_wait, open_pool
from shared.adapters.postgres.db.workers import PostgresWorkers
from shared.adapters.telemetry import heartbeat as module
from shared.adapters.telemetry.heartbeat import HeartbeatThread
from shared.core.values.errors import StorageUnavailable

AGE = "SELECT extract(epoch FROM clock_timestamp() - beat)::float8 FROM workers WHERE id = $1"
PATIENCE_SECONDS = 20.0


class House:
    def __init__(self, pool: asyncpg.Pool[asyncpg.Record], database_url: str, worker_id: int) -> None:
        self.pool, self.worker_id = pool, worker_id
        self.heartbeat = HeartbeatThread(
            partial(open_pool, database_url, size=1), worker_id,
            health=lambda: {"turns": [7]}, waited=partial(measure_longest_wait, pool),
        )  # fmt: skip

    async def one(self, sql: str) -> Any:
        return await self.pool.fetchval(sql, self.worker_id)

    async def until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not true():
                await asyncio.sleep(0.02)


@pytest.fixture
async def beating(database_url: str) -> AsyncIterator[House]:
    pool = await open_pool(database_url, size=2)
    made = House(pool, database_url, await PostgresWorkers(pool).register("web"))
    made.heartbeat.start()
    watching = asyncio.create_task(made.heartbeat.watch())
    await made.until(lambda: made.heartbeat.timeline != "")
    yield made
    watching.cancel()
    await made.heartbeat.stop()
    await pool.close()


async def test_it_beats_while_its_loop_does_something_else(beating: House) -> None:
    time.sleep(5.0)  # noqa: ASYNC251 - that is the trouble
    assert await beating.one(AGE) < 3.0
    await beating.until(lambda: beating.heartbeat.lag_seconds > 1.0)
    await beating.until(lambda: beating.heartbeat.lag_seconds < 0.5)
    assert not beating.heartbeat.is_lost


async def test_it_does_not_vouch_for_ever(beating: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "VOUCH_SECONDS", 0.5)
    time.sleep(5.0)  # noqa: ASYNC251 - that is the trouble
    # Nothing is awaited before this look: the loop would come round, and the next beat with it.
    assert time.monotonic() - beating.heartbeat.last_beat > 3.0
    since = time.monotonic()
    await beating.until(lambda: beating.heartbeat.last_beat > since)
    assert await beating.one(AGE) < 3.0


async def test_it_tells_what_the_process_works_at_and_where_the_history_stands(beating: House) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await beating.one("SELECT health ->> 'turns' FROM workers WHERE id = $1") != "[7]":
            await asyncio.sleep(0.05)
    assert beating.heartbeat.timeline == "00000001"


async def test_server_without_timeline_is_accepted(beating: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "_TIMELINE", "SELECT nobody_knows_this()")
    await beating.until(lambda: beating.heartbeat.timeline == "")
    since = time.monotonic()
    await beating.until(lambda: beating.heartbeat.last_beat > since)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE workers SET stopped_at = now() WHERE id = $1",
        "DELETE FROM workers WHERE id = $1",
        # A standby that was behind has given the number to somebody else.
        "UPDATE workers SET started_at = started_at + interval '1 ms' WHERE id = $1",
    ],
)
async def test_unknown_or_replaced_process_is_lost(beating: House, change: str) -> None:
    await beating.pool.execute(change, beating.worker_id)
    async with asyncio.timeout(PATIENCE_SECONDS):
        await beating.heartbeat.lost.wait()
    assert beating.heartbeat.is_lost


async def test_waiting_for_a_connection_counts(beating: House) -> None:
    async with beating.pool.acquire(), beating.pool.acquire():
        waiting = asyncio.create_task(beating.pool.fetchval("SELECT 1"))
        await asyncio.sleep(1.5)
    assert await waiting == 1
    await beating.until(lambda: beating.heartbeat.lag_seconds > 1.0)


async def test_database_that_only_reads_is_known_by_the_written_beats(
    beating: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "READY_SECONDS", 1.5)
    name = await beating.pool.fetchval("SELECT current_database()")
    others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
    assert beating.heartbeat.write_state == "ok"
    async with beating.pool.acquire() as connection:
        await connection.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
        await connection.fetch(f"{others} AND datname = current_database()")
        await beating.until(lambda: beating.heartbeat.write_state == "read-only")
        assert beating.heartbeat.silent_seconds > 1.5
        await connection.execute(f'ALTER DATABASE "{name}" RESET default_transaction_read_only')
    await beating.until(lambda: beating.heartbeat.write_state == "ok")


async def test_database_that_is_away_is_unreachable(beating: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "READY_SECONDS", 1.5)

    async def beat(*_: object) -> None:
        raise StorageUnavailable("away") from OSError("no route to host")

    monkeypatch.setattr(PostgresWorkers, "beat", beat)
    await beating.until(lambda: beating.heartbeat.write_state == "unreachable")
