"""One attempt at an answer: context, model, tools, until there is something to commit."""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any, Protocol

import structlog

from shared.core.compaction.jobs import next_job
from shared.core.context.build_context import fading
from shared.core.context.prompt_cache_ttl import SHORT_LIFE, cache_life
from shared.core.context.selection import LeftOut, leaves_out
from shared.core.overflow.filler_trimming import plan_hiding
from shared.core.session.artifacts import Artifact
from shared.core.session.budget import gauge, pressure
from shared.core.session.events import ContextMeasured, Emit, Organizing
from shared.core.session.policy import ContradictoryPolicy
from shared.core.session.pruning import clear_first, plan_pruning, saved_by, with_decisions
from shared.core.session.regeneration import former_answer, without_former
from shared.core.session.session import Entry, View
from shared.core.session.session_state import SessionState
from shared.core.session.turns import Caps, Claim, JobOrder, Outcome, Spending
from shared.core.values.errors import CapReached, ContextBudgetExceeded
from shared.core.values.messages import Block, Text, text_of, tool_uses
from shared.core.values.money import micro_per_input_token, worst_case_micro
from shared.core.values.tokens import estimate_blocks
from shared.ports import ChatModel, Clock, Doorbell, ModelCard, ModelReply
from shared.runtime.crash_points import CrashPoint
from shared.runtime.tracing import NO_TRACES, Tracer
from shared.services.turns.model_caller import Attempt, Calling, Stopped, entries_of_open_turn, micro_of
from shared.services.turns.pictures import Pictures, Unseen, Whose, unseen_of
from shared.services.turns.request_builder import Prepared, Prompting, audit_of, prompt_parts
from shared.services.turns.retrieval import Recalling
from shared.services.turns.spend_tracker import Bill, TurnSpendStore
from shared.services.turns.tool_rounds import RoundStore, ToolRounds
from shared.services.turns.toolbox import Toolbox
from shared.services.turns.turn_outcomes import (
    Answered,
    as_entry,
    grown_by,
    measured_by,
    refusal,
    refused_audit,
    sayable,
    stopped_audit,
    summarised,
    turn_tokens_of,
)

log = structlog.get_logger(__name__)

TOOL_ROUNDS = 8
TURNS_AFTER_ERASURE = 3
REMEMBERED_PARTS = 10_000
"""Hashes of prompt parts that a process knows to be stored; beyond that it starts afresh."""
ORGANIZE_SECONDS = 30.0
"""How long a person waits for a summary before the answer is made without one."""
TAKEN_SECONDS = 3.0
"""A job that nobody has taken after so long is not waited for."""
_LOOK_SECONDS = 0.1
_AT: Callable[[Entry], datetime] = attrgetter("at")
_TURN: Callable[[Entry], int] = attrgetter("turn")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimPrices:
    micro_per_input_token: float
    micro_output: float
    """The longest answer's price, micro-dollars."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What a session's next request may hold."""

    hard: int
    """The most tokens that it may have."""
    left_out: LeftOut | None
    """What of a view it would leave out; None when nothing of any."""


class ContextStore(RoundStore, Protocol):
    async def load(self, session_id: int, *, base_turn: int, through_turn: int) -> tuple[Entry, ...]: ...
    async def record_waste(self, claim: Claim, spent: Sequence[Spending], *, settled_micro: int) -> None: ...
    async def record_lost(self, claim: Claim, *, model: str, input_tokens: int) -> int: ...
    async def keep_artifacts(self, claim: Claim, artifacts: Sequence[tuple[int, Artifact]]) -> None: ...


class StateStore(Protocol):
    async def state(self, session_id: int) -> SessionState: ...
    async def ask(self, session_id: int, order: JobOrder) -> int | None: ...
    async def waiting_job(self, session_id: int, key: str) -> int | None: ...
    async def job_outcome(self, job_id: int) -> tuple[str, Mapping[str, Any]]: ...


