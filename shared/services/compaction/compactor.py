"""Compaction jobs: plan, save memory, choose the writer, commit the summary, or end with a reason."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, Protocol
from zoneinfo import ZoneInfo

import structlog

from shared.core.compaction.hooks import HOOK_TURNS
from shared.core.compaction.jobs import (
    BACKOFF_TURNS,
    BY_SIZE,
    IDLE_MARGIN_SECONDS,
    MANUAL,
    NOTHING_TURNS,
    THRASH_LEAST_BUDGET,
    backoff_from_now,
    backoff_seconds,
    hides_without_model,
    is_in_backoff,
    is_thrashing,
    total_cost,
)
from shared.core.compaction.plan import (
    CompactionPlan,
    NothingToCompact,
    plan_compaction,
    smaller_summary,
    why_not_committed,
    why_not_smaller,
)
from shared.core.compaction.summary_prompts import Costs, cheaper_way, saves_together, stays_with_chat
from shared.core.context.build_context import LeftOut, left_out_counter, window_through
from shared.core.session.budget import pressure
from shared.core.session.session import BackoffReason, CompactionBackoff, Entry
from shared.core.session.session_state import (
    Checkpoint,
    CompactionPace,
    CompactionStored,
    JobClaim,
    JobDone,
    NewCompaction,
    SessionState,
    build_window_compaction,
)
from shared.core.session.summary import five_fields, form_of, render_summary
from shared.core.session.turns import Spending
from shared.core.values.errors import LeaseLost, StaleView, StorageUnavailable
from shared.core.values.money import cache_life
from shared.core.verdicts.summaries import unusable_seconds
from shared.ports import DASHBOARD, Announcer, ModelCard, ModelRequest
from shared.runtime import CrashPoint
from shared.services.compaction.flusher import Flusher, FlushResult
from shared.services.compaction.hooks import CompactionHooks
from shared.services.compaction.silent_requests import SilentRequests
from shared.services.compaction.summarizer import Summariser, SummaryAttempt, SummaryResult
from shared.services.turns.request_builder import PreparedRequest
from shared.services.turns.spend_tracker import SpendTracker

log = structlog.get_logger(__name__)

MAX_PLANS = 4
"""Most plans of one job, if the conversation changes while a summary is written."""
MODEL_SECONDS = 480.0
"""Seconds from the beginning of a job in which it asks models for a flush and a summary.

Afterwards the rest of the turns becomes a digest, which is stored before the runner stops the job.
"""
IDLE_TOLERANCE_SECONDS = 1.0
"""Seconds by which an idle job may run early."""
INSTRUCTION_TOKENS = 1_000
"""Assumed tokens of the instruction that follows the cached chat."""
BEGINNING_TOKENS = 16
"""Tokens of each message's line in the list of hidden messages that follows the cached chat."""
ANSWER_TOKENS = 1_500
"""Assumed tokens of a session's first summary, for comparing prices."""

ReportStage = Callable[[int, str], Awaitable[None]]


class JobSpendingStore(Protocol):
    """Store that books the model calls of a job, useful or not, on the session and the contact."""

    async def record_spending(
        self, job: JobClaim, *, purpose: str, spent: Sequence[Spending], contact_id: int
    ) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionContext:
    """Session, next chat request, recent pace and spending of one attempt at a compaction."""

    job: JobClaim
    state: SessionState
    prepared: PreparedRequest
    pace: CompactionPace
    tracker: SpendTracker
    deadline: float
    """Time of `time.monotonic` after which no model is asked."""
    without_model: bool = False
    """True if no model is asked: automatic compaction is paused, but this one cannot wait."""

    @property
    def needed_tokens(self) -> int:
        """Tokens of the next request plus those reserved for recall, to be compared with thresholds."""
        return self.state.view.context_tokens + self.prepared.reserved

    @property
    def focus(self) -> str | None:
        """Subject on which a person wants the summary to focus; None if none was named."""
        return self.job.payload.get("focus") or None

    @property
    def force(self) -> bool:
        """True if turns are to be hidden although the context is not full."""
        return bool(self.job.payload.get("force"))

    @property
    def is_chat_model_unusable(self) -> bool:
        """True if the chat model is not asked because its recent summaries were unusable."""
        return unusable_seconds(self.pace.written, self.prepared.card.name) > 0

    @property
    def cache_seconds(self) -> float:
        """Seconds for which the provider keeps the chat's request cached.

        They follow from the session's newest turns, since an order may be older than its present pace.
        """
        return cache_life(self.state.turn_times).total_seconds()


