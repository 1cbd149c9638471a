"""Removal of erased text that is left in Postgres' files: dead rows and the write-ahead log."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from datetime import datetime

import asyncpg
import structlog

from shared.adapters.postgres.db.pool import PoolStore, store_method
from shared.adapters.postgres.privacy.erasure_map import STEPS

log = structlog.get_logger(__name__)

LEAST_SECONDS = 60.0
"""Minimum seconds between two attempts, since a checkpoint writes all changed pages."""
_NOT_OURS = (
    asyncpg.InsufficientPrivilegeError,
    asyncpg.FeatureNotSupportedError,
    asyncpg.UndefinedFunctionError,
    asyncpg.ObjectNotInPrerequisiteStateError,
)
"""Errors of managed servers that refuse these rights, and of standbys."""
_NEWEST = """
SELECT max(finished_at) FROM (SELECT finished_at FROM erasures ORDER BY id DESC LIMIT 200) newest
"""


class PostgresLeftovers(PoolStore):
    """Store that removes erased text from Postgres' files. It raises StorageUnavailable."""

    def __init__(
        self, pool: asyncpg.Pool[asyncpg.Record], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(pool)
        self._clock = clock
        self._cleared: datetime | None = None
        self._tried: float | None = None
        self._refused = False

    @store_method
    async def clear(self) -> bool:
        """Vacuum dead rows and switch the write-ahead log after the newest erasure; return whether it did.

        Returns False without a new erasure, within `LEAST_SECONDS` of the last attempt, and after the server
        refused the right: then the log expires when the server recycles it. Dead rows are removed first,
        since the next change next to one logs its whole page.
        """
        now = self._clock()
        if self._refused or (self._tried is not None and now - self._tried < LEAST_SECONDS):
            return False
        newest = await self._pool.fetchval(_NEWEST)
        if newest is None or newest == self._cleared:
            return False
        self._tried = now
        try:
            await self._begin_log_anew()
        except _NOT_OURS as error:
            self._refused = True
            log.info("log_not_rotated_after_erasure", reason=str(error))
            return False
        self._cleared = newest
        return True

    async def _begin_log_anew(self) -> None:
        async with self._pool.acquire() as connection:
            for table in STEPS:
                # A busy or large table is left to the server's autovacuum.
                with contextlib.suppress(asyncpg.QueryCanceledError, TimeoutError):
                    await connection.execute(f"VACUUM (SKIP_LOCKED, TRUNCATE OFF) {table}")
            await connection.execute("SELECT pg_switch_wal()")
            await connection.execute("CHECKPOINT")
