"""Heartbeat of this process from a separate thread, so that a busy event loop does not lose its leases."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

import asyncpg
import structlog

from shared.adapters.postgres.db.leases import LEASE_SECONDS
from shared.adapters.postgres.db.workers import PostgresWorkers
from shared.adapters.postgres.db.write_probe import WriteState, classify_refusal
from shared.core.values.errors import EvertalkError

log = structlog.get_logger(__name__)

BEAT_SECONDS = 1.0
"""Seconds between two heartbeats, and between two refreshes of the health report."""
READY_SECONDS = 3.0
"""Seconds after a written heartbeat until the database counts as refusing writes; two were then missed."""
VOUCH_SECONDS = 30.0
"""Seconds without a round of the event loop after which no heartbeat is sent, so that leases expire."""
LOOK_SECONDS = 0.25
"""Seconds between two measurements of the event loop's lag."""
STEPS = 4
"""Rounds of the event loop in one measurement; a reply of the database needs about as many."""
FADES_SECONDS = 2.0
"""Half-life in seconds of a measured lag, since a busy loop has short rounds between long ones."""
STEP_SECONDS = 8.0
"""Maximum seconds for opening the pool, and for the thread's end."""

if TYPE_CHECKING:
    Pool = asyncpg.Pool[asyncpg.Record]


class HeartbeatThread:
    """Thread that writes the heartbeats of this process, even while its event loop is busy.

    Call `start` once the process is registered as `worker_id`, and run `watch` in its event loop. Each
    attribute is written by one of the two threads and read by the other, always in one step.
    """

    def __init__(
        self,
        open_pool: Callable[[], Awaitable[Pool]],
        worker_id: int,
        *,
        health: Callable[[], Mapping[str, Any]] = dict,
        waited: Callable[[], float] = lambda: 0.0,
        beaten: Callable[[], None] = lambda: None,
    ) -> None:
        self._open_pool = open_pool
        self._worker_id = worker_id
        self._health_now = health
        self._health: dict[str, Any] = {}
        self._waited = waited
        self._beaten = beaten
        self.last_beat = time.monotonic()
        """Monotonic time, in seconds, at which the newest beat that reached the database began."""
        self.refusal: WriteState = "unreachable"
        """Reason why the newest failed beat was not written."""
        self.is_lost = False
        """True if the database has declared this process dead, or does not know it."""
        self.lost = asyncio.Event()
        """Event for the event loop; `watch` sets it once `is_lost` is true."""
        self.timeline = ""
        """Timeline of the database, which a promotion changes; empty if the server does not report it."""
        self.lag_seconds = 0.0
        """Recent lag of the event loop, or wait for a database connection, in seconds; the longer of both."""
        self._came_round = self.last_beat
        self._silent = False
        self._stops = False
        self._since: datetime | None = None
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self._ended: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None

    def start(self) -> None:
        """Start the thread; call this once."""
        self._thread.start()

    @property
    def silent_seconds(self) -> float:
        """Age in seconds of the newest written heartbeat, from its beginning; before the first, of this
        object.
        """
        return time.monotonic() - self.last_beat

    @property
    def write_state(self) -> WriteState:
        """State of writes: `ok` if a beat was written in the last 3 seconds, else the `refusal`."""
        return "ok" if self.silent_seconds <= READY_SECONDS else self.refusal

    async def stop(self) -> None:
        """Stop the heartbeats; wait at most STEP_SECONDS for the thread to end."""
        self._stops = True
        if self._ended is not None:
            loop, ended = self._ended
            loop.call_soon_threadsafe(ended.set)
        if self._thread.is_alive():
            await asyncio.to_thread(self._thread.join, STEP_SECONDS)

    async def watch(self) -> None:
        """Measure the lag of the event loop and refresh the health report, until the task is cancelled."""
        told = 0.0
        while True:
            began = time.monotonic()
            await asyncio.sleep(LOOK_SECONDS)
            for _ in range(STEPS):
                await asyncio.sleep(0)
            self._came_round = now = time.monotonic()
            late = now - began - LOOK_SECONDS
            faded = self.lag_seconds * 0.5 ** ((now - began) / FADES_SECONDS)
            self.lag_seconds = max(late, self._waited(), faded)
            if late > LEASE_SECONDS:
                log.warning("event_loop_blocked", seconds=round(late, 1))
            if self.is_lost:
                self.lost.set()
            if now - told >= BEAT_SECONDS:
                told = now
                self._health = dict(self._health_now())

    # -- run by the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        asyncio.run(self._live())

    async def _live(self) -> None:
        ended = asyncio.Event()
        self._ended = asyncio.get_running_loop(), ended
        pool: Pool | None = None
        workers: PostgresWorkers | None = None
        while not (self._stops or ended.is_set()):
            try:
                if workers is None:
                    async with asyncio.timeout(STEP_SECONDS):
                        pool = await self._open_pool()
                    workers = PostgresWorkers(pool, health=lambda: self._health, beaten=self._beaten)
                await self._beat(workers)
            except (EvertalkError, TimeoutError) as error:
                self.refusal = classify_refusal(error)
                log.warning("heartbeat_write_failed", reason=str(error))
            except Exception:
                log.exception("heartbeat_failed")
            try:
                async with asyncio.timeout(BEAT_SECONDS):
                    await ended.wait()
            except TimeoutError:
                continue
        if pool is not None:
            pool.terminate()

    async def _beat(self, workers: PostgresWorkers) -> None:
        began = time.monotonic()
        if (silent := began - self._came_round) > VOUCH_SECONDS:
            if not self._silent:
                log.error("event_loop_stalled", seconds=round(silent, 1))
            self._silent = True
            return
        self._silent = False
        beat = await workers.beat(self._worker_id)
        if beat is None or self._since not in (None, beat.started_at):
            self.is_lost = True
            return
        self._since, self.timeline = beat.started_at, beat.timeline
        late, self.last_beat = began - self.last_beat, began
        if late > LEASE_SECONDS:
            # Other processes may have taken over this one's work; the log shows why.
            log.warning("heartbeats_late", seconds=round(late, 1))
