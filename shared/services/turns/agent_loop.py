"""One attempt to answer a turn: context, model calls and tool rounds, until there is a result to commit."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from math import ceil
from operator import attrgetter
from typing import Any, Protocol

import structlog

from shared.core.compaction.jobs import estimate_ahead, next_job
from shared.core.compaction.outlook import SummaryOutlook, foresee_summary
from shared.core.context.build_context import (
    LeftOut,
    count_fading,
    count_replaced_pictures,
    find_last_described_turn,
    left_out_counter,
    select,
)
from shared.core.overflow.filler_trimming import plan_hiding
from shared.core.session.artifacts import Artifact
from shared.core.session.budget import gauge, pressure, scale_parts
from shared.core.session.policy import ContextPolicy, ContradictoryPolicy
from shared.core.session.pruning import (
    PruneDecision,
    apply_decisions,
    clear_first,
    count_saved_tokens,
    plan_pruning,
)
from shared.core.session.session import Entry, View, drop_former, former_answer
from shared.core.session.session_state import SessionState
from shared.core.session.turns import (
    Caps,
    Claim,
    ContextMeasured,
    DueJob,
    Emit,
    JobOrder,
    Organizing,
    Outcome,
    Spending,
)
from shared.core.values.errors import CapReached, ContextBudgetExceeded
from shared.core.values.messages import Text, text_of, tool_uses
from shared.core.values.money import (
    LONG_LIFE,
    SHORT_LIFE,
    cache_life,
    micro_per_input_token,
    worst_case_micro,
)
from shared.core.values.token_scale import Estimates
from shared.core.values.tokens import estimate_blocks
from shared.ports import ChatModel, Clock, Doorbell, ModelReply
from shared.runtime import NULL_TRACER, CrashPoint, Tracer
from shared.services.turns.model_caller import ModelCaller, find_token_ratio
from shared.services.turns.pictures import PictureOwner, PictureService, UndescribedPictures, find_undescribed
from shared.services.turns.request_builder import (
    PreparedRequest,
    RequestBuilder,
    build_audit,
    collect_prompt_parts,
)
from shared.services.turns.retrieval import Retriever
from shared.services.turns.spend_tracker import CallCosts, TurnSpendStore
from shared.services.turns.tool_rounds import (
    ToolRounds,
    ToolRoundStore,
    count_tool_rounds,
    list_sent_files,
)
from shared.services.turns.toolbox import Toolbox
from shared.services.turns.turn_attempt import (
    ContextMeter,
    StreamState,
    TurnAttempt,
    TurnInput,
    TurnResult,
    TurnStopped,
    audit_refusal,
    audit_stop,
    build_entry,
    build_refusal,
    count_passed,
    has_requested_summary,
    is_emptied,
    learn_scale,
    learn_token_ratio,
    read_answer_end,
    select_open_turn_entries,
    select_storable_blocks,
)

log = structlog.get_logger(__name__)

MAX_TOOL_ROUNDS = 8
"""Most rounds of tools in a turn, over all its attempts; the model call after the last one is offered no
tools.
"""
TURNS_AFTER_ERASURE = 3
"""Turns after an erasure that store all prompt parts again, since it may have deleted some."""
MAX_CACHED_PART_HASHES = 10_000
"""Most hashes of stored prompt parts that a process remembers; beyond that it forgets all of them."""
COMPACTION_WAIT_SECONDS = 30.0
"""Seconds that a turn waits for a due summary, if its policy compacts before the call; then it is answered
without one.
"""
FIRST_CALL_TOKENS = 6_000
"""Tokens assumed for a conversation's first call: 2,000 for the context and 4,000 for the message."""
JOB_PICKUP_SECONDS = 3.0
"""Seconds that a waiting turn leaves workers to claim its summary job; after them it is answered without the
summary.
"""
_LOOK_SECONDS = 0.1
_AT: Callable[[Entry], datetime] = attrgetter("at")
_TURN: Callable[[Entry], int] = attrgetter("turn")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimPrices:
    """Prices of the default chat model in micro-dollars, from which a claim reserves money for the first
    model call.
    """

    micro_per_input_token: float
    micro_output: float
    """Price of the longest answer, in micro-dollars."""

    @property
    def first_call_micro(self) -> int:
        """Micro-dollars that the claim of a new conversation's first turn reserves: `FIRST_CALL_TOKENS` of
        input and the longest answer.
        """
        return ceil(self.micro_per_input_token * FIRST_CALL_TOKENS + self.micro_output)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLimits:
    """Limits of a session's next request."""

    hard: int
    """Most tokens that the request may have."""
    fixed: int
    """Tokens of system, tools and notes about the person, which do not depend on messages."""
    talk_ratio: float
    """Model's tokens per estimated token of messages, pins and summary."""
    reserved: int
    """Tokens kept free for recalled passages once turns are hidden."""
    left_out: LeftOut | None
    """Function that counts what the policy leaves out of a view; None if it leaves out nothing."""