class Assistant:
    """Holds no way to a person: it emits, its caller commits."""

    def __init__(
        self,
        *,
        store: ContextStore,
        states: StateStore,
        model: ChatModel,
        prompting: Prompting,
        toolbox: Toolbox,
        spend: TurnSpendStore,
        caps: Caps,
        doorbell: Doorbell,
        pictures: Pictures,
        clock: Clock,
        crash_point: CrashPoint,
        recalling: Recalling,
        tracer: Tracer = NO_TRACES,
    ) -> None:
        self._tracer = tracer
        self._recalling = recalling
        self._calling = Calling(
            model=model,
            prompting=prompting,
            spend=spend,
            caps=caps,
            store=store,
            due=self._ask_for_compaction,
            crash_point=crash_point,
        )
        self._tool_rounds = ToolRounds(
            store=store, prompting=prompting, pictures=pictures, clock=clock, crash_point=crash_point
        )
        self._pictures = pictures
        self._spend = spend
        self._caps = caps
        self._doorbell = doorbell
        self._store = store
        self._states = states
        self._model = model
        self._prompting = prompting
        self._toolbox = toolbox
        self._clock = clock
        self._crash_point = crash_point
        self._stored_parts: set[str] = set()

    async def prices(self) -> ClaimPrices:
        card = await self._model.card(self._prompting.chat_model)
        if card.prices is None:
            return ClaimPrices(micro_per_input_token=0.0, micro_output=0.0)
        longest = min(self._prompting.max_output, card.max_output)
        return ClaimPrices(
            micro_per_input_token=micro_per_input_token(card.prices),
            micro_output=worst_case_micro(0, longest, card.prices),
        )

    async def answer(
        self, claim: Claim, *, emit: Emit, stop: asyncio.Future[None], bill: Bill | None = None
    ) -> Answered:
        """Raises ModelError, CapHeld, Fenced, StorageUnavailable; `bill` tells what it cost."""
        about = {"session": claim.session_id, "turn": claim.turn, "attempt": claim.attempt}
        with self._tracer.span("turn", {**about, "channel": claim.channel}):
            return await self._answer(claim, emit, stop, bill or Bill(claim=claim))

    async def _answer(self, claim: Claim, emit: Emit, stop: asyncio.Future[None], bill: Bill) -> Answered:
        card = await self._model.card(self._prompting.model_of(claim.agent_config))
        about = {"session_id": claim.session_id, "turn": claim.turn}
        view, former = await self._live_view(claim, claim.view)
        state = Attempt(
            bill=bill,
            view=view,
            former=former,
            emit=emit,
            stop=stop,
            spent=bill.unpaid,
            spent_before=bill.stored,
            toolbox=self._toolbox.of(claim.agent_config),
            ratio=ratio_for(card.name, claim),
            anchor=claim.context_tokens if claim.measured_by in ("", card.name) else None,
            cache_life=cache_life(claim.turn_times),
            circumstances=self._prompting.circumstances_of(claim, view),
        )
        state.anchor = state.anchor or None
        state.texts = [text for text in map(text_of, _said_now(state.view)) if text]
        mine = [block for entry in entries_of_open_turn(state.view) for block in entry.blocks]
        state.pictures = await self._pictures.of_turn(mine)
        state.pending = sum(entry.tokens for entry in entries_of_open_turn(state.view))
        window = min(card.window, self._prompting.policy_of(claim.agent_config).context_window)
        state.recalled = await self._recalling.for_turn(claim, state.view, window=window)
        await self._tool_rounds.finish_lost(state)
        try:
            self._prune(state, card)
            if claim.attempt > 1:
                tokens = self._calling.prepare(state, card).estimate
                await self._store.record_lost(claim, model=card.name, input_tokens=tokens)
            await self._organize(state, card)
            prepared, reply = await self._rounds(state, card)
        except Stopped as stopped:
            return self._stopped(state, stopped)
        except (CapReached, ContextBudgetExceeded, ContradictoryPolicy) as error:
            if isinstance(error, ContradictoryPolicy):
                log.error(
                    "no_room_for_a_conversation",
                    **about,
                    model=card.name,
                    window=card.window,
                    reason=str(error),
                )
            return refusal(
                error,
                spent=state.spent,
                settled_micro=micro_of([*state.spent_before, *state.spent]),
                audit=refused_audit(state, card, error),
                grown=grown_by(state, 0, pruned=False),
                turn_tokens=turn_tokens_of(state, 0),
                view_epoch=state.view.view_epoch,
            )
        answered = self._answered(state, prepared, reply)
        if not state.pictures:
            return answered
        unseen = unseen_of(state.view.entries, whose=self._whose(claim), turn=claim.turn)
        return replace(answered, unseen=unseen)

    async def _live_view(self, claim: Claim, view: View) -> tuple[View, str | None]:
        """The view with everything up to the turn that is being answered, and the answer it is to replace."""
        stored = claim.entries if view is claim.view else None
        if stored is None:
            stored = await self._store.load(
                claim.session_id, base_turn=view.base_turn, through_turn=claim.turn
            )
        entries = without_former(stored, open_turn=claim.turn)
        # Pictures of this turn are looked at; those of earlier ones are read.
        now = bisect_left(entries, claim.turn, key=_TURN)
        known = await self._pictures.told(entries[:now], whose=self._whose(claim))
        entries = (*known, *entries[now:])
        hidden = bisect_right(entries, view.base_turn, key=_TURN)
        live = replace(view, entries=entries[hidden:], pins=entries[:hidden], open_turn=claim.turn)
        return live, former_answer(stored, claim.turn)

    def _prune(self, state: Attempt, card: ModelCard) -> None:
        """Decisions about the prefix are taken once, at the start of the turn, never between tool calls."""
        entries, policy = state.view.entries, self._prompting.policy_of(state.claim.agent_config)
        if policy.prune_first and state.anchor:
            plain = self._calling.prepare(state, card)
            state.prunes = clear_first(state.view, plain.budget, policy, plain.estimate, ratio=plain.ratio)
        else:
            cold = cache_is_cold(state.view, state.cache_life)
            state.prunes = plan_pruning(entries, policy, cache_cold=cold, open_turn=state.claim.turn)
        state.pruned = saved_by(entries, state.prunes, policy)
        state.pending -= state.pruned
        if state.prunes:
            state.view = replace(state.view, entries=with_decisions(entries, state.prunes))
        if policy.hide_chatter_at is not None:
            self._hide_chatter(state, card)

    def _hide_chatter(self, state: Attempt, card: ModelCard) -> None:
        prepared = self._calling.prepare(state, card)
        hides = plan_hiding(
            state.view,
            prepared.policy,
            budget=prepared.budget,
            context_tokens=prepared.estimate,
            ratio=prepared.ratio,
        )
        state.view = replace(state.view, entries=with_decisions(state.view.entries, hides))
        state.prunes, state.hidden = state.prunes + hides, bool(hides)

    async def _organize(self, state: Attempt, card: ModelCard) -> None:
        """For policies that look before the call: wait for a summary that is due, but not for ever."""
        if not self._prompting.policy_of(state.claim.agent_config).compact_before_call:
            return
        prepared = state.prepared = self._calling.prepare(state, card)
        job = self._due_job(state, prepared, prepared.estimate, open_turn=state.view.open_turn)
        if job is None or not is_summary_now(job):
            return
        state.compaction_asked = True
        session_id = state.claim.session_id
        job_id = await self._states.ask(session_id, job) or await self._states.waiting_job(
            session_id, job.key
        )
        if job_id is None:
            return
        await state.emit(Organizing(turn=state.claim.turn, job_id=job_id))
        await self._doorbell.ring(job_id, 0)
        if not await self._done_in_time(state, job_id):
            return
        moved = await self._states.state(session_id)
        if moved.view.view_epoch == state.view.view_epoch:
            return
        view, _ = await self._live_view(state.claim, moved.view)
        state.view = replace(view, entries=with_decisions(view.entries, state.prunes))
        state.organised = True
        state.anchor = moved.view.context_tokens
        state.pending = sum(entry.tokens for entry in entries_of_open_turn(state.view))

    async def _done_in_time(self, state: Attempt, job_id: int) -> bool:
        loop = asyncio.get_running_loop()
        until = loop.time() + ORGANIZE_SECONDS
        while loop.time() < until:
            ended, _ = await self._states.job_outcome(job_id)
            if ended in ("done", "dead"):
                return True
            if ended == "due" and loop.time() > until - ORGANIZE_SECONDS + TAKEN_SECONDS:
                return False
            await asyncio.wait([state.stop], timeout=_LOOK_SECONDS)
            if state.stop.done():
                raise Stopped("")
        return False

    def describe_later(self, unseen: Unseen, *, then: Callable[[], Awaitable[None]]) -> None:
        """For after the commit: what the pictures of this turn show."""
        self._pictures.describe_later(unseen, then=then)

    def _whose(self, claim: Claim) -> Whose:
        return Whose(
            session_id=claim.session_id,
            party_id=claim.party_id,
            chat_model=self._prompting.model_of(claim.agent_config),
        )

    def stored(self, outcome: Outcome) -> None:
        """The outcome was committed: its prompt parts need not be sent again by this process."""
        if len(self._stored_parts) > REMEMBERED_PARTS:
            self._stored_parts.clear()
        self._stored_parts.update(outcome.prompt_parts)

    def _unstored(self, parts: Mapping[str, str], claim: Claim) -> dict[str, str]:
        """After an erasure what this process knows to be stored may be gone."""
        if claim.erased_turn and claim.turn <= claim.erased_turn + TURNS_AFTER_ERASURE:
            return dict(parts)
        return {key: body for key, body in parts.items() if key not in self._stored_parts}

    async def gauge(self, session_id: int) -> ContextMeasured | None:
        """The gauge as the next request would be built; None before the first turn."""
        state = await self._states.state(session_id)
        if state.context_limit == 0:
            return None
        prepared = await self._next_request(state)
        return measured(prepared, state.view.context_tokens or prepared.estimate, estimated=True)

    async def room(self, state: SessionState) -> Room:
        prepared = await self._next_request(state)
        left_out = leaves_out(prepared.policy, channel=prepared.channel, ratio=prepared.ratio)
        return Room(hard=prepared.budget.hard, left_out=left_out)

    async def _next_request(self, state: SessionState) -> Prepared:
        card = await self._model.card(self._prompting.model_of(state.agent_config))
        tools = self._toolbox.of(state.agent_config).specs
        return self._prompting.next_request(state, card=card, tools=tools)

    async def _rounds(self, state: Attempt, card: ModelCard) -> tuple[Prepared, ModelReply]:
        for _ in range(TOOL_ROUNDS):
            prepared, reply = await self._calling.call(state, card)
            calls = tool_uses(reply.blocks)
            if not calls or reply.stop_reason != "tool_use":
                return prepared, reply
            await self._tool_rounds.run(state, prepared, reply, calls)
        return await self._calling.call(state, card, tools=False)

    async def _ask_for_compaction(self, state: Attempt, prepared: Prepared) -> None:
        """A request above the limit means that a compaction is due: it may begin while the model answers.

        One is asked for per turn; after a refusal of the provider it is forced, whatever it gains.
        """
        full = pressure(prepared.budget, prepared.estimate + prepared.left_out) in ("compact", "overflow")
        refused = state.restarts > 0
        if state.compaction_asked or not (refused or (full and not state.calls)):
            return
        job = overflow_job(state.view) if refused else None
        used, open_turn = prepared.estimate + prepared.left_out, state.view.open_turn
        job = job or self._due_job(state, prepared, used, open_turn=open_turn)
        if job is not None and is_summary_now(job):
            state.compaction_asked = True
            job_id = await self._states.ask(state.claim.session_id, job)
            if job_id is not None:
                await self._doorbell.ring(job_id, 0)

    def _answered(self, state: Attempt, prepared: Prepared, reply: ModelReply) -> Answered:
        blocks = sayable(reply)
        count = self._prompting.counter.count
        tokens = self._tool_rounds.tokens_of(reply, blocks, prepared)
        ratio, used = measured_by(reply, prepared, tokens)
        mine = entries_of_open_turn(state.view)
        fades = fading((*mine, as_entry(blocks, tokens, mine[-1])), prepared.policy, count)
        whole = max(0, used + prepared.left_out - round(ratio * (fades + prepared.built.volatile)))
        turn_tokens = tokens + sum(entry.tokens for entry in mine) - fades
        parts = prompt_parts(prepared)
        screen = {} if not state.texts else {"text": "\n\n".join([*state.texts, text_of(blocks)])}
        screen |= state.in_place_of
        job = self._due_job(state, prepared, whole)
        known = reply.usage.known
        outcome = Outcome(
            state="answered",
            blocks=blocks,
            tokens=tokens,
            screen=screen,
            spent=tuple(state.spent),
            settled_micro=micro_of([*state.spent_before, *state.spent]),
            audit=audit_of(
                prepared,
                state.view,
                hashes=tuple(parts),
                reported=reply.usage.context_tokens - reply.usage.output_tokens if known else None,
                model_ms=round(state.model_seconds * 1000),
                context_tokens=whole,
                summary_triggered=summarised(state, job),
                prune_triggered=bool(state.prunes),
            ),
            prompt_parts=self._unstored(parts, state.claim),
            prunes=state.prunes,
            context_tokens=whole,
            turn_tokens=round(ratio * turn_tokens),
            context_limit=prepared.budget.limit,
            token_ratio=ratio,
            measured_by=reply.model,
            view_epoch=state.view.view_epoch,
            release_hold=pressure(prepared.budget, whole) == "overflow",
            job=job,
        )
        return Answered(outcome=outcome, measured=measured(prepared, whole, estimated=not known))

    def _due_job(
        self, state: Attempt, prepared: Prepared, used: int, *, open_turn: int | None = None
    ) -> JobOrder | None:
        """`open_turn` while the turn is being answered: whoever does the job must see the same turns."""
        wish = next_job(
            replace(state.view, open_turn=open_turn, context_tokens=used),
            budget=prepared.budget,
            policy=prepared.policy,
            context_tokens=used,
            ratio=prepared.ratio,
            model=prepared.card.name,
            cache_seconds=state.cache_life.total_seconds(),
        )
        return None if wish is None else wish.order

    def _stopped(self, state: Attempt, stopped: Stopped) -> Answered:
        audit, parts = stopped_audit(state)
        words = "\n\n".join([*state.texts, stopped.text] if stopped.text else state.texts)
        screen: dict[str, Any] = {"partial": True} if words else {"text": "Stopped.", "partial": True}
        blocks = (Text(text=stopped.text or words),) if words else None
        if words and state.texts:
            screen["text"] = words
        if words:
            screen |= state.in_place_of
        tokens = estimate_blocks(blocks, self._prompting.counter.count) if blocks else 0
        outcome = Outcome(
            state="stopped",
            blocks=blocks,
            tokens=tokens,
            context_tokens=grown_by(state, tokens, pruned=True),
            turn_tokens=turn_tokens_of(state, tokens),
            view_epoch=state.view.view_epoch,
            screen=screen,
            spent=tuple(state.spent),
            settled_micro=micro_of([*state.spent_before, *state.spent]),
            audit=audit,
            prompt_parts=self._unstored(parts, state.claim),
            prunes=state.prunes,
        )
        return Answered(outcome=outcome, measured=None)


