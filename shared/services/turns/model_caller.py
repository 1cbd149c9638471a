"""Model calls of one turn: building, counting, paying, stopping, shrinking, and moving to fallback models."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import lru_cache
from typing import Any, Protocol
from zoneinfo import ZoneInfo

import structlog

from shared.core.overflow.overflow_recovery import Shrunk, largest_contributors
from shared.core.session.artifacts import Artifact
from shared.core.session.channels import find_place
from shared.core.session.failed_messages import hide_beginnings
from shared.core.session.policy import ContradictoryPolicy
from shared.core.session.session import View
from shared.core.session.turns import Caps, Claim, Delta, Spending
from shared.core.values.errors import (
    CapReached,
    ContextBudgetExceeded,
    EvertalkError,
    ModelError,
    ModelRejectedRequest,
    PromptTooLong,
)
from shared.core.values.local_time import minute_text
from shared.core.values.messages import BEGINNERS
from shared.core.values.money import LONG_LIFE
from shared.core.values.tokens import compute_ratio
from shared.ports import ChatModel, ModelReply, Usage
from shared.runtime import CrashPoint
from shared.services.turns.request_builder import PreparedRequest, RequestBuilder
from shared.services.turns.spend_tracker import SpendLimiter, TurnSpendStore, build_spending, list_spending
from shared.services.turns.turn_attempt import TurnAttempt, TurnStopped, select_open_turn_entries

log = structlog.get_logger(__name__)

MAX_OVERFLOW_RETRIES = 3
"""Most smaller requests that are tried after the provider refused one as too long."""
SECOND_BEST_SHARE = 0.95
"""Share of the refused size that is tried if the smaller aim cannot be reached."""
EXACT_COUNT_SHARE = 0.05
"""Share of the hard limit. An estimate that is at most this far from the limit is replaced by the provider's
count.
"""
COUNT_SECONDS = 3.0
"""Seconds to wait for the provider's token count; after them the estimate is used."""


class ModelCallStore(Protocol):
    """Store of failed calls, and of artifacts that requests mention.

    `record_waste` books calls without a result, also if the lease is lost; their reservation stays, for the
    turn's next calls. `keep_artifacts` stores whole texts as pairs of an entry's `seq` and its artifact;
    raises LeaseLost. Both raise StorageUnavailable.
    """

    async def record_waste(self, claim: Claim, spent: Sequence[Spending]) -> None: ...
    async def keep_artifacts(self, claim: Claim, artifacts: Sequence[tuple[int, Artifact]]) -> None: ...


BeforeCall = Callable[[TurnAttempt, PreparedRequest], Awaitable[None]]
"""Function called after a call's cost is reserved and before it is sent; it may store a due compaction
job.
"""


