"""Ends of jobs: the job that follows if it is due, and the order in which a session's pace counts them."""

from __future__ import annotations

import pytest

from shared.core.session.turns import JobOrder
from tests.kit.app_driver import Visit


@pytest.mark.parametrize(("delay_seconds", "kinds"), [(0.0, ["compact"]), (60.0, [])])
async def test_successor_is_returned_if_due_at_once(
    guest: Visit, delay_seconds: float, kinds: list[str]
) -> None:
    jobs = guest.app.stores.jobs
    first = await jobs.request_job(
        guest.session_id, JobOrder(kind="flush", key="first", trigger="limit", payload={})
    )
    assert first is not None
    claim = await jobs.claim_job(first, worker_id=guest.app.worker_id)
    assert claim is not None
    order = JobOrder(kind="compact", key="next", trigger="limit", payload={}, delay_seconds=delay_seconds)
    due = await jobs.end_job(claim, state="done", outcome={}, successor=order)
    assert [job.kind for job in ([due] if due else [])] == kinds
    assert await guest.one("SELECT count(*) FROM jobs WHERE key = 'next'") == 1


async def test_pace_counts_the_end_of_a_delayed_job_as_the_newest(guest: Visit) -> None:
    await guest.app.pool.execute(
        """INSERT INTO jobs (kind, session_id, key, state, trigger, outcome, ended_at)
           SELECT 'compact', $1, 'ended ' || n, 'done', CASE n WHEN 1 THEN 'idle' ELSE 'limit' END, '{}',
                  now() - make_interval(mins => CASE n WHEN 1 THEN 1 ELSE 60 - n END)
             FROM generate_series(1, 20) n""",
        guest.session_id,
    )
    ends = (await guest.app.stores.job_backoff.load_pace(guest.session_id)).ends
    assert [end.trigger for end in ends] == ["idle", *["limit"] * 11]
    ages = [end.age_seconds for end in ends]
    assert ages == sorted(ages)
    assert ages[0] < 120