class TurnLogStore(ToolRoundStore, Protocol):
    """Store of the session's log, and of calls that were paid for but lost.

    `load` returns the live entries, hidden pins first. `record_waste` books failed calls. `record_lost` books
    an estimate for calls of an attempt whose process died, and returns their number. `keep_artifacts` stores
    whole texts as pairs of an entry's `seq` and its artifact. All raise LeaseLost or StorageUnavailable.
    """

    async def load(self, session_id: int, *, base_turn: int, through_turn: int) -> tuple[Entry, ...]: ...
    async def record_waste(self, claim: Claim, spent: Sequence[Spending]) -> None: ...
    async def record_lost(self, claim: Claim, *, model: str, input_tokens: int) -> int: ...
    async def keep_artifacts(self, claim: Claim, artifacts: Sequence[tuple[int, Artifact]]) -> None: ...


class TurnStateStore(Protocol):
    """Store of session states and of jobs that a turn waits for.

    `load_state` raises UnknownSession. `request_job` stores a job and returns its id, None if an unfinished
    job has its key; `find_waiting_job` returns that job's id, None if it has ended. `load_job_outcome`
    returns the job's state and outcome, `("dead", {})` for an unknown id.
    """

    async def load_state(self, session_id: int) -> SessionState: ...
    async def request_job(self, session_id: int, order: JobOrder) -> int | None: ...
    async def find_waiting_job(self, session_id: int, key: str) -> int | None: ...
    async def load_job_outcome(self, job_id: int) -> tuple[str, Mapping[str, Any]]: ...


