"""How a process that talks with people begins and ends: its loop, its signals, its services."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import structlog

from shared.adapters.models.catalog import ModelsFileBroken
from shared.adapters.postgres.db.readiness import SchemaUnknown
from shared.bootstrap.app import App, open_app
from shared.bootstrap.foundation import Role
from shared.config.settings import BadSettings, Settings
from shared.core.session.policy import ContradictoryPolicy
from shared.core.values.errors import EvertalkError
from shared.runtime import freeze_loaded_objects

log = structlog.get_logger(__name__)

EXIT_BAD_SETTINGS = 2
EXIT_CANNOT_START = 3
EXIT_REPLACED = 4
"""The database does not know this process any more: it begins anew, under another number."""

CONFIGURATION_ERRORS = (BadSettings, ContradictoryPolicy, ModelsFileBroken, SchemaUnknown)
"""What an operator has configured cannot be used: starting again would not help, so nobody does."""

ProcessMain = Callable[[App, asyncio.Event], Awaitable[int]]
"""Goes on until the event is set; returns the exit code."""


def run_process(settings: Settings, *, role: Role, work: ProcessMain) -> int:
    """Until SIGTERM or SIGINT, both heard from before anything is connected; returns the exit code."""
    freeze_loaded_objects()
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(_serve(settings, role, work))


def _loop_factory() -> Any:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


async def _serve(settings: Settings, role: Role, work: ProcessMain) -> int:
    stop = asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(name, stop.set)
    try:
        app = await open_app(settings, role=role)
    except CONFIGURATION_ERRORS as error:
        return report_refusal(role, error)
    except (EvertalkError, OSError, ValueError) as error:
        log.error("cannot_start", reason=str(error))
        return EXIT_CANNOT_START
    looking = asyncio.create_task(_stop_when_lost(app, stop))
    try:
        code = await work(app, stop)
        return EXIT_REPLACED if app.heartbeat.is_lost else code
    finally:
        looking.cancel()
        await asyncio.wait([looking])
        await app.close()


async def _stop_when_lost(app: App, stop: asyncio.Event) -> None:
    await app.heartbeat.lost.wait()
    log.error("process_replaced", worker_id=app.worker_id)
    stop.set()


def report_refusal(role: Role, error: Exception) -> int:
    """Said without a log's clothing: the supervisor shows it to whoever started it."""
    advice = getattr(error, "advice", "")
    for line in f"{error}\n{advice}".strip().splitlines():
        sys.stderr.write(f"evertalk {role}: {line}\n")
    return EXIT_BAD_SETTINGS
