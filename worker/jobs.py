"""Functions of arq for each kind of job, and the loops of the worker.

Each function only passes the id on to `JobRunner`, which reads the kind from the row. The sweep announces
jobs again if Redis lost them; the other loops keep indexes, hooks, imports and the erasure log.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import structlog
from arq.connections import ArqRedis
from arq.cron import CronJob
from arq.worker import Function, Worker, func

from shared.adapters.redis.arq_queue import QUEUE, close_queue, open_queue, read_job, write_job
from shared.bootstrap.app import App
from shared.bootstrap.from_settings import resolve_server_urls
from shared.core.session.turns import DueJob
from shared.core.values.errors import LeaseLost, StorageUnavailable
from shared.core.values.ttl_cache import clear_recent
from shared.ports import DASHBOARD

log = structlog.get_logger(__name__)

JOB_SECONDS = 600
"""Timeout of a job in seconds; longer than the slowest provider needs for a long summary.

The job of a dead worker is released earlier, by its lease.
"""
MAX_JOBS = 8
"""Places of arq's worker for jobs and duties; as many jobs again may run in this process without arq."""
POLL_SECONDS = 0.1
"""Seconds between two polls of arq's queue."""
STOP_SECONDS = 5.0
"""Seconds to wait for running jobs when the worker stops."""
SWEEP_SECONDS = 1.0
"""Seconds between two sweeps."""
RING_INTERVAL_SECONDS = 2.0
"""Seconds in which the same job is announced only once; jobs that no worker takes run in this process."""
ERASURE_SECONDS = 3.0
"""Seconds between two writes of the erasure log."""
IMPORT_SECONDS = 3.0
"""Seconds between two requests for summaries of imports."""


async def flush_memory(ctx: dict[str, Any], job_id: int) -> None:
    """Run a job that saves notes from a session's turns, before or after they are hidden."""
    await run_job(ctx["app"], job_id)


async def compact_session(ctx: dict[str, Any], job_id: int) -> None:
    """Run a job that hides a session's older turns behind a summary, or replaces a digest."""
    await run_job(ctx["app"], job_id)


async def consolidate_notes(ctx: dict[str, Any], job_id: int) -> None:
    """Run a job that merges duplicate notes of a person and marks outdated ones."""
    await run_job(ctx["app"], job_id)


async def summarise_import(ctx: dict[str, Any], job_id: int) -> None:
    """Run a job that summarises the next range of an imported conversation."""
    await run_job(ctx["app"], job_id)


async def run_job(app: App, job_id: int) -> None:
    """Run a job if its row in the database says that it is due, and tell dashboards that jobs changed.

    A database outage is only logged.
    """
    try:
        await app.job_runner.run(job_id)
        await app.announcer.announce(DASHBOARD, {"t": "changed", "topics": ["jobs"]})
    except StorageUnavailable as error:
        log.warning("job_storage_unavailable", job_id=job_id, reason=str(error))


async def run_arq(app: App, cron_jobs: Sequence[CronJob] = ()) -> None:
    """Run arq's worker, which takes announced jobs and cron jobs, until cancelled; start it again after each
    failure.
    """
    _, redis_url = resolve_server_urls(app.settings)
    while True:
        queue = open_queue(redis_url)
        worker = Worker(
            functions=list_functions(),
            cron_jobs=cron_jobs or None,
            queue_name=QUEUE,
            redis_pool=queue,
            max_jobs=MAX_JOBS,
            poll_delay=POLL_SECONDS,
            handle_signals=False,
            health_check_interval=10,
            job_serializer=write_job,
            job_deserializer=read_job,
            ctx={"app": app},
        )
        try:
            await worker.async_run()
        except Exception as error:  # noqa: BLE001  Redis may vanish for as long as it likes
            log.warning("redis_disconnected", reason=f"{type(error).__name__}: {error}")
        finally:
            await _stop(worker, queue)
        await asyncio.sleep(SWEEP_SECONDS)


def list_functions() -> list[Function]:
    """Return the functions of arq, one for each kind of job.

    arq stores no result and retries nothing, because rows in the database do both.
    """
    functions = (flush_memory, compact_session, consolidate_notes, summarise_import)
    return [func(one, keep_result=0, max_tries=1, timeout=JOB_SECONDS) for one in functions]


async def sweep(app: App) -> None:
    """Release orphaned jobs and announce due ones every second, until cancelled.

    Other work has separate loops, so that it cannot delay this one.
    """
    announcer = JobDoorbell(app)
    try:
        while True:
            try:
                await app.job_runner.release_unknown_jobs()
                if found := await app.stores.jobs.release_orphans():
                    log.warning("jobs_released", count=found)
                await announcer.ring(await app.stores.jobs.due_jobs(), time.monotonic())
            except StorageUnavailable as error:
                log.warning("sweep_storage_unavailable", reason=str(error))
            await asyncio.sleep(SWEEP_SECONDS)
    finally:
        await announcer.close()


