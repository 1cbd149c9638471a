"""Inspector for operators: contents of a session's window, the request of a model call, estimates of
summaries.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from shared.core.compaction.note_requests import FlushWay
from shared.core.compaction.plan import CompactionPlan, NothingToCompact, plan_compaction
from shared.core.context.memory_tools import SAVE_MEMORY
from shared.core.overflow.request_trace import Piece, calls_of, entries_before_call, pieces_of
from shared.core.presets.catalog import PRESETS
from shared.core.session.budget import ContextBudget
from shared.core.session.policy import ContextPolicy
from shared.core.session.session import Entry
from shared.core.session.session_state import SessionState
from shared.core.session.turns import ContextMeasured, StoredTurn
from shared.core.values.messages import Image
from shared.core.values.money import Usage, cost_micro
from shared.ports import ChatModel, ModelCard, ModelRequest
from shared.services.compaction.silent_requests import find_flush_way
from shared.services.turns.agent_loop import measure_context
from shared.services.turns.request_builder import PreparedRequest, RequestBuilder
from shared.services.turns.request_replay import PromptPartErased, RebuiltRequest, rebuild_with_parts
from shared.services.turns.toolbox import Toolbox

SUMMARY_INSTRUCTION_TOKENS = 1_000
"""Input tokens of a summary's instruction, for estimates."""
SUMMARY_ANSWER_TOKENS = 1_500
"""Output tokens that a summary usually takes; for estimates, not for caps."""
FLUSH_INSTRUCTION_TOKENS = 600
"""Input tokens of a memory flush's instruction, for estimates."""
FLUSH_ANSWER_TOKENS = 400
"""Output tokens that a memory flush usually takes; for estimates, not for caps."""

BuildBody = Callable[[ModelRequest], Awaitable[Mapping[str, Any]]]
"""Function that returns the body of a request, as its provider receives it."""


class InspectorStateStore(Protocol):
    """Store of session states; raises UnknownSession."""

    async def load_state(self, session_id: int) -> SessionState: ...


class ReplayStore(Protocol):
    """Store of turns with what their last request contained.

    `load_turn` returns None if the turn called no model, or if the record of the call was deleted.
    """

    async def load_turn(self, session_id: int, turn: int) -> StoredTurn | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyOverride:
    """Setting of a policy that differs from its preset, with both values."""

    name: str
    preset: Any
    effective: Any
    by: str
    """Source of the effective value: `agent` or `operator`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextSnapshot:
    """Sizes, model and settings of a session's next request before a new message, without the request itself.

    The code that builds requests measures them.
    """

    gauge: ContextMeasured | None
    """Size of the context; None before the first answer."""
    budget: ContextBudget
    card: ModelCard
    preset: str
    policy: Mapping[str, Any]
    """Effective settings of the policy by name."""
    overrides: tuple[PolicyOverride, ...]
    unsent: int
    """Tokens of live messages that the policy leaves out."""
    memory: FlushWay
    """Way in which a flush saves notes, such as a silent turn or a separate request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedCall:
    """Model call of an earlier turn, rebuilt from what is stored of the turn.

    `call` is its number in the turn from 1, `calls` the number of calls that the turn made; `request` is None
    if it cannot be rebuilt.
    """

    turn: int
    call: int
    calls: int
    gone: str = ""
    """Reason why the request cannot be rebuilt: `erased` or `refused`; empty if it can."""
    same: bool = True
    """True if the rebuilt request equals the one that was sent, byte for byte."""
    differs: str = ""
    """Reason why `same` is False: `fitted`, `tools` or `pictures`; empty if it is True."""
    model: str = ""
    pieces: tuple[Piece, ...] = ()
    request: ModelRequest | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionEstimate:
    """Estimated tokens and cost of a summary or of a memory flush, made without calling a model.

    `before` and `after` are the tokens of the context, 0 for a flush; `calls` is the number of model calls.
    """

    possible: bool
    reason: str = ""
    """Code of the reason why it is not possible, such as `all_read`; `detail` has the numbers."""
    detail: str = ""
    from_turn: int = 0
    through_turn: int = 0
    reads: int = 0
    """Input tokens of all model calls together."""
    calls: int = 0
    before: int = 0
    after: int = 0
    model: str = ""
    cost_micro: int | None = None
    """Micro-dollars without the discount for cached tokens; None if the model's prices are unknown."""
    flush: CompactionEstimate | None = None
    """Estimate of the memory flush that precedes the summary; None if its turns were flushed already."""


