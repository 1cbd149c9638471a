"""What may be spent today, and what of it is left: `/budget`."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from shared.core.commands.texts import BudgetShown, LimitShown
from shared.core.ops.session_stats import DaySpending
from shared.core.session.session_state import SessionState
from shared.core.session.turns import Caps
from shared.core.values.money import are_old
from shared.ports import ChatModel, Clock
from shared.services.commands.command_call import CommandHandler, CommandInvocation, CommandReply
from shared.services.turns.request_builder import RequestBuilder


class DailySpendingStore(Protocol):
    async def load_spending(self, session_id: int, *, caps: Caps) -> DaySpending: ...


class BudgetStateStore(Protocol):
    async def load_state(self, session_id: int) -> SessionState: ...


class BudgetCommands:
    def __init__(
        self,
        *,
        spending: DailySpendingStore,
        states: BudgetStateStore,
        requests: RequestBuilder,
        model: ChatModel,
        caps: Caps,
        clock: Clock,
    ) -> None:
        self._spending = spending
        self._states = states
        self._requests = requests
        self._model = model
        self._caps = caps
        self._clock = clock

    @property
    def handlers(self) -> dict[str, CommandHandler]:
        return {"budget": self._budget}

    async def _budget(self, call: CommandInvocation) -> CommandReply:
        day = await self._spending.load_spending(call.session_id, caps=self._caps)
        state = await self._states.load_state(call.session_id)
        card = await self._model.load_card(self._requests.resolve_model(state.agent_config))
        prices = card.prices
        is_old = prices is not None and are_old(prices, self._clock.now().date())
        shown = BudgetShown(
            limits=tuple(
                LimitShown(
                    scope=one.scope,
                    spent_usd=one.spent_micro / 1_000_000,
                    cap_usd=one.cap_micro / 1_000_000,
                )
                for one in day.scopes
            ),
            session_usd=day.session_micro / 1_000_000,
            unknown_calls=day.unknown_calls,
            anew=_clock_time(day.anew_at, day.timezone or self._caps.timezone),
            unpriced_model=card.name if prices is None and not card.offline else "",
            old_price=prices.dated if prices is not None and is_old else "",
        )
        return True, call.texts.budget(shown)


def _clock_time(moment: datetime, timezone: str) -> str:
    """In the person's own time, where their zone is one."""
    try:
        local = moment.astimezone(ZoneInfo(timezone))
    except (ZoneInfoNotFoundError, ValueError):
        return f"{moment:%H:%M} (UTC)"
    return f"{local:%H:%M} ({timezone})"
