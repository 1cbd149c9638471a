"""`python -m worker`: silent jobs until SIGTERM."""

from __future__ import annotations

import gc

if __name__ == "__main__":
    # Until all that follows is loaded: looking for garbage meanwhile takes a fifth of the start.
    gc.disable()

import asyncio
import signal
import sys

import structlog

from shared.bootstrap.app import open_app
from shared.bootstrap.logs import configure_logs
from shared.bootstrap.process import CONFIGURATION_ERRORS, report_refusal
from shared.config.settings import load_settings
from shared.core.values.errors import EvertalkError
from shared.runtime import freeze_loaded_objects
from worker.duties import run_duties
from worker.jobs import index_knowledge, keep_erasure_log, run_arq, sweep, watch_heartbeat

log = structlog.get_logger(__name__)


async def run() -> None:
    settings = load_settings()
    configure_logs(settings, process="worker")
    app = await open_app(settings, role="worker")
    stop = asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(name, stop.set)
    work = (run_arq, sweep, run_duties, keep_erasure_log, watch_heartbeat, index_knowledge)
    tasks = [asyncio.ensure_future(task(app)) for task in work]
    stopping = asyncio.ensure_future(stop.wait())
    log.info("worker_ready", worker_id=app.worker_id)
    try:
        done, _ = await asyncio.wait([*tasks, stopping], return_when=asyncio.FIRST_COMPLETED)
        for task in done - {stopping}:
            task.result()
    finally:
        for task in (*tasks, stopping):
            task.cancel()
        await asyncio.wait(tasks, timeout=8)
        await app.close()


def main() -> int:
    freeze_loaded_objects()
    try:
        asyncio.run(run())
    except CONFIGURATION_ERRORS as error:
        return report_refusal("worker", error)
    except (EvertalkError, ValueError) as error:
        sys.stderr.write(f"evertalk worker: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
