"""Compactors that all believe to hold the same job of a session, as if a worker had wrongly been thought
dead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from shared.core.compaction.digest import digest
from shared.core.compaction.plan import CompactionPlan, plan_compaction
from shared.core.session.session_state import FlushReport, JobClaim, NewCompaction, SessionState
from shared.core.session.summary import render_summary
from shared.core.session.turns import JobOrder
from shared.core.values.errors import StaleView
from tests.kit.app_driver import Visit
from tests.kit.builders import budget, words
from tests.kit.histories.history import POLICIES


@dataclass(slots=True)
class Rivals:
    """Compactors that write digests without a model.

    `told` counts the outcomes of their attempts.
    """

    guest: Visit
    job: JobClaim
    told: Counter[str] = field(default_factory=Counter)

    async def try_once(self, *, before_commit: Callable[[], Awaitable[object]] | None = None) -> None:
        """Plan a compaction, write a digest and commit it.

        Raises StaleView if the session has changed in the meantime.
        """
        store = self.guest.app.stores.jobs
        seen = await store.load_state(self.guest.session_id)
        compaction = await self._build_compaction(seen)
        if before_commit is not None:
            await before_commit()
        if compaction is None:
            self.told["nothing"] += 1
            return
        try:
            await store.record_compaction(self.job, compaction, seen=seen, spent=())
        except StaleView:
            self.told["stale"] += 1
            raise
        self.told["committed"] += 1

    async def _build_compaction(self, seen: SessionState) -> NewCompaction | None:
        plan = plan_compaction(
            seen.view, budget=budget(), policy=POLICIES["steady"], now_tokens=5_000, force=True, keep_turns=2
        )
        if not isinstance(plan, CompactionPlan):
            return None
        await self._flush(seen, plan)
        ledger = digest(plan.entries, plan.former, words, budget_tokens=400)
        return NewCompaction(
            kind="digest", from_turn=plan.from_turn, through_turn=plan.through_turn,
            from_seq=min(entry.seq for entry in plan.entries), through_seq=plan.through_seq, trigger="limit",
            summary_text=render_summary(ledger), ledger=ledger, contract={}, audit={},
            tokens=words(render_summary(ledger)), tokens_before=5_000, model="", cost_micro=None,
            duration_ms=1, flush_id=None,
        )  # fmt: skip

    async def _flush(self, seen: SessionState, plan: CompactionPlan) -> None:
        store = self.guest.app.stores.jobs
        ticket = await store.begin_flush(
            self.job, cycle=seen.view.cycle, threshold="compaction", from_turn=plan.from_turn,
            through_turn=plan.through_turn,
        )  # fmt: skip
        report = FlushReport(outcome="nothing", model="")
        await store.end_flush(self.job, ticket, report, contact_id=seen.contact_id)


async def rivals_of(guest: Visit) -> Rivals:
    order = JobOrder(kind="compact", key=f"compact:{guest.session_id}:rivals", trigger="limit")
    job_id = await guest.app.stores.jobs.request_job(guest.session_id, order)
    assert job_id is not None
    job = await guest.app.stores.jobs.claim_job(job_id, worker_id=guest.app.worker_id)
    assert job is not None
    return Rivals(guest, job)
