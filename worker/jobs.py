"""The arq side of the silent jobs, and the sweep that rings again for what nobody heard."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import structlog
from arq.worker import Worker, func

from shared.adapters.arq_queue import QUEUE, RUN_JOB, read_job, redis_settings, write_job
from shared.adapters.postgres.partitions import ensure_month_partitions
from shared.app import App, server_urls
from shared.core.errors import Fenced, StorageUnavailable

log = structlog.get_logger(__name__)

JOB_SECONDS = 600
"""Longer than the slowest provider may take for a chunked summary; a lease, not this, frees a dead job."""
JOBS_AT_ONCE = 8
POLL_SECONDS = 0.1
SWEEP_SECONDS = 1.0
RING_AGAIN_SECONDS = 5.0
HOUSEKEEPING_SECONDS = 300.0


async def run_job(ctx: dict[str, Any], job_id: int, *_: Any, **__: Any) -> None:
    """What arq calls: the row in Postgres says whether there is anything to do."""
    app: App = ctx["app"]
    try:
        await app.maintenance.run(job_id)
    except StorageUnavailable as error:
        log.warning("job_waits_for_storage", job_id=job_id, reason=str(error))


async def run_arq(app: App) -> None:
    """arq's worker, begun again whenever Redis goes away under it."""
    _, redis_url = server_urls(app.settings)
    while True:
        worker = Worker(
            functions=[func(run_job, name=RUN_JOB, keep_result=0, max_tries=1, timeout=JOB_SECONDS)],
            queue_name=QUEUE,
            redis_settings=redis_settings(redis_url),
            max_jobs=JOBS_AT_ONCE,
            poll_delay=POLL_SECONDS,
            handle_signals=False,
            health_check_interval=10,
            job_serializer=write_job,
            job_deserializer=read_job,
            ctx={"app": app},
        )
        try:
            await worker.async_run()
        except asyncio.CancelledError:
            await _closed(worker)
            raise
        except Exception as error:  # noqa: BLE001  Redis may vanish for as long as it likes
            log.warning("queue_lost", reason=f"{type(error).__name__}: {error}")
        await _closed(worker)
        await asyncio.sleep(SWEEP_SECONDS)


async def sweep(app: App) -> None:
    """Each second: ring for due and orphaned jobs, at most every five seconds for the same one."""
    rung: dict[tuple[int, int], float] = {}
    housekeeping = 0.0
    while True:
        try:
            now = time.monotonic()
            rung = {job: at for job, at in rung.items() if now - at < RING_AGAIN_SECONDS}
            for job in await app.upkeep.due_jobs():
                if job not in rung:
                    rung[job] = now
                    await app.doorbell.ring(*job)
            if now - housekeeping > HOUSEKEEPING_SECONDS:
                housekeeping = now
                await app.upkeep.sweep_reservations()
                await ensure_month_partitions(server_urls(app.settings)[0])
        except StorageUnavailable as error:
            log.warning("sweep_waits_for_storage", reason=str(error))
        except OSError as error:
            log.warning("housekeeping_waits_for_storage", reason=str(error))
        await asyncio.sleep(SWEEP_SECONDS)


async def beat(app: App) -> None:
    """Each second; raises Fenced when this process was declared dead, so that it begins anew."""
    while True:
        try:
            if not await app.workers.beat(app.worker_id):
                raise Fenced(f"worker {app.worker_id}")
        except StorageUnavailable as error:
            log.warning("beat_missed", reason=str(error))
        await asyncio.sleep(1.0)


async def _closed(worker: Worker) -> None:
    try:
        async with asyncio.timeout(5):
            await worker.close()
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        log.debug("queue_close_failed", reason=str(error))
