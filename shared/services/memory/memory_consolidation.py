"""The nightly job that tidies what is remembered: without a model, reversibly, and in silence."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any, Protocol

from shared.core.memory.consolidation import LiveNote, TidyPlan, plan_tidying
from shared.core.session.session_state import JobClaim, JobDone
from shared.runtime.crash_points import CrashPoint

PLAN_SECONDS = 60.0


class ConsolidationStore(Protocol):
    async def load_live_notes(self, session_id: int) -> Sequence[LiveNote]: ...
    async def load_today(self, timezone: str) -> date: ...
    async def apply_plan(self, job: JobClaim, plan: TidyPlan) -> Mapping[str, int]: ...


class MemoryConsolidator:
    def __init__(self, store: ConsolidationStore, *, timezone: str, crash_point: CrashPoint) -> None:
        self._store = store
        self._timezone = timezone
        self._crash_point = crash_point

    async def consolidate(self, job: JobClaim) -> JobDone:
        """Doing it twice is doing it once: the second plan is made of what the first one left."""
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