class AgentLoop:
    """Loop of model calls and tool rounds that answers a turn; the caller commits the result."""

    def __init__(
        self,
        *,
        store: TurnLogStore,
        states: TurnStateStore,
        model: ChatModel,
        requests: RequestBuilder,
        toolbox: Toolbox,
        spend: TurnSpendStore,
        caps: Caps,
        doorbell: Doorbell,
        pictures: PictureService,
        clock: Clock,
        crash_point: CrashPoint,
        retriever: Retriever,
        tracer: Tracer = NULL_TRACER,
    ) -> None:
        self._tracer = tracer
        self._retriever = retriever
        self._model_caller = ModelCaller(
            model=model,
            requests=requests,
            spend=spend,
            caps=caps,
            store=store,
            due=self._ask_for_compaction,
            crash_point=crash_point,
        )
        self._tool_rounds = ToolRounds(
            store=store,
            requests=requests,
            pictures=pictures,
            clock=clock,
            crash_point=crash_point,
        )
        self._pictures = pictures
        self._spend = spend
        self._caps = caps
        self._doorbell = doorbell
        self._store = store
        self._states = states
        self._model = model
        self._requests = requests
        self._toolbox = toolbox
        self._clock = clock
        self._crash_point = crash_point
        self._stored_parts: set[str] = set()

    async def load_prices(self) -> ClaimPrices:
        """Return the prices of the default chat model; both are 0 if the prices of the model are unknown."""
        card = await self._model.load_card(self._requests.chat_model)
        if card.prices is None:
            return ClaimPrices(micro_per_input_token=0.0, micro_output=0.0)
        longest = min(self._requests.max_output, card.max_output)
        return ClaimPrices(
            micro_per_input_token=micro_per_input_token(card.prices),
            micro_output=worst_case_micro(0, longest, card.prices),
        )

    async def rehearse(self, channel: str) -> None:
        """Build the request of an empty conversation and discard it, so that tokens of common texts are
        counted in advance.

        No model is called and nothing is stored. A model whose window holds no conversation is passed over:
        its first turn says so.
        """
        card = await self._model.load_card(self._requests.chat_model)
        empty = View(
            session_id=0, base_turn=0, flushed_turn=0, view_epoch=0, cycle=0, head=None, entries=()
        )  # fmt: skip
        with suppress(ContextBudgetExceeded, ContradictoryPolicy):
            self._requests.build(
                empty, card=card, agent_config={}, tools=self._toolbox.for_agent({}).specs, token_ratio=1.0,
                channel=channel,
            )  # fmt: skip

    async def answer(
        self, claim: Claim, *, emit: Emit, stop: asyncio.Future[None], costs: CallCosts | None = None
    ) -> TurnResult:
        """Answer a claimed turn and return the result, which the caller must commit.

        Text and progress go to `emit`. Tool rounds and the cost of failed calls are stored at once; `costs`
        collects the cost of all calls (None: a new collector). Resolving `stop` ends the turn with the text
        so far. A reached cap, or a context that cannot be made to fit, is returned as a refused result.
        Raises ModelError, CapHeld, LeaseLost and StorageUnavailable.
        """
        about = {"session": claim.session_id, "turn": claim.turn, "attempt": claim.attempt}
        with self._tracer.span("turn", {**about, "channel": claim.channel}):
            return await self._answer(claim, emit, stop, costs or CallCosts(claim=claim))

    async def _answer(
        self, claim: Claim, emit: Emit, stop: asyncio.Future[None], costs: CallCosts
    ) -> TurnResult:
        state = await self._begin(claim, emit, stop, costs)
        card = state.given.card
        await self.record_lost_calls(claim, state.view.entries)
        await self._tool_rounds.finish_interrupted(state)
        try:
            if is_emptied(select_open_turn_entries(state.view)):
                raise TurnStopped("")
            self._prune(state)
            await self._wait_for_compaction(state)
            prepared, reply = await self._run_rounds(state)
        except TurnStopped as stopped:
            return await self._with_files(state, self._build_stopped(state, stopped))
        except (CapReached, ContextBudgetExceeded, ContradictoryPolicy) as error:
            if isinstance(error, ContradictoryPolicy):
                log.error(
                    "context_window_too_small",
                    session_id=claim.session_id,
                    turn=claim.turn,
                    model=card.name,
                    window=card.window,
                    reason=str(error),
                )
            refused = build_refusal(
                error,
                spent=state.costs.unpaid,
                settled_micro=state.costs.micro,
                audit=audit_refusal(state, error),
                grown=state.meter.estimate_growth(state.prepared, 0, pruned=False),
                turn_tokens=state.count_turn_tokens(0),
                view_epoch=state.view.view_epoch,
            )
            return await self._with_files(state, refused)
        answered = await self._with_files(state, self._build_answer(state, prepared, reply))
        if not state.pictures:
            return answered
        unseen = find_undescribed(state.view.entries, whose=self._picture_owner(claim), turn=claim.turn)
        return replace(answered, unseen=unseen)

    async def record_lost_calls(self, claim: Claim, entries: Sequence[Entry]) -> None:
        """Book an estimate for calls of the turn's earlier attempts whose process died, whatever becomes of
        the turn.

        The input of such a call is estimated as the session's last request or `entries`, the larger one.
        Raises LeaseLost and StorageUnavailable.
        """
        if claim.attempt > 1:
            tokens = max(claim.context_tokens, sum(entry.tokens for entry in entries))
            model = self._requests.resolve_model(claim.agent_config)
            await self._store.record_lost(claim, model=model, input_tokens=tokens)

    async def _begin(
        self, claim: Claim, emit: Emit, stop: asyncio.Future[None], costs: CallCosts
    ) -> TurnAttempt:
        """Return the state of the attempt: view, model, tools, pictures and recalled passages."""
        card = await self._model.load_card(self._requests.resolve_model(claim.agent_config))
        policy = self._requests.policy_for(claim.agent_config, card)
        view, former = await self._live_view(claim, claim.view, policy)
        mine = select_open_turn_entries(view)
        texts = [text_of(entry.blocks) for entry in mine if entry.author == "assistant"]
        window = policy.usable_window(card.window)
        told = find_last_described_turn(view, policy)
        in_sight = [block for entry in view.entries if entry.turn > told for block in entry.blocks]
        anchor = claim.context_tokens if claim.measured_by in ("", card.name) else None
        return TurnAttempt(
            given=TurnInput(
                card=card,
                emit=emit,
                stop=stop,
                toolbox=self._toolbox.for_agent(claim.agent_config),
                circumstances=self._requests.load_circumstances(claim, view),
                cache_life=cache_life(claim.turn_times),
                recalled=await self._retriever.recall_for_turn(claim, view, window=window),
                previous_answer=former,
            ),
            costs=costs,
            meter=ContextMeter(
                ratio=find_token_ratio(card.name, claim),
                anchor=anchor or None,
                pending=sum(entry.tokens for entry in mine),
            ),
            stream=StreamState(texts=[text for text in texts if text]),
            view=view,
            pictures=await self._pictures.load_pictures(in_sight),
        )

    async def _live_view(self, claim: Claim, view: View, policy: ContextPolicy) -> tuple[View, str | None]:
        """Return the view up to the claimed turn, and the public id of the answer that this turn replaces.

        The id is None if the turn replaces no answer.
        """
        stored = claim.entries if view is claim.view else None
        if stored is None:
            stored = await self._store.load(
                claim.session_id, base_turn=view.base_turn, through_turn=claim.turn
            )
        entries = drop_former(stored, open_turn=claim.turn)
        live = replace(view, entries=entries, open_turn=claim.turn)
        # Newest pictures are sent as images; older ones as descriptions.
        at = bisect_right(entries, max(view.base_turn, find_last_described_turn(live, policy)), key=_TURN)
        known = await self._pictures.with_descriptions(entries[:at], whose=self._picture_owner(claim))
        entries = (*known, *entries[at:])
        hidden = bisect_right(entries, view.base_turn, key=_TURN)
        live = replace(view, entries=entries[hidden:], pins=entries[:hidden], open_turn=claim.turn)
        return live, former_answer(stored, claim.turn)

    def _prune(self, state: TurnAttempt) -> None:
        """Decide about pruning at the start of the turn; a repeated attempt decides the same."""
        policy = self._requests.policy_for(state.claim.agent_config, state.given.card)
        if policy.pruning.clears_above_limit and state.meter.anchor:
            plain = self._model_caller.prepare(state)
            made = clear_first(state.view, plain.budget, policy, plain.estimate, ratio=plain.ratio)
        else:
            begun = replace(state.view, entries=select_before_calls(state.view))
            cold = is_cache_cold(begun, state.given.cache_life)
            made = self._plan_pruning(state, begun.entries, policy, cold=cold)
        state.meter.prune(count_replaced_pictures(state.view, policy, self._requests.counter.count_tokens))
        self._decide(state, made, policy)
        if policy.keeping.hides_chatter:
            self._trim_filler(state)

    def _prune_between_calls(self, state: TurnAttempt) -> None:
        policy = self._requests.policy_for(state.claim.agent_config, state.given.card)
        if policy.pruning.works_between_calls:
            entries = state.view.entries
            cold = entries[-1].at - entries[-2].at > state.given.cache_life
            made = self._plan_pruning(state, entries, policy, cold=cold)
            self._decide(state, made, policy)

    @staticmethod
    def _plan_pruning(
        state: TurnAttempt, entries: Sequence[Entry], policy: ContextPolicy, *, cold: bool
    ) -> tuple[PruneDecision, ...]:
        long = state.given.cache_life >= LONG_LIFE
        return plan_pruning(entries, policy, cache_cold=cold, open_turn=state.claim.turn, cache_long=long)

    @staticmethod
    def _decide(state: TurnAttempt, made: Sequence[PruneDecision], policy: ContextPolicy) -> None:
        entries = state.view.entries
        state.meter.prune(count_saved_tokens(entries, made, policy))
        state.view = replace(state.view, entries=apply_decisions(entries, made))
        state.prunes = tuple({one.seq: one for one in (*state.prunes, *made)}.values())

    def _trim_filler(self, state: TurnAttempt) -> None:
        prepared = self._model_caller.prepare(state)
        hides = plan_hiding(
            state.view,
            prepared.policy,
            budget=prepared.budget,
            context_tokens=prepared.estimate,
            ratio=prepared.ratio,
        )
        state.view = replace(state.view, entries=apply_decisions(state.view.entries, hides))
        state.prunes, state.meter.filler_trimmed = state.prunes + hides, bool(hides)

    async def _wait_for_compaction(self, state: TurnAttempt) -> None:
        """Wait up to `COMPACTION_WAIT_SECONDS` for a due summary, if the policy compacts before the call.

        Continues with the new view if the summary was made in time. Raises TurnStopped if the person stops
        the turn.
        """
        if not self._requests.resolve_policy(state.claim.agent_config).timing.looks_before_call:
            return
        prepared = state.prepared = self._model_caller.prepare(state)
        job = self._due_job(state, prepared, prepared.estimate, open_turn=state.view.open_turn)
        if job is None or not is_due_summary(job):
            return
        state.compaction_asked = True
        session_id = state.claim.session_id
        job_id = await self._states.request_job(session_id, job) or await self._states.find_waiting_job(
            session_id, job.key
        )
        if job_id is None:
            return
        await state.given.emit(Organizing(turn=state.claim.turn, job_id=job_id))
        await self._doorbell.ring(DueJob(id=job_id, kind=job.kind))
        if not await self._wait_for_summary(state, job_id):
            return
        moved = await self._states.load_state(session_id)
        if moved.view.view_epoch == state.view.view_epoch:
            return
        policy = self._requests.policy_for(state.claim.agent_config, state.given.card)
        view, _ = await self._live_view(state.claim, moved.view, policy)
        state.view = replace(view, entries=apply_decisions(view.entries, state.prunes))
        state.organised = True
        state.meter.before_summary = prepared.estimate
        state.meter.anchor = moved.view.context_tokens
        state.meter.pending = sum(entry.tokens for entry in select_open_turn_entries(state.view))

    async def _wait_for_summary(self, state: TurnAttempt, job_id: int) -> bool:
        loop = asyncio.get_running_loop()
        until = loop.time() + COMPACTION_WAIT_SECONDS
        while loop.time() < until:
            ended, _ = await self._states.load_job_outcome(job_id)
            if ended in ("done", "dead"):
                return True
            if ended == "due" and loop.time() > until - COMPACTION_WAIT_SECONDS + JOB_PICKUP_SECONDS:
                return False
            await asyncio.wait([state.given.stop], timeout=_LOOK_SECONDS)
            if state.given.stop.done():
                raise TurnStopped("")
        return False

    def describe_later(self, unseen: UndescribedPictures, *, then: Callable[[], Awaitable[None]]) -> None:
        """Describe a turn's new pictures in the background, then await `then`, even if describing fails.

        Call it after the turn's result is committed.
        """
        self._pictures.describe_later(unseen, then=then)

    def _picture_owner(self, claim: Claim) -> PictureOwner:
        return PictureOwner(
            session_id=claim.session_id,
            contact_id=claim.contact_id,
            chat_model=self._requests.resolve_model(claim.agent_config),
        )

    def mark_stored(self, outcome: Outcome) -> None:
        """Remember in this process that the prompt parts of a committed outcome are stored, so that later
        turns omit them.
        """
        if len(self._stored_parts) > MAX_CACHED_PART_HASHES:
            self._stored_parts.clear()
        self._stored_parts.update(outcome.prompt_parts)

    def _select_unstored(self, parts: Mapping[str, str], claim: Claim) -> dict[str, str]:
        """Return the parts that this process has not stored yet; for 3 turns after an erasure,
        all of them.
        """
        if claim.erased_turn and claim.turn <= claim.erased_turn + TURNS_AFTER_ERASURE:
            return dict(parts)
        return {key: body for key, body in parts.items() if key not in self._stored_parts}

    async def measure_context(self, session_id: int) -> ContextMeasured | None:
        """Return the gauge of the session's next request, built without its message; None before the first
        answered turn.

        Raises UnknownSession, ContradictoryPolicy and StorageUnavailable.
        """
        state = await self._states.load_state(session_id)
        if state.context_limit == 0:
            return None
        prepared = await self._next_request(state)
        used = state.view.context_tokens or prepared.estimate
        return measure_context(prepared, used, estimated=True, view=state.view, choice=state.compaction)

    async def foresee_summary(self, session_id: int) -> SummaryOutlook:
        """Return when the session's next automatic summary is due, or why none will be made.

        Raises UnknownSession, ContradictoryPolicy and StorageUnavailable.
        """
        state = await self._states.load_state(session_id)
        prepared = await self._next_request(state)
        return _foresee_summary(
            prepared, state.view.context_tokens or prepared.estimate, state.view, choice=state.compaction
        )

    async def load_request_limits(self, state: SessionState) -> RequestLimits:
        """Return the limits of a session's next request, as its agent and model are configured now.

        Raises NoRoom if the model's window leaves no room for a conversation.
        """
        prepared = await self._next_request(state)
        left_out = left_out_counter(prepared.policy, channel=prepared.channel, ratio=prepared.ratio)
        scale = prepared.read_scale(state.token_scale)
        beside: Estimates = {**prepared.estimates, "summary": 0, "talk": 0, "passing": 0}
        return RequestLimits(
            hard=prepared.budget.hard,
            fixed=scale.size(beside),
            talk_ratio=prepared.ratio_of_stored(scale),
            reserved=prepared.budget.recall,
            left_out=left_out,
        )

    async def _next_request(self, state: SessionState) -> PreparedRequest:
        card = await self._model.load_card(self._requests.resolve_model(state.agent_config))
        tools = self._toolbox.for_agent(state.agent_config).specs
        return self._requests.build_next(state, card=card, tools=tools)

    async def _run_rounds(self, state: TurnAttempt) -> tuple[PreparedRequest, ModelReply]:
        for _ in range(count_tool_rounds(state.view), MAX_TOOL_ROUNDS):
            prepared, reply = await self._model_caller.call(state)
            calls = tool_uses(reply.blocks)
            if not calls or reply.stop_reason != "tool_use":
                return prepared, reply
            await self._tool_rounds.run(state, prepared, reply, calls)
            self._prune_between_calls(state)
        return await self._model_caller.call(state, tools=False)

    async def _ask_for_compaction(self, state: TurnAttempt, prepared: PreparedRequest) -> None:
        """Store a compaction job if the request exceeds the limit, so that it begins while the model answers.

        At most one is stored per turn; after the provider refused the length, it is forced. A fallback
        model's smaller window causes none.
        """
        full = pressure(prepared.budget, prepared.estimate + prepared.left_out) in ("compact", "overflow")
        refused = state.meter.restarts > 0
        stands_in = state.refusal is not None
        if stands_in or state.compaction_asked or not (refused or (full and not state.calls)):
            return
        job = build_overflow_job(state.view) if refused else None
        used, open_turn = prepared.estimate + prepared.left_out, state.view.open_turn
        job = job or self._due_job(state, prepared, used, open_turn=open_turn)
        if job is not None and is_due_summary(job):
            state.compaction_asked = True
            job_id = await self._states.request_job(state.claim.session_id, job)
            if job_id is not None:
                await self._doorbell.ring(DueJob(id=job_id, kind=job.kind))

    def _build_answer(self, state: TurnAttempt, prepared: PreparedRequest, reply: ModelReply) -> TurnResult:
        blocks = select_storable_blocks(reply)
        count = self._requests.counter.count_tokens
        tokens = self._tool_rounds.count_tokens(reply, blocks, prepared)
        ratio, used = learn_token_ratio(reply, prepared, tokens)
        usual = state.for_chosen_model(prepared)
        mine = select_open_turn_entries(state.view)
        fades = count_fading((*mine, build_entry(blocks, tokens, mine[-1])), prepared.policy, count)
        scale = learn_scale(state, reply, prepared, tokens)
        passed = count_passed(reply, prepared)
        faded = scale.size({"talk": fades}) + (scale.size(prepared.passing) if passed is None else passed)
        sent = max(0, used + scale.size(prepared.kept_out) - faded)
        whole = sent if usual is prepared else round(sent * usual.ratio / ratio)
        turn_tokens = tokens + sum(entry.tokens for entry in mine) - fades
        parts = collect_prompt_parts(prepared)
        screen: dict[str, Any] = (
            {} if not state.stream.texts else {"text": "\n\n".join([*state.stream.texts, text_of(blocks)])}
        )
        screen |= state.given.replacement | {"stop": read_answer_end(reply.stop_reason)}
        if prepared.known.ids or prepared.known.since or prepared.recalled.text:
            screen["memory"] = True
        known = reply.usage.known
        needed = whole + usual.reserved
        job = self._due_job(state, usual, needed)
        ended = replace(
            state.view,
            entries=(*state.view.entries, build_entry(blocks, tokens, mine[-1])),
            open_turn=None,
        )
        # If the next turn would hide these messages in any case, they are hidden now.
        hides = (
            ()
            if job is not None and is_due_summary(job)
            else plan_hiding(
                ended, usual.policy, budget=usual.budget, context_tokens=whole, ratio=scale.ratio("talk")
            )
        )
        leaving = _estimate_leaving(ended, hides, usual)
        whole = max(0, whole - scale.size({"talk": leaving}))
        said = tokens - fades + round(prepared.left_out / ratio) - leaving
        measured = measure_context(
            usual, whole, estimated=not known or usual is not prepared, said=said, view=state.view,
            choice=state.claim.compaction,
        )  # fmt: skip
        outcome = Outcome(
            state="answered",
            blocks=blocks,
            tokens=tokens,
            screen=screen,
            spent=tuple(state.costs.unpaid),
            settled_micro=state.costs.micro,
            audit=build_audit(
                prepared,
                state.view,
                hashes=tuple(parts),
                reported=reply.usage.context_tokens - reply.usage.output_tokens if known else None,
                model_ms=round(state.model_seconds * 1000),
                context_tokens=sent,
                summary_triggered=has_requested_summary(state, job),
                prune_triggered=bool(state.prunes or hides),
            ),
            prompt_parts=self._select_unstored(parts, state.claim),
            prunes=tuple({one.seq: one for one in (*state.prunes, *hides)}.values()),
            context_tokens=whole,
            turn_tokens=round((ratio if usual is prepared else usual.ratio) * turn_tokens),
            context_limit=measured.limit,
            context_reserved=measured.reserved,
            token_ratio=ratio if usual is prepared else None,
            token_scale=scale.to_json() if usual is prepared else None,
            measured_by=reply.model if usual is prepared else None,
            view_epoch=state.view.view_epoch,
            release_hold=pressure(usual.budget, needed) == "overflow",
            job=job,
            first_text_at=state.stream.first_text_at,
        )
        return TurnResult(outcome=outcome, measured=measured)

    def _due_job(
        self, state: TurnAttempt, prepared: PreparedRequest, used: int, *, open_turn: int | None = None
    ) -> JobOrder | None:
        """Return the job that is due for a context of `used` tokens; None if there is none.

        `open_turn` is the running turn, which the job must not hide.
        """
        return next_job(
            replace(state.view, open_turn=open_turn, context_tokens=used),
            budget=prepared.budget,
            policy=prepared.policy,
            context_tokens=used,
            ratio=prepared.ratio,
            model=prepared.card.name,
            cache_seconds=state.given.cache_life.total_seconds(),
            ahead=estimate_ahead(
                state.view, prepared.policy, limit=prepared.budget.limit, ratio=prepared.ratio
            ),
        )

    async def _with_files(self, state: TurnAttempt, ended: TurnResult) -> TurnResult:
        """Return the result with the files that tools created in the turn, which go to the person with it,
        also with the notice of a stopped or refused turn.

        A question that was erased gets none, and neither does a turn that ends as failed, since its end is
        not built here.
        """
        made = list_sent_files(state.view)
        if not made or is_emptied(select_open_turn_entries(state.view)):
            return ended
        shown = [file.to_payload() for file in await self._pictures.list_files(made)]
        screen = {**ended.outcome.screen, "attachments": shown}
        return replace(ended, outcome=replace(ended.outcome, screen=screen))

    def _build_stopped(self, state: TurnAttempt, stopped: TurnStopped) -> TurnResult:
        audit, parts = audit_stop(state)
        text = "\n\n".join([*state.stream.texts, stopped.text] if stopped.text else state.stream.texts)
        screen: dict[str, Any] = {"partial": True, "stop": "cancelled"}
        if not text:
            screen["text"] = "Stopped."
        blocks = (Text(text=stopped.text or text),) if text else None
        if text and state.stream.texts:
            screen["text"] = text
        if text:
            screen |= state.given.replacement
        tokens = estimate_blocks(blocks, self._requests.counter.count_tokens) if blocks else 0
        outcome = Outcome(
            state="stopped",
            blocks=blocks,
            tokens=tokens,
            context_tokens=state.meter.estimate_growth(state.prepared, tokens, pruned=True),
            turn_tokens=state.count_turn_tokens(tokens),
            view_epoch=state.view.view_epoch,
            screen=screen,
            spent=tuple(state.costs.unpaid),
            settled_micro=state.costs.micro,
            audit=audit,
            prompt_parts=self._select_unstored(parts, state.claim),
            prunes=state.prunes,
            first_text_at=state.stream.first_text_at,
        )
        return TurnResult(outcome=outcome, measured=None)