class ContextInspector:
    """Inspector of a session's requests for operators; it changes nothing and calls no chat model."""

    def __init__(
        self,
        *,
        states: InspectorStateStore,
        replays: ReplayStore,
        model: ChatModel,
        requests: RequestBuilder,
        toolbox: Toolbox,
        body: BuildBody,
    ) -> None:
        self._states = states
        self._replays = replays
        self._model = model
        self._requests = requests
        self._toolbox = toolbox
        self._body = body

    async def load_snapshot(self, session_id: int) -> ContextSnapshot:
        """Return sizes, model and settings of a session's next request.

        Raises UnknownSession, ContradictoryPolicy and StorageUnavailable.
        """
        state = await self._states.load_state(session_id)
        prepared = await self._prepared(state)
        used = state.view.context_tokens or prepared.estimate
        known = state.context_limit > 0
        return ContextSnapshot(
            gauge=measure_context(prepared, used, estimated=True, view=state.view, choice=state.compaction)
            if known
            else None,
            budget=prepared.budget,
            card=prepared.card,
            preset=prepared.policy.name,
            policy=prepared.policy.to_settings(),
            overrides=self._overrides(prepared.policy, state.agent_config),
            unsent=prepared.unsent,
            memory=self._flush_way(state, prepared),
        )

    async def replay_call(self, session_id: int, turn: int, call: int | None = None) -> ReplayedCall | None:
        """Rebuild the request of one model call of a turn; return None if no call of the turn is stored.

        `call` counts from 1, and a number outside of the turn's calls means the nearest one; None means the
        last call. If a part was erased, the result says so in `gone`.
        """
        stored = await self._replays.load_turn(session_id, turn)
        if stored is None:
            return None
        calls = calls_of(_live(stored), turn)
        number = calls if call is None else max(1, min(call, calls))
        earlier = replace(stored, entries=entries_before_call(stored.entries, turn, number))
        try:
            remade = rebuild_with_parts(earlier, count=self._requests.counter.count_tokens)
        except PromptPartErased:
            return ReplayedCall(turn=turn, call=number, calls=calls, gone=_why_gone(stored))
        differs = _differs(stored, remade, is_last=number == calls)
        return ReplayedCall(
            turn=turn,
            call=number,
            calls=calls,
            same=not differs,
            differs=differs,
            model=remade.request.model,
            pieces=_pieces(earlier, remade),
            request=remade.request,
        )

    async def build_body(self, request: ModelRequest) -> Mapping[str, Any]:
        """Return the body of a request as its provider receives it; nothing is sent."""
        return await self._body(request)

    async def estimate_compaction(self, session_id: int, *, force: bool = False) -> CompactionEstimate:
        """Return what `/compact` would do now, in tokens and micro-dollars; no model is called and nothing
        changes.

        `force` plans although the context is not full. Raises UnknownSession and ContradictoryPolicy.
        """
        state = await self._states.load_state(session_id)
        prepared = await self._prepared(state)
        names = prepared.policy.writing.list_models(
            summary_model=self._requests.summary_model, own_model=prepared.card.name
        )
        card = await self._model.load_card(names[0])
        now_tokens = state.view.context_tokens + prepared.unsent
        plan = plan_compaction(
            state.view, budget=prepared.budget, policy=prepared.policy, force=force, now_tokens=now_tokens,
            summariser_window=card.window, ratio=prepared.ratio,
        )  # fmt: skip
        if isinstance(plan, NothingToCompact):
            return CompactionEstimate(
                possible=False, reason=plan.reason, detail=plan.detail, before=now_tokens,
                after=plan.sizes[1] if plan.sizes else 0,
            )  # fmt: skip
        warm = prepared.policy.writing.summariser == "warm"
        return self._of_plan(state, prepared, plan, prepared.card if warm else card, warm=warm)

    async def load_flush_way(self, session_id: int) -> FlushWay:
        """Return how a flush would save notes of this session, such as `prefix`, `code` or `off`.

        Raises UnknownSession and ContradictoryPolicy.
        """
        state = await self._states.load_state(session_id)
        return self._flush_way(state, await self._prepared(state))

    def _flush_way(self, state: SessionState, prepared: PreparedRequest) -> FlushWay:
        specs = self._toolbox.for_agent(state.agent_config).specs
        way, _ = find_flush_way(
            prepared.card,
            window=prepared.budget.window,
            ratio=prepared.ratio,
            offered=prepared.request.tools,
            allowed=any(spec.name == SAVE_MEMORY.name for spec in specs),
            count=self._requests.counter.count_tokens,
        )
        return way

    async def estimate_flush(self, session_id: int) -> CompactionEstimate:
        """Return what a memory flush of all ended turns would read and cost; no model is called and nothing
        changes.

        Not `possible` with reason `all_read` if flushes have read all turns. Raises UnknownSession and
        ContradictoryPolicy.
        """
        state = await self._states.load_state(session_id)
        prepared = await self._prepared(state)
        found = self._flush(state, prepared, through=state.answered_turn)
        if found is not None:
            return found
        return CompactionEstimate(possible=False, reason="all_read", through_turn=state.view.flushed_turn)

    async def _prepared(self, state: SessionState) -> PreparedRequest:
        card = await self._model.load_card(self._requests.resolve_model(state.agent_config))
        tools = self._toolbox.for_agent(state.agent_config).specs
        return self._requests.build_next(state, card=card, tools=tools)

    def _of_plan(
        self,
        state: SessionState,
        prepared: PreparedRequest,
        plan: CompactionPlan,
        card: ModelCard,
        *,
        warm: bool,
    ) -> CompactionEstimate:
        calls = 1 if warm else max(1, len(plan.chunks))
        source = prepared.estimate if warm else round(card.token_factor * _tokens(plan.entries))
        reads = source + calls * SUMMARY_INSTRUCTION_TOKENS
        return CompactionEstimate(
            possible=True,
            from_turn=plan.from_turn,
            through_turn=plan.through_turn,
            reads=reads,
            calls=calls,
            before=plan.tokens_before,
            after=plan.expected_after,
            model=card.name,
            cost_micro=_cost(card, reads, calls * SUMMARY_ANSWER_TOKENS),
            flush=self._flush(state, prepared, through=plan.through_turn),
        )

    def _flush(
        self, state: SessionState, prepared: PreparedRequest, *, through: int
    ) -> CompactionEstimate | None:
        """Estimate a flush of the turns up to `through`; return None if flushes have read all of them.

        The session's own model would read the whole view again.
        """
        if state.view.flushed_turn >= through:
            return None
        card, reads = prepared.card, prepared.estimate + FLUSH_INSTRUCTION_TOKENS
        return CompactionEstimate(
            possible=True,
            from_turn=state.view.flushed_turn + 1,
            through_turn=through,
            reads=reads,
            calls=1,
            model=card.name,
            cost_micro=_cost(card, reads, FLUSH_ANSWER_TOKENS),
        )

    def _overrides(
        self, policy: ContextPolicy, agent_config: Mapping[str, Any]
    ) -> tuple[PolicyOverride, ...]:
        preset = PRESETS.get(policy.name)
        if preset is None:
            return ()
        own = agent_config.get("context")
        named = set(own) if isinstance(own, Mapping) else set[str]()
        usual, holds = preset.to_settings(), policy.to_settings()
        return tuple(
            PolicyOverride(
                name=name, preset=usual[name], effective=value, by="agent" if name in named else "operator"
            )
            for name, value in holds.items()
            if value != usual[name]
        )


