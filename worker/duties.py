"""The duties of a worker: each has its own timer, timeout and errors, so that none can hold up another."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

import structlog

from shared.adapters.postgres.db.partitions import ensure_month_partitions
from shared.bootstrap.app import App
from shared.bootstrap.from_settings import resolve_server_urls
from shared.core.ops.duties import SCHEDULES, DutyName
from shared.core.values.errors import StorageUnavailable

log = structlog.get_logger(__name__)

CONSOLIDATION_HOUR = 3
"""Local hour of the deployment from which each person's notes are tidied, once a day."""
RETRY_SECONDS = 1.0
"""Least seconds between two runs of a duty that failed or has more to do."""

Run: TypeAlias = Callable[[App], Awaitable[object]]
"""Performs one portion of a duty; returns true if there may be more to do at once."""


async def list_sessions(app: App) -> bool:
    return await app.stores.session_list.catch_up()


async def finish_erasures(app: App) -> None:
    await app.erasure.finish_pending()


async def sweep_reservations(app: App) -> None:
    await app.stores.jobs.sweep_reservations()


async def index_recall(app: App) -> None:
    await app.recall_indexer.sweep()


async def count_hours(app: App) -> bool:
    return await app.stores.hour_counts.catch_up()


async def request_owed_flushes(app: App) -> None:
    await app.stores.flushes.request_owed_flushes()


async def backfill_contacts(app: App) -> bool:
    return await app.stores.jobs.backfill_contacts() > 0


async def settle_page_deliveries(app: App) -> None:
    await app.stores.jobs.settle_pages()


async def request_consolidation(app: App) -> None:
    await app.stores.consolidation.request_due(timezone=app.settings.timezone, hour=CONSOLIDATION_HOUR)


async def make_partitions(app: App) -> None:
    await ensure_month_partitions(resolve_server_urls(app.settings)[0])


async def sweep_retention(app: App) -> None:
    await app.retention.sweep()


DUTIES: Mapping[DutyName, Run] = {
    "session_list": list_sessions,
    "erasures": finish_erasures,
    "reservations": sweep_reservations,
    "recall_index": index_recall,
    "hourly_stats": count_hours,
    "owed_flushes": request_owed_flushes,
    "contacts": backfill_contacts,
    "page_deliveries": settle_page_deliveries,
    "consolidation": request_consolidation,
    "partitions": make_partitions,
    "retention": sweep_retention,
}


async def run_duties(app: App) -> None:
    """Repeat every duty until cancelled, each in a separate task."""
    async with asyncio.TaskGroup() as group:
        for name in DUTIES:
            group.create_task(repeat_duty(app, name))


async def repeat_duty(app: App, name: DutyName) -> None:
    while True:
        more = await perform_duty(app, name)
        await asyncio.sleep(RETRY_SECONDS if more else SCHEDULES[name].seconds)


async def perform_duty(app: App, name: DutyName) -> bool:
    """Run a duty once, within its timeout; return whether there may be more to do. Errors are logged."""
    try:
        async with asyncio.timeout(SCHEDULES[name].timeout_seconds):
            return await DUTIES[name](app) is True
    except TimeoutError:
        log.warning("duty_timed_out", duty=name, seconds=SCHEDULES[name].timeout_seconds)
    except (StorageUnavailable, OSError) as error:
        log.warning("duty_storage_unavailable", duty=name, reason=f"{type(error).__name__}: {error}")
    except Exception as error:
        log.exception("duty_failed", duty=name, reason=f"{type(error).__name__}: {error}")
    return False
