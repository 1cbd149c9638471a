"""Hides old turns behind a summary: now, early as a checkpoint, or again where a digest had to do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import structlog

from shared.core.budget import pressure
from shared.core.compaction import CompactionPlan, NothingToCompact, plan_compaction
from shared.core.errors import StaleView
from shared.core.jobs import CACHE_SECONDS, IDLE_MARGIN_SECONDS, rest_from_now
from shared.core.rest import (
    BY_SIZE,
    MANUAL,
    NOTHING_TURNS,
    REST_TURNS,
    Rest,
    breaker_rest,
    is_thrashing,
)
from shared.core.session import Entry
from shared.core.summarising import Costs, cheaper_way, models_for, warm_instruction
from shared.core.summary import five_fields, render_summary
from shared.core.turns import Caps, Spending
from shared.core.upkeep import (
    Checkpoint,
    Hidden,
    JobClaim,
    JobDone,
    LinkStored,
    NewLink,
    Pace,
    SessionState,
)
from shared.ports import Announcer, ChatModel, ModelRequest
from shared.services.crash import CrashPoint
from shared.services.flusher import Flushed, Flusher
from shared.services.prompting import Prepared, Prompting
from shared.services.spending import Purse, SpendStore
from shared.services.summariser import Summariser, Written
from shared.services.tools import Toolbox

log = structlog.get_logger(__name__)

PLANS_AT_MOST = 4
UPGRADES_AT_MOST = 8
UPGRADE_SECONDS = 60.0
UPGRADE_SECONDS_MOST = 3_600.0
IDLE_TOLERANCE_SECONDS = 1.0
ANSWER_TOKENS = 1_500
"""What a summary's JSON usually takes, for comparing prices."""

Told = Callable[[int, str], Awaitable[None]]


class CompactionStore(Protocol):
    async def state(self, session_id: int) -> SessionState: ...
    async def record_spending(
        self, job: JobClaim, *, purpose: str, spent: Sequence[Spending], party_id: int
    ) -> None: ...
    async def record_compaction(
        self, job: JobClaim, link: NewLink, *, seen: SessionState, spent: Sequence[Spending]
    ) -> LinkStored: ...
    async def compaction_of(self, job: JobClaim) -> Mapping[str, Any] | None: ...


class PaceStore(Protocol):
    async def pace(self, session_id: int) -> Pace: ...
    async def let_rest(self, job: JobClaim, rest: Rest) -> None: ...
    async def save_checkpoint(
        self, job: JobClaim, checkpoint: Checkpoint, *, spent: Sequence[Spending], party_id: int
    ) -> None: ...
    async def checkpoint(
        self, session_id: int, *, parent: int | None, from_turn: int
    ) -> Checkpoint | None: ...
    async def digest(self, session_id: int, link_id: int) -> Hidden | None: ...
    async def replace_digest(
        self, job: JobClaim, link: NewLink, *, seen: Hidden, spent: Sequence[Spending]
    ) -> LinkStored: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """A compaction that is about to be planned."""

    job: JobClaim
    state: SessionState
    prepared: Prepared
    pace: Pace
    purse: Purse
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


