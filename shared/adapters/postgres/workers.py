"""Heartbeats: which processes live, by Postgres' clock."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import asyncpg

from shared.adapters.postgres.pool import store_method

_REGISTER = """
WITH ended AS (
  UPDATE workers SET stopped_at = now() WHERE id = $3::bigint AND role = $1 AND stopped_at IS NULL
)
INSERT INTO workers (role, pid) VALUES ($1, $2) RETURNING id
"""


class PostgresWorkers:
    """`health` is told with every beat, for all processes to see; `beaten` is called after each."""

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

    @store_method
    async def register(self, role: str, *, instead_of: int | None = None) -> int:
        """`instead_of` has surely ended: all its leases lapse at once."""
        worker_id: int = await self._pool.fetchval(_REGISTER, role, os.getpid(), instead_of)
        return worker_id

    @store_method
    async def beat(self, worker_id: int) -> bool:
        """False when this process was declared dead; it must not go on under that id."""
        found = await self._pool.fetchval(
            "UPDATE workers SET beat = now(), health = $2 WHERE id = $1 AND stopped_at IS NULL RETURNING id",
            worker_id,
            self._health(),
        )
        if found is not None:
            self._beaten()
        return found is not None

    @store_method
    async def stop(self, worker_id: int) -> None:
        """All leases of this process lapse at once, so that another goes on without waiting."""
        await self._pool.execute("UPDATE workers SET stopped_at = now() WHERE id = $1", worker_id)
