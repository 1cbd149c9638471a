"""A compaction that is about to be made: whether now is the time, and what is written down about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from shared.core.compaction.jobs import CACHE_SECONDS, IDLE_MARGIN_SECONDS, rest_from_now
from shared.core.compaction.plan import CompactionPlan
from shared.core.session.backoff import BackoffReason, CompactionBackoff, breaker_seconds
from shared.core.session.budget import pressure
from shared.core.session.session import Entry
from shared.core.session.session_state import Checkpoint, JobClaim, JobDone, NewLink, Pace, SessionState
from shared.core.session.summary import five_fields, render_summary
from shared.core.session.turns import Spending, total_cost
from shared.services.compaction.flusher import FlushResult
from shared.services.compaction.summarizer import SummaryResult
from shared.services.turns.request_builder import PreparedRequest
from shared.services.turns.spend_tracker import SpendTracker

IDLE_TOLERANCE_SECONDS = 1.0


class JobSpendingStore(Protocol):
    async def record_spending(
        self, job: JobClaim, *, purpose: str, spent: Sequence[Spending], party_id: int
    ) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionContext:
    """A compaction that is about to be planned."""

    job: JobClaim
    state: SessionState
    prepared: PreparedRequest
    pace: Pace
    purse: SpendTracker
    resting: bool = False
    """No model is asked: background compaction rests, and this one cannot wait."""

    @property
    def focus(self) -> str | None:
        return self.job.payload.get("focus") or None

    @property
    def force(self) -> bool:
        return bool(self.job.payload.get("force"))

    @property
    def cache_seconds(self) -> float:
        return float(self.job.payload.get("cache_seconds", CACHE_SECONDS))


def check_obsolete(case: CompactionContext) -> JobDone | None:
    """What asked for this compaction is past: another one was made, or a person took the last one back."""
    view, payload = case.state.view, case.job.payload
    if int(payload.get("cycle", view.cycle)) != view.cycle:
        return JobDone(outcome={"nothing": "done_already", "detail": "Another summary was made meanwhile."})
    overflows = (
        case.job.trigger == "overflow" or pressure(case.prepared.budget, view.context_tokens) == "overflow"
    )
    if view.hold_compaction and not overflows:
        return JobDone(outcome={"nothing": "held", "detail": "The last summary was taken back by hand."})
    return None


def check_delay(case: CompactionContext) -> JobDone | None:
    """Background work that should not be done now, but later."""
    job, pace = case.job, case.pace
    if job.trigger == "idle":
        if pace.idle_seconds > case.cache_seconds:
            return JobDone(outcome={"nothing": "cold", "detail": "The provider has forgotten the prefix."})
        left = case.cache_seconds - IDLE_MARGIN_SECONDS - pace.idle_seconds
        if pace.unanswered or left > IDLE_TOLERANCE_SECONDS:
            again = max(left, IDLE_MARGIN_SECONDS) if pace.unanswered else left
            return JobDone(outcome={"resting": "talking"}, state="due", retry_seconds=again)
    rest = breaker_seconds(pace.ends)
    somebody_waits = job.trigger == "overflow" or case.prepared.policy.compact_before_call
    if rest and not somebody_waits:
        return JobDone(outcome={"resting": "breaker"}, state="due", retry_seconds=rest)
    return None


def list_largest_parts(
    prepared: PreparedRequest, state: SessionState
) -> tuple[list[tuple[str, int]], list[tuple[str, str, int]]]:
    """The three biggest parts of a request, and of its messages by id and author; never anybody's words."""
    parts = sorted(prepared.built.parts.items(), key=lambda part: -part[1])[:3]
    entries = sorted((*state.view.pins, *state.view.entries), key=lambda entry: -entry.tokens)[:3]
    return (
        [(name, round(prepared.ratio * tokens)) for name, tokens in parts],
        [(entry.mid, entry.author, round(prepared.ratio * entry.tokens)) for entry in entries],
    )


def build_backoff(case: CompactionContext, reason: BackoffReason, turns: int) -> CompactionBackoff:
    return rest_from_now(
        case.state.view,
        reason=reason,
        limit=case.prepared.budget.limit,
        model=case.prepared.card.name,
        turns=turns,
    )


def build_compaction(
    case: CompactionContext,
    plan: CompactionPlan,
    written: SummaryResult,
    flushed: FlushResult,
    count: Callable[[str], int],
) -> NewLink:
    summary = render_summary(written.ledger)
    return NewLink(
        kind=written.kind,
        from_turn=plan.from_turn,
        through_turn=plan.through_turn,
        from_seq=min(entry.seq for entry in plan.entries),
        through_seq=plan.through_seq,
        trigger=case.job.trigger,
        summary_text=summary,
        ledger=written.ledger,
        contract=five_fields(written.ledger),
        audit=dict(written.audit),
        tokens=count(summary),
        tokens_before=case.state.view.context_tokens,
        model=written.model,
        cost_micro=sum_cost(case.purse),
        duration_ms=written.duration_ms,
        flush_id=flushed.ticket.id if flushed.ticket else None,
        focus=case.focus or "",
    )


def continue_from_checkpoint(plan: CompactionPlan, made: Checkpoint) -> CompactionPlan:
    """The same plan, going on from a ledger that covers its beginning."""

    def rest(entries: Sequence[Entry]) -> tuple[Entry, ...]:
        return tuple(entry for entry in entries if entry.turn > made.through_turn)

    chunks = tuple(chunk for chunk in map(rest, plan.chunks) if chunk)
    return replace(plan, former=made.ledger, entries=rest(plan.entries), chunks=chunks)


def list_failures(job: JobClaim, written: SummaryResult) -> tuple[Mapping[str, Any], ...]:
    """For operators: which model failed at what, and never anybody's words."""
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


def sum_cost(purse: SpendTracker) -> int | None:
    return total_cost(purse.spent)


async def record_unused_spending(store: JobSpendingStore, case: CompactionContext) -> None:
    """What was asked led to nothing that could be committed; the calls are paid for all the same."""
    await store.record_spending(
        case.job, purpose="compact", spent=case.purse.take_spent(), party_id=case.state.party_id
    )
