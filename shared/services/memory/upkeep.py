"""Upkeep of memory by the worker: merging notes at night, and indexing hidden messages and notes."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from datetime import date
from typing import Any, Protocol

import structlog

from shared.core.memory.consolidation import LiveNote, TidyPlan, plan_tidying
from shared.core.session.session_state import JobClaim, JobDone
from shared.core.values.errors import StorageUnavailable
from shared.runtime import CrashPoint
from shared.work_marks import mark_work

log = structlog.get_logger(__name__)

PLAN_SECONDS = 60.0
MAX_BATCHES = 50
"""Most batches of one session in a row; the next sweep continues."""


class ConsolidationStore(Protocol):
    """Store of live notes, and of the changes that tidying makes."""

    async def load_live_notes(self, session_id: int) -> Sequence[LiveNote]: ...
    async def load_today(self, timezone: str) -> date: ...
    async def apply_plan(self, job: JobClaim, plan: TidyPlan) -> Mapping[str, int]: ...


class RecallIndexStore(Protocol):
    """Store of the search index."""

    async def list_unindexed(self, *, limit: int = 20) -> list[int]: ...
    async def index_session(self, session_id: int) -> bool: ...
    async def index_notes(self) -> int: ...


class MemoryConsolidator:
    """Nightly merging of a person's notes, without a model; every change can be undone."""

    def __init__(self, store: ConsolidationStore, *, timezone: str, crash_point: CrashPoint) -> None:
        self._store = store
        self._timezone = timezone
        self._crash_point = crash_point

    async def consolidate(self, job: JobClaim) -> JobDone:
        """Merge duplicate notes and mark outdated ones; return the job's end.

        Running it again changes nothing more.
        """
        notes = await self._store.load_live_notes(job.session_id)
        today = await self._store.load_today(self._timezone)
        async with asyncio.timeout(PLAN_SECONDS):
            plan = await asyncio.to_thread(plan_tidying, notes, today=today)
        done: dict[str, Any] = dict(await self._store.apply_plan(job, plan))
        self._crash_point("after_tidy")
        if plan.refused:
            done["refused"] = (
                f"{plan.refused} of {len(notes)} notes look like doubles: too many for one night"
            )
        return JobDone(outcome={"notes": len(notes), **done})


class RecallIndexer:
    """Indexer that finds rows by polling, so that a lost announcement only delays them."""

    def __init__(
        self, store: RecallIndexStore, *, crash_point: CrashPoint, given_up: Collection[str] = ()
    ) -> None:
        """Set up the indexer; `given_up` has keys of work that crashed processes and is not tried again."""
        self._given_up = given_up
        self._store = store
        self._crash_point = crash_point

    async def index_session(self, session_id: int) -> None:
        """Index the hidden turns of one session, and new notes.

        If Postgres is unavailable, the next sweep does it.
        """
        self._crash_point("before_indexing")
        try:
            await self._session(session_id)
            await self._store.index_notes()
        except StorageUnavailable as error:
            log.warning("indexing_storage_unavailable", session_id=session_id, reason=str(error))

    async def sweep(self) -> None:
        """Index all hidden messages and notes that are not searchable yet. Raises StorageUnavailable."""
        for session_id in await self._store.list_unindexed():
            await self._session(session_id)
        for _ in range(MAX_BATCHES):
            if not await self._store.index_notes():
                break

    async def _session(self, session_id: int) -> None:
        if f"index {session_id}" in self._given_up:
            return
        with mark_work("index", session_id):
            for _ in range(MAX_BATCHES):
                if not await self._store.index_session(session_id):
                    break
