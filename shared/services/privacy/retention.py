"""What is older than its retention goes, table by table, and conversations that nobody uses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import structlog

from shared.core.values.errors import StorageUnavailable
from shared.services.privacy.erasure import ErasureService

log = structlog.get_logger(__name__)


class RetentionStore(Protocol):
    async def sweep(self, table: str) -> int: ...
    async def list_idle_sessions(self, days: int, *, limit: int = 20) -> list[int]: ...


class RetentionService:
    def __init__(
        self, *, store: RetentionStore, tables: Sequence[str], forgetting: ErasureService, days: int | None
    ) -> None:
        """`days` after its last message a conversation is forgotten; None keeps it."""
        self._store = store
        self._tables = tables
        self._forgetting = forgetting
        self._days = days

    async def sweep(self) -> dict[str, int]:
        """How many rows of which table went; a table that takes too long stops no other."""
        done: dict[str, int] = {}
        for table in self._tables:
            try:
                done[table] = await self._store.sweep(table)
            except StorageUnavailable as error:
                log.warning("retention_deferred", table=table, reason=str(error))
        gone = {table: number for table, number in done.items() if number}
        if idle := await self._erase_idle_sessions():
            gone["conversations"] = idle
        if gone:
            log.info("retention_swept", **gone)
        return gone

    async def _erase_idle_sessions(self) -> int:
        if self._days is None:
            return 0
        sessions = await self._store.list_idle_sessions(self._days)
        for session_id in sessions:
            await self._forgetting.erase_session(session_id)
        return len(sessions)
