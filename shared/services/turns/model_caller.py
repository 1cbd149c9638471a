"""The model calls of one turn: measured, paid for, stoppable, made smaller while they are too long."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Protocol

from shared.core.context.agents import Circumstances
from shared.core.context.prompt_cache_ttl import LONG_LIFE, SHORT_LIFE
from shared.core.memory.recall import NOTHING_RECALLED, Recalled
from shared.core.overflow.overflow_recovery import Shrunk, largest_contributors
from shared.core.session.artifacts import Artifact
from shared.core.session.events import Delta, Emit, utf16_units
from shared.core.session.pruning import PruneDecision
from shared.core.session.session import Entry, View
from shared.core.session.turns import Caps, Claim, Spending
from shared.core.values.errors import ContextBudgetExceeded, ModelError, PromptTooLong
from shared.core.values.messages import BEGINNERS
from shared.core.values.tokens import measure, observed_ratio
from shared.ports import ChatModel, ModelCard, ModelReply, PictureContent, Usage
from shared.runtime.crash_points import CrashPoint
from shared.services.turns.request_builder import PreparedRequest, RequestBuilder
from shared.services.turns.spend_limits import SpendLimiter
from shared.services.turns.spend_tracker import CallCosts, TurnSpendStore, build_spending, list_spending
from shared.services.turns.toolbox import Toolbox

MAX_OVERFLOW_RETRIES = 3
OVERFLOW_TARGET_SHARE = 0.8
"""After a refusal the request is cut to this share of what the provider accepts."""
SECOND_BEST_SHARE = 0.95
"""Of what was refused: where the aim cannot be reached, this is tried instead."""
EXACT_COUNT_SHARE = 0.05
"""This close to the hard limit the provider is asked to count, where it can."""
COUNT_SECONDS = 3.0
UNKNOWN_SIZE_FACTOR = 1.1
"""How much larger a refused request is taken to be where the provider does not say."""


class TurnStopped(Exception):
    """The person asked to stop; carries what was written so far."""

    def __init__(self, text: str) -> None:
        super().__init__("stopped")
        self.text = text


@dataclass(slots=True, kw_only=True)
class TurnAttempt:
    """What one attempt at a turn has gathered; it lives as long as the attempt and belongs to nobody else."""

    view: View
    emit: Emit
    stop: asyncio.Future[None]
    """Done as soon as the person asked to stop."""
    toolbox: Toolbox
    """The agent's tools as they were when the attempt began: the list stands in the cached prefix."""
    bill: CallCosts
    ratio: float
    """Learned for this session and model; 1.0 before anything was learned."""
    anchor: int | None
    """What the provider counted last, or None when that was another model's count."""
    previous_answer: str | None = None
    """The answer that this one will take the place of, where a question is asked again."""
    anchored: bool = False
    """Whether the anchor is a call of this very turn."""
    pending: int = 0
    """Estimate of what came after the anchor, less what will not be sent again."""
    prunes: tuple[PruneDecision, ...] = ()
    """Decided at the start of this turn, stored with its end."""
    pruned_tokens: int = 0
    """Estimated tokens that this turn's pruning has saved."""
    filler_trimmed: bool = False
    """Whether this turn began by leaving old chatter out."""
    cache_life: timedelta = SHORT_LIFE
    circumstances: Circumstances | None = None
    """As they were when the attempt began: what changes meanwhile holds from the next turn on."""
    texts: list[str] = field(default_factory=list)
    """The visible words of earlier rounds of this turn."""
    spent: list[Spending] = field(default_factory=list)
    spent_before: list[Spending] = field(default_factory=list)
    """Calls whose usage was committed with a tool round."""
    restarts: int = 0
    model_attempt: int = 0
    draft: str = ""
    """The words of the running call."""
    shown_units: int = 0
    """How far screens have drawn, with the earlier rounds; in UTF-16 units."""
    calls: int = 0
    model_seconds: float = 0.0
    """How long the model was waited for in this attempt."""
    pictures: Mapping[int, PictureContent] = field(default_factory=dict)
    shown_attempt: int = -1
    """The attempt that screens draw at the moment."""
    compaction_asked: bool = False
    organised: bool = False
    """A summary was made while the person waited."""
    counted: bool = False
    """The provider was asked to count."""
    request_ceiling: int | None = None
    """After a refusal: how large requests of this turn may be."""
    refused_size: int = 0
    """What is known to be too large, in the model's tokens."""
    insisted: bool = False
    """What cannot be made smaller was sent once more as it was."""
    recalled: Recalled = NOTHING_RECALLED
    """What this turn is reminded of: the same in all its rounds."""
    prepared: PreparedRequest | None = None
    """The newest request, whatever became of it."""

    @property
    def claim(self) -> Claim:
        return self.bill.claim

    def take_spent(self) -> tuple[Spending, ...]:
        """For the ledger, which has them once, whatever cuts this attempt off."""
        taken = tuple(self.spent)
        self.spent.clear()
        return taken

    @property
    def replacement(self) -> dict[str, str]:
        """What its event says of the answer before it."""
        return {"replaces": self.previous_answer} if self.previous_answer else {}

    @property
    def attempt(self) -> int:
        """Grows with every fresh beginning, so that a screen knows to replace its draft."""
        return self.claim.attempt * 100 + self.restarts * 10 + self.model_attempt


