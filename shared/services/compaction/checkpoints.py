"""Summaries written apart from their compaction: a checkpoint before it, or one that replaces a digest after
it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol
from zoneinfo import ZoneInfo

from shared.core.compaction.jobs import BACKOFF_SECONDS, backoff_seconds, total_cost
from shared.core.compaction.plan import CompactionPlan, NothingToCompact, plan_compaction, why_not_committed
from shared.core.context.build_context import LeftOut, left_out_counter
from shared.core.session.session_state import (
    Checkpoint,
    CompactionPace,
    CompactionStored,
    HiddenTurns,
    JobClaim,
    JobDone,
    NewCompaction,
    SessionState,
)
from shared.core.session.summary import render_summary
from shared.core.session.turns import Spending
from shared.core.values.errors import LeaseLost, StaleView
from shared.ports import Announcer
from shared.runtime import CrashPoint
from shared.services.compaction.compactor import (
    MODEL_SECONDS,
    CommitStore,
    CompactionContext,
    booking_unused_calls,
    build_compaction,
    continue_from_checkpoint,
    list_failures,
    spending_with_commit,
)
from shared.services.compaction.flusher import FlushResult
from shared.services.compaction.hooks import CompactionHooks
from shared.services.compaction.silent_requests import SilentRequests
from shared.services.compaction.summarizer import Summariser, SummaryResult

MAX_UPGRADES = 4
"""Failed tries to replace a digest after which the digest stays."""
UPGRADE_SECONDS = 300.0
"""Seconds before the second try to replace a digest."""
MAX_UPGRADE_SECONDS = 21_600.0
"""Most seconds between two tries to replace a digest."""
UPGRADE_BACKOFF_FACTOR = 4.0
"""Factor between the waits for tries to replace a digest.