class CommitStore(JobSpendingStore, Protocol):
    """Store that books a job's calls, and knows whether the job has committed a compaction.

    `find_compaction` returns the outcome of the compaction that any attempt at the job committed, None
    without one.
    """

    async def find_compaction(self, job: JobClaim) -> Mapping[str, Any] | None: ...


class CompactionStore(CommitStore, Protocol):
    """Store of session states and compactions.

    `record_compaction` stores a compaction, moves the session's view behind it and books its calls. Raises
    StaleView if the view has changed since `seen`, LeaseLost if the claim is lost.
    """

    async def load_state(self, session_id: int) -> SessionState: ...
    async def record_compaction(
        self,
        job: JobClaim,
        compaction: NewCompaction,
        *,
        seen: SessionState,
        spent: Sequence[Spending],
        left_out: LeftOut | None = None,
    ) -> CompactionStored: ...


class CompactionPaceStore(Protocol):
    """Store of the ends of earlier jobs, pauses and checkpoints.

    `record_backoff` pauses automatic compaction of the session until the backoff no longer holds or its view
    moves; raises LeaseLost.
    `find_checkpoint` returns the one with the highest turn, None without one.
    """

    async def load_pace(self, session_id: int) -> CompactionPace: ...
    async def record_backoff(self, job: JobClaim, backoff: CompactionBackoff) -> None: ...
    async def find_checkpoint(
        self, session_id: int, *, parent: int | None, from_turn: int
    ) -> Checkpoint | None: ...


