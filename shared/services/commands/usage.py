"""What a conversation holds and costs: `/status`, `/context` and `/usage`."""

from __future__ import annotations

from typing import Protocol

from shared.core.commands.texts import ContextShown, UsageShown
from shared.core.ops.session_stats import SessionFigures
from shared.core.session.session_state import SessionState
from shared.core.session.turns import Caps
from shared.services.commands.command_call import CommandHandler, CommandInvocation, CommandReply
from shared.services.turns.session_service import SessionService


class UsageStateStore(Protocol):
    async def load_state(self, session_id: int) -> SessionState: ...


class SessionStatsStore(Protocol):
    async def load_stats(self, session_id: int) -> SessionFigures: ...


class UsageCommands:
    def __init__(
        self,
        *,
        store: UsageStateStore,
        figures: SessionStatsStore,
        conversation: SessionService,
        caps: Caps,
        model_name: str,
    ) -> None:
        self._store = store
        self._figures = figures
        self._conversation = conversation
        self._caps = caps
        self._model_name = model_name

    @property
    def handlers(self) -> dict[str, CommandHandler]:
        return {"status": self._status, "context": self._context, "usage": self._usage}

    async def _status(self, call: CommandInvocation) -> CommandReply:
        state = await self._store.load_state(call.session_id)
        measured = await self._conversation.measure_context(call.session_id)
        gauge = "–"
        if measured is not None:
            gauge = call.texts.gauge(percent=measured.percent, used=measured.used, limit=measured.limit)
        words = call.texts.status(
            model=str(state.agent_config.get("model") or self._model_name),
            turns=state.answered_turn,
            hidden=state.view.base_turn,
            summaries=state.view.cycle,
            gauge=gauge,
        )
        return True, words

    async def _context(self, call: CommandInvocation) -> CommandReply:
        measured = await self._conversation.measure_context(call.session_id)
        if measured is None:
            return True, call.texts.context_empty
        figures = await self._figures.load_stats(call.session_id)
        shown = ContextShown(
            percent=measured.percent,
            used=measured.used,
            limit=measured.limit,
            parts=measured.parts,
            pins=figures.pins,
            summarised_turns=figures.hidden_turns,
            recall=measured.recall,
            cached_percent=figures.last_cached_percent or None,
            spent_usd=_usd(figures.cost_micro),
        )
        return True, call.texts.context(shown)

    async def _usage(self, call: CommandInvocation) -> CommandReply:
        figures = await self._figures.load_stats(call.session_id)
        shown = UsageShown(
            turns=figures.answered_turns,
            summaries=figures.summaries,
            input_tokens=figures.input_tokens,
            output_tokens=figures.output_tokens,
            cached_percent=figures.cached_percent,
            spent_usd=_usd(figures.cost_micro),
            upkeep_usd=_usd(figures.upkeep_micro),
            today_usd=_usd(figures.today_micro),
            today_cap_usd=_usd(self._caps.session),
        )
        return True, call.texts.usage(shown)


def _usd(micro: int | None) -> float | None:
    return None if micro is None else micro / 1_000_000
