"""A job that ends names the job that follows it, if that one is due."""

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
