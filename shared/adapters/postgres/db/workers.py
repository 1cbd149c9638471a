"""Heartbeats of processes, by which Postgres' clock decides which processes live."""

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
"""Select the timeline of the write-ahead log, which changes when a standby is promoted.

Every role may read it. `pg_control_checkpoint` would show a promotion only after the first checkpoint.
"""
_NOT_TOLD = (
    asyncpg.InsufficientPrivilegeError,
    asyncpg.UndefinedFunctionError,
    asyncpg.FeatureNotSupportedError,
)
"""Exceptions of servers that do not reveal the timeline."""
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatResult:
    """Answer of the database to a heartbeat."""

    started_at: datetime
    """Registration time of the row.

    After a failover to a standby that was behind, the same id may be another process's row.
    """
    timeline: str
    """Timeline of the write-ahead log; "" if the server does not reveal it."""


class PostgresWorkers:
    """Registry of processes in table `workers`; each method raises StorageUnavailable.

    The result of `health` is stored with every heartbeat; `beaten` is called after each.
    """

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
        """Register this process with its role and its system's process id; return the registration's id.

        `instead_of` is the id of a registration of the same role whose process has surely ended: it is ended
        too, so that its leases expire at once. None ends none.
        """
        worker_id: int = await self._pool.fetchval(_REGISTER, role, os.getpid(), instead_of)
        return worker_id

    @store_method
    async def beat(self, worker_id: int) -> HeartbeatResult | None:
        """Store a heartbeat and this process's health, then call `beaten`.

        Returns None, without calling it, if the registration has ended: then this process was declared dead
        and must stop using the id.
        """
        started_at: datetime | None = await self._pool.fetchval(_BEAT, worker_id, self._health())
        if started_at is None:
            return None
        beat = HeartbeatResult(started_at=started_at, timeline=await self._timeline())
        self._beaten()
        return beat

    async def _timeline(self) -> str:
        """Return the timeline, read outside of the heartbeat's transaction, which must not fail with it."""
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
        """Store the server's timeline; return whether it has changed since it was last stored.

        One process alone gets True for a change; the first timeline ever stored is no change. After a change,
        numbers of events may have been assigned twice, so the same transaction raises `log_epoch`, and all
        screens reload. Raises StorageUnavailable, or asyncpg's error if the server does not reveal its
        timeline.
        """
        another: bool = await self._pool.fetchval("SELECT note_timeline()")
        return another

    @store_method
    async def stop(self, worker_id: int) -> None:
        """End the registration of a process that stops; its leases expire at once for other processes.

        Raises StorageUnavailable.
        """
        await self._pool.execute("UPDATE workers SET stopped_at = now() WHERE id = $1", worker_id)
