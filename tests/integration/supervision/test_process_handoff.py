"""A process that is started again ends the leases of the one before, and of nobody else."""

from __future__ import annotations

from pathlib import Path

import asyncpg
import pytest

from shared.adapters.postgres.db.leases import PostgresLeases
from shared.adapters.postgres.db.workers import PostgresWorkers
from shared.supervision.process_handoff import take_over_process


async def test_successor_frees_the_leases_of_its_former_process(
    pool: asyncpg.Pool[asyncpg.Record], tmp_path: Path
) -> None:
    workers, leases, file = PostgresWorkers(pool), PostgresLeases(pool), tmp_path / "bot.worker"
    first = await take_over_process(workers, "bot", file)
    stranger = await take_over_process(workers, "bot", tmp_path / "another.worker")
    assert await leases.take("polling", worker_id=first) == 1
    assert await leases.take("polling", worker_id=stranger) is None
    second = await take_over_process(workers, "bot", file)
    assert await leases.take("polling", worker_id=second) == 2
    assert not await workers.beat(first)
    assert await workers.beat(stranger)
    assert int(file.read_text()) == second


@pytest.mark.parametrize("left", ["", "not a number\n", None])
async def test_process_without_a_file_declares_no_other_dead(
    pool: asyncpg.Pool[asyncpg.Record], tmp_path: Path, left: str | None
) -> None:
    workers, file = PostgresWorkers(pool), tmp_path / "web.worker"
    first = await take_over_process(workers, "web", None)
    if left is not None:
        file.write_text(left)
    second = await take_over_process(workers, "web", file)
    assert await workers.beat(first)
    assert int(file.read_text()) == second


async def test_process_file_of_another_role_ends_no_process(
    pool: asyncpg.Pool[asyncpg.Record], tmp_path: Path
) -> None:
    workers, file = PostgresWorkers(pool), tmp_path / "process"
    web = await take_over_process(workers, "web", file)
    await take_over_process(workers, "worker", file)
    assert await workers.beat(web)


async def test_unwritable_process_file_keeps_no_process_from_working(
    pool: asyncpg.Pool[asyncpg.Record], tmp_path: Path
) -> None:
    workers = PostgresWorkers(pool)
    assert await workers.beat(await take_over_process(workers, "web", tmp_path / "nowhere" / "web.worker"))
