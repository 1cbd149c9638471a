"""Duties of the workers; each has its own schedule, timeout and errors, so that none delays another."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

import structlog
from arq.cron import CronJob, cron
from arq.typing import WorkerCoroutine

from shared.adapters.postgres.db.partitions import ensure_month_partitions
from shared.bootstrap.app import App
from shared.bootstrap.from_settings import resolve_server_urls
from shared.core.ops.duties import SCHEDULES, DutyName
from shared.core.values.errors import StorageUnavailable

log = structlog.get_logger(__name__)

CONSOLIDATION_HOUR = 3
"""Hour of the deployment's time zone from which the notes of each person are consolidated, once a day."""
LOOK_SECONDS = 1.0
"""Seconds between two checks of the schedule."""
PATIENCE_SECONDS = 1.0
"""Seconds that a duty may be overdue before a check performs it; a cron job usually starts it within 0.3."""
PORTIONS_SECONDS = 5.0
"""Seconds after which a duty ends its run although there is more to do, so that its success is stored."""
GRACE_SECONDS = 20.0
"""Seconds that arq grants beyond a duty's timeout, for its last statement and the storing of its end."""

Run: TypeAlias = Callable[[App], Awaitable[object]]
"""Function that performs one portion of a duty; returns True if there may be more to do at once."""


async def list_sessions(app: App) -> bool:
    """Bring the dashboard's stored list of sessions up to date by one portion; return whether there may be
    more.
    """
    return await app.stores.session_list.catch_up()


async def finish_erasures(app: App) -> None:
    """Finish erasures that a stopped process left unfinished."""
    await app.erasure.finish_pending()


async def sweep_reservations(app: App) -> None:
    """Release reservations of money that ended turns and jobs have left behind."""
    await app.stores.jobs.sweep_reservations()


async def index_recall(app: App) -> None:
    """Index hidden messages and notes for search, and compute vectors of passages if there is an encoder."""
    await app.recall_indexer.sweep()
    if app.passage_encoder is not None:
        await app.passage_encoder.sweep()


async def count_hours(app: App) -> bool:
    """Add up the dashboard's statistics of past hours by one portion; return whether there may be more."""
    return await app.stores.hour_counts.catch_up()


async def request_owed_flushes(app: App) -> None:
    """Store a flush job for each session with hidden turns from which no flush has saved notes."""
    await app.stores.flushes.request_owed_flushes()


async def backfill_contacts(app: App) -> bool:
    """Copy the person's name and kind into sessions that lack them; return whether there may be more."""
    return await app.stores.jobs.backfill_contacts() > 0


async def settle_page_deliveries(app: App) -> None:
    """Mark answers on the web as delivered a minute after their turn has ended."""
    await app.stores.jobs.settle_pages()


async def request_consolidation(app: App) -> None:
    """Store the jobs that consolidate people's notes, once a day from `CONSOLIDATION_HOUR` on."""
    await app.stores.consolidation.request_due(timezone=app.settings.timezone, hour=CONSOLIDATION_HOUR)


async def make_partitions(app: App) -> None:
    """Create the monthly partitions of large tables for the coming months."""
    await ensure_month_partitions(resolve_server_urls(app.settings)[0])


async def sweep_retention(app: App) -> None:
    """Delete rows whose retention period has ended, and conversations that were not used for long."""
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
"""Function of each duty by its name; `SCHEDULES` has the periods."""


class DutyRunner:
    """Runner of due duties; the schedule is in the database, where one worker claims each run.

    arq's cron jobs start a duty when it is due. If Redis is unavailable or arq has no free slot, a check of
    the schedule each second finds overdue duties.
    """

    def __init__(self, app: App) -> None:
        self._app = app
        self._running: set[DutyName] = set()

    def list_cron_jobs(self) -> list[CronJob]:
        """Return a cron job of arq for each duty, which performs it at its times."""
        return [
            cron(self._build_ring(name), name=f"duty:{name}", timeout=one.timeout_seconds + GRACE_SECONDS,
                 **build_cron_times(one.seconds))
            for name, one in SCHEDULES.items()
        ]  # fmt: skip

    def _build_ring(self, name: DutyName) -> WorkerCoroutine:
        async def perform_duty(ctx: dict[Any, Any], *args: Any, **kwargs: Any) -> None:
            await self.perform(name)

        return perform_duty

    async def run_overdue(self) -> None:
        """Perform overdue duties that no cron job has started, until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                for name in await self._list_overdue():
                    group.create_task(self.perform(name))
                await asyncio.sleep(LOOK_SECONDS)

    async def _list_overdue(self) -> list[DutyName]:
        try:
            overdue = await self._app.stores.duties.list_overdue(
                list(DUTIES), patience_seconds=PATIENCE_SECONDS
            )
        except StorageUnavailable as error:
            log.warning("duties_storage_unavailable", reason=str(error))
            return []
        return [name for name in DUTIES if name in overdue]

    async def perform(self, name: DutyName) -> bool:
        """Claim a duty, run it and store its end; return False if it was not run.

        It is not run if it is not due, runs in this process already, or the database does not answer. An
        error of the duty is stored in its row.
        """
        if name in self._running:
            return False
        self._running.add(name)
        try:
            return await self._perform(name)
        except StorageUnavailable as error:
            log.warning("duty_storage_unavailable", duty=name, reason=str(error))
            return False
        finally:
            self._running.discard(name)

    async def _perform(self, name: DutyName) -> bool:
        store, schedule = self._app.stores.duties, SCHEDULES[name]
        epoch = await store.claim(name, seconds=schedule.seconds, worker_id=self._app.worker_id)
        if epoch is None:
            return False
        began = time.monotonic()
        more, error = await run_duty(self._app, name)
        duration_ms = round((time.monotonic() - began) * 1000)
        await store.end(name, epoch=epoch, duration_ms=duration_ms, error=error, more=more)
        return True


def build_cron_times(seconds: int) -> dict[str, Any]:
    """Return the times of a cron job with a period in seconds that divides a minute or an hour."""
    if seconds < 60:
        return {"second": set(range(0, 60, seconds))}
    return {"minute": set(range(0, 60, seconds // 60)), "second": 0}


async def run_duty(app: App, name: DutyName) -> tuple[bool, str]:
    """Run a duty portion by portion within its timeout, for about `PORTIONS_SECONDS`; never raise its errors.

    Returns whether there may be more to do, and the error text, empty after a success.
    """
    until = time.monotonic() + PORTIONS_SECONDS
    try:
        async with asyncio.timeout(SCHEDULES[name].timeout_seconds):
            while await DUTIES[name](app) is True:
                if time.monotonic() > until:
                    return True, ""
            return False, ""
    except TimeoutError:
        log.warning("duty_timed_out", duty=name, seconds=SCHEDULES[name].timeout_seconds)
        return False, f"It took longer than {SCHEDULES[name].timeout_seconds:.0f} seconds."
    except (StorageUnavailable, OSError) as error:
        log.warning("duty_failed", duty=name, reason=f"{type(error).__name__}: {error}")
        return False, f"{type(error).__name__}: {error}"
    except Exception as error:
        log.exception("duty_failed", duty=name, reason=f"{type(error).__name__}: {error}")
        return False, f"{type(error).__name__}: {error}"
