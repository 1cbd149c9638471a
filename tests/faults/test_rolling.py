"""A newer revision changes the database under processes that run on: nobody notices, and no job is lost."""

from __future__ import annotations

import asyncio
import time

import pytest

from shared.adapters.redis.arq_queue import QUEUE, ArqDoorbell
from shared.core.session.turns import DueJob
from tests.faults.summarised_talks import summarised, talks
from tests.kit.deployment.breakable_servers import Case
from tests.kit.deployment.inner_faults import UNKNOWN_KIND
from tests.kit.deployment.person import PATIENCE_SECONDS, Person
from tests.kit.deployment.processes import Process

TABLES = (
    "sessions",
    "turns",
    "entry_rows",
    "turn_entries",
    "events",
    "jobs",
    "compactions",
    "contacts",
    "workers",
)
_EXPANDED = """
ALTER TABLE jobs DROP CONSTRAINT job_kind;
ALTER TABLE jobs ADD CONSTRAINT job_kind CHECK (kind IN ('flush', 'compact', 'tidy', 'brand_new'));
"""
_NEWER = """
INSERT INTO jobs (kind, session_id, key) SELECT 'brand_new', session_id, 'brand_new:1' FROM entries
 WHERE cid = $1 RETURNING id
"""
_TIDY = _NEWER.replace("brand_new", "tidy")


@pytest.mark.row("F52")
async def test_older_processes_work_on_a_newer_database_and_leave_its_jobs_alone(case: Case) -> None:
    """Columns come while they run, and go again; a job of a kind that they do not know waits for others."""
    async with case.web() as web, case.worker() as worker, Person(case.port) as person:
        async with asyncio.TaskGroup() as group:
            group.create_task(talks(person))
            await asyncio.sleep(0.3)
            for table in TABLES:
                await case.run(f"ALTER TABLE {table} ADD COLUMN brand_new text NOT NULL DEFAULT 'x'")
            await case.run(_EXPANDED)
        await person.answered()
        newer = await case.value(_NEWER, next(iter(person.said)))
        await _rung(case, newer)
        await summarised(person)
        await _left_alone(case, newer, worker)
        for table in TABLES:
            await case.run(f"ALTER TABLE {table} DROP COLUMN brand_new")
        await person.ask("And is everything as it was?")
        assert person.errors == []
        assert (web.exits, worker.exits) == ([], [])
        await case.promises_hold(person)


@pytest.mark.row("F52")
async def test_job_of_newer_kind_waits_for_the_newer_worker(case: Case) -> None:
    """The older one has never heard of it, whoever rings; the newer one does it, and is alone in the end."""
    async with case.web() as web, Person(case.port) as person:
        async with case.worker(**{UNKNOWN_KIND: "tidy"}) as older:
            await talks(person)
            newer = await case.value(_TIDY, next(iter(person.said)))
            await _rung(case, newer)
            await summarised(person)
            await _left_alone(case, newer, older)
            async with case.worker() as worker:
                await case.until(f"SELECT state = 'done' FROM jobs WHERE id = {newer}")
                rows = await case.rows("SELECT attempt, epoch, last_error FROM jobs WHERE id = $1", newer)
                assert rows == [{"attempt": 1, "epoch": 1, "last_error": ""}]
                await person.ask("And now?")
                await older.stop()
                await talks(person)
                await summarised(person)
                assert (web.exits, worker.exits) == ([], [])
        await case.promises_hold(person)


async def _rung(case: Case, job_id: int) -> None:
    """By a newer process; whoever hears it first is asked for it."""
    bell = ArqDoorbell(case.redis_url)
    try:
        await bell.ring(DueJob(id=job_id, kind="tidy"))
    finally:
        await bell.close()


async def _left_alone(case: Case, job_id: int, worker: Process) -> None:
    """The oldest that is due, rung for and looked for, and still not touched."""
    await case.value("UPDATE jobs SET due_at = now() - interval '1 hour' WHERE id = $1", job_id)
    await _rung(case, job_id)
    async with case.queue() as queue:
        end = time.monotonic() + PATIENCE_SECONDS
        while await queue.zcard(QUEUE):
            assert time.monotonic() < end, f"nobody hears the bell\n{worker.words()}"
            await asyncio.sleep(0.05)
    await case.until(f"SELECT count(*) = 0 FROM jobs WHERE id <> {job_id} AND state IN ('due', 'running')")
    rows = await case.rows("SELECT state, attempt, last_error FROM jobs WHERE id = $1", job_id)
    assert rows == [{"state": "due", "attempt": 0, "last_error": ""}], worker.words()