class ModelCaller:
    """Caller of models for all attempts of a process; it reserves and records the cost of each call."""

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

    async def call(self, state: TurnAttempt, *, tools: bool = True) -> tuple[PreparedRequest, ModelReply]:
        """Call the agent's model, or a fallback if that fails, and return the request that was sent and the
        reply.

        Costs are reserved before and collected in `state.costs`; text is streamed by `state.given.emit`.
        Without `tools`, none are offered. A request that is too long is shrunk. Raises TurnStopped if the
        person stops the turn, CapHeld if other calls hold the money, and the first model's error if it allows
        no fallback or no fallback can answer.
        """
        while True:
            try:
                return await self._call_model(state, tools=tools)
            except (ModelError, CapReached, ContextBudgetExceeded, ContradictoryPolicy) as error:
                await self._move_on(state, error)

    async def _move_on(self, state: TurnAttempt, error: EvertalkError) -> None:
        """Switch the attempt to the next fallback model.

        Raises the first model's error if it allows no fallback, or none is left.
        """
        if state.refusal is None:
            if not (isinstance(error, ModelError) and error.elsewhere):
                raise error
            state.refusal = error
        name = self._requests.resolve_model(state.claim.agent_config)
        if state.moves == len(others := self._requests.fallbacks(name)):
            if error is state.refusal:
                raise error
            raise state.refusal from error
        card = await self._model.load_card(others[state.moves])
        log.warning(
            "model_stood_in_for", session_id=state.claim.session_id, turn=state.claim.turn, model=name,
            by=card.name, reason=f"{error.code}: {error}",
        )  # fmt: skip
        state.move_to(card, ratio=find_token_ratio(card.name, state.claim))

    async def _call_model(self, state: TurnAttempt, *, tools: bool) -> tuple[PreparedRequest, ModelReply]:
        """Return the request and the current model's reply; retry with a smaller request if it is too long.

        Retries a rejected request once without the beginnings of earlier rejected messages. Raises
        ContextBudgetExceeded after too many tries.
        """
        while True:
            prepared = await self._reserve(state, await self._build_fitting(state, tools=tools))
            await self._due(state, prepared)
            self._crash_point("before_model")
            try:
                reply = await self._call_and_record(state, prepared)
            except PromptTooLong as error:
                self._lower_ceiling(state, prepared, error)
                continue
            except ModelRejectedRequest:
                shorter = hide_beginnings(state.view)
                if shorter is None:
                    raise
                state.view = shorter
                continue
            self._crash_point("after_model")
            if reply.stop_reason == "window_exceeded" and state.meter.restarts < MAX_OVERFLOW_RETRIES:
                state.costs.unpaid.append(
                    build_spending(
                        reply.usage, reply.model, prepared.card, request_id=reply.request_id, aborted=True
                    )
                )
                self._lower_ceiling(state, prepared, PromptTooLong("the answer did not fit into the window"))
                continue
            state.costs.unpaid.extend(list_spending(reply, prepared.card))
            return prepared, reply

    @staticmethod
    def _lower_ceiling(state: TurnAttempt, prepared: PreparedRequest, refusal: PromptTooLong) -> None:
        """Lower the token limit for the next try.

        Raises ContextBudgetExceeded after `MAX_OVERFLOW_RETRIES` tries.
        """
        if state.meter.restarts >= MAX_OVERFLOW_RETRIES:
            largest = largest_contributors(Shrunk(view=state.view, context=prepared.built), prepared.ratio)
            tried = min(prepared.budget.hard, state.meter.ceiling or prepared.estimate)
            raise ContextBudgetExceeded(hard=tried, largest=largest) from refusal
        state.meter.lower_ceiling(prepared, refusal)

    def prepare(self, state: TurnAttempt, *, tools: bool = True) -> PreparedRequest:
        """Return the request for the whole view, without sending it.

        Its size is estimated from the provider's last token count. Without `tools`, none are offered. Raises
        NoRoom if system text and tools leave no room for a conversation.
        """
        prepared = self._requests.build(
            state.view,
            card=state.given.card,
            agent_config=state.claim.agent_config,
            tools=state.given.toolbox.specs if tools else (),
            token_ratio=state.meter.ratio,
            runtime_facts=render_runtime_facts(
                state.view, self._requests.zone_of(state.given.circumstances), channel=state.claim.channel
            ),
            channel=state.claim.channel,
            cache_long=state.given.cache_life >= LONG_LIFE,
            recalled=state.given.recalled,
            circumstances=state.given.circumstances,
        )
        return state.meter.read(prepared)

    async def _build_fitting(self, state: TurnAttempt, *, tools: bool) -> PreparedRequest:
        prepared = state.prepared = self.prepare(state, tools=tools)
        hard = state.meter.limit(prepared)
        if state.meter.ceiling is None:
            prepared = await self._count_if_near_limit(state, prepared, hard)
        if prepared.estimate > hard:
            prepared = self._shrink(state, prepared, hard)
        if prepared.artifacts:
            await self._store.keep_artifacts(state.claim, prepared.artifacts)
        state.prepared = prepared = prepared.with_answer_room()
        return prepared

    def _shrink(self, state: TurnAttempt, prepared: PreparedRequest, hard: int) -> PreparedRequest:
        """Return the request shrunk to `hard` tokens or, after a refusal, to 95 percent of the refused size.

        Raises ContextBudgetExceeded if neither works; after a refusal, a request within the budget is once
        returned unchanged instead, since the refusal may have been an error.
        """
        config = state.claim.agent_config
        second_best = min(prepared.budget.hard, round(SECOND_BEST_SHARE * state.meter.refused_size))
        aims = (hard, second_best) if second_best > hard else (hard,)
        for aim in aims:
            try:
                return self._requests.shrink(prepared, state.view, config, hard=aim)
            except ContextBudgetExceeded:
                if aim == aims[-1] and not self._may_retry_whole(state, prepared):
                    raise
        state.meter.insisted = True
        return prepared

    @staticmethod
    def _may_retry_whole(state: TurnAttempt, prepared: PreparedRequest) -> bool:
        return (
            state.meter.restarts > 0
            and not state.meter.insisted
            and prepared.estimate <= prepared.budget.hard
        )

    async def _reserve(self, state: TurnAttempt, prepared: PreparedRequest) -> PreparedRequest:
        """Reserve the cost of the call and return the request, shrunk if the caps require it.

        Raises CapReached if a cap is used up and CapHeld if running calls hold the rest.
        """

        async def shrink(tokens: int) -> PreparedRequest | None:
            try:
                small = self._requests.shrink(prepared, state.view, state.claim.agent_config, hard=tokens)
            except ContextBudgetExceeded:
                return None
            if small.artifacts:
                await self._store.keep_artifacts(state.claim, small.artifacts)
            return small

        state.prepared = await self._spend_limiter.reserve(
            state.costs, prepared, stop=state.given.stop, shrink=shrink
        )
        return state.prepared

    async def _count_if_near_limit(
        self, state: TurnAttempt, prepared: PreparedRequest, hard: int
    ) -> PreparedRequest:
        """Return the request with the provider's token count, if the estimate is near `hard`; at most once
        per turn.

        Returns it unchanged if the provider cannot count or takes longer than `COUNT_SECONDS`.
        """
        near = abs(prepared.estimate - hard) <= EXACT_COUNT_SHARE * hard
        if not near or state.meter.counted or "count_tokens" not in prepared.card.capabilities:
            return prepared
        state.meter.counted = True
        try:
            async with asyncio.timeout(COUNT_SECONDS):
                tokens = await self._model.count_tokens(prepared.request)
        except TimeoutError:
            return prepared
        if not tokens:
            return prepared
        ratio = compute_ratio(tokens, prepared.built.estimate, prepared.ratio)
        before = max(state.meter.before_summary, tokens + prepared.saved)
        return replace(prepared, estimate=tokens, ratio=ratio, before=before)

    async def _call_and_record(self, state: TurnAttempt, prepared: PreparedRequest) -> ModelReply:
        state.calls += 1
        try:
            return await self._call_until_stopped(state, prepared)
        except ModelError as error:
            state.costs.unpaid.extend(
                build_spending(usage, prepared.card.name, prepared.card, aborted=True)
                for usage in error.aborted
            )
            if not isinstance(error, PromptTooLong) and (wasted := tuple(state.costs.unpaid)):
                await self._store.record_waste(state.claim, wasted)
                state.costs.mark_stored(wasted)
            raise

    async def _call_until_stopped(self, state: TurnAttempt, prepared: PreparedRequest) -> ModelReply:
        """Return the model's reply. Raises TurnStopped with the text so far if the person stops the turn."""
        if state.given.stop.done():
            raise TurnStopped("")
        state.stream.begin_call()
        began = time.monotonic()
        call = asyncio.ensure_future(
            self._model.reply(
                replace(prepared.request, pictures=state.pictures) if state.pictures else prepared.request,
                on_text=lambda attempt, text: self._on_text(state, attempt, text),
            )
        )
        try:
            either: tuple[asyncio.Future[Any], ...] = (call, state.given.stop)
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if call.done():
                return call.result()
            raise TurnStopped(state.stream.draft)
        finally:
            state.model_seconds += time.monotonic() - began
            if not call.done():
                call.cancel()
                await asyncio.wait([call])
                self._charge_stopped(state, prepared)

    def _charge_stopped(self, state: TurnAttempt, prepared: PreparedRequest) -> None:
        """Book the cost of a stopped answer by estimate, since the provider reports no usage for it."""
        usage = Usage(
            input_tokens=prepared.estimate,
            output_tokens=self._requests.counter.count_tokens(state.stream.draft),
            known=False,
        )
        state.costs.unpaid.append(build_spending(usage, prepared.card.name, prepared.card, aborted=True))

    async def _on_text(self, state: TurnAttempt, model_attempt: int, piece: str) -> None:
        state.stream.first_text_at = state.stream.first_text_at or time.monotonic()
        offset, text = state.stream.add(piece, model_attempt=model_attempt)
        self._crash_point("mid_stream")
        delta = Delta(turn=state.claim.turn, attempt=state.draft_number, offset=offset, text=text)
        await state.given.emit(delta)


def find_token_ratio(model: str, claim: Claim) -> float:
    """Return how many tokens of this model one estimated token is, as learned in the session; 1.0 if not
    learned yet.
    """
    if claim.measured_by in ("", model):
        return claim.token_ratio
    return claim.token_ratios.get(model, 1.0)


def render_runtime_facts(view: View, zone: ZoneInfo, *, channel: str) -> str:
    """Return the sentences that say when, to the minute in `zone`, and on which channel the person wrote
    last.

    Empty if the open turn has no message. The result is the same in every tool round and after a crash.
    """
    asked = [entry.at for entry in select_open_turn_entries(view) if entry.author in BEGINNERS]
    if not asked:
        return ""
    at = _minute(max(asked).replace(second=0, microsecond=0), zone)
    return f"{at} The person writes {find_place(channel)}."


@lru_cache(maxsize=16)
def _minute(at: datetime, zone: ZoneInfo) -> str:
    return f"It is {minute_text(at, zone)}."
