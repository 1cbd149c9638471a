"""What an operator asked for is kept when the process ends in the middle, and found by the sweep."""

from __future__ import annotations

from typing import Any

import pytest

from shared.adapters.postgres.compaction.jobs import PostgresJobs
from shared.adapters.postgres.dashboard.job_changes import PostgresJobChanges
from shared.core.ops.job_views import JobMatch
from shared.core.session.turns import DueJob
from shared.runtime import CRASH_POINTS
from shared.services.admin import job_admin
from shared.services.admin.job_admin import JobAdmin
from tests.kit.dashboard import seed_work
from tests.kit.dashboard.fixtures import Bell, NobodyListens


class PowerCut(Exception):
    pass


def cut(name: str) -> None:
    assert name in CRASH_POINTS
    raise PowerCut(name)


async def test_retry_interrupted_before_the_doorbell_is_found_by_the_sweep(pool: Any) -> None:
    await seed_work.jobs(pool)
    bell: list[DueJob] = []
    admin = JobAdmin(PostgresJobChanges(pool), Bell(bell), NobodyListens(), crash_point=cut)
    with pytest.raises(PowerCut):
        await admin.change_jobs("retry", [1], actor="anna")
    assert bell == []
    assert DueJob(id=1, kind="compact", attempt=3) in await PostgresJobs(pool).due_jobs()
    assert await pool.fetchval("SELECT count(*) FROM audit WHERE action = 'job.retry'") == 1


async def test_a_retried_job_is_claimed_like_any_other(pool: Any) -> None:
    await seed_work.jobs(pool)
    bell: list[DueJob] = []
    admin = JobAdmin(PostgresJobChanges(pool), Bell(bell), NobodyListens(), crash_point=lambda _: None)
    await admin.change_jobs("retry", [1], actor="anna")
    await pool.execute(
        "UPDATE jobs SET state = 'done', leased_by = NULL, ended_at = now() WHERE key = 'runs'"
    )
    worker = await pool.fetchval("SELECT max(id) FROM workers")
    claim = await PostgresJobs(pool).claim_job(1, worker_id=worker)
    assert claim is not None
    assert (claim.attempt, claim.faults) == (4, 0)


async def test_retry_beyond_one_request_is_left_and_reported(
    pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_admin, "BATCH", 2)
    monkeypatch.setattr(job_admin, "MAX_JOBS", 4)
    await seed_work.jobs(pool, dead=7)
    admin = JobAdmin(PostgresJobChanges(pool), Bell([]), NobodyListens(), crash_point=lambda _: None)
    done = await admin.change_matching_jobs("retry", JobMatch(state="dead"), through=10**6, actor="anna")
    assert (len(done.changed), done.more) == (4, 3)
    done = await admin.change_matching_jobs("retry", JobMatch(state="dead"), through=10**6, actor="anna")
    assert (len(done.changed), done.more) == (3, 0)