def _estimate_leaving(view: View, hides: Sequence[PruneDecision], prepared: PreparedRequest) -> int:
    """Return the estimated tokens that the next request will leave out, whatever its message is."""
    policy, newest = prepared.policy, view.entries[-1]
    if not hides and not policy.keeping.limits(prepared.channel):
        return 0
    coming = replace(
        newest, seq=newest.seq + 1, turn=newest.turn + 1, role="user", author="person", blocks=(), tokens=0
    )
    next_view = replace(view, entries=(*apply_decisions(view.entries, hides), coming), open_turn=coming.turn)
    sent = select(next_view, policy, channel=prepared.channel, ratio=prepared.ratio).view
    staying = {entry.seq for entry in (*sent.entries, *sent.pins)}
    former = (*prepared.selection.view.entries, newest)
    return sum(entry.tokens for entry in former if entry.seq not in staying)


def measure_context(
    prepared: PreparedRequest, used: int, *, estimated: bool, view: View, choice: str, said: int = 0
) -> ContextMeasured:
    """Return the gauge that screens, commands and dashboard show.

    `used` is the size in tokens of the next request before a new message, `estimated` says that the provider
    did not count it. `said` are estimated tokens added to the messages since `prepared`. From `view` and
    `choice`, the conversation's setting for automatic summaries, the gauge says when the next summary is due.
    """
    outlook = _foresee_summary(prepared, used, view, choice=choice)
    shown, built = gauge(prepared.budget, used, prepared.reserved), prepared.built
    parts = {str(name): tokens for name, tokens in built.parts.items()}
    parts["memory"] -= built.volatile
    parts["history"] = max(0, parts["history"] + said)
    return ContextMeasured(
        used=shown.used,
        reserved=shown.reserved,
        limit=shown.limit,
        percent=shown.percent,
        status=shown.status,
        parts=scale_parts(parts, shown.used),
        estimated=estimated,
        summary_at=max(0, prepared.budget.compact_at - prepared.reserved),
        window=prepared.budget.window,
        summary_turns=outlook.turns,
        summary_soon=outlook.soon,
        summary_withheld=outlook.withheld,
    )