def _pieces(stored: StoredTurn, remade: RebuiltRequest) -> tuple[Piece, ...]:
    audit, live = stored.audit, {entry.seq for entry in remade.view.entries}
    pins = {entry.seq for entry in remade.view.pins}
    return pieces_of(
        system=remade.request.system,
        tools=remade.request.tools,
        messages=remade.request.messages,
        view=remade.view,
        policy=remade.policy,
        recall=remade.recall,
        runtime_facts=audit.recipe["facts"],
        left_out=[
            entry
            for entry in stored.entries
            if entry.seq not in live | pins
            and entry.turn > audit.base_turn
            and entry.seq <= audit.entry_through
        ],
    )


def _live(stored: StoredTurn) -> list[Entry]:
    live = {seq for first, last in stored.audit.recipe.get("seqs", ()) for seq in range(first, last + 1)}
    return [entry for entry in stored.entries if entry.seq in live]


def _why_gone(stored: StoredTurn) -> str:
    audit = stored.audit
    if audit.part_hashes:
        return "erased"
    return "refused" if audit.overflow_rejected else "erased"


def _differs(stored: StoredTurn, remade: RebuiltRequest, *, is_last: bool) -> str:
    if not is_last and "fit" in stored.audit.recipe:
        return "fitted"
    if not is_last and not remade.request.tools:
        return "tools"
    shown = (block for message in remade.request.messages for block in message.blocks)
    return "pictures" if any(isinstance(block, Image) for block in shown) else ""


def _tokens(entries: Sequence[Entry]) -> int:
    return sum(entry.tokens for entry in entries)


def _cost(card: ModelCard, reads: int, answer: int) -> int | None:
    return cost_micro(Usage(input_tokens=reads, output_tokens=answer), card.prices)
