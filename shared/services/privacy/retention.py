"""Retention: deletes rows older than their period, table by table, and unused conversations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import structlog

from shared.core.values.errors import StorageUnavailable
from shared.services.privacy.erasure import ErasureService

log = structlog.get_logger(__name__)


class RetentionStore(Protocol):
    """Store that deletes rows older than their period, and returns their number.

    `list_idle_sessions` returns conversations with text that were not used for `days` days, without people on
    hold.
    """

    async def sweep(self, table: str) -> int: ...
    async def list_idle_sessions(self, days: int, *, limit: int = 20) -> list[int]: ...


class RetentionService:
    """Service that deletes rows past their retention period, and unused conversations."""

    def __init__(
        self, *, store: RetentionStore, tables: Sequence[str], forgetting: ErasureService, days: int | None
    ) -> None:
        """Create the service; it erases conversations unused for `days` days, or none if `days` is None."""
        self._store = store
        self._tables = tables
        self._forgetting = forgetting
        self._days = days

    async def sweep(self) -> dict[str, int]:
        """Delete expired rows, and at most 20 unused conversations; return the numbers by table, without
        zeros.

        A table that fails in any way does not stop the others; StorageUnavailable with all reasons is raised
        last.
        """
        gone: dict[str, int] = {}
        failed: dict[str, Exception] = {}
        for table in self._tables:
            try:
                gone[table] = await self._store.sweep(table)
            except StorageUnavailable as error:
                log.warning("retention_deferred", table=table, reason=str(error))
                failed[table] = error
            except Exception as error:
                log.exception("retention_failed", table=table, reason=f"{type(error).__name__}: {error}")
                failed[table] = error
        gone["conversations"] = await self._erase_idle_sessions()
        gone = {name: number for name, number in gone.items() if number}
        if gone:
            log.info("retention_swept", **gone)
        if failed:
            reasons = "; ".join(f"{table}: {error}" for table, error in failed.items())
            raise StorageUnavailable(reasons) from next(iter(failed.values()))
        return gone

    async def _erase_idle_sessions(self) -> int:
        if self._days is None:
            return 0
        sessions = await self._store.list_idle_sessions(self._days)
        for session_id in sessions:
            await self._forgetting.erase_session(session_id)
        return len(sessions)