def measured(prepared: Prepared, used: int, *, estimated: bool) -> ContextMeasured:
    """`used` is the one number of the gauge; its parts are those of this request, and add up to it."""
    shown = gauge(prepared.budget, used)
    parts: dict[str, int] = {
        name: round(prepared.ratio * tokens) for name, tokens in prepared.built.parts.items()
    }
    # The answer itself, and what only the provider's count knows of, belong to the conversation.
    parts["history"] = max(0, parts["history"] + shown.used - sum(parts.values()))
    return ContextMeasured(
        used=shown.used,
        limit=shown.limit,
        percent=shown.percent,
        status=shown.status,
        parts=parts,
        estimated=estimated,
    )


def ratio_for(model: str, claim: Claim) -> float:
    """What was learned of this very model in this session; 1.0 where nothing was."""
    if claim.measured_by in ("", model):
        return claim.token_ratio
    return claim.token_ratios.get(model, 1.0)


def cache_is_cold(view: View, life: timedelta = SHORT_LIFE) -> bool:
    """True when the provider has surely forgotten the prefix since the last turn."""
    mine = entries_of_open_turn(view)
    before = view.entries[: len(view.entries) - len(mine)]
    if not before or not mine:
        return True
    return max(map(_AT, mine)) - max(map(_AT, before)) > life


def is_summary_now(job: JobOrder) -> bool:
    """Not one for the idle time, nor a link for what left the window: nobody need wait for those."""
    return job.kind == "compact" and not job.delay_seconds and job.trigger != "window"


def overflow_job(view: View) -> JobOrder:
    """After the provider's own refusal: summarise what can be, however little it seems to gain."""
    return JobOrder(
        kind="compact",
        key=f"compact:{view.session_id}:{view.cycle}",
        trigger="overflow",
        payload={"cycle": view.cycle, "force": True, "focus": None, "flush_first": True},
    )


def _said_now(view: View) -> list[tuple[Block, ...]]:
    return [entry.blocks for entry in entries_of_open_turn(view) if entry.author == "assistant"]
