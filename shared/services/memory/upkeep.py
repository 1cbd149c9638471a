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
"""Most seconds for planning the merging of one person's notes."""
MAX_BATCHES = 50
"""Most batches of one session in a row; the next sweep continues."""


class ConsolidationStore(Protocol):
    """Store of live notes, and of the changes that tidying makes.

    `apply_plan` applies the steps that are still possible and erases notes past their undo time; returns
    numbers by kind of step; raises LeaseLost. `load_today` returns the date by the database's clock.
    """

    async def load_live_notes(self, session_id: int) -> Sequence[LiveNote]: ...
    async def load_today(self, timezone: str) -> date: ...
    async def apply_plan(self, job: JobClaim, plan: TidyPlan) -> Mapping[str, int]: ...


class RecallIndexStore(Protocol):
    """Store of the search index.

    `list_unindexed` returns at most `limit` sessions with hidden turns to index. `index_session` indexes one
    batch and returns whether there are more, False if another process is at it. `index_notes` returns the
    number of processed list rows.
    """

    async def list_unindexed(self, *, limit: int = 20) -> list[int]: ...
    async def index_session(self, session_id: int) -> bool: ...
    async def index_notes(self) -> int: ...


class MemoryConsolidator:
    """Nightly merging of a person's notes by rules, without a model; merged notes are archived and can be
    restored.
    """

    def __init__(self, store: ConsolidationStore, *, timezone: str, crash_point: CrashPoint) -> None:
        self._store = store
        self._timezone = timezone
        self._crash_point = crash_point

    async def consolidate(self, job: JobClaim) -> JobDone:
        """Merge duplicate notes and mark outdated ones of the job's person; return the job's end.

        Running it again changes nothing more. Too many duplicates in one night are left and reported. Raises
        LeaseLost, StorageUnavailable, and TimeoutError after 60 seconds of planning.
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
    """Indexer of hidden messages and notes for search; it finds them by polling, so a lost announcement only
    delays them.
    """

    def __init__(
        self, store: RecallIndexStore, *, crash_point: CrashPoint, given_up: Collection[str] = ()
    ) -> None:
        """Set up the indexer; `given_up` has keys of work that crashed processes and is not tried again."""
        self._given_up = given_up
        self._store = store
        self._crash_point = crash_point

    async def index_session(self, session_id: int) -> None:
        """Index the hidden turns of one session, and new notes of anyone.

        If the database is unavailable, this is logged, and the next sweep does it.
        """
        self._crash_point("before_indexing")
        try:
            await self._session(session_id)
            await self._store.index_notes()
        except StorageUnavailable as error:
            log.warning("indexing_storage_unavailable", session_id=session_id, reason=str(error))

    async def sweep(self) -> None:
        """Index the hidden messages of at most 20 sessions and new notes, so that they can be found.

        Raises StorageUnavailable.
        """
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