class Compactor:
    def __init__(
        self,
        *,
        store: CompactionStore,
        pace: PaceStore,
        flusher: Flusher,
        spend: SpendStore,
        model: ChatModel,
        prompting: Prompting,
        summariser: Summariser,
        toolbox: Toolbox,
        announcer: Announcer,
        caps: Caps,
        crash_point: CrashPoint,
    ) -> None:
        self._store = store
        self._pace = pace
        self._flusher = flusher
        self._spend = spend
        self._model = model
        self._prompting = prompting
        self._summariser = summariser
        self._toolbox = toolbox
        self._announcer = announcer
        self._caps = caps
        self._crash_point = crash_point

    # ---- now

    async def compact(self, job: JobClaim) -> JobDone:
        if job.attempt > 1 and (done := await self._store.compaction_of(job)) is not None:
            # An earlier attempt died after its commit: what was asked for is there.
            return JobDone(outcome=dict(done))
        purse = self.purse(job)
        for _ in range(PLANS_AT_MOST):
            state = await self._store.state(job.session_id)
            prepared = await self.prepared(state)
            pace = await self._pace.pace(job.session_id)
            case = _Case(job=job, state=state, prepared=prepared, pace=pace, purse=purse)
            if job.trigger != MANUAL:
                not_now = over(case) or await self._thrashing(case) or waits(case)
                if not_now is not None:
                    return not_now
                case = replace(case, resting=breaker_rest(pace.ends) > 0)
            plan = await self._plan(case)
            if isinstance(plan, NothingToCompact):
                return await self._nothing(case, plan)
            try:
                return await self._carry_out(case, plan)
            except StaleView:
                log.info("compaction_planned_again", job_id=job.id, session_id=job.session_id)
                await self._pay_for_nothing(case)
        return JobDone(outcome={"nothing": "busy", "detail": "The conversation kept changing."})

    async def _plan(self, case: _Case) -> CompactionPlan | NothingToCompact:
        return plan_compaction(
            case.state.view,
            budget=case.prepared.budget,
            policy=case.prepared.policy,
            force=case.force,
            now_tokens=case.state.view.context_tokens,
            summariser_window=await self._window(case.prepared),
            ratio=case.prepared.ratio,
        )

    async def _nothing(self, case: _Case, plan: NothingToCompact) -> JobDone:
        """The turn that asked saw something to do: it is not asked again after every turn."""
        if case.job.trigger in BY_SIZE:
            await self._pace.let_rest(case.job, _rest(case, "nothing", NOTHING_TURNS))
        return JobDone(outcome={"nothing": plan.reason, "detail": plan.detail})

    async def _thrashing(self, case: _Case) -> JobDone | None:
        """Compacting again would not help: it stops, and the operator is told what fills the context."""
        now_turn = case.state.answered_turn
        if case.job.trigger not in BY_SIZE or not is_thrashing(case.pace.ends, now_turn=now_turn):
            return None
        await self._pace.let_rest(case.job, _rest(case, "thrashing", REST_TURNS))
        parts, messages = largest(case.prepared, case.state)
        named = ", ".join(f"{name} {tokens:,}" for name, tokens in parts)
        log.warning("compaction_thrashes", session_id=case.job.session_id, largest=parts, messages=messages)
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

    async def _carry_out(self, case: _Case, plan: CompactionPlan) -> JobDone:
        job, state = case.job, case.state
        await self.progress(job, 0, "saving what should be kept")
        flushed = await self._flusher.before_hiding(job, state, through=plan.through_turn)
        written = await self._written(case, plan, flushed)
        link = self._link(case, plan, written, flushed)
        stored = await self._store.record_compaction(job, link, seen=state, spent=case.purse.spent)
        self._crash_point("after_compaction")
        await self._announcer.announce(job.session_id, {"event_seq": stored.event_seq})
        await self.progress(job, 100, "done", state="done")
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
        return JobDone(outcome=outcome, failures=_failures(job, written))

    async def _written(self, case: _Case, plan: CompactionPlan, flushed: Flushed) -> Written:
        models, warm = await self._who(case, plan, flushed)
        written = await self._summariser.write(
            plan,
            purse=case.purse,
            focus=case.focus,
            on_progress=self._told(case.job),
            models=models,
            warm=warm,
        )
        if written.kind != "digest" or not case.prepared.policy.checkpoints:
            return written
        made = await self._pace.checkpoint(
            case.job.session_id, parent=case.state.head_id, from_turn=plan.from_turn
        )
        if made is None or not made.helps(plan.from_turn, plan.through_turn):
            return written
        return await self._from_checkpoint(case, plan, made, written)

    async def _from_checkpoint(
        self, case: _Case, plan: CompactionPlan, made: Checkpoint, failed: Written
    ) -> Written:
        """The early ledger, and a digest only of what came after it."""
        smaller = _after(plan, made)
        if not smaller.entries:
            return replace(failed, kind="summary", ledger=made.ledger, model=made.model)
        written = await self._summariser.write(
            smaller, purse=case.purse, focus=None, on_progress=self._told(case.job), models=()
        )
        return replace(written, failures=failed.failures)

    # ---- who writes

    async def _window(self, prepared: Prepared) -> int:
        return (await self._model.card(self._models(prepared)[0])).window

    def _models(self, prepared: Prepared) -> tuple[str, ...]:
        return models_for(
            prepared.policy.summariser,
            summary_model=self._prompting.summary_model,
            own_model=prepared.card.name,
            falls_back=prepared.policy.summary_falls_back,
        )

    async def _who(
        self, case: _Case, plan: CompactionPlan, flushed: Flushed
    ) -> tuple[tuple[str, ...], ModelRequest | None]:
        if case.resting:
            return (), None
        models, wanted = self._models(case.prepared), case.prepared.policy.summariser
        if wanted not in ("warm", "auto"):
            return models, None
        warm = await self._warm(case, plan)
        if warm.estimate > warm.budget.hard:
            return models, None
        if wanted == "auto" and await self._cheaper(case, plan, warm, flushed) == "cheap":
            return models, None
        return models, warm.request

    async def _warm(self, case: _Case, plan: CompactionPlan) -> Prepared:
        """The chat's own request, unchanged, with the task as its last message."""
        return self._prompting.prepare(
            case.state.view,
            card=case.prepared.card,
            agent_config=case.state.agent_config,
            tools=await self._flusher.tools_of(case.job.session_id),
            token_ratio=case.state.token_ratio,
            instruction=warm_instruction(plan.entries, plan.former, case.focus),
        )

    async def _cheaper(self, case: _Case, plan: CompactionPlan, warm: Prepared, flushed: Flushed) -> str:
        cheap = await self._model.card(self._prompting.summary_model)
        source = sum(entry.tokens for entry in plan.entries)
        instruction = max(0, warm.estimate - case.prepared.estimate)
        just_read = flushed.ticket is not None and flushed.outcome != "failed"
        costs = Costs(
            prefix_tokens=case.prepared.estimate,
            instruction_tokens=instruction,
            source_tokens=round(cheap.token_factor * source),
            answer_tokens=ANSWER_TOKENS,
            cache_age_seconds=0.0 if just_read else case.pace.idle_seconds,
            cache_seconds=case.cache_seconds,
        )
        return cheaper_way(costs, cheap=cheap.prices, chat=case.prepared.card.prices)

    # ---- early

    async def make_checkpoint(self, job: JobClaim, state: SessionState) -> bool:
        """A ledger of what the next compaction will hide; False when there is nothing to make one of."""
        prepared = await self.prepared(state)
        purse = self.purse(job)
        case = _Case(
            job=job, state=state, prepared=prepared, pace=await self._pace.pace(job.session_id), purse=purse
        )
        window = await self._window(prepared)
        plan = plan_compaction(
            state.view, budget=prepared.budget, policy=prepared.policy, force=True,
            now_tokens=state.view.context_tokens, summariser_window=window, ratio=prepared.ratio,
        )  # fmt: skip
        if isinstance(plan, NothingToCompact) or breaker_rest(case.pace.ends):
            return False
        last = await self._pace.checkpoint(job.session_id, parent=state.head_id, from_turn=plan.from_turn)
        if last is not None:
            plan = _after(plan, last)
            if not plan.entries:
                return False
        written = await self._summariser.write(
            plan, purse=purse, focus=None, on_progress=_untold, models=self._models(prepared)
        )
        if written.kind == "digest":
            await self._pay_for_nothing(case)
            return False
        checkpoint = Checkpoint(
            parent=state.head_id,
            from_turn=plan.from_turn,
            through_turn=plan.through_turn,
            ledger=written.ledger,
            audit=_audit(written),
            tokens=self._prompting.counter.count(render_summary(written.ledger)),
            model=written.model,
            cost_micro=_cost(purse),
        )
        await self._pace.save_checkpoint(job, checkpoint, spent=purse.spent, party_id=state.party_id)
        return True

    # ---- again

    async def upgrade(self, job: JobClaim) -> JobDone:
        """A digest becomes a summary of the same range as soon as a model can write one."""
        seen = await self._pace.digest(job.session_id, int(job.payload.get("link", 0)))
        if seen is None:
            return JobDone(outcome={"nothing": "gone", "detail": "The digest is not in use any more."})
        pace = await self._pace.pace(job.session_id)
        if rest := breaker_rest(pace.ends):
            return JobDone(outcome={"resting": "breaker"}, state="due", retry_seconds=rest)
        prepared = await self.prepared(seen.state)
        case = _Case(job=job, state=seen.state, prepared=prepared, pace=pace, purse=self.purse(job))
        plan = await self._plan_again(case, seen)
        if plan is None:
            return JobDone(outcome={"nothing": "pins", "detail": "all messages of the range are pinned"})
        written = await self._summariser.write(
            plan, purse=case.purse, focus=None, on_progress=_untold, models=self._models(prepared)
        )
        if written.kind == "digest":
            await self._pay_for_nothing(case)
            return _upgrade_later(job, written)
        link = self._link(case, plan, written, Flushed(through=plan.through_turn))
        try:
            stored = await self._pace.replace_digest(job, link, seen=seen, spent=case.purse.spent)
        except StaleView:
            await self._pay_for_nothing(case)
            return JobDone(outcome={"resting": "moved"}, state="due", retry_seconds=UPGRADE_SECONDS)
        await self._announcer.announce(job.session_id, {"event_seq": stored.event_seq})
        return JobDone(
            outcome={
                "link": stored.link_id, "kind": "summary", "before": stored.tokens_before,
                "after": stored.tokens_after, "turns": plan.through_turn - plan.from_turn + 1,
            },
            failures=_failures(job, written),
        )  # fmt: skip

    async def _plan_again(self, case: _Case, seen: Hidden) -> CompactionPlan | None:
        """Everything of the range; the summary may take what the digest took and what is left to land."""
        policy, budget = case.prepared.policy, case.prepared.budget
        whole = replace(policy, keep_turns=0, keep_turns_least=0, tail_share_most=0.0)
        plan = plan_compaction(
            case.state.view, budget=budget, policy=whole, force=True,
            now_tokens=case.state.view.context_tokens, summariser_window=await self._window(case.prepared),
            ratio=case.prepared.ratio,
        )  # fmt: skip
        if isinstance(plan, NothingToCompact) or plan.through_turn != seen.through_turn:
            return None
        stays = case.state.view.context_tokens - budget.fixed - round(case.prepared.ratio * seen.tokens)
        left = int(policy.land_at * budget.conversation) - stays
        most = max(policy.summary_least, seen.tokens, min(plan.summary_limit, left))
        return replace(plan, summary_limit=most)

    # ---- shared by all

    async def prepared(self, state: SessionState) -> Prepared:
        return self._prompting.prepare(
            state.view,
            card=await self._model.card(self._prompting.model_of(state.agent_config)),
            agent_config=state.agent_config,
            tools=self._toolbox.specs,
            token_ratio=state.token_ratio,
        )

    def purse(self, job: JobClaim) -> Purse:
        return Purse(self._spend, session_id=job.session_id, job_id=job.id, caps=self._caps)

    async def progress(self, job: JobClaim, percent: int, stage: str, *, state: str = "running") -> None:
        frame = {"t": "compaction.progress", "id": str(job.id), "percent": percent, "stage": stage}
        await self._announcer.announce(job.session_id, {**frame, "state": state})

    def _told(self, job: JobClaim) -> Told:
        async def told(percent: int, stage: str) -> None:
            await self.progress(job, 10 + percent * 8 // 10, stage)

        return told

    def _link(self, case: _Case, plan: CompactionPlan, written: Written, flushed: Flushed) -> NewLink:
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
            audit=_audit(written),
            tokens=self._prompting.counter.count(summary),
            tokens_before=case.state.view.context_tokens,
            model=written.model,
            cost_micro=_cost(case.purse),
            duration_ms=written.duration_ms,
            flush_id=flushed.ticket.id if flushed.ticket else None,
            focus=case.focus or "",
        )

    async def _pay_for_nothing(self, case: _Case) -> None:
        await self._store.record_spending(
            case.job, purpose="compact", spent=case.purse.spent, party_id=case.state.party_id
        )
        case.purse.spent.clear()


