"""Who writes a summary: the summary model, the session's own, or the chat on its own warm prefix."""

from __future__ import annotations

from dataclasses import replace

import structlog

from shared.core.compaction.plan import CompactionPlan
from shared.core.compaction.summary_prompts import Costs, cheaper_way, models_for, saves_together
from shared.core.session.backoff import unusable_seconds
from shared.core.session.session import Compaction
from shared.core.session.session_state import JobClaim, NewLink, Pace, SessionState
from shared.core.session.summary_rules import form_of
from shared.core.session.turns import Caps
from shared.ports import ChatModel, ModelRequest
from shared.services.compaction.compaction_context import CompactionContext
from shared.services.compaction.flusher import Flusher, FlushResult
from shared.services.turns.request_builder import PreparedRequest, RequestBuilder
from shared.services.turns.spend_tracker import SpendStore, SpendTracker
from shared.services.turns.toolbox import Toolbox

log = structlog.get_logger(__name__)

INSTRUCTION_TOKENS = 1_000
BEGINNING_TOKENS = 16
"""Of one message, as it is listed behind the chat that has it."""
ANSWER_TOKENS = 1_500
"""What a summary's JSON usually takes, for comparing prices."""


class WriterSelector:
    def __init__(
        self,
        *,
        flusher: Flusher,
        spend: SpendStore,
        model: ChatModel,
        requests: RequestBuilder,
        toolbox: Toolbox,
        caps: Caps,
    ) -> None:
        self._flusher = flusher
        self._spend = spend
        self._model = model
        self._requests = requests
        self._toolbox = toolbox
        self._caps = caps

    def count_tokens(self, text: str) -> int:
        return self._requests.counter.count_tokens(text)

    async def build_request(self, state: SessionState) -> PreparedRequest:
        card = await self._model.load_card(self._requests.resolve_model(state.agent_config))
        tools = self._toolbox.for_agent(state.agent_config).specs
        return self._requests.build_next(state, card=card, tools=tools)

    async def foresee(self, state: SessionState, link: NewLink) -> SessionState:
        """The state with what the next request will hold beside summary, pins and messages.

        `state` was read after the flush: what that has saved is sent from now on.
        """
        view, through = state.view, link.through_turn
        head = Compaction(
            id=0,
            kind=link.kind,
            from_turn=link.from_turn,
            through_turn=through,
            through_seq=link.through_seq,
            summary_text=link.summary_text,
            ledger=link.ledger,
            tokens=link.tokens,
        )
        hidden = tuple(entry for entry in view.entries if entry.turn <= through)
        after = replace(
            view,
            base_turn=through,
            head=head,
            entries=view.entries[len(hidden) :],
            pins=(*view.pins, *(entry for entry in hidden if entry.pinned)),
        )
        prepared = await self.build_request(replace(state, view=after))
        shown = prepared.selection.view
        counted = link.tokens + sum(entry.tokens for entry in (*shown.entries, *shown.pins))
        beside = prepared.built.estimate - counted + prepared.recall_room
        return replace(state, fixed_tokens=round(prepared.ratio * beside))

    async def with_descriptions(self, state: SessionState) -> SessionState:
        return await self._flusher.requests.with_descriptions(state)

    def open_spend_tracker(self, job: JobClaim) -> SpendTracker:
        return SpendTracker(self._spend, session_id=job.session_id, job_id=job.id, caps=self._caps)

    async def load_window(self, prepared: PreparedRequest) -> int:
        return (await self._model.load_card(self.list_models(prepared)[0])).window

    def list_models(self, prepared: PreparedRequest) -> tuple[str, ...]:
        policy = prepared.policy
        first = models_for(
            policy.summariser,
            summary_model=self._requests.summary_model,
            own_model=prepared.card.name,
            falls_back=policy.summary_falls_back,
        )
        if not policy.summary_falls_back:
            return first
        others = (other for name in first for other in self._requests.fallbacks(name))
        return tuple(dict.fromkeys((*first, *others)))

    def list_available_models(self, prepared: PreparedRequest, pace: Pace) -> tuple[str, ...]:
        """Those who are asked, without the ones whose summaries cannot be used; these rest."""
        models = self.list_models(prepared)
        able = tuple(name for name in models if not unusable_seconds(pace.written, name))
        if able != models:
            log.info("summary_models_backing_off", models=sorted({*models} - {*able}))
        return able

    def seconds_until_available(self, prepared: PreparedRequest, pace: Pace) -> float:
        """Seconds until the first of them may be asked again."""
        return min(unusable_seconds(pace.written, name) for name in self.list_models(prepared))

    async def choose(
        self, case: CompactionContext, plan: CompactionPlan, flushed: FlushResult
    ) -> tuple[tuple[str, ...], ModelRequest | None]:
        if case.resting:
            return (), None
        models, wanted = self.list_available_models(case.prepared, case.pace), case.prepared.policy.summariser
        rests = unusable_seconds(case.pace.written, case.prepared.card.name) > 0
        if wanted not in ("warm", "auto") or rests:
            return models, None
        warm = await self._build_warm_request(case)
        if warm.estimate + INSTRUCTION_TOKENS > warm.budget.hard:
            return models, None
        if wanted == "auto" and await self._choose_cheaper(case, plan, warm, flushed) == "cheap":
            return models, None
        return models, await self._flusher.requests.with_pictures(warm)

    async def choose_together(
        self, case: CompactionContext, plan: CompactionPlan
    ) -> tuple[tuple[str, ...], ModelRequest] | None:
        """The chat's own request when one answer behind it may bring both notes and summary, and costs less.

        None where nothing is owed to memory, where another model writes, and where no ghost turn is possible.
        """
        view, prepared = case.state.view, case.prepared
        owed = view.base_turn <= view.flushed_turn < plan.through_turn
        same = self.list_models(prepared)[0] == prepared.card.name
        rests = unusable_seconds(case.pace.written, prepared.card.name) > 0
        if case.resting or not owed or rests or form_of(plan.form).is_text:
            return None
        if not same and prepared.policy.summariser not in ("warm", "auto"):
            return None
        warm = await self._build_warm_request(case)
        way, _ = self._flusher.requests.find_way(warm, case.state.agent_config)
        behind = INSTRUCTION_TOKENS + BEGINNING_TOKENS * len(plan.entries)
        if way != "prefix" or warm.estimate + behind > warm.budget.hard:
            return None
        writer = await self._model.load_card(self.list_models(prepared)[0])
        costs = self._costs(case, plan, warm, writer.token_factor, behind=behind, cache_age_seconds=0.0)
        if not saves_together(costs, writer=writer.prices, chat=prepared.card.prices, same=same):
            return None
        models = self.list_available_models(prepared, case.pace)
        return models, await self._flusher.requests.with_pictures(warm)

    async def _build_warm_request(self, case: CompactionContext) -> PreparedRequest:
        """The chat's own request, unchanged; the summariser puts its task behind it."""
        tools = await self._flusher.requests.load_tools(case.job.session_id, case.state.agent_config)
        return self._requests.build_next(case.state, card=case.prepared.card, tools=tools)

    async def _choose_cheaper(
        self, case: CompactionContext, plan: CompactionPlan, warm: PreparedRequest, flushed: FlushResult
    ) -> str:
        cheap = await self._model.load_card(self._requests.summary_model)
        just_read = flushed.ticket is not None and flushed.outcome != "failed"
        costs = self._costs(
            case,
            plan,
            warm,
            cheap.token_factor,
            behind=INSTRUCTION_TOKENS,
            cache_age_seconds=0.0 if just_read else case.pace.idle_seconds,
        )
        return cheaper_way(costs, cheap=cheap.prices, chat=case.prepared.card.prices)

    def _costs(
        self,
        case: CompactionContext,
        plan: CompactionPlan,
        warm: PreparedRequest,
        factor: float,
        *,
        behind: int,
        cache_age_seconds: float,
    ) -> Costs:
        return Costs(
            prefix_tokens=warm.estimate,
            instruction_tokens=behind,
            source_tokens=round(factor * sum(entry.tokens for entry in plan.entries)),
            answer_tokens=ANSWER_TOKENS,
            cache_age_seconds=cache_age_seconds,
            cache_seconds=case.cache_seconds,
        )
