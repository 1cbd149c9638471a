"""Job types that an operator pauses or bounds, over workers that run, with Redis and without."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from redis.asyncio import Redis

from shared.bootstrap.app import App
from shared.core.session.session_state import JobClaim, JobDone
from shared.core.values.errors import LeaseLost
from tests.kit.app_driver import Visit, running_app, settings_for, visit
from worker.jobs import run_arq, sweep

IN_ALL = 6


class Slow:
    """In place of what does flushes: knows how many run at once."""

    def __init__(self) -> None:
        self.now = self.most = self.done = 0

    async def flush(self, job: JobClaim, *_: object, **__: object) -> JobDone:
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0.3)
        self.now -= 1
        self.done += 1
        return JobDone(state="done", outcome={})


@pytest.fixture
async def apps(database_url: str, redis_url: str) -> AsyncIterator[tuple[App, App]]:
    """Two workers, each with arq and the sweep."""
    settings = settings_for(database_url, redis_url)
    async with AsyncExitStack() as stack:
        both = [await stack.enter_async_context(running_app(settings)) for _ in range(2)]
        yield both[0], both[1]


async def due(guest: Visit, kind: str, number: int) -> None:
    for place in range(number):
        other = await visit(guest.app)
        await guest.app.pool.execute(
            "INSERT INTO jobs (kind, session_id, key, trigger) VALUES ($1, $2, $3, 'manual')",
            kind, other.session_id, f"{kind}:{place}",
        )  # fmt: skip


async def set_kind(app: App, kind: str, **wish: Any) -> None:
    version = await app.pool.fetchval(
        "SELECT (extract(epoch FROM changed_at) * 1000000)::bigint FROM job_kinds WHERE kind = $1", kind
    )
    given = {"paused": False, "concurrency": None, **wish}
    assert await app.job_admin.set_kind(kind, **given, version=version or 0, actor="anna")


async def until(count: int, slow: Slow) -> None:
    async with asyncio.timeout(30):
        while slow.done < count:
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("redis", ["there", "emptied"])
async def test_a_kind_is_paused_bounded_and_resumed_while_two_workers_run(
    apps: tuple[App, App], redis: str, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, app = Slow(), apps[0]
    for each in apps:
        monkeypatch.setattr(each.job_runner, "_run_by_kind", slow.flush)
    guest = await visit(app)
    await set_kind(app, "flush", paused=True)
    await due(guest, "flush", IN_ALL)
    await due(guest, "compact", 1)
    tasks = [asyncio.ensure_future(run(each)) for each in apps for run in (sweep, run_arq)]
    try:
        await until(1, slow)
        assert await guest.one("SELECT count(*) FROM jobs WHERE kind = 'flush' AND state = 'due'") == IN_ALL
        assert await guest.one("SELECT state FROM jobs WHERE kind = 'compact'") != "due"
        if redis == "emptied":
            async with Redis.from_url(redis_url) as server:
                await server.flushdb()
        await set_kind(app, "flush", concurrency=2)
        await until(1 + IN_ALL, slow)
        assert slow.most == 2
        async with asyncio.timeout(30):
            while await guest.one("SELECT count(*) FROM jobs WHERE state <> 'done'"):
                await asyncio.sleep(0.05)  # a key may be used again once its job has ended
        await set_kind(app, "flush")
        await due(guest, "flush", IN_ALL)
        await until(1 + 2 * IN_ALL, slow)
        assert slow.most > 2
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    actions = await guest.one("SELECT array_agg(detail ORDER BY id) FROM audit WHERE action = 'job.kind'")
    assert [one["paused"] for one in actions] == [True, False, False]


async def test_a_worker_that_stops_in_a_job_leaves_no_connection_open(
    apps: tuple[App, App], redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, app = Slow(), apps[0]
    monkeypatch.setattr(app.job_runner, "_run_by_kind", slow.flush)
    await due(await visit(app), "flush", 2)
    async with Redis.from_url(redis_url) as server:
        before = len(await server.client_list())
        tasks = [asyncio.ensure_future(run(app)) for run in (sweep, run_arq)]
        async with asyncio.timeout(30):
            while not slow.now:
                await asyncio.sleep(0.01)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        assert slow.done == 0
        await app.doorbell.close()
        async with asyncio.timeout(30):
            while len(await server.client_list()) > before:
                await asyncio.sleep(0.01)


async def test_two_claims_at_once_take_one_free_place(apps: tuple[App, App]) -> None:
    guest = await visit(apps[0])
    await due(guest, "flush", 2)
    await set_kind(apps[0], "flush", concurrency=1)
    first, second = [row["id"] for row in await guest.app.pool.fetch("SELECT id FROM jobs ORDER BY id")]
    claims = await asyncio.gather(
        apps[0].stores.jobs.claim_job(first, worker_id=apps[0].worker_id),
        apps[1].stores.jobs.claim_job(second, worker_id=apps[1].worker_id),
    )
    assert sum(claim is not None for claim in claims) == 1


async def test_the_place_of_a_dead_worker_is_free_and_its_job_found(apps: tuple[App, App]) -> None:
    guest = await visit(apps[0])
    await due(guest, "flush", 2)
    await set_kind(apps[0], "flush", concurrency=1)
    first, second = (job.id for job in await apps[0].stores.jobs.due_jobs())
    dead = await guest.one(
        "INSERT INTO workers (role, pid, beat) VALUES ('worker', 1, now() - interval '1 h') RETURNING id"
    )
    assert await apps[0].stores.jobs.claim_job(first, worker_id=dead)
    assert {job.id for job in await apps[0].stores.jobs.due_jobs()} == {first, second}
    assert await apps[0].stores.jobs.claim_job(second, worker_id=apps[0].worker_id)
    assert await apps[0].stores.jobs.claim_job(first, worker_id=apps[0].worker_id) is None


async def test_dead_workers_job_of_paused_kind_blocks_no_other_job(apps: tuple[App, App]) -> None:
    """Only one job of a session runs, and the dead worker's cannot be claimed while its kind is paused."""
    app, guest = apps[0], await visit(apps[0])
    ask = "INSERT INTO jobs (kind, session_id, key, trigger) VALUES ($1, $2, $1, 'limit') RETURNING id"
    flush, compact = [await guest.one(ask, kind, guest.session_id) for kind in ("flush", "compact")]
    dead = await guest.one(
        "INSERT INTO workers (role, pid, beat) VALUES ('worker', 1, now() - interval '1 h') RETURNING id"
    )
    claim = await app.stores.jobs.claim_job(flush, worker_id=dead)
    assert claim is not None
    await app.stores.jobs.begin_flush(claim, cycle=0, threshold="soft", from_turn=1, through_turn=1)
    await set_kind(app, "flush", paused=True)
    assert await app.stores.jobs.release_orphans() == 1
    assert await app.stores.jobs.release_orphans() == 0
    assert await app.stores.jobs.claim_job(compact, worker_id=app.worker_id)
    assert await guest.one("SELECT state FROM jobs WHERE epoch > $1 AND id = $2", claim.epoch, flush) == "due"
    assert await guest.one("SELECT outcome FROM flushes") == "failed"
    with pytest.raises(LeaseLost):
        await app.stores.jobs.end_job(claim, state="done", outcome={})


async def test_a_paused_summary_is_not_waited_for_and_comes_when_resumed(apps: tuple[App, App]) -> None:
    """As when no worker runs: the answer comes, and what is due is done later."""
    app = apps[0]
    guest = await visit(app)
    await set_kind(app, "compact", paused=True)
    await guest.ask("Hello")
    job = await guest.one(
        """INSERT INTO jobs (kind, session_id, key, trigger, payload)
           VALUES ('compact', $1, 'by hand', 'manual', '{"force": true}') RETURNING id""",
        guest.session_id,
    )
    await app.job_runner.run(job)
    assert await guest.one("SELECT state FROM jobs WHERE id = $1", job) == "due"
    assert await guest.ask("And now?")
    await set_kind(app, "compact")
    await app.job_runner.run(job)
    assert await guest.one("SELECT state FROM jobs WHERE id = $1", job) == "done"
