"""Messages of the compaction hook in Postgres: one before and one after each job, due until they arrive."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest

from shared.adapters.postgres.compaction.hooks import PostgresCompactionHooks
from shared.core.compaction.hooks import MOST_HOOK_TRIES, HookMessage
from shared.core.ops.alerts import AlertRefused, NotSent, Sent
from shared.core.session.session_state import JobClaim
from shared.core.session.turns import JobOrder
from tests.kit.app_driver import Visit

DETAIL = {"trigger": "limit", "agent": "assistant", "tokens": 9, "may_skip": True}


@pytest.fixture
def hooks(guest: Visit) -> PostgresCompactionHooks:
    return guest.app.stores.compaction_hooks


async def claim(guest: Visit) -> JobClaim:
    order = JobOrder(kind="compact", key=str(uuid4()), trigger="limit", payload={})
    job_id = await guest.app.stores.jobs.request_job(guest.session_id, order)
    assert job_id is not None
    job = await guest.app.stores.jobs.claim_job(job_id, worker_id=guest.app.worker_id)
    assert job is not None
    return job


async def begin(store: PostgresCompactionHooks, job: JobClaim, *, cycle: int = 0) -> HookMessage:
    return await store.begin(job, cycle=cycle, detail=DETAIL, wait_seconds=10.0)


async def end(guest: Visit, job: JobClaim, state: str, **outcome: Any) -> None:
    error = "" if state == "done" else "no"
    await guest.app.stores.jobs.end_job(job, state=state, outcome=outcome, error=error)


async def test_repeated_job_finds_its_message(hooks: PostgresCompactionHooks, guest: Visit) -> None:
    job = await claim(guest)
    first, second = await begin(hooks, job), await begin(hooks, replace(job, attempt=2, epoch=2))
    assert first == second
    assert first.may_skip
    await hooks.record_outcome(first, Sent(), skip=True)
    third = await begin(hooks, replace(job, attempt=3, epoch=3))
    assert (third.send_key, third.state, third.skip) == (first.send_key, "sent", True)


async def test_summary_may_be_put_off_once_in_a_cycle(hooks: PostgresCompactionHooks, guest: Visit) -> None:
    first = await claim(guest)
    await hooks.record_outcome(await begin(hooks, first, cycle=3), Sent(), skip=True)
    await end(guest, first, "done", nothing="hook")
    second = await claim(guest)
    assert not (await begin(hooks, second, cycle=3)).may_skip
    await end(guest, second, "done")
    assert (await begin(hooks, await claim(guest), cycle=4)).may_skip


@pytest.mark.parametrize(
    ("state", "outcome", "skip", "told"),
    [
        ("done", {"nothing": "small_gain"}, False, ("nothing", "small_gain")),
        ("done", {"nothing": "hook"}, True, ("skipped", "hook")),
        ("dead", {"advice": "x"}, False, ("failed", None)),
        (None, {}, False, ("failed", None)),
    ],
)
async def test_end_of_a_job_is_reported_once_however_it_came(
    hooks: PostgresCompactionHooks,
    guest: Visit,
    state: str | None,
    outcome: dict[str, Any],
    skip: bool,
    told: tuple[Any, ...],
) -> None:
    job = await claim(guest)
    await hooks.record_outcome(await begin(hooks, job), Sent(), skip=skip)
    assert await hooks.add_ends() == 0, "it still runs"
    await end(guest, job, state or "done", **outcome)
    if state is None:
        await guest.app.pool.execute("DELETE FROM jobs WHERE id = $1", job.id)
    assert [await hooks.add_ends(), await hooks.add_ends()] == [1, 0]
    (message,) = await hooks.claim(most=8, with_summary=True)
    assert (message.phase, message.detail["outcome"], message.detail["reason"]) == ("after", *told)
    assert message.summary is None


async def test_job_that_an_operator_retries_is_announced_again(
    hooks: PostgresCompactionHooks, guest: Visit
) -> None:
    job = await claim(guest)
    first = await begin(hooks, job)
    await end(guest, job, "dead")
    await hooks.add_ends()
    await guest.app.pool.execute("UPDATE jobs SET state = 'due', ended_at = NULL WHERE id = $1", job.id)
    retried = await guest.app.stores.jobs.claim_job(job.id, worker_id=guest.app.worker_id)
    assert retried is not None
    second = await begin(hooks, retried)
    assert second.send_key != first.send_key
    await end(guest, retried, "done")
    assert await hooks.add_ends() == 1
    ends = await guest.app.pool.fetch(
        "SELECT detail ->> 'outcome' FROM compaction_hooks WHERE phase = 'after' ORDER BY id"
    )
    assert [row[0] for row in ends] == ["failed", "nothing"]


async def test_claimed_message_is_due_again_after_a_minute(
    hooks: PostgresCompactionHooks, guest: Visit
) -> None:
    job = await claim(guest)
    made = await hooks.begin(job, cycle=0, detail=DETAIL, wait_seconds=0.0)
    (claimed,) = await hooks.claim(most=8, with_summary=False)
    assert (claimed.send_key, claimed.attempts) == (made.send_key, 1)
    assert await hooks.claim(most=8, with_summary=False) == []
    await guest.app.pool.execute("UPDATE compaction_hooks SET due_at = due_at - interval '61 s'")
    (again,) = await hooks.claim(most=8, with_summary=False)
    assert (again.send_key, again.attempts) == (made.send_key, 2)


@pytest.mark.parametrize(
    ("attempts", "age", "state"),
    [
        (1, "0 h", "due"),
        (MOST_HOOK_TRIES - 1, "0 h", "due"),
        (MOST_HOOK_TRIES, "0 h", "failed"),
        (1, "25 h", "failed"),
    ],
)
async def test_undelivered_message_is_tried_twelve_times_and_for_a_day(
    hooks: PostgresCompactionHooks, guest: Visit, attempts: int, age: str, state: str
) -> None:
    job = await claim(guest)
    made = await begin(hooks, job)
    await guest.app.pool.execute(f"UPDATE compaction_hooks SET created_at = now() - interval '{age}'")
    await hooks.record_outcome(replace(made, attempts=attempts), NotSent(code="http_503"), skip=False)
    row = await guest.app.pool.fetchrow(
        "SELECT state, error, (ended_at IS NULL) AS open FROM compaction_hooks"
    )
    assert row is not None
    assert tuple(row) == (state, "http_503", state == "due")


async def test_refused_message_is_not_due_again(hooks: PostgresCompactionHooks, guest: Visit) -> None:
    job = await claim(guest)
    await hooks.record_outcome(await begin(hooks, job), AlertRefused(code="http_404"), skip=False)
    assert await guest.app.pool.fetchval("SELECT state FROM compaction_hooks") == "failed"
