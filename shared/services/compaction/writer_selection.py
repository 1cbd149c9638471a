"""Who writes a summary: the summary model, the session's own, or the chat on its own warm prefix."""

from __future__ import annotations

import structlog

from shared.core.compaction.plan import CompactionPlan
from shared.core.compaction.summarising import Costs, cheaper_way, models_for
from shared.core.session.backoff import unusable_seconds
from shared.core.session.session_state import JobClaim, Pace, SessionState
from shared.core.session.turns import Caps
from shared.ports import ChatModel, ModelRequest
from shared.services.compaction.compaction_context import Case
from shared.services.compaction.flusher import Flushed, Flusher
from shared.services.turns.request_builder import Prepared, Prompting
from shared.services.turns.spend_tracker import Purse, SpendStore
from shared.services.turns.toolbox import Toolbox

log = structlog.get_logger(__name__)

INSTRUCTION_TOKENS = 1_000
ANSWER_TOKENS = 1_500
"""What a summary's JSON usually takes, for comparing prices."""


class Writers:
    def __init__(
        self,
        *,
        flusher: Flusher,
        spend: SpendStore,
        model: ChatModel,
        prompting: Prompting,
        toolbox: Toolbox,
        caps: Caps,
    ) -> None:
        self._flusher = flusher
        self._spend = spend
        self._model = model
        self._prompting = prompting
        self._toolbox = toolbox
        self._caps = caps

    def count(self, text: str) -> int:
        return self._prompting.counter.count(text)

    async def prepared(self, state: SessionState) -> Prepared:
        card = await self._model.card(self._prompting.model_of(state.agent_config))
        tools = self._toolbox.of(state.agent_config).specs
        return self._prompting.next_request(state, card=card, tools=tools)

    async def told(self, state: SessionState) -> SessionState:
        return await self._flusher.told(state)

    def purse(self, job: JobClaim) -> Purse:
        return Purse(self._spend, session_id=job.session_id, job_id=job.id, caps=self._caps)

    async def window(self, prepared: Prepared) -> int:
        return (await self._model.card(self.models(prepared)[0])).window

    def models(self, prepared: Prepared) -> tuple[str, ...]:
        return models_for(
            prepared.policy.summariser,
            summary_model=self._prompting.summary_model,
            own_model=prepared.card.name,
            falls_back=prepared.policy.summary_falls_back,
        )

    def able(self, prepared: Prepared, pace: Pace) -> tuple[str, ...]:
        """Those who are asked, without the ones whose summaries cannot be used; these rest."""
        models = self.models(prepared)
        able = tuple(name for name in models if not unusable_seconds(pace.written, name))
        if able != models:
            log.info("summary_models_rest", models=sorted({*models} - {*able}))
        return able

    def rest(self, prepared: Prepared, pace: Pace) -> float:
        """Seconds until the first of them may be asked again."""
        return min(unusable_seconds(pace.written, name) for name in self.models(prepared))

    async def who(
        self, case: Case, plan: CompactionPlan, flushed: Flushed
    ) -> tuple[tuple[str, ...], ModelRequest | None]:
        if case.resting:
            return (), None
        models, wanted = self.able(case.prepared, case.pace), case.prepared.policy.summariser
        rests = unusable_seconds(case.pace.written, case.prepared.card.name) > 0
        if wanted not in ("warm", "auto") or rests:
            return models, None
        warm = await self._warm(case)
        if warm.estimate + INSTRUCTION_TOKENS > warm.budget.hard:
            return models, None
        if wanted == "auto" and await self._cheaper(case, plan, warm, flushed) == "cheap":
            return models, None
        return models, warm.request

    async def _warm(self, case: Case) -> Prepared:
        """The chat's own request, unchanged; the summariser puts its task behind it."""
        tools = await self._flusher.tools_of(case.job.session_id, case.state.agent_config)
        return self._prompting.next_request(case.state, card=case.prepared.card, tools=tools)

    async def _cheaper(self, case: Case, plan: CompactionPlan, warm: Prepared, flushed: Flushed) -> str:
        cheap = await self._model.card(self._prompting.summary_model)
        source = sum(entry.tokens for entry in plan.entries)
        just_read = flushed.ticket is not None and flushed.outcome != "failed"
        costs = Costs(
            prefix_tokens=warm.estimate,
            instruction_tokens=INSTRUCTION_TOKENS,
            source_tokens=round(cheap.token_factor * source),
            answer_tokens=ANSWER_TOKENS,
            cache_age_seconds=0.0 if just_read else case.pace.idle_seconds,
            cache_seconds=case.cache_seconds,
        )
        return cheaper_way(costs, cheap=cheap.prices, chat=case.prepared.card.prices)