def over(case: _Case) -> JobDone | None:
    """What asked for this compaction is past: another one was made, or a person took the last one back."""
    view, payload = case.state.view, case.job.payload
    if int(payload.get("cycle", view.cycle)) != view.cycle:
        return JobDone(outcome={"nothing": "done_already", "detail": "Another summary was made meanwhile."})
    if view.hold_compaction and pressure(case.prepared.budget, view.context_tokens) != "overflow":
        return JobDone(outcome={"nothing": "held", "detail": "The last summary was taken back by hand."})
    return None


def waits(case: _Case) -> JobDone | None:
    """Background work that should not be done now, but later."""
    job, pace = case.job, case.pace
    if job.trigger == "idle":
        if pace.idle_seconds > case.cache_seconds:
            return JobDone(outcome={"nothing": "cold", "detail": "The provider has forgotten the prefix."})
        left = case.cache_seconds - IDLE_MARGIN_SECONDS - pace.idle_seconds
        if pace.unanswered or left > IDLE_TOLERANCE_SECONDS:
            again = max(left, IDLE_MARGIN_SECONDS) if pace.unanswered else left
            return JobDone(outcome={"resting": "talking"}, state="due", retry_seconds=again)
    rest = breaker_rest(pace.ends)
    if rest and job.trigger != "overflow":
        return JobDone(outcome={"resting": "breaker"}, state="due", retry_seconds=rest)
    return None