class Compactor:
    """Service that runs compaction jobs: it hides old turns of a session behind a summary, a digest or a
    window.
    """

    def __init__(
        self,
        *,
        store: CompactionStore,
        pace: CompactionPaceStore,
        flusher: Flusher,
        silent_requests: SilentRequests,
        summariser: Summariser,
        announcer: Announcer,
        crash_point: CrashPoint,
        hooks: CompactionHooks,
    ) -> None:
        self._hooks = hooks
        self._store = store
        self._pace = pace
        self._flusher = flusher
        self._silent_requests = silent_requests
        self._summariser = summariser
        self._announcer = announcer
        self._crash_point = crash_point

    async def compact(self, job: JobClaim) -> JobDone:
        """Run a compaction job and return its end, which the caller stores; the compaction itself is
        committed here.

        Notes are saved first. Without a usable model, or where `MODEL_SECONDS` do not suffice, the turns are
        hidden behind a digest. Plans at most `MAX_PLANS` times, if the conversation changes meanwhile. Raises
        LeaseLost and StorageUnavailable.
        """
        deadline = time.monotonic() + MODEL_SECONDS
        if job.attempt > 1 and (done := await self._store.find_compaction(job)) is not None:
            # An earlier attempt committed before it crashed, so there is nothing left to do.
            return JobDone(outcome=dict(done))
        if job.trigger == "window":
            return await self._slide(job, deadline=deadline)
        tracker = self._silent_requests.open_spend_tracker(job)
        for _ in range(MAX_PLANS):
            state = await self._store.load_state(job.session_id)
            prepared = await self._silent_requests.build_next(state)
            pace = await self._pace.load_pace(job.session_id)
            context = CompactionContext(
                job=job, state=state, prepared=prepared, pace=pace, tracker=tracker, deadline=deadline
            )
            if job.trigger != MANUAL:
                in_backoff = is_in_backoff(state.view, limit=prepared.budget.limit, model=prepared.card.name)
                full = hides_without_model(state.view, prepared.budget, context.needed_tokens)
                thrashes = in_backoff and full
                not_now = _check_obsolete(context)
                if not_now is None and not thrashes:
                    not_now = await self._stop_thrashing(context)
                if not_now is None:
                    not_now = _check_delay(context)
                if not_now is not None:
                    return not_now
                context = replace(context, without_model=thrashes or backoff_seconds(pace.ends) > 0)
            # Descriptions of pictures cost calls, so they are made once the job is known to be needed.
            context, plan = await self._plan_with_descriptions(context)
            if isinstance(plan, NothingToCompact):
                return await self._end_without_compaction(context, plan)
            if await self._ask_hook(context, plan):
                return await self._delay_by_hook(context)
            try:
                async with booking_unused_calls(self._store, context):
                    return await self._carry_out(context, plan)
            except StaleView:
                log.info("compaction_replanned", job_id=job.id, session_id=job.session_id)
        return JobDone(outcome={"nothing": "busy", "detail": "The conversation kept changing."})

    async def _slide(self, job: JobClaim, *, deadline: float) -> JobDone:
        """Hide the turns that no request can send any more, without a model; the present summary
        stays valid.
        """
        for _ in range(MAX_PLANS):
            state = await self._store.load_state(job.session_id)
            prepared = await self._silent_requests.build_next(state)
            through = window_through(state.view, prepared.policy)
            if through is None:
                detail = "nothing has left the window for good"
                return JobDone(outcome={"nothing": "nothing_old", "detail": detail})
            flushed = await self._flush(job, state, through=through, deadline=deadline)
            ticket = flushed.ticket
            compaction = build_window_compaction(state.view, through, flush_id=ticket.id if ticket else None)
            # The next request contains the notes just saved.
            now = await self._store.load_state(job.session_id)
            try:
                stored = await self._store.record_compaction(
                    job,
                    compaction,
                    seen=state.with_sizes_of(await self._silent_requests.foresee(now, compaction)),
                    spent=(),
                    left_out=left_out_counter(
                        prepared.policy, channel=prepared.channel, ratio=prepared.ratio
                    ),
                )
            except StaleView:
                continue
            self._crash_point("after_compaction")
            await self._announcer.announce(job.session_id, {"event_seq": stored.event_seq})
            turns = through - state.view.base_turn
            return JobDone(outcome={"compaction": stored.compaction_id, "kind": "window", "turns": turns})
        return JobDone(outcome={"nothing": "busy", "detail": "The conversation kept changing."})

    async def _plan(self, context: CompactionContext) -> CompactionPlan | NothingToCompact:
        return plan_compaction(
            context.state.view,
            budget=context.prepared.budget,
            policy=context.prepared.policy,
            force=context.force,
            # Messages that the policy leaves out are summarised, too, so the gain counts them.
            now_tokens=context.state.view.context_tokens + context.prepared.unsent,
            summariser_window=(await self._silent_requests.load_writer(context.prepared)).window,
            ratio=context.prepared.ratio,
            zone=ZoneInfo(context.prepared.zone),
        )

    async def _plan_with_descriptions(
        self, context: CompactionContext
    ) -> tuple[CompactionContext, CompactionPlan | NothingToCompact]:
        """Return the plan, and the context with descriptions of the session's pictures.

        Missing descriptions are made and stored, unless nothing can be hidden.
        """
        plan = await self._plan(context)
        if isinstance(plan, NothingToCompact):
            return context, plan
        state = await self._silent_requests.with_descriptions(context.state)
        if state == context.state:
            return context, plan
        described = replace(context, state=state, prepared=await self._silent_requests.build_next(state))
        return described, await self._plan(described)

    async def _end_without_compaction(self, context: CompactionContext, plan: NothingToCompact) -> JobDone:
        """End the job without a compaction, and pause automatic compaction of the session for a few turns.

        Without the pause, each turn would ask again. A job of a person's command sets no pause.
        """
        if context.job.trigger != MANUAL:
            turns = 1 if plan.reason in ("nothing_old", "unanswered") else NOTHING_TURNS
            await self._back_off(context, "nothing", turns)
        return JobDone(outcome={"nothing": plan.reason, "detail": plan.detail, "sizes": list(plan.sizes)})

    async def _ask_hook(self, context: CompactionContext, plan: CompactionPlan) -> bool:
        """Report the coming summary to the operator's hook; return whether its answer delays the summary."""
        return await self._hooks.ask(
            context.job,
            context.state,
            plan,
            budget=context.prepared.budget,
            tokens=context.needed_tokens,
            message_waits=context.prepared.policy.timing.is_waited_for(context.job.trigger),
        )

    async def _delay_by_hook(self, context: CompactionContext) -> JobDone:
        """Return the end of a job whose summary a hook delayed; the context may grow up to the hard limit."""
        await self._back_off(context, "hook", HOOK_TURNS)
        return JobDone(
            outcome={"nothing": "hook", "detail": "A hook of the operator put the summary off once."}
        )

    async def _stop_thrashing(self, context: CompactionContext) -> JobDone | None:
        """Return the end of a job, with the largest parts, if compactions by size help too little; None
        otherwise.
        """
        now_turn = context.state.answered_turn
        soft, limit = context.prepared.policy.soft_budget, context.prepared.budget.limit
        if min(limit if soft is None else soft, limit) < THRASH_LEAST_BUDGET:
            return None
        if context.job.trigger not in BY_SIZE or not is_thrashing(context.pace.ends, now_turn=now_turn):
            return None
        await self._back_off(context, "thrashing", BACKOFF_TURNS)
        parts, messages = _largest_parts(context.prepared, context.state)
        named = ", ".join(f"{name} {tokens:,}" for name, tokens in parts)
        log.warning(
            "compaction_thrashing", session_id=context.job.session_id, largest=parts, messages=messages
        )
        detail = f"above {context.prepared.budget.limit:,} tokens again and again; largest parts: {named}"
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

    async def _back_off(self, context: CompactionContext, reason: BackoffReason, turns: int) -> None:
        backoff = backoff_from_now(
            context.state.view,
            reason=reason,
            limit=context.prepared.budget.limit,
            model=context.prepared.card.name,
            turns=turns,
        )
        await self._pace.record_backoff(context.job, backoff)

    async def _carry_out(self, context: CompactionContext, plan: CompactionPlan) -> JobDone:
        job, state = context.job, context.state
        await self.report_progress(job, 0, "saving what should be kept")
        flushed, written = await self._flush_and_write(context, plan)
        if self._explain_refusal(context, plan, written) is not None:
            written = await self._shrink_digest(context, plan, written)
        if (why_not := self._explain_refusal(context, plan, written)) is not None:
            return await self._refuse(context, why_not, written)
        compaction = build_compaction(context, plan, written, flushed, self._silent_requests.count_tokens)
        now = await self._store.load_state(job.session_id)
        after = await self._silent_requests.foresee(now, compaction)
        # Both sizes are estimates that include the notes just saved, so they differ by the summary alone.
        grows = why_not_smaller(await self._silent_requests.estimate_size(now), after.view.context_tokens)
        if grows is not None:
            return await self._refuse(context, grows, written)
        self._crash_point("before_compaction")
        prepared = context.prepared
        async with spending_with_commit(self._store, context) as spent:
            stored = await self._store.record_compaction(
                job,
                compaction,
                seen=state.with_sizes_of(after),
                spent=spent,
                left_out=left_out_counter(prepared.policy, channel=prepared.channel, ratio=prepared.ratio),
            )
        self._crash_point("after_compaction")
        await self._announcer.announce(job.session_id, {"event_seq": stored.event_seq})
        outcome: dict[str, Any] = {
            "compaction": stored.compaction_id,
            "kind": written.kind,
            "before": stored.tokens_before,
            "after": stored.tokens_after,
            "turns": plan.through_turn - plan.from_turn + 1,
            "at_turn": state.answered_turn,
        }
        if context.without_model:
            outcome["in_backoff"] = True
        return JobDone(outcome=outcome, failures=list_failures(job, written))

    async def _refuse(
        self, context: CompactionContext, why_not: NothingToCompact, written: SummaryResult
    ) -> JobDone:
        """Return the end of a job whose summary saves too little; its cost is booked by the caller."""
        done = await self._end_without_compaction(context, why_not)
        return replace(done, failures=list_failures(context.job, written))

    async def _flush_and_write(
        self, context: CompactionContext, plan: CompactionPlan
    ) -> tuple[FlushResult, SummaryResult]:
        """Save memory and write the summary, in one request where that costs less; ask separately for what is
        missing.
        """
        job, state = context.job, context.state
        chosen = await self._choose_together(context, plan)
        if chosen is None:
            flushed = await self._flush(job, state, through=plan.through_turn, deadline=context.deadline)
            models, warm = await self._choose_writers(context, plan, flushed)
            return flushed, await self._write_summary(context, plan, models, warm)
        ticket = await self._flusher.begin_with_summary(job, state, through=plan.through_turn)
        written = await self._write_summary(context, plan, *chosen, with_notes=True)
        flushed = await self._flusher.end_with_summary(job, state, ticket, written.notes)
        if flushed.outcome == "failed":
            flushed = await self._flush(job, state, through=plan.through_turn, deadline=context.deadline)
        return flushed, written

    async def _flush(
        self, job: JobClaim, state: SessionState, *, through: int, deadline: float
    ) -> FlushResult:
        """Save memory of the turns up to `through`; the flush has failed if it lasts until `deadline`.

        A late flush then reads the turns that were left.
        """
        limit = asyncio.timeout(max(0.0, deadline - time.monotonic()))
        try:
            async with limit:
                return await self._flusher.flush_before_compaction(job, state, through=through)
        except TimeoutError:
            if not limit.expired():
                raise
            return FlushResult(outcome="failed", through=state.view.flushed_turn)

    async def _choose_together(
        self, context: CompactionContext, plan: CompactionPlan
    ) -> tuple[tuple[str, ...], ModelRequest] | None:
        """Return models and the chat's request if one call for notes and summary costs less; None otherwise.

        Also None if memory is up to date, another model must write, or the chat model cannot be asked.
        """
        view, prepared = context.state.view, context.prepared
        owed = view.base_turn <= view.flushed_turn < plan.through_turn
        if context.without_model or not owed or context.is_chat_model_unusable or form_of(plan.form).is_text:
            return None
        same = self._silent_requests.list_models(prepared)[0] == prepared.card.name
        if not (same or prepared.policy.writing.may_write_on_prefix):
            return None
        warm = await self._build_warm(context)
        way, _ = self._silent_requests.find_way(warm, context.state.agent_config)
        behind = INSTRUCTION_TOKENS + BEGINNING_TOKENS * len(plan.entries)
        if way != "prefix" or warm.estimate + behind > warm.budget.hard:
            return None
        writer = await self._silent_requests.load_writer(prepared)
        costs = _costs(context, plan, warm, writer, behind=behind, cache_age_seconds=0.0)
        if not saves_together(costs, writer=writer.prices, chat=prepared.card.prices, same=same):
            return None
        models = self._silent_requests.list_available_models(prepared, context.pace)
        return models, await self._silent_requests.with_pictures(warm)

    async def _choose_writers(
        self, context: CompactionContext, plan: CompactionPlan, flushed: FlushResult
    ) -> tuple[tuple[str, ...], ModelRequest | None]:
        """Return the models to ask, and the chat's cached request if its model should write or costs less
        (else None).
        """
        if context.without_model:
            return (), None
        prepared, wanted = context.prepared, context.prepared.policy.writing.summariser
        models = self._silent_requests.list_available_models(prepared, context.pace)
        same = self._silent_requests.list_models(prepared)[0] == prepared.card.name
        joins = prepared.policy.writing.flush_with_summary and not same and not form_of(plan.form).is_text
        if not (joins or wanted in ("warm", "auto")) or context.is_chat_model_unusable:
            return models, None
        warm = await self._build_warm(context)
        if warm.estimate + INSTRUCTION_TOKENS > warm.budget.hard:
            return models, None
        if wanted == "auto":
            just_read = flushed.ticket is not None and flushed.outcome != "failed"
            age = 0.0 if just_read else context.pace.idle_seconds
            writer = await self._silent_requests.load_writer(prepared)
            costs = _costs(context, plan, warm, writer, behind=INSTRUCTION_TOKENS, cache_age_seconds=age)
            if cheaper_way(costs, cheap=writer.prices, chat=prepared.card.prices) == "cheap":
                return models, None
        elif wanted == "cheap":
            writer = await self._silent_requests.load_writer(prepared)
            age = context.pace.idle_seconds
            costs = _costs(context, plan, warm, writer, behind=INSTRUCTION_TOKENS, cache_age_seconds=age)
            if not stays_with_chat(costs, writer=writer.prices, chat=prepared.card.prices):
                return models, None
        return models, await self._silent_requests.with_pictures(warm)

    async def _build_warm(self, context: CompactionContext) -> PreparedRequest:
        """Return the chat's next request with the tools of its last turn, so that the cached prefix is used.

        The summariser appends its instruction.
        """
        return await self._silent_requests.build_next(
            context.state, await self._silent_requests.load_tools(context.state)
        )

    async def _write_summary(
        self,
        context: CompactionContext,
        plan: CompactionPlan,
        models: Sequence[str],
        warm: ModelRequest | None,
        *,
        with_notes: bool = False,
    ) -> SummaryResult:
        written = await self._summariser.write(
            plan,
            tracker=context.tracker,
            focus=context.focus,
            on_progress=self._progress_reporter(context.job),
            models=models,
            warm=warm,
            with_notes=with_notes,
            deadline=context.deadline,
        )
        if written.kind != "digest" or not context.prepared.policy.timing.checkpoints:
            return written
        made = await self._pace.find_checkpoint(
            context.job.session_id, parent=context.state.head_id, from_turn=plan.from_turn
        )
        if made is None or not made.helps(plan.from_turn, plan.through_turn):
            return written
        made_of_it = await self._from_checkpoint(context, plan, made, written)
        return replace(made_of_it, notes=written.notes)

    def _explain_refusal(
        self, context: CompactionContext, plan: CompactionPlan, written: SummaryResult
    ) -> NothingToCompact | None:
        return why_not_committed(
            plan,
            self._silent_requests.count_tokens(render_summary(written.ledger)),
            budget=context.prepared.budget,
            policy=context.prepared.policy,
            force=context.force,
        )

    async def _shrink_digest(
        self, context: CompactionContext, plan: CompactionPlan, written: SummaryResult
    ) -> SummaryResult:
        """Return a digest short enough for the compaction; `written` unchanged if no length would be."""
        most = smaller_summary(plan, budget=context.prepared.budget, policy=context.prepared.policy)
        if most is None:
            return written
        smaller = replace(plan, summary_limit=min(plan.summary_limit, most))
        digest = await self._summariser.write(
            smaller,
            tracker=context.tracker,
            focus=None,
            on_progress=self._progress_reporter(context.job),
            models=(),
        )
        rejected = SummaryAttempt(step="commit", model=written.model, fault="the summary gains too little")
        attempts = (*written.attempts, rejected)
        audit = {**digest.audit, "attempts": [attempt.as_stored for attempt in attempts]}
        ledger = replace(digest.ledger, title=written.ledger.title)
        return replace(digest, ledger=ledger, attempts=attempts, audit=audit)

    async def _from_checkpoint(
        self, context: CompactionContext, plan: CompactionPlan, made: Checkpoint, failed: SummaryResult
    ) -> SummaryResult:
        """Return the checkpoint's summary, with a digest of the later turns only, in place of a failed
        summary.
        """
        smaller = continue_from_checkpoint(plan, made)
        if not smaller.entries:
            return replace(failed, kind="summary", ledger=made.ledger, model=made.model)
        written = await self._summariser.write(
            smaller,
            tracker=context.tracker,
            focus=None,
            on_progress=self._progress_reporter(context.job),
            models=(),
        )
        audit = {**written.audit, "attempts": [attempt.as_stored for attempt in failed.attempts]}
        return replace(written, attempts=failed.attempts, audit=audit)

    async def report_progress(
        self, job: JobClaim, percent: int, stage: str, *, state: str = "running"
    ) -> None:
        """Announce a job's progress in percent to the session's clients and to the dashboard; nothing is
        stored.

        `stage` is English text, `state` one of running, done and failed. The runner announces the end, once
        it is stored.
        """
        frame = {"t": "compaction.progress", "id": str(job.id), "percent": percent, "stage": stage}
        await self._announcer.announce(job.session_id, {**frame, "state": state})
        told = {"t": "progress", "job": job.id, "percent": percent, "stage": stage}
        await self._announcer.announce(DASHBOARD, told)

    def _progress_reporter(self, job: JobClaim) -> ReportStage:
        async def told(percent: int, stage: str) -> None:
            await self.report_progress(job, 10 + percent * 8 // 10, stage)

        return told


def _check_obsolete(context: CompactionContext) -> JobDone | None:
    """Return the end of a job that has become unnecessary; None if it is still needed.

    Another summary may have been made, summaries switched off, or the last one undone by hand.
    """
    view, payload = context.state.view, context.job.payload
    if int(payload.get("cycle", view.cycle)) != view.cycle:
        return JobDone(outcome={"nothing": "done_already", "detail": "Another summary was made meanwhile."})
    if not context.prepared.policy.timing.compact_auto:
        return JobDone(outcome={"nothing": "switched_off", "detail": "Automatic summaries are off here."})
    overflows = (
        context.job.trigger == "overflow"
        or pressure(context.prepared.budget, context.needed_tokens) == "overflow"
    )
    if view.hold_compaction and not overflows:
        return JobDone(outcome={"nothing": "held", "detail": "The last summary was taken back by hand."})
    return None


def _check_delay(context: CompactionContext) -> JobDone | None:
    """Return the end or the delay of a job that should not run now; None to run it."""
    job, pace = context.job, context.pace
    if job.trigger == "idle":
        if pace.idle_seconds > context.cache_seconds:
            return JobDone(outcome={"nothing": "cold", "detail": "The provider has forgotten the prefix."})
        left = context.cache_seconds - IDLE_MARGIN_SECONDS - pace.idle_seconds
        if pace.unanswered or left > IDLE_TOLERANCE_SECONDS:
            again = max(left, IDLE_MARGIN_SECONDS) if pace.unanswered else left
            return JobDone(outcome={"deferred": "talking"}, state="due", retry_seconds=again)
    wait = backoff_seconds(pace.ends)
    if wait and not context.prepared.policy.timing.is_waited_for(job.trigger):
        return JobDone(outcome={"deferred": "backoff"}, state="due", retry_seconds=wait)
    return None


def _largest_parts(
    prepared: PreparedRequest, state: SessionState
) -> tuple[list[tuple[str, int]], list[tuple[str, str, int]]]:
    """Return the three largest parts of a request, and the three largest messages of its view.

    A part is its name and tokens; a message is its public id, author and tokens, without text.
    """
    parts = sorted(prepared.built.parts.items(), key=lambda part: -part[1])[:3]
    entries = sorted((*state.view.pins, *state.view.entries), key=lambda entry: -entry.tokens)[:3]
    return (
        [(name, round(prepared.ratio * tokens)) for name, tokens in parts],
        [(entry.mid, entry.author, round(prepared.ratio * entry.tokens)) for entry in entries],
    )


def _costs(
    context: CompactionContext,
    plan: CompactionPlan,
    warm: PreparedRequest,
    writer: ModelCard,
    *,
    behind: int,
    cache_age_seconds: float,
) -> Costs:
    return Costs(
        prefix_tokens=warm.estimate,
        instruction_tokens=behind,
        source_tokens=round(writer.token_factor * sum(entry.tokens for entry in plan.entries)),
        answer_tokens=context.pace.summary_tokens or ANSWER_TOKENS,
        cache_age_seconds=cache_age_seconds,
        cache_seconds=context.cache_seconds,
        cycle_micro=context.pace.turn_micro * (plan.through_turn - plan.from_turn + 1),
    )


def build_compaction(
    context: CompactionContext,
    plan: CompactionPlan,
    written: SummaryResult,
    flushed: FlushResult,
    count: Callable[[str], int],
) -> NewCompaction:
    """Return the compaction to commit, made of plan, written summary and flush; nothing is stored.

    `count` returns the estimated tokens of a text.
    """
    summary = render_summary(written.ledger)
    return NewCompaction(
        kind=written.kind,
        from_turn=plan.from_turn,
        through_turn=plan.through_turn,
        from_seq=min(entry.seq for entry in plan.entries),
        through_seq=plan.through_seq,
        trigger=context.job.trigger,
        summary_text=summary,
        ledger=written.ledger,
        contract=five_fields(written.ledger),
        audit=dict(written.audit),
        tokens=count(summary),
        tokens_before=context.state.view.context_tokens,
        model=written.model,
        cost_micro=total_cost(context.tracker.spent),
        duration_ms=written.duration_ms,
        flush_id=flushed.ticket.id if flushed.ticket else None,
        focus=context.focus or "",
    )


def continue_from_checkpoint(plan: CompactionPlan, made: Checkpoint) -> CompactionPlan:
    """Return the plan without the turns that a checkpoint covers, with the checkpoint's ledger as the former
    one.
    """

    def rest(entries: Sequence[Entry]) -> tuple[Entry, ...]:
        return tuple(entry for entry in entries if entry.turn > made.through_turn)

    chunks = tuple(chunk for chunk in map(rest, plan.chunks) if chunk)
    return replace(plan, former=made.ledger, entries=rest(plan.entries), chunks=chunks)


def list_failures(job: JobClaim, written: SummaryResult) -> tuple[Mapping[str, Any], ...]:
    """Return the failed attempts of a job for operators: model, step, fault code, scores and cost, without
    people's text.
    """
    return tuple(
        {
            "attempt": job.attempt,
            "model": attempt.model,
            "step": attempt.step,
            "code": attempt.code,
            "scores": dict(attempt.scores),
            **attempt.costs,
        }
        for attempt in written.attempts
    )


@asynccontextmanager
async def booking_unused_calls(store: JobSpendingStore, context: CompactionContext) -> AsyncIterator[None]:
    """Book the model calls that the body paid for and did not store, however it ends.

    An error of the body passes, also if booking then fails. Raises StorageUnavailable.
    """
    try:
        yield
    except BaseException:
        with suppress(StorageUnavailable):
            await _record_unused_calls(store, context)
        raise
    await _record_unused_calls(store, context)


@asynccontextmanager
async def spending_with_commit(
    store: CommitStore, context: CompactionContext
) -> AsyncIterator[tuple[Spending, ...]]:
    """Give the body the calls to book with its commit of a compaction; they stay unused if it has not
    committed.

    After an error that leaves this open the database is asked; if it does not answer, the calls count as
    booked, since booking them twice is worse.
    """
    spent = context.tracker.take_spent()
    try:
        yield spent
    except (StaleView, LeaseLost):
        context.tracker.spent.extend(spent)
        raise
    except BaseException:
        with suppress(StorageUnavailable):
            if await store.find_compaction(context.job) is None:
                context.tracker.spent.extend(spent)
        raise


async def _record_unused_calls(store: JobSpendingStore, context: CompactionContext) -> None:
    if context.tracker.spent:
        spent = context.tracker.take_spent()
        await store.record_spending(
            context.job, purpose="compact", spent=spent, contact_id=context.state.contact_id
        )
