"""Handles a database that accepts no writes: alerts from memory, and the wait at the start of a process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass

import structlog

from shared.adapters.postgres.db.connecting import CANNOT_CONNECT, open_connection
from shared.adapters.postgres.db.write_probe import WriteState, classify_refusal, probe_writes
from shared.adapters.redis.outage_claims import RedisOutageClaims
from shared.bootstrap.foundation import Foundation
from shared.bootstrap.from_settings import resolve_server_urls
from shared.bootstrap.stores import open_stores
from shared.config.settings import Settings
from shared.core.values.errors import StorageUnavailable
from shared.services.admin.alert_sender import AlertChannel
from shared.services.admin.outage_alerts import OutageMonitor

log = structlog.get_logger(__name__)

Channels = Callable[[], Mapping[str, AlertChannel]]
"""Function that returns the alert channels of this process by target."""
LOOK_SECONDS = 3.0
"""Seconds between two trial writes while a process waits for its database."""
_STATES: Mapping[str, WriteState] = {
    "standby": "read-only",
    "read_only": "read-only",
    "disk_full": "disk full",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Actions of a process while it waits for its database at the start."""

    channels: Callable[[Settings], Mapping[str, AlertChannel]] = lambda _: {}
    """Function from the settings to alert channels that need no database, by name."""
    room: Callable[[Settings, Callable[[], str]], AbstractAsyncContextManager[object]] = lambda *_: (
        nullcontext()
    )
    """Opens a context that answers people meanwhile.

    Gets a function that returns the state of the database.
    """


async def run_outage_alerts(base: Foundation, channels: Channels, *, is_alone: bool = False) -> None:
    """Send alerts while this process cannot write to its database, and store the outage afterwards; until
    cancelled.

    `is_alone` means that no other process sends to these channels.
    """
    claims = RedisOutageClaims(resolve_server_urls(base.settings)[1])
    monitor = OutageMonitor(
        claims,
        channels=channels,
        silent_seconds=lambda: base.heartbeat.silent_seconds,
        state=lambda: base.heartbeat.write_state,
        after_seconds=base.settings.alert_outage_seconds,
    )
    try:
        await monitor.run(base.stores.alerts, worker_id=base.worker_id, is_alone=is_alone)
    finally:
        await claims.close()


async def wait_for_writes(settings: Settings, stop: asyncio.Event, waiting: Waiting) -> None:
    """Wait until the database accepts writes or `stop` is set, alerting operators and answering people
    meanwhile.

    Returns at once if the database accepts writes or is unreachable: the next start of the process reports
    it.
    """
    database_url, redis_url = resolve_server_urls(settings)
    began = time.monotonic()
    state: str = await find_write_state(database_url)
    if state in ("ok", "unreachable"):
        return  # Waiting would not help: the supervisor starts the process again, which reports the error.
    claims, channels = RedisOutageClaims(redis_url), waiting.channels(settings)
    monitor = OutageMonitor(
        claims,
        channels=lambda: channels,
        silent_seconds=lambda: time.monotonic() - began,
        state=lambda: state,
        after_seconds=settings.alert_outage_seconds,
        has_beaten=False,
    )
    log.error("database_wait_started", state=state)
    try:
        async with waiting.room(settings, lambda: state):
            while state != "ok" and not stop.is_set():
                await monitor.send_due()
                await _sleep(stop, LOOK_SECONDS)
                state = await find_write_state(database_url)
        if state == "ok":
            await _record(monitor, database_url)
    finally:
        await claims.close()


async def find_write_state(database_url: str) -> WriteState:
    """Return the state of the database after a trial write that leaves nothing: `ok` or why it refuses.

    A database without our tables counts as `ok`.
    """
    try:
        async with open_connection(database_url, timeout=LOOK_SECONDS) as connection:
            refused = await probe_writes(connection)
    except (StorageUnavailable, *CANNOT_CONNECT) as error:
        return classify_refusal(error)
    if refused is None or refused.kind in ("no_schema", "forbidden", "other"):
        return "ok"  # The next start reports the problem.
    return _STATES.get(refused.kind, "unreachable")


async def _record(monitor: OutageMonitor, database_url: str) -> None:
    try:
        async with open_stores(database_url, size=1) as stores:
            await monitor.record(stores.alerts)
    except StorageUnavailable as error:
        log.warning("outage_storage_unavailable", reason=str(error))


async def _sleep(stop: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        return