def largest(
    prepared: Prepared, state: SessionState
) -> tuple[list[tuple[str, int]], list[tuple[str, str, int]]]:
    """The three biggest parts of a request, and of its messages by id and author; never anybody's words."""
    parts = sorted(prepared.built.parts.items(), key=lambda part: -part[1])[:3]
    entries = sorted((*state.view.pins, *state.view.entries), key=lambda entry: -entry.tokens)[:3]
    return (
        [(name, round(prepared.ratio * tokens)) for name, tokens in parts],
        [(entry.mid, entry.author, round(prepared.ratio * entry.tokens)) for entry in entries],
    )


def _rest(case: _Case, reason: Any, turns: int) -> Rest:
    return rest_from_now(
        case.state.view,
        reason=reason,
        limit=case.prepared.budget.limit,
        model=case.prepared.card.name,
        turns=turns,
    )


def _after(plan: CompactionPlan, made: Checkpoint) -> CompactionPlan:
    """The same plan, going on from a ledger that covers its beginning."""

    def rest(entries: Sequence[Entry]) -> tuple[Entry, ...]:
        return tuple(entry for entry in entries if entry.turn > made.through_turn)

    chunks = tuple(chunk for chunk in map(rest, plan.chunks) if chunk)
    return replace(plan, former=made.ledger, entries=rest(plan.entries), chunks=chunks)


