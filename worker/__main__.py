"""Entry point of `python -m worker`: runs silent jobs until SIGTERM."""

from __future__ import annotations

import gc

if __name__ == "__main__":
    # The garbage collector stays off until all modules are loaded: its runs take a fifth of the start.
    gc.disable()
    from shared.supervision.watchdog import start_watchdog

    # The watchdog starts before the large imports, so that it also notices a start that hangs.
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
    """Run arq's worker with a cron job for each duty, and perform duties that no cron job has started."""
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
"""Loops of the worker, which all run until one raises or the process stops."""


async def work(app: App, stop: asyncio.Event) -> int:
    """Run all loops until `stop` is set, then cancel them; return exit code 0. Raises the error that ended a
    loop.
    """
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
    """Load models and counters in the background, so that the first job need not wait for them."""
    await app.warm_up.run()
    log.info("worker_warmed_up")


def main() -> int:
    """Run the worker process until SIGTERM; return its exit code, 2 for a bad configuration."""
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
