"""What is asked of Redis and Postgres: no code in the queue, an end for every statement."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest
from redis.asyncio import Redis

from shared.adapters.postgres.db.pool import open_pool
from shared.adapters.redis.arq_queue import QUEUE, ArqDoorbell, read_job, write_job
from shared.core.session.turns import DueJob


class _Harm:
    """Runs when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.mark),)


@pytest.mark.control("S38")
def test_a_pickled_job_is_refused_and_runs_nothing(tmp_path: Path) -> None:
    harm = pickle.dumps(_Harm(tmp_path / "mark"))
    with pytest.raises(ValueError):
        read_job(harm)
    assert not (tmp_path / "mark").exists()
    pickle.loads(harm)
    assert (tmp_path / "mark").exists(), "it would have"


@pytest.mark.control("S37", "S38")
async def test_the_queue_holds_numbers_in_json_and_nothing_else(redis_url: str) -> None:
    bell = ArqDoorbell(redis_url)
    redis = Redis.from_url(redis_url)
    try:
        assert await bell.ring(DueJob(id=7, kind="flush", attempt=2))
        assert await redis.zrange(QUEUE, 0, -1) == [b"7:2"]
        raw = await redis.get("arq:job:7:2")
        assert raw is not None
        told = read_job(raw)
        assert write_job(told) == raw
        assert [7] in told.values() or (7,) in told.values()
    finally:
        await bell.close()
        await redis.aclose()


@pytest.mark.control("S39")
async def test_a_statement_of_ours_has_an_end(database_url: str) -> None:
    pool = await open_pool(database_url, size=1)
    try:
        assert await pool.fetchval("SHOW statement_timeout") == "9s"
        assert await pool.fetchval("SHOW application_name") == "evertalk"
    finally:
        await pool.close()
