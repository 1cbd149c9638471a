"""Operators' actions on jobs and deliveries: the rows change, then the doorbell rings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from shared.core.ops.job_views import DeliveryVerb, JobMatch, JobVerb, PartKey, Skipped, WorkChanged
from shared.ports import DASHBOARD, Announcer, Doorbell
from shared.runtime import CrashPoint

BATCH = 500
"""Most jobs that are changed in one commit."""
MAX_JOBS = 10_000
"""Most jobs that one request changes; its answer says how many are left."""
MAX_RINGS = 50
"""Most changed jobs that the doorbell announces; workers find the others within a second."""


class JobAdminStore(Protocol):
    """Store of operators' changes of jobs and deliveries; each change is in the audit log.

    `list_matching` returns ids above `after` and up to `through`, oldest first. `set_kind` returns False if
    the kind has changed since `version`.
    """

    async def list_matching(
        self, verb: JobVerb, match: JobMatch, *, after: int, through: int, limit: int
    ) -> list[int]: ...
    async def change_jobs(self, verb: JobVerb, ids: Sequence[int], *, actor: str) -> WorkChanged: ...
    async def set_kind(
        self, kind: str, *, paused: bool, concurrency: int | None, version: int, actor: str
    ) -> bool: ...
    async def change_deliveries(
        self, verb: DeliveryVerb, parts: Sequence[PartKey], *, actor: str
    ) -> WorkChanged: ...


class JobAdmin:
    """Actions on jobs and deliveries; the caller has checked the operator's rights."""

    def __init__(
        self, store: JobAdminStore, doorbell: Doorbell, announcer: Announcer, *, crash_point: CrashPoint
    ) -> None:
        self._store = store
        self._doorbell = doorbell
        self._announcer = announcer
        self._crash_point = crash_point

    async def change_jobs(self, verb: JobVerb, ids: Sequence[int], *, actor: str) -> WorkChanged:
        """Retry dead jobs or cancel waiting ones, as `verb` says, and announce them; return what changed.

        Jobs whose state has changed since are skipped and listed with the reason. Raises StorageUnavailable.
        """
        done = await self._store.change_jobs(verb, ids, actor=actor)
        self._crash_point("after_work_change")
        await self._ring(done)
        await self._announce("jobs", done)
        return done

    async def set_kind(
        self, kind: str, *, paused: bool, concurrency: int | None, version: int, actor: str
    ) -> bool:
        """Pause a kind of job or limit its parallel jobs, from the next claim on; waiting jobs of a paused
        kind stay due.

        `concurrency` None sets no limit. `version` is the one the operator has read, 0 before the first
        change. Returns False if another operator was faster.
        """
        done = await self._store.set_kind(
            kind, paused=paused, concurrency=concurrency, version=version, actor=actor
        )
        self._crash_point("after_work_change")
        if done:
            await self._announcer.announce(DASHBOARD, {"t": "changed", "topics": ["jobs"]})
        return done

    async def change_matching_jobs(
        self, verb: JobVerb, match: JobMatch, *, through: int, actor: str
    ) -> WorkChanged:
        """Change all jobs that match, up to the id `through`, in batches of 500; return what changed.

        Each batch is committed alone. Stops above `MAX_JOBS` changed jobs; `more` is the number that is left.
        """
        changed: list[str] = []
        skipped: list[Skipped] = []
        after = 0
        while len(changed) < MAX_JOBS:
            ids = await self._store.list_matching(verb, match, after=after, through=through, limit=BATCH)
            if not ids:
                break
            done = await self.change_jobs(verb, ids, actor=actor)
            changed += done.changed
            skipped += done.skipped
            after = ids[-1]
        left = await self._store.list_matching(verb, match, after=after, through=through, limit=MAX_JOBS)
        return WorkChanged(changed=tuple(changed), skipped=tuple(skipped), more=len(left))

    async def change_deliveries(
        self, verb: DeliveryVerb, parts: Sequence[PartKey], *, actor: str
    ) -> WorkChanged:
        """Mark uncertain deliveries as arrived, or queue them to be sent again, as `verb` says; return what
        changed.

        Dashboards are notified. Raises StorageUnavailable.
        """
        done = await self._store.change_deliveries(verb, parts, actor=actor)
        self._crash_point("after_work_change")
        await self._announce("deliveries", done)
        return done

    async def _ring(self, done: WorkChanged) -> None:
        for job in done.rung[:MAX_RINGS]:
            if not await self._doorbell.ring(job):
                return

    async def _announce(self, topic: str, done: WorkChanged) -> None:
        if done.changed:
            await self._announcer.announce(DASHBOARD, {"t": "changed", "topics": [topic]})
