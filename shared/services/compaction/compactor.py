"""Hides old turns behind a summary: plan, flush, write, commit; or says why not now."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol
from zoneinfo import ZoneInfo

import structlog

from shared.core.compaction.jobs import hides_without_model, rests
from shared.core.compaction.plan import (
    CompactionPlan,
    NothingToCompact,
    plan_compaction,
    smaller_summary,
    why_not_committed,
)
from shared.core.context.selection import LeftOut, leaves_out, window_through
from shared.core.session.backoff import (
    BACKOFF_TURNS,
    BY_SIZE,
    MANUAL,
    NOTHING_TURNS,
    THRASH_LEAST_BUDGET,
    CompactionBackoff,
    breaker_seconds,
    is_thrashing,
)
from shared.core.session.session_state import (
    Checkpoint,
    CompactionStored,
    JobClaim,
    JobDone,
    NewLink,
    Pace,
    SessionState,
    window_link,
)
from shared.core.session.summary import render_summary
from shared.core.session.turns import Spending
from shared.core.values.errors import StaleView, StorageUnavailable
from shared.ports import DASHBOARD, Announcer, ModelRequest
from shared.runtime.crash_points import CrashPoint
from shared.services.compaction.compaction_context import (
    CompactionContext,
    JobSpendingStore,
    build_backoff,
    build_compaction,
    check_delay,
    check_obsolete,
    continue_from_checkpoint,
    list_failures,
    list_largest_parts,
    record_unused_spending,
)
from shared.services.compaction.flusher import Flusher, FlushResult
from shared.services.compaction.summarizer import Summariser, SummaryAttempt, SummaryResult
from shared.services.compaction.writer_selection import WriterSelector

log = structlog.get_logger(__name__)

MAX_PLANS = 4

ReportStage = Callable[[int, str], Awaitable[None]]


class CompactionStore(JobSpendingStore, Protocol):
    async def load_state(self, session_id: int) -> SessionState: ...
    async def record_compaction(
        self,
        job: JobClaim,
        link: NewLink,
        *,
        seen: SessionState,
        spent: Sequence[Spending],
        left_out: LeftOut | None = None,
    ) -> CompactionStored: ...
    async def find_compaction(self, job: JobClaim) -> Mapping[str, Any] | None: ...


class CompactionPaceStore(Protocol):
    async def load_pace(self, session_id: int) -> Pace: ...
    async def record_backoff(self, job: JobClaim, rest: CompactionBackoff) -> None: ...
    async def find_checkpoint(
        self, session_id: int, *, parent: int | None, from_turn: int
    ) -> Checkpoint | None: ...


class Compactor:
    def __init__(
        self,
        *,
        store: CompactionStore,
        pace: CompactionPaceStore,
        flusher: Flusher,
        writers: WriterSelector,
        summariser: Summariser,
        announcer: Announcer,
        crash_point: CrashPoint,
    ) -> None:
        self._store = store
        self._pace = pace
        self._flusher = flusher
        self._writers = writers
        self._summariser = summariser
        self._announcer = announcer
        self._crash_point = crash_point

    async def compact(self, job: JobClaim) -> JobDone:
        if job.attempt > 1 and (done := await self._store.find_compaction(job)) is not None:
            # An earlier attempt died after its commit: what was asked for is there.
            return JobDone(outcome=dict(done))
        if job.trigger == "window":
            return await self._slide(job)
        purse = self._writers.open_spend_tracker(job)
        for _ in range(MAX_PLANS):
            state = await self._writers.with_descriptions(await self._store.load_state(job.session_id))
            prepared = await self._writers.build_request(state)
            pace = await self._pace.load_pace(job.session_id)
            case = CompactionContext(job=job, state=state, prepared=prepared, pace=pace, purse=purse)
            if job.trigger != MANUAL:
                rested = rests(state.view, limit=prepared.budget.limit, model=prepared.card.name)
                full = hides_without_model(state.view, prepared.budget, state.view.context_tokens)
                thrashes = rested and full
                not_now = check_obsolete(case)
                if not_now is None and not thrashes:
                    not_now = await self._stop_thrashing(case)
                if not_now is None:
                    not_now = check_delay(case)
                if not_now is not None:
                    return not_now
                case = replace(case, resting=thrashes or breaker_seconds(pace.ends) > 0)
            plan = await self._plan(case)
            if isinstance(plan, NothingToCompact):
                return await self._end_without_compaction(case, plan)
            try:
                return await self._carry_out(case, plan)
            except StaleView:
                log.info("compaction_replanned", job_id=job.id, session_id=job.session_id)
                await record_unused_spending(self._store, case)
            except asyncio.CancelledError:
                with suppress(StorageUnavailable):
                    await record_unused_spending(self._store, case)
                raise
        return JobDone(outcome={"nothing": "busy", "detail": "The conversation kept changing."})

    async def _slide(self, job: JobClaim) -> JobDone:
        """Hide turns that can never be sent again, without a model; the summary before them goes on."""
        for _ in range(MAX_PLANS):
            state = await self._store.load_state(job.session_id)
            prepared = await self._writers.build_request(state)
            through = window_through(state.view, prepared.policy)
            if through is None:
                detail = "nothing has left the window for good"
                return JobDone(outcome={"nothing": "nothing_old", "detail": detail})
            flushed = await self._flusher.flush_before_compaction(job, state, through=through)
            ticket = flushed.ticket
            link = window_link(state.view, through, flush_id=ticket.id if ticket else None)
            try:
                stored = await self._store.record_compaction(
                    job,
                    link,
                    seen=state,
                    spent=(),
                    left_out=leaves_out(prepared.policy, channel=prepared.channel, ratio=prepared.ratio),
                )
            except StaleView:
                continue
            self._crash_point("after_compaction")
            await self._announcer.announce(job.session_id, {"event_seq": stored.event_seq})
            turns = through - state.view.base_turn
            return JobDone(outcome={"link": stored.link_id, "kind": "window", "turns": turns})
        return JobDone(outcome={"nothing": "busy", "detail": "The conversation kept changing."})

    async def _plan(self, case: CompactionContext) -> CompactionPlan | NothingToCompact:
        return plan_compaction(
            case.state.view,
            budget=case.prepared.budget,
            policy=case.prepared.policy,
            force=case.force,
            # What a window leaves out is summarised, too: the gain is measured on all of it.
            now_tokens=case.state.view.context_tokens + case.prepared.unsent,
            summariser_window=await self._writers.load_window(case.prepared),
            ratio=case.prepared.ratio,
            zone=ZoneInfo(case.prepared.zone),
        )

    async def _end_without_compaction(self, case: CompactionContext, plan: NothingToCompact) -> JobDone:
        """The turn that asked saw something to do: it is not asked again after every turn."""
        if case.job.trigger in BY_SIZE:
            turns = 1 if plan.reason in ("nothing_old", "unanswered") else NOTHING_TURNS
            await self._pace.record_backoff(case.job, build_backoff(case, "nothing", turns))
        return JobDone(outcome={"nothing": plan.reason, "detail": plan.detail, "sizes": list(plan.sizes)})

    async def _stop_thrashing(self, case: CompactionContext) -> JobDone | None:
        """Compacting again would not help: it stops, and the operator is told what fills the context."""
        now_turn = case.state.answered_turn
        soft, limit = case.prepared.policy.soft_budget, case.prepared.budget.limit
        if min(limit if soft is None else soft, limit) < THRASH_LEAST_BUDGET:
            return None
        if case.job.trigger not in BY_SIZE or not is_thrashing(case.pace.ends, now_turn=now_turn):
            return None
        await self._pace.record_backoff(case.job, build_backoff(case, "thrashing", BACKOFF_TURNS))
        parts, messages = list_largest_parts(case.prepared, case.state)
        named = ", ".join(f"{name} {tokens:,}" for name, tokens in parts)
        log.warning("compaction_thrashing", session_id=case.job.session_id, largest=parts, messages=messages)
        detail = f"above {case.prepared.budget.limit:,} tokens again and again; largest parts: {named}"
        return JobDone(
            state="dead",
            error=f"compaction does not help: {detail}",
            outcome={
                "nothing": "thrashing",
                "detail": detail,
                "largest": [list(part) for part in parts],
                "messages": [list(message) for message in messages],
            },
        )

    async def _carry_out(self, case: CompactionContext, plan: CompactionPlan) -> JobDone:
        job, state = case.job, case.state
        await self.report_progress(job, 0, "saving what should be kept")
        flushed, written = await self._flush_and_write(case, plan)
        if self._why_not(case, plan, written) is not None:
            written = await self._shrink_digest(case, plan, written)
        if (why_not := self._why_not(case, plan, written)) is not None:
            await record_unused_spending(self._store, case)
            await self.report_progress(job, 100, "nothing to gain", state="done")
            return replace(
                await self._end_without_compaction(case, why_not), failures=list_failures(job, written)
            )
        link = build_compaction(case, plan, written, flushed, self._writers.count_tokens)
        after = await self._writers.foresee(await self._store.load_state(job.session_id), link)
        prepared = case.prepared
        spent = case.purse.take_spent()
        try:
            stored = await self._store.record_compaction(
                job,
                link,
                seen=replace(state, fixed_tokens=after.fixed_tokens),
                spent=spent,
                left_out=leaves_out(prepared.policy, channel=prepared.channel, ratio=prepared.ratio),
            )
        except StaleView:
            case.purse.spent.extend(spent)
            raise
        self._crash_point("after_compaction")
        await self._announcer.announce(job.session_id, {"event_seq": stored.event_seq})
        await self.report_progress(job, 100, "done", state="done")
        outcome: dict[str, Any] = {
            "link": stored.link_id,
            "kind": written.kind,
            "before": stored.tokens_before,
            "after": stored.tokens_after,
            "turns": plan.through_turn - plan.from_turn + 1,
            "at_turn": state.answered_turn,
        }
        if case.resting:
            outcome["resting"] = True
        return JobDone(outcome=outcome, failures=list_failures(job, written))

    async def _flush_and_write(
        self, case: CompactionContext, plan: CompactionPlan
    ) -> tuple[FlushResult, SummaryResult]:
        """In one request where that costs less; what it did not bring is asked for by itself."""
        job, state = case.job, case.state
        chosen = await self._writers.choose_together(case, plan)
        if chosen is None:
            flushed = await self._flusher.flush_before_compaction(job, state, through=plan.through_turn)
            models, warm = await self._writers.choose(case, plan, flushed)
            return flushed, await self._write_summary(case, plan, models, warm)
        ticket = await self._flusher.begin_with_summary(job, state, through=plan.through_turn)
        written = await self._write_summary(case, plan, *chosen, with_notes=True)
        flushed = await self._flusher.end_with_summary(job, state, ticket, written.notes)
        if flushed.outcome == "failed":
            flushed = await self._flusher.flush_before_compaction(job, state, through=plan.through_turn)
        return flushed, written

    async def _write_summary(
        self,
        case: CompactionContext,
        plan: CompactionPlan,
        models: Sequence[str],
        warm: ModelRequest | None,
        *,
        with_notes: bool = False,
    ) -> SummaryResult:
        written = await self._summariser.write(
            plan,
            purse=case.purse,
            focus=case.focus,
            on_progress=self._progress_reporter(case.job),
            models=models,
            warm=warm,
            with_notes=with_notes,
        )
        if written.kind != "digest" or not case.prepared.policy.checkpoints:
            return written
        made = await self._pace.find_checkpoint(
            case.job.session_id, parent=case.state.head_id, from_turn=plan.from_turn
        )
        if made is None or not made.helps(plan.from_turn, plan.through_turn):
            return written
        made_of_it = await self._from_checkpoint(case, plan, made, written)
        return replace(made_of_it, notes=written.notes)

    def _why_not(
        self, case: CompactionContext, plan: CompactionPlan, written: SummaryResult
    ) -> NothingToCompact | None:
        return why_not_committed(
            plan,
            self._writers.count_tokens(render_summary(written.ledger)),
            budget=case.prepared.budget,
            policy=case.prepared.policy,
            force=case.force,
        )

    async def _shrink_digest(
        self, case: CompactionContext, plan: CompactionPlan, written: SummaryResult
    ) -> SummaryResult:
        """A digest that is cut to what the compaction needs, where anything is short enough."""
        most = smaller_summary(plan, budget=case.prepared.budget, policy=case.prepared.policy)
        if most is None:
            return written
        smaller = replace(plan, summary_limit=min(plan.summary_limit, most))
        digest = await self._summariser.write(
            smaller, purse=case.purse, focus=None, on_progress=self._progress_reporter(case.job), models=()
        )
        rejected = SummaryAttempt(step="commit", model=written.model, fault="the summary gains too little")
        attempts = (*written.attempts, rejected)
        audit = {**digest.audit, "attempts": [attempt.as_stored for attempt in attempts]}
        ledger = replace(digest.ledger, title=written.ledger.title)
        return replace(digest, ledger=ledger, attempts=attempts, audit=audit)

    async def _from_checkpoint(
        self, case: CompactionContext, plan: CompactionPlan, made: Checkpoint, failed: SummaryResult
    ) -> SummaryResult:
        """The early ledger, and a digest only of what came after it."""
        smaller = continue_from_checkpoint(plan, made)
        if not smaller.entries:
            return replace(failed, kind="summary", ledger=made.ledger, model=made.model)
        written = await self._summariser.write(
            smaller, purse=case.purse, focus=None, on_progress=self._progress_reporter(case.job), models=()
        )
        audit = {**written.audit, "attempts": [attempt.as_stored for attempt in failed.attempts]}
        return replace(written, attempts=failed.attempts, audit=audit)

    async def report_progress(
        self, job: JobClaim, percent: int, stage: str, *, state: str = "running"
    ) -> None:
        frame = {"t": "compaction.progress", "id": str(job.id), "percent": percent, "stage": stage}
        await self._announcer.announce(job.session_id, {**frame, "state": state})
        told = {"t": "progress", "job": job.id, "percent": percent, "stage": stage}
        await self._announcer.announce(DASHBOARD, told)

    def _progress_reporter(self, job: JobClaim) -> ReportStage:
        async def told(percent: int, stage: str) -> None:
            await self.report_progress(job, 10 + percent * 8 // 10, stage)

        return told
