"""The schedule of the duties: one worker performs each, another when it dies, by the clock of PostgreSQL."""

from __future__ import annotations

import pytest

from shared.adapters.postgres.db.duties import PostgresDuties
from shared.adapters.postgres.db.pool import Pool
from shared.adapters.postgres.db.workers import PostgresWorkers


@pytest.fixture
async def workers(pool: Pool) -> list[int]:
    return [await PostgresWorkers(pool).register("worker") for _ in range(2)]


async def make_due(pool: Pool) -> None:
    await pool.execute("UPDATE duties SET due_at = now() - interval '1 minute'")


async def overdue(pool: Pool, *names: str) -> list[str]:
    return await PostgresDuties(pool).list_overdue(list(names), patience_seconds=1.0)


async def test_duty_is_claimed_once_per_period(pool: Pool, workers: list[int]) -> None:
    duties = PostgresDuties(pool)
    claims = [await duties.claim("partitions", seconds=300, worker_id=one) for one in workers]
    assert claims == [1, None]
    await duties.end("partitions", epoch=1, duration_ms=7)
    assert [await duties.claim("partitions", seconds=300, worker_id=one) for one in workers] == [None, None]
    await make_due(pool)
    assert [await duties.claim("partitions", seconds=300, worker_id=one) for one in workers] == [2, None]
    assert await pool.fetchval("SELECT extract(epoch FROM due_at)::int % 300 FROM duties") == 0


async def test_worker_takes_a_duty_over_when_its_holder_died(pool: Pool, workers: list[int]) -> None:
    duties = PostgresDuties(pool)
    first, second = workers
    assert await duties.claim("partitions", seconds=300, worker_id=first) == 1
    assert await overdue(pool, "partitions") == []
    await PostgresWorkers(pool).stop(first)
    assert await overdue(pool, "partitions") == ["partitions"]
    assert await duties.claim("partitions", seconds=300, worker_id=second) == 2
    await duties.end("partitions", epoch=1, duration_ms=7, error="from the one that was dead")
    assert await pool.fetchval("SELECT (leased_by, runs) = ($1, 0) FROM duties", second)


async def test_overdue_duties_are_those_that_no_bell_rang_for(pool: Pool, workers: list[int]) -> None:
    duties = PostgresDuties(pool)
    assert await overdue(pool, "partitions", "retention") == ["partitions", "retention"]
    epoch = await duties.claim("partitions", seconds=300, worker_id=workers[0]) or 0
    await duties.end("partitions", epoch=epoch, duration_ms=7)
    assert await overdue(pool, "partitions") == []
    await make_due(pool)
    assert await overdue(pool, "partitions") == ["partitions"]


@pytest.mark.parametrize("step", ["1 year", "-1 year"])
async def test_duty_is_due_after_a_step_of_the_clock(pool: Pool, workers: list[int], step: str) -> None:
    """Its next time lies where the clock was before."""
    duties = PostgresDuties(pool)
    epoch = await duties.claim("partitions", seconds=300, worker_id=workers[0]) or 0
    await duties.end("partitions", epoch=epoch, duration_ms=7)
    await pool.execute(f"UPDATE duties SET due_at = due_at + interval '{step}'")
    assert await overdue(pool, "partitions") == ["partitions"]
    assert await duties.claim("partitions", seconds=300, worker_id=workers[1]) == 2


async def test_worker_that_lost_track_of_a_duty_claims_it_again(pool: Pool, workers: list[int]) -> None:
    """The end of its last run could not be stored while the database was away."""
    duties = PostgresDuties(pool)
    assert await duties.claim("partitions", seconds=300, worker_id=workers[0]) == 1
    assert await duties.claim("partitions", seconds=300, worker_id=workers[0]) == 2


async def test_runs_failures_and_the_last_error_are_recorded(pool: Pool, workers: list[int]) -> None:
    duties = PostgresDuties(pool)
    for error in ("", "TimeoutError", "x" * 2000):
        epoch = await duties.claim("partitions", seconds=300, worker_id=workers[0]) or 0
        await duties.end("partitions", epoch=epoch, duration_ms=7, error=error)
        await make_due(pool)
    row = await pool.fetchrow("SELECT runs, failed_runs, failures, length(last_error) AS l FROM duties")
    assert dict(row or {}) == {"runs": 3, "failed_runs": 2, "failures": 2, "l": 500}
    epoch = await duties.claim("partitions", seconds=300, worker_id=workers[0]) or 0
    await duties.end("partitions", epoch=epoch, duration_ms=7, more=True)
    row = await pool.fetchrow("SELECT failures, last_error, due_at <= now() AS due FROM duties")
    assert dict(row or {}) == {"failures": 0, "last_error": "", "due": True}