class ModelCallStore(Protocol):
    async def record_waste(self, claim: Claim, spent: Sequence[Spending], *, settled_micro: int) -> None: ...
    async def record_lost(self, claim: Claim, *, model: str, input_tokens: int) -> int: ...
    async def keep_artifacts(self, claim: Claim, artifacts: Sequence[tuple[int, Artifact]]) -> None: ...


BeforeCall = Callable[[TurnAttempt, PreparedRequest], Awaitable[None]]
"""Told of each request before it is sent: a compaction may be due and begin while the model answers."""


class ModelCaller:
    def __init__(
        self,
        *,
        model: ChatModel,
        requests: RequestBuilder,
        spend: TurnSpendStore,
        caps: Caps,
        store: ModelCallStore,
        due: BeforeCall,
        crash_point: CrashPoint,
    ) -> None:
        self._model = model
        self._requests = requests
        self._spend_limiter = SpendLimiter(spend, caps=caps)
        self._store = store
        self._due = due
        self._crash_point = crash_point

    async def call(
        self, state: TurnAttempt, card: ModelCard, *, tools: bool = True
    ) -> tuple[PreparedRequest, ModelReply]:
        """One answer of the model, tried again smaller while the provider says that it is too long."""
        while True:
            prepared = await self._reserve(state, await self._build_fitting(state, card, tools=tools))
            await self._due(state, prepared)
            try:
                reply = await self._call_and_record(state, prepared)
            except PromptTooLong as error:
                self._shrink_after_overflow(state, prepared, error)
                continue
            self._crash_point("after_model")
            if reply.stop_reason == "window_exceeded" and state.restarts < MAX_OVERFLOW_RETRIES:
                state.spent.append(
                    build_spending(reply.usage, reply.model, card, request_id=reply.request_id, aborted=True)
                )
                self._shrink_after_overflow(
                    state, prepared, PromptTooLong("the answer did not fit into the window")
                )
                continue
            state.spent.extend(list_spending(reply, prepared.card))
            return prepared, reply

    def _shrink_after_overflow(
        self, state: TurnAttempt, prepared: PreparedRequest, error: PromptTooLong
    ) -> None:
        """The same turn once more, clearly smaller; raises when that was done often enough."""
        tried = min(prepared.budget.hard, state.request_ceiling or prepared.estimate)
        if state.restarts >= MAX_OVERFLOW_RETRIES:
            largest = largest_contributors(Shrunk(view=state.view, context=prepared.built), prepared.ratio)
            raise ContextBudgetExceeded(hard=tried, largest=largest) from error
        state.restarts += 1
        steeper = prepared.ratio * UNKNOWN_SIZE_FACTOR
        state.ratio = observed_ratio(error.tokens or 0, prepared.built.estimate, steeper)
        state.request_ceiling = lower_ceiling(error.maximum, state.request_ceiling, tried)
        size = round(state.ratio * prepared.built.estimate)
        state.refused_size = min(size, error.maximum or size)

    def prepare(self, state: TurnAttempt, card: ModelCard, *, tools: bool = True) -> PreparedRequest:
        """The whole view as a request, measured from what the provider counted last."""
        prepared = self._requests.build(
            state.view,
            card=card,
            agent_config=state.claim.agent_config,
            tools=state.toolbox.specs if tools else (),
            token_ratio=state.ratio,
            runtime_facts=render_runtime_facts(state.view),
            channel=state.claim.channel,
            cache_long=state.cache_life >= LONG_LIFE,
            recalled=state.recalled,
            circumstances=state.circumstances,
        )
        pending = state.pending + (0 if state.anchored else prepared.built.volatile)
        # What was counted before this turn holds messages that are not sent any more.
        narrower = prepared.selection.slides or bool(prepared.policy.history_turns)
        moved = (state.filler_trimmed or narrower) and not state.anchored
        anchor = None if state.restarts or moved else state.anchor
        estimate = measure(anchor, pending, prepared.built.estimate, prepared.ratio)
        before = estimate + round(prepared.ratio * state.pruned_tokens)
        return replace(prepared, estimate=estimate, before=before, saved=before - estimate)

    async def _build_fitting(self, state: TurnAttempt, card: ModelCard, *, tools: bool) -> PreparedRequest:
        prepared = state.prepared = self.prepare(state, card, tools=tools)
        hard = min(prepared.budget.hard, state.request_ceiling or prepared.budget.hard)
        if state.request_ceiling is None:
            prepared = await self._count_if_near_limit(state, prepared, hard)
        if prepared.estimate > hard:
            prepared = self._shrink(state, prepared, hard)
        if prepared.artifacts:
            await self._store.keep_artifacts(state.claim, prepared.artifacts)
        state.prepared = prepared
        return prepared

    def _shrink(self, state: TurnAttempt, prepared: PreparedRequest, hard: int) -> PreparedRequest:
        """Down to the aim if that can be reached; after a refusal anything clearly smaller is worth a try.

        Where nothing can be smaller, and the model should take it as it is, a single refusal may have been a
        slip: the same is sent once more.
        """
        config = state.claim.agent_config
        second_best = min(prepared.budget.hard, round(SECOND_BEST_SHARE * state.refused_size))
        aims = (hard, second_best) if second_best > hard else (hard,)
        for aim in aims:
            try:
                return self._requests.shrink(prepared, state.view, config, hard=aim)
            except ContextBudgetExceeded:
                if aim == aims[-1] and not self._may_insist(state, prepared):
                    raise
        state.insisted = True
        return prepared

    @staticmethod
    def _may_insist(state: TurnAttempt, prepared: PreparedRequest) -> bool:
        return state.restarts > 0 and not state.insisted and prepared.estimate <= prepared.budget.hard

    async def _reserve(self, state: TurnAttempt, prepared: PreparedRequest) -> PreparedRequest:
        """What the caps let it cost is set aside; near their end the request is made smaller for it."""

        async def shrink(tokens: int) -> PreparedRequest | None:
            try:
                small = self._requests.shrink(prepared, state.view, state.claim.agent_config, hard=tokens)
            except ContextBudgetExceeded:
                return None
            if small.artifacts:
                await self._store.keep_artifacts(state.claim, small.artifacts)
            return small

        state.prepared = await self._spend_limiter.reserve(
            state.bill, prepared, stop=state.stop, shrink=shrink
        )
        return state.prepared

    async def _count_if_near_limit(
        self, state: TurnAttempt, prepared: PreparedRequest, hard: int
    ) -> PreparedRequest:
        """Near the hard limit an estimate is not good enough: the provider counts, once per turn."""
        near = abs(prepared.estimate - hard) <= EXACT_COUNT_SHARE * hard
        if not near or state.counted or "count_tokens" not in prepared.card.capabilities:
            return prepared
        state.counted = True
        try:
            async with asyncio.timeout(COUNT_SECONDS):
                tokens = await self._model.count_tokens(prepared.request)
        except TimeoutError:
            return prepared
        if not tokens:
            return prepared
        ratio = observed_ratio(tokens, prepared.built.estimate, prepared.ratio)
        return replace(prepared, estimate=tokens, ratio=ratio, before=tokens + prepared.saved)

    async def _call_and_record(self, state: TurnAttempt, prepared: PreparedRequest) -> ModelReply:
        state.calls += 1
        try:
            return await self._call_until_stopped(state, prepared)
        except ModelError as error:
            state.spent.extend(
                build_spending(usage, prepared.card.name, prepared.card, aborted=True)
                for usage in error.aborted
            )
            if not isinstance(error, PromptTooLong) and state.spent:
                settled = sum_cost_micro([*state.spent_before, *state.spent])
                await self._store.record_waste(state.claim, state.take_spent(), settled_micro=settled)
            raise

    async def _call_until_stopped(self, state: TurnAttempt, prepared: PreparedRequest) -> ModelReply:
        """The model's reply, or Stopped as soon as the person asks."""
        if state.stop.done():
            raise TurnStopped("")
        state.draft, state.model_attempt = "", 0
        began = time.monotonic()
        call = asyncio.ensure_future(
            self._model.reply(
                replace(prepared.request, pictures=state.pictures) if state.pictures else prepared.request,
                on_text=lambda attempt, text: self._on_text(state, attempt, text),
            )
        )
        try:
            either: tuple[asyncio.Future[Any], ...] = (call, state.stop)
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if call.done():
                return call.result()
            raise TurnStopped(state.draft)
        finally:
            state.model_seconds += time.monotonic() - began
            if not call.done():
                call.cancel()
                await asyncio.wait([call])
                self._charge_stopped(state, prepared)

    def _charge_stopped(self, state: TurnAttempt, prepared: PreparedRequest) -> None:
        """A stopped answer is paid for, too, but nobody says how much: our estimate stands in."""
        usage = Usage(
            input_tokens=prepared.estimate,
            output_tokens=self._requests.counter.count_tokens(state.draft),
            known=False,
        )
        state.spent.append(build_spending(usage, prepared.card.name, prepared.card, aborted=True))

    @staticmethod
    def _next_delta(state: TurnAttempt, piece: str) -> tuple[int, str]:
        """Where screens go on, and with which text."""
        if state.attempt == state.shown_attempt and state.draft:
            return state.shown_units, piece
        earlier = "\n\n".join(state.texts)
        following = f"\n\n{piece}" if earlier else piece
        if state.attempt == state.shown_attempt:
            return utf16_units(earlier), following
        # A screen that replaces its draft needs the earlier rounds again.
        state.shown_attempt = state.attempt
        return 0, earlier + following

    async def _on_text(self, state: TurnAttempt, attempt: int, piece: str) -> None:
        if attempt != state.model_attempt:
            state.model_attempt, state.draft = attempt, ""
        offset, text = self._next_delta(state, piece)
        state.shown_units = offset + utf16_units(text)
        state.draft += piece
        self._crash_point("mid_stream")
        await state.emit(Delta(turn=state.claim.turn, attempt=state.attempt, offset=offset, text=text))


def lower_ceiling(maximum: int | None, ceiling: int | None, tried: int) -> int:
    """How large the next try may be: clearly below what the provider takes, and below the last try's aim."""
    known = maximum or tried
    return round(OVERFLOW_TARGET_SHARE * min(known, ceiling or known))


def render_runtime_facts(view: View) -> str:
    """The clock as it was when the person wrote: the same in every tool round and after a crash."""
    asked = [entry.at for entry in select_open_turn_entries(view) if entry.author in BEGINNERS]
    return _minute(max(asked).replace(second=0, microsecond=0)) if asked else ""


@lru_cache(maxsize=16)
def _minute(at: datetime) -> str:
    return f"It is {at.astimezone(UTC):%A, %Y-%m-%d %H:%M} UTC."


def select_open_turn_entries(view: View) -> tuple[Entry, ...]:
    """Entries stand in the order of their turns, and the open one is the last."""
    start = len(view.entries)
    while start and view.entries[start - 1].turn == view.open_turn:
        start -= 1
    return view.entries[start:]


def sum_cost_micro(spent: Sequence[Spending]) -> int:
    return sum(call.cost_micro or 0 for call in spent)
