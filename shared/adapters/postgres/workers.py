"""Heartbeats: which processes live, by Postgres' clock."""

from __future__ import annotations

import os

import asyncpg

from shared.adapters.postgres.pool import store_method


class PostgresWorkers:
    def __init__(self, pool: asyncpg.Pool[asyncpg.Record]) -> None:
        self._pool = pool

    @store_method
    async def register(self, role: str) -> int:
        worker_id: int = await self._pool.fetchval(
            "INSERT INTO workers (role, pid) VALUES ($1, $2) RETURNING id", role, os.getpid()
        )
        return worker_id

    @store_method
    async def beat(self, worker_id: int) -> bool:
        """False when this process was declared dead; it must not go on under that id."""
        found = await self._pool.fetchval(
            "UPDATE workers SET beat = now() WHERE id = $1 AND stopped_at IS NULL RETURNING id", worker_id
        )
        return found is not None

    @store_method
    async def stop(self, worker_id: int) -> None:
        """All leases of this process lapse at once, so that another goes on without waiting."""
        await self._pool.execute("UPDATE workers SET stopped_at = now() WHERE id = $1", worker_id)
