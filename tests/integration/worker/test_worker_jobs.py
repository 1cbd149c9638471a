"""The worker's look for jobs that nobody works on, beside all that it does now and then."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest
from redis.asyncio import Redis

from shared.adapters.redis import arq_queue
from shared.adapters.redis.arq_queue import FUNCTIONS, ArqDoorbell, open_queue
from shared.bootstrap.app import App
from shared.core.ops.job_views import JOB_KINDS
from shared.core.session.turns import DueJob, JobOrder
from shared.core.values.errors import StorageUnavailable
from tests.kit.app_driver import running_app, settings_for, visit
from worker import jobs
from worker.duties import DutyRunner
from worker.jobs import sweep

DUE = DueJob(id=7, kind="flush", attempt=1)


class Yard:
    """What the two loops ask; the index has no end, as that of a large house after a restart."""

    def __init__(self) -> None:
        self.looks = 0
        self.begun: list[str] = []
        self.rung: list[DueJob] = []

    async def release_unknown_jobs(self) -> None:
        pass

    async def release_orphans(self) -> int:
        return 0

    async def due_jobs(self) -> list[DueJob]:
        self.looks += 1
        return [DUE]

    async def ring(self, job: DueJob) -> bool:
        self.rung.append(job)
        return True

    async def sweep(self) -> None:
        self.begun.append("index")
        await asyncio.Event().wait()

    @property
    def app(self) -> App:
        stores = SimpleNamespace(jobs=self)
        stores.duties = self
        parts = SimpleNamespace(
            job_runner=self, stores=stores, doorbell=self, recall_indexer=self, worker_id=1
        )
        return cast("App", parts)

    async def list_overdue(self, names: list[str], *, patience_seconds: float) -> list[str]:
        return ["recall_index"]

    async def claim(self, name: str, *, seconds: int, worker_id: int) -> int:
        return 1


async def test_a_dead_workers_job_is_found_while_the_house_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "SWEEP_SECONDS", 0.0)
    yard = Yard()
    tasks = [asyncio.create_task(DutyRunner(yard.app).run_overdue()), asyncio.create_task(sweep(yard.app))]
    try:
        async with asyncio.timeout(30):
            while yard.looks < 5:
                await asyncio.sleep(0)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    assert yard.begun == ["index"]
    assert yard.rung == [DUE]


async def test_the_first_look_for_jobs_waits_for_nothing() -> None:
    yard = Yard()
    looking = asyncio.create_task(sweep(yard.app))
    for _ in range(5):
        await asyncio.sleep(0)
    looking.cancel()
    await asyncio.wait([looking])
    assert yard.rung == [DUE]


class Heard(Yard):
    """Redis has the mark of a worker that died with the job in its hands: each ring is one too many."""

    def __init__(self) -> None:
        super().__init__()
        self.done: list[int] = []

    async def ring(self, job: DueJob) -> bool:
        await super().ring(job)
        return False

    async def run(self, job_id: int) -> None:
        self.done.append(job_id)

    async def announce(self, address_id: int, message: object) -> None:
        pass

    @property
    def app(self) -> App:
        stores = SimpleNamespace(jobs=self)
        parts = SimpleNamespace(job_runner=self, stores=stores, doorbell=self, announcer=self)
        return cast("App", parts)


async def test_doorbell_heard_by_dead_worker_is_handled_by_the_next() -> None:
    """Where each worker lives for a moment only, none of them comes to a second one."""
    yard = Heard()
    calls = jobs.JobDoorbell(yard.app)
    await calls.ring(await yard.due_jobs(), 0.0)
    await asyncio.sleep(0)
    assert yard.done == [7]
    await calls.close()


async def test_job_is_run_locally_after_two_unheard_rings() -> None:
    """It may be about to begin in the queue."""
    yard = Heard()
    calls = jobs.JobDoorbell(yard.app)
    await calls.ring([], 0.0)
    await calls.ring(await yard.due_jobs(), 1.0)
    await asyncio.sleep(0)
    assert yard.done == []
    await calls.ring(await yard.due_jobs(), 4.0)
    await asyncio.sleep(0)
    assert yard.done == [7]
    await calls.close()


async def test_a_mark_that_a_killed_worker_left_in_redis_holds_nothing_up(
    database_url: str, redis_url: str
) -> None:
    """arq marks a job before the row is claimed, for ten minutes; then its worker is killed.

    Each worker after it lives no longer than for one look, as in a storm that kills one every second.
    """
    async with running_app(settings_for(database_url, redis_url)) as app, Redis.from_url(redis_url) as redis:
        guest = await visit(app)
        await guest.ask("Hello")
        order = JobOrder(kind="compact", key="by hand", trigger="manual", payload={"force": True})
        job_id = await app.stores.jobs.request_job(guest.session_id, order)
        assert await app.doorbell.ring(DueJob(id=job_id or 0, kind="compact"))
        await redis.set(f"arq:in-progress:{job_id}:0", b"1", ex=610)
        calls = jobs.JobDoorbell(app)
        await calls.ring(await app.stores.jobs.due_jobs(), 0.0)
        async with asyncio.timeout(60):
            while await guest.one("SELECT state FROM jobs WHERE key = 'by hand'") != "done":
                await asyncio.sleep(0.02)
        await calls.close()


async def test_interrupted_job_that_cannot_be_released_is_released_later(
    database_url: str, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queue and Postgres go away together; this worker lives on, and holds the row on paper."""
    async with running_app(settings_for(database_url, redis_url)) as app:
        guest = await visit(app)
        await guest.ask("Hello")
        job_id = await app.stores.jobs.request_job(
            guest.session_id, JobOrder(kind="compact", key="by hand", trigger="limit")
        )
        began = asyncio.Event()

        async def never_ends(_: object) -> None:
            began.set()
            await asyncio.Event().wait()

        async def away(*_: object, **__: object) -> None:
            raise StorageUnavailable("away")

        monkeypatch.setattr(app.job_runner._compactor, "compact", never_ends)
        running = asyncio.ensure_future(app.job_runner.run(job_id or 0))
        await asyncio.wait_for(began.wait(), 60)
        with monkeypatch.context() as meanwhile:
            meanwhile.setattr(type(app.stores.jobs), "end_job", away)
            running.cancel()
            await asyncio.wait([running])
        assert await guest.one("SELECT state FROM jobs WHERE key = 'by hand'") == "running"
        async with asyncio.timeout(60):
            while await guest.one("SELECT state FROM jobs WHERE key = 'by hand'") != "due":
                await app.job_runner.release_unknown_jobs()
                await asyncio.sleep(0.1)