def _upgrade_later(job: JobClaim, written: Written) -> JobDone:
    return JobDone(
        outcome={"nothing": "no_model", "detail": "No model could write the summary."},
        state="dead" if job.faults + 1 >= UPGRADES_AT_MOST else "due",
        error="the digest stays: no model could write the summary",
        retry_seconds=min(UPGRADE_SECONDS_MOST, UPGRADE_SECONDS * 2.0**job.faults),
        failures=_failures(job, written),
    )


def _failures(job: JobClaim, written: Written) -> tuple[Mapping[str, Any], ...]:
    return tuple(
        {
            "attempt": job.attempt,
            "model": failure.model,
            "code": failure.code,
            "scores": dict(failure.scores),
            "cost_micro": failure.cost_micro,
        }
        for failure in written.failures
    )


def _audit(written: Written) -> dict[str, Any]:
    verdict = written.verdict
    if verdict is None:
        return {}
    return {
        "scores": dict(verdict.scores),
        "soft_faults": list(verdict.soft_faults),
        "dropped": len(verdict.dropped_items),
    }


def _cost(purse: Purse) -> int | None:
    costs = [call.cost_micro for call in purse.spent]
    return None if None in costs else sum(cost or 0 for cost in costs)


async def _untold(_percent: int, _stage: str) -> None:
    """Checkpoints and upgrades are nobody's wait."""
