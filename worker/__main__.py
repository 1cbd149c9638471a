"""`python -m worker`: silent jobs until SIGTERM."""

from __future__ import annotations

import gc

if __name__ == "__main__":
    # Until all that follows is loaded: looking for garbage meanwhile takes a fifth of the start.
    gc.disable()
    from shared.supervision.watchdog import start_watchdog

    # Before anything is imported: the watch-dog is small, and it sees a start that stands still.
    start_watchdog("worker")

import asyncio
import sys
from functools import partial

import structlog

from shared.bootstrap.app import App
from shared.bootstrap.logs import configure_logs
from shared.bootstrap.process import report_refusal, run_process
from shared.config.settings import BadSettings, load_settings
from shared.core.values.errors import EvertalkError
from worker.duties import DutyRunner
from worker.jobs import (
    import_files,
    index_knowledge,
    keep_erasure_log,
    request_import_summaries,
    run_arq,
    send_hooks,
    sweep,
    watch_heartbeat,
)

log = structlog.get_logger(__name__)


async def run_queue_and_duties(app: App) -> None:
    """Run arq's worker, with a cron job for each duty, and look for what no cron job rang for."""
    duties = DutyRunner(app)
    await asyncio.gather(run_arq(app, duties.list_cron_jobs()), duties.run_overdue())


WORK = (
    run_queue_and_duties,
    sweep,
    keep_erasure_log,
    watch_heartbeat,
    index_knowledge,
    send_hooks,
    import_files,
    request_import_summaries,
)


async def work(app: App, stop: asyncio.Event) -> int:
    """Do silent jobs until `stop`; returns the exit code. Raises what ended one of the loops."""
    tasks = [asyncio.ensure_future(task(app)) for task in WORK]
    stopping = asyncio.ensure_future(stop.wait())
    warming = asyncio.ensure_future(_warm_up(app))
    log.info("worker_ready", worker_id=app.worker_id)
    try:
        done, _ = await asyncio.wait([*tasks, stopping], return_when=asyncio.FIRST_COMPLETED)
        for task in done - {stopping}:
            task.result()
    finally:
        for task in (*tasks, stopping, warming):
            task.cancel()
        await asyncio.wait([*tasks, warming], timeout=8)
    return 0


async def _warm_up(app: App) -> None:
    """Load what the first job needs while none is due."""
    await app.warm_up.run()
    log.info("worker_warmed_up")


def main() -> int:
    try:
        settings = load_settings()
        configure = partial(configure_logs, process="worker")
        return run_process(settings, role="worker", configure=configure, work=work)
    except BadSettings as error:
        return report_refusal("worker", error)
    except (EvertalkError, ValueError) as error:
        sys.stderr.write(f"evertalk worker: {error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