def test_every_job_kind_has_an_arq_function_of_its_own() -> None:
    assert FUNCTIONS.keys() == set(JOB_KINDS)
    assert sorted(FUNCTIONS.values()) == sorted(one.name for one in jobs.list_functions())


async def test_announced_job_waits_under_the_function_of_its_kind(redis_url: str) -> None:
    bell = ArqDoorbell(redis_url)
    queue = open_queue(redis_url)
    try:
        for number, kind in enumerate(JOB_KINDS, start=1):
            assert await bell.ring(DueJob(id=number, kind=kind))
        waiting = {job.function: list(job.args) for job in await queue.queued_jobs()}
        assert waiting == {
            "flush_memory": [1], "compact_session": [2], "consolidate_notes": [3], "summarise_import": [4]
        }  # fmt: skip
    finally:
        await queue.aclose()
        await bell.close()


async def test_doorbell_rests_for_a_second_after_redis_did_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A sweep announces many jobs in a row, and must not wait for each."""
    now, tried = [100.0], list[int]()

    class Hanging:
        async def enqueue_job(self, _: str, job_id: int, **__: str) -> None:
            tried.append(job_id)
            raise TimeoutError

        async def aclose(self) -> None:
            pass

    monkeypatch.setattr(arq_queue, "open_queue", lambda _: Hanging())
    monkeypatch.setattr(arq_queue, "time", SimpleNamespace(monotonic=lambda: now[0]))
    bell = ArqDoorbell("redis://nowhere")
    for number in (1, 2, 3):
        assert not await bell.ring(DueJob(id=number, kind="flush"))
    assert (tried, bell.silent) == ([1], 3)
    now[0] += 1.0
    assert not await bell.ring(DueJob(id=4, kind="flush"))
    assert tried == [1, 4]


async def test_job_of_a_newer_kind_is_not_announced(redis_url: str) -> None:
    bell = ArqDoorbell(redis_url)
    assert not await bell.ring(DueJob(id=1, kind="of_tomorrow"))
    assert bell.silent == 0
    await bell.close()