With one attempt per model, each try costs two calls.
"""
VIEW_CHANGED_SECONDS = 60.0
"""Seconds before a digest is tried again whose conversation changed meanwhile."""
NO_MODEL_CODES = frozenset({"model_unavailable", "model_busy", "model_refused_account", "cap_reached"})
"""Codes of errors that mean that no model could be reached or paid; the job is then due again after a
pause.
"""


class CheckpointStore(Protocol):
    """Store of checkpoints, and of summaries that replace digests.

    `find_checkpoint` returns the one with the highest turn, None without one. `find_digest` returns the
    session as it was before the digest, None if the digest is not the newest compaction any more.
    `replace_digest` raises StaleView if the view has changed since `seen`. All writing methods raise
    LeaseLost.
    """

    async def load_pace(self, session_id: int) -> CompactionPace: ...
    async def save_checkpoint(
        self, job: JobClaim, checkpoint: Checkpoint, *, spent: Sequence[Spending], contact_id: int
    ) -> None: ...
    async def find_checkpoint(
        self, session_id: int, *, parent: int | None, from_turn: int
    ) -> Checkpoint | None: ...
    async def find_digest(self, session_id: int, compaction_id: int) -> HiddenTurns | None: ...
    async def replace_digest(
        self,
        job: JobClaim,
        compaction: NewCompaction,
        *,
        seen: HiddenTurns,
        spent: Sequence[Spending],
        left_out: LeftOut | None = None,
    ) -> CompactionStored: ...


class CheckpointService:
    """Writer of checkpoints, and of summaries that replace digests."""

    def __init__(
        self,
        *,
        store: CheckpointStore,
        spending: CommitStore,
        silent_requests: SilentRequests,
        summariser: Summariser,
        announcer: Announcer,
        crash_point: CrashPoint,
        hooks: CompactionHooks,
    ) -> None:
        self._hooks = hooks
        self._store = store
        self._spending = spending
        self._silent_requests = silent_requests
        self._summariser = summariser
        self._announcer = announcer
        self._crash_point = crash_point

    async def make_checkpoint(self, job: JobClaim, state: SessionState, *, deadline: float) -> bool:
        """Write and store a ledger of the turns that the next compaction will hide; return whether one was
        stored.

        An earlier checkpoint of the same range is extended. Returns False if nothing can be hidden or no
        model wrote a usable ledger before `deadline`, a time of `time.monotonic`; the cost of its calls is
        stored in any case. Raises LeaseLost and StorageUnavailable.
        """
        prepared = await self._silent_requests.build_next(state)
        tracker = self._silent_requests.open_spend_tracker(job)
        context = CompactionContext(
            job=job,
            state=state,
            prepared=prepared,
            pace=await self._store.load_pace(job.session_id),
            tracker=tracker,
            deadline=deadline,
        )
        window = (await self._silent_requests.load_writer(prepared)).window
        plan = plan_compaction(
            state.view, budget=prepared.budget, policy=prepared.policy, force=True,
            now_tokens=state.view.context_tokens, summariser_window=window, ratio=prepared.ratio,
            zone=ZoneInfo(prepared.zone),
        )  # fmt: skip
        able = self._silent_requests.list_available_models(prepared, context.pace)
        if isinstance(plan, NothingToCompact) or backoff_seconds(context.pace.ends) or not able:
            return False
        last = await self._store.find_checkpoint(
            job.session_id, parent=state.head_id, from_turn=plan.from_turn
        )
        if last is not None:
            plan = continue_from_checkpoint(plan, last)
            if not plan.entries:
                return False
        async with booking_unused_calls(self._spending, context):
            return await self._write_checkpoint(context, plan, able)

    async def _write_checkpoint(
        self, context: CompactionContext, plan: CompactionPlan, models: Sequence[str]
    ) -> bool:
        tracker, state = context.tracker, context.state
        written = await self._summariser.write(
            plan,
            tracker=tracker,
            focus=None,
            on_progress=ignore_progress,
            models=models,
            deadline=context.deadline,
        )
        if written.kind == "digest":
            return False
        checkpoint = Checkpoint(
            parent=state.head_id,
            from_turn=plan.from_turn,
            through_turn=plan.through_turn,
            ledger=written.ledger,
            audit=written.audit,
            tokens=self._silent_requests.count_tokens(render_summary(written.ledger)),
            model=written.model,
            cost_micro=total_cost(tracker.spent),
        )
        spent = tracker.take_spent()
        try:
            await self._store.save_checkpoint(
                context.job, checkpoint, spent=spent, contact_id=state.contact_id
            )
        except LeaseLost:
            tracker.spent.extend(spent)
            raise
        return True

    async def upgrade_digest(self, job: JobClaim) -> JobDone:
        """Replace a digest (`compaction` of the job's payload) with a summary of the same turns; return the
        job's end.

        The job is due again later if no model can write one now, and dead after `MAX_UPGRADES` failed tries.
        Raises LeaseLost and StorageUnavailable.
        """
        deadline = time.monotonic() + MODEL_SECONDS
        seen = await self._store.find_digest(job.session_id, int(job.payload.get("compaction", 0)))
        if seen is None:
            return JobDone(outcome={"nothing": "gone", "detail": "The digest is not in use any more."})
        pace = await self._store.load_pace(job.session_id)
        if wait := backoff_seconds(pace.ends):
            return JobDone(outcome={"deferred": "backoff"}, state="due", retry_seconds=wait)
        prepared = await self._silent_requests.build_next(seen.state)
        able = self._silent_requests.list_available_models(prepared, pace)
        if not able:
            wait = self._silent_requests.seconds_until_available(prepared, pace)
            return JobDone(outcome={"deferred": "unusable"}, state="due", retry_seconds=wait)
        seen = replace(seen, state=await self._silent_requests.with_descriptions(seen.state))
        prepared = await self._silent_requests.build_next(seen.state)
        context = CompactionContext(
            job=job,
            state=seen.state,
            prepared=prepared,
            pace=pace,
            tracker=self._silent_requests.open_spend_tracker(job),
            deadline=deadline,
        )
        plan = await self._plan_again(context, seen)
        if plan is None:
            return JobDone(outcome={"nothing": "pins", "detail": "all messages of the range are pinned"})
        await self._hooks.ask(
            job, seen.state, plan, budget=prepared.budget, tokens=context.needed_tokens, message_waits=False
        )
        try:
            async with booking_unused_calls(self._spending, context):
                return await self._replace_digest(context, seen, plan, able)
        except StaleView:
            return JobDone(outcome={"deferred": "moved"}, state="due", retry_seconds=VIEW_CHANGED_SECONDS)

    async def _replace_digest(
        self, context: CompactionContext, seen: HiddenTurns, plan: CompactionPlan, models: Sequence[str]
    ) -> JobDone:
        """Write the summary, commit it in place of the digest, and return the job's end. Raises StaleView."""
        job, prepared = context.job, context.prepared
        written = await self._summariser.write(
            plan,
            tracker=context.tracker,
            focus=None,
            on_progress=ignore_progress,
            models=models,
            attempts=1,
            deadline=context.deadline,
        )
        if written.kind == "digest":
            return _upgrade_later(job, written)
        tokens = self._silent_requests.count_tokens(render_summary(written.ledger))
        if why_not_committed(plan, tokens, budget=prepared.budget, policy=prepared.policy, force=True):
            return _upgrade_later(job, written)
        compaction = build_compaction(
            context, plan, written, FlushResult(through=plan.through_turn), self._silent_requests.count_tokens
        )
        seen = replace(seen, state=await self._silent_requests.foresee(seen.state, compaction))
        async with spending_with_commit(self._spending, context) as spent:
            stored = await self._store.replace_digest(
                job,
                compaction,
                seen=seen,
                spent=spent,
                left_out=left_out_counter(prepared.policy, channel=prepared.channel, ratio=prepared.ratio),
            )
        self._crash_point("after_compaction")
        await self._announcer.announce(job.session_id, {"event_seq": stored.event_seq})
        return JobDone(
            outcome={
                "compaction": stored.compaction_id, "kind": "summary", "before": stored.tokens_before,
                "after": stored.tokens_after, "turns": plan.through_turn - plan.from_turn + 1,
            },
            failures=list_failures(job, written),
        )  # fmt: skip

    async def _plan_again(self, context: CompactionContext, seen: HiddenTurns) -> CompactionPlan | None:
        """Return the plan of a summary of the digest's whole range; None if no plan ends at the digest's last
        turn.

        The summary may be as long as the digest, or longer if the context stays small enough.
        """
        policy, budget = context.prepared.policy, context.prepared.budget
        window = (await self._silent_requests.load_writer(context.prepared)).window
        whole = replace(policy, keeping=policy.keeping.without_tail())
        plan = plan_compaction(
            context.state.view, budget=budget, policy=whole, force=True,
            now_tokens=context.state.view.context_tokens, summariser_window=window,
            ratio=context.prepared.ratio, zone=ZoneInfo(context.prepared.zone),
        )  # fmt: skip
        if isinstance(plan, NothingToCompact) or plan.through_turn != seen.through_turn:
            return None
        stays = context.state.view.context_tokens - budget.fixed - round(context.prepared.ratio * seen.tokens)
        left = int((policy.keeping.land_at * budget.conversation - stays) / context.prepared.ratio)
        most = max(policy.writing.summary_least, seen.tokens, min(plan.summary_limit, left))
        return replace(plan, summary_limit=most)


def _upgrade_later(job: JobClaim, written: SummaryResult) -> JobDone:
    """Return the end of a failed try: due again at growing intervals, or dead after `MAX_UPGRADES` tries.

    While no model can be reached, the interval stays the same.
    """
    if written.attempts and all(attempt.code in NO_MODEL_CODES for attempt in written.attempts):
        return JobDone(outcome={"deferred": "no_model"}, state="due", retry_seconds=BACKOFF_SECONDS)
    return JobDone(
        outcome={"nothing": "no_model", "detail": "No model could write the summary."},
        state="dead" if job.faults + 1 >= MAX_UPGRADES else "due",
        error="the digest stays: no model could write the summary",
        retry_seconds=min(MAX_UPGRADE_SECONDS, UPGRADE_SECONDS * UPGRADE_BACKOFF_FACTOR**job.faults),
        failures=list_failures(job, written),
    )


async def ignore_progress(_percent: int, _stage: str) -> None:
    """Do nothing: no client shows progress of checkpoints and of replaced digests."""
