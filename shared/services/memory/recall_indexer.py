"""Makes hidden messages and notes searchable after the work that hid them: late perhaps, never lost."""

from __future__ import annotations

from typing import Protocol

import structlog

from shared.core.values.errors import StorageUnavailable
from shared.runtime.crash_points import CrashPoint

log = structlog.get_logger(__name__)

MAX_BATCHES = 50
"""Of one session in a row; what is left over is done by the next sweep."""


class RecallIndexStore(Protocol):
    async def list_unindexed(self, *, limit: int = 20) -> list[int]: ...
    async def index_session(self, session_id: int) -> bool: ...
    async def index_notes(self) -> int: ...


class RecallIndexer:
    """Looks at what the rows say, never at what was announced: asking twice is asking once."""

    def __init__(self, store: RecallIndexStore, *, crash_point: CrashPoint) -> None:
        self._store = store
        self._crash_point = crash_point

    async def index_session(self, session_id: int) -> None:
        """All hidden turns of one session, and new notes; what Postgres is away for, the sweep does later."""
        self._crash_point("before_indexing")
        try:
            await self._session(session_id)
            await self._store.index_notes()
        except StorageUnavailable as error:
            log.warning("indexing_storage_unavailable", session_id=session_id, reason=str(error))

    async def sweep(self) -> None:
        """Whatever was hidden and not made searchable; raises StorageUnavailable."""
        for session_id in await self._store.list_unindexed():
            await self._session(session_id)
        for _ in range(MAX_BATCHES):
            if not await self._store.index_notes():
                break

    async def _session(self, session_id: int) -> None:
        for _ in range(MAX_BATCHES):
            if not await self._store.index_session(session_id):
                break