async def index_knowledge(app: App) -> None:
    """Keep the index of agents' knowledge folders up to date, until cancelled; only wait if the process has
    none.
    """
    if app.knowledge_indexer is not None:
        await app.knowledge_indexer.run(poll_seconds=app.settings.workspace_poll_seconds)
    await asyncio.Event().wait()


async def send_hooks(app: App) -> None:
    """Send due messages of the compaction hook, until cancelled."""
    await app.compaction_hooks.run()


async def import_files(app: App) -> None:
    """Analyse uploaded exports, and import those that people have confirmed, until cancelled.

    The analysis of an upload tells the person how much it contains, before they confirm it.
    """
    await app.import_runner.run()


async def request_import_summaries(app: App) -> None:
    """Store a job for each import that waits for summaries, every `IMPORT_SECONDS` until cancelled.

    Imports are found by their rows, so that an import by the command line is summarised, too.
    """
    while True:
        try:
            await app.stores.import_summaries.request_due()
        except StorageUnavailable as error:
            log.warning("import_storage_unavailable", reason=str(error))
        await asyncio.sleep(IMPORT_SECONDS)


class JobDoorbell:
    """Announcer of due jobs; a job that no worker takes after two announcements runs in this process.

    In a new process one announcement is enough, because the process may not live until the second. A worker
    that died may have taken an earlier announcement; arq's mark of that stays in Redis for ten minutes.
    """

    def __init__(self, app: App) -> None:
        self._app = app
        self._rung: dict[DueJob, float] = {}
        self._unheard: set[DueJob] = set()
        self._first_look = True
        self._running: dict[asyncio.Task[None], DueJob] = {}

    async def ring(self, jobs: Sequence[DueJob], now: float) -> None:
        """Announce the due `jobs`, except those announced less than `RING_INTERVAL_SECONDS` ago; start
        unheard ones here.

        `now` is the monotonic time in seconds.
        """
        self._rung = {job: at for job, at in self._rung.items() if now - at < RING_INTERVAL_SECONDS}
        self._unheard &= set(jobs)
        first, self._first_look = self._first_look, False
        for job in jobs:
            if job in self._rung:
                continue
            self._rung[job] = now
            if await self._app.doorbell.ring(job):
                self._unheard.discard(job)
            elif first or job in self._unheard:
                self._do_here(job)
            else:
                self._unheard.add(job)

    def _do_here(self, job: DueJob) -> None:
        """Run a job in this process, unless it runs here already or `MAX_JOBS` jobs do.

        The claim in Postgres prevents that a job runs twice, with or without Redis.
        """
        if len(self._running) >= MAX_JOBS or job in self._running.values():
            return
        task = asyncio.ensure_future(run_job(self._app, job.id))
        self._running[task] = job
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        job = self._running.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("local_job_failed", job_id=job.id if job else None, reason=repr(error))

    async def close(self) -> None:
        """Cancel the jobs that run in this process, and wait up to 5 seconds for their end."""
        running = list(self._running)
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running, timeout=5)


async def keep_erasure_log(app: App) -> None:
    """Append finished erasures to the file next to the backups, and delete leftovers of erased text, until
    cancelled.

    Runs every `ERASURE_SECONDS`; failures are logged.
    """
    number = 0
    while True:
        try:
            number = await _append_erasure_log(app, number)
        except (StorageUnavailable, OSError) as error:
            log.warning("erasure_log_write_failed", reason=f"{type(error).__name__}: {error}")
        try:
            if await app.stores.leftovers.clear():
                log.info("log_rotated_after_erasure")
        except (StorageUnavailable, OSError) as error:
            log.warning("leftovers_cleanup_failed", reason=f"{type(error).__name__}: {error}")
        await asyncio.sleep(ERASURE_SECONDS)


async def _append_erasure_log(app: App, number: int) -> int:
    """Append erasures after `number` to the file next to the backups; return the last number."""
    fresh, last = await app.stores.erasure_log.list_since(number)
    if fresh:
        await asyncio.to_thread(app.erasure_file.add, fresh)
    return last


async def watch_heartbeat(app: App) -> None:
    """Check every second whether the database has declared this process dead; then raise LeaseLost.

    The process ends by that, and its supervisor starts it again.
    """
    while not app.heartbeat.is_lost:
        clear_recent(time.monotonic())
        await asyncio.sleep(1.0)
    raise LeaseLost(f"worker {app.worker_id}")


async def _stop(worker: Worker, queue: ArqRedis) -> None:
    """Cancel the running jobs, then close the queue; arq's own `close` would leave connections open."""
    for task in worker.tasks.values():
        task.cancel()
    with suppress(TimeoutError):
        async with asyncio.timeout(STOP_SECONDS):
            await asyncio.gather(*worker.tasks.values(), return_exceptions=True)
    await close_queue(queue)
