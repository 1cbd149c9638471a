"""Heartbeats: which processes live, by Postgres' clock."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import asyncpg
import structlog

from shared.adapters.postgres.db.pool import store_method

_REGISTER = """
WITH ended AS (
  UPDATE workers SET stopped_at = now() WHERE id = $3::bigint AND role = $1 AND stopped_at IS NULL
)
INSERT INTO workers (role, pid) VALUES ($1, $2) RETURNING id
"""
_BEAT = """
UPDATE workers SET beat = now(), health = $2 WHERE id = $1 AND stopped_at IS NULL RETURNING started_at
"""
_TIMELINE = "SELECT left(pg_walfile_name(pg_current_wal_insert_lsn()), 8)"
"""Everybody may ask for the name of the newest piece of the log, which begins with the timeline.

`pg_control_checkpoint` tells of a promotion only when the first checkpoint after it has ended.
"""
_NOT_TOLD = (
    asyncpg.InsufficientPrivilegeError,
    asyncpg.UndefinedFunctionError,
    asyncpg.FeatureNotSupportedError,
)
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatResult:
    """Answer of the database to a heartbeat."""

    started_at: datetime
    """A standby that was behind gives the numbers of lost rows again: another row has another beginning."""
    timeline: str
    """Empty where the server does not tell."""


class PostgresWorkers:
    """Registry of processes. `health` is stored with every beat; `beaten` is called after each."""

    def __init__(
        self,
        pool: asyncpg.Pool[asyncpg.Record],
        *,
        health: Callable[[], dict[str, Any]] = dict,
        beaten: Callable[[], None] = lambda: None,
    ) -> None:
        self._pool = pool
        self._health = health
        self._beaten = beaten
        self._tells_timeline = True

    @store_method
    async def register(self, role: str, *, instead_of: int | None = None) -> int:
        """`instead_of` has surely ended: all its leases lapse at once."""
        worker_id: int = await self._pool.fetchval(_REGISTER, role, os.getpid(), instead_of)
        return worker_id

    @store_method
    async def beat(self, worker_id: int) -> HeartbeatResult | None:
        """Store a heartbeat; None if this process was declared dead and must stop using the id."""
        started_at: datetime | None = await self._pool.fetchval(_BEAT, worker_id, self._health())
        if started_at is None:
            return None
        beat = HeartbeatResult(started_at=started_at, timeline=await self._timeline())
        self._beaten()
        return beat

    async def _timeline(self) -> str:
        """Not in the transaction of the beat, which holds where this is refused."""
        if not self._tells_timeline:
            return ""
        try:
            timeline: str = await self._pool.fetchval(_TIMELINE)
        except _NOT_TOLD as error:
            self._tells_timeline = False
            log.warning("timeline_announcement_failed", reason=str(error))
            return ""
        return timeline

    @store_method
    async def record_timeline(self) -> bool:
        """True for who finds another one than before: numbers of events may stand for others now, and
        `log_epoch` is raised, by which every screen begins afresh.
        """
        another: bool = await self._pool.fetchval("SELECT note_timeline()")
        return another

    @store_method
    async def stop(self, worker_id: int) -> None:
        """Expire all leases of this process, so that another continues at once."""
        await self._pool.execute("UPDATE workers SET stopped_at = now() WHERE id = $1", worker_id)
