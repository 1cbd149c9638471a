"""Whether Postgres is well: the one place that decides, by what was lost and by a connection nobody has used.

Errors of a connection that dies in mid-protocol have no end: whatever it raises is storage's own until
storage was seen to be well, before and after. Only then is it held against an update, a job or a message.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import asyncpg
import structlog

from shared.core.values.errors import EvertalkError, StorageUnavailable

log = structlog.get_logger(__name__)

ANSWER_SECONDS = 3.0


class WatchedPool(asyncpg.Pool):
    """Counts the connections that it has lost. What begins with `_` is the driver's own, pinned by hash."""

    lost = 0

    async def _get_new_connection(self) -> Any:
        connection = await cast("Any", super())._get_new_connection()
        connection.add_termination_listener(self._count)
        return connection

    def _count(self, connection: Any) -> None:
        """What had been idle for long enough is closed by the pool itself, and was not lost."""
        if isinstance(connection, asyncpg.pool.PoolConnectionProxy) or not connection._aborted:
            self.lost += 1

    async def answers(self) -> bool:
        """Whether a fresh connection, which is of no other use, may write."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                connection = await cast("Any", super())._get_new_connection()
                try:
                    return bool(await connection.fetchval("SELECT NOT pg_is_in_recovery()"))
                finally:
                    connection.terminate()
        except Exception as error:  # noqa: BLE001  whatever it is, this was no answer
            log.debug("storage_does_not_answer", reason=f"{type(error).__name__}: {error}")
            return False

    async def was_well(self, *, since: int) -> bool:
        """Whether no connection was lost since `lost` was so many, and a fresh one answers."""
        return self.lost == since and await self.answers() and self.lost == since


async def blame_storage_first(pool: object, error: Exception, *, since: int) -> None:
    """Raises StorageUnavailable unless storage was well all the while; the error is our own fault then."""
    if not isinstance(pool, WatchedPool) or isinstance(error, EvertalkError):
        return
    was_well = await pool.was_well(since=since)
    if not isinstance(error, asyncpg.PostgresError):
        # A connection in a state that its driver did not expect may be in the pool: nobody uses it again.
        await pool.expire_connections()
    if not was_well:
        reason = f"{type(error).__name__}: {error}"
        log.warning("storage_failed_unexpectedly", reason=reason)
        raise StorageUnavailable(reason) from error


@asynccontextmanager
async def storage_limiter(pool: asyncpg.Pool[asyncpg.Record]) -> AsyncIterator[None]:
    """An unexpected error inside is StorageUnavailable, unless storage was well all the while."""
    since = lost_by(pool)
    try:
        yield
    except Exception as error:
        await blame_storage_first(pool, error, since=since)
        raise


def lost_by(pool: object) -> int:
    return pool.lost if isinstance(pool, WatchedPool) else 0