def _foresee_summary(prepared: PreparedRequest, used: int, view: View, *, choice: str) -> SummaryOutlook:
    return foresee_summary(
        view,
        budget=prepared.budget,
        policy=prepared.policy,
        model=prepared.card.name,
        context_tokens=used + prepared.reserved,
        choice=choice,
    )


def is_cache_cold(view: View, life: timedelta = SHORT_LIFE) -> bool:
    """Return whether more time than `life` passed between the turn before the open turn and the open turn's
    newest entry.

    The provider's cache has then expired. Returns True if there is no earlier turn or no entry of the open
    turn.
    """
    mine = select_open_turn_entries(view)
    before = view.entries[: len(view.entries) - len(mine)]
    if not before or not mine:
        return True
    return max(map(_AT, mine)) - max(map(_AT, before)) > life


def select_before_calls(view: View) -> tuple[Entry, ...]:
    """Return the live entries as they were before the open turn's first model call."""
    mine = select_open_turn_entries(view)
    called = next((i for i, entry in enumerate(mine) if entry.author == "assistant"), len(mine))
    return view.entries[: len(view.entries) - len(mine) + called]


def is_due_summary(job: JobOrder) -> bool:
    """Return whether a turn should wait for the job: a compaction that may start now and is not for a sliding
    window.
    """
    return job.kind == "compact" and not job.delay_seconds and job.trigger != "window"


def build_overflow_job(view: View) -> JobOrder:
    """Return a job that compacts whatever it can, for use after the provider refused a request as too long.

    The job saves notes first. It is not stored here; its key allows one compaction job per cycle of the
    session.
    """
    return JobOrder(
        kind="compact",
        key=f"compact:{view.session_id}:{view.cycle}",
        trigger="overflow",
        payload={"cycle": view.cycle, "force": True, "focus": None, "flush_first": True},
    )
