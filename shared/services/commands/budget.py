"""Command `/budget`: spending limits and today's spending."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from shared.core.commands.texts import bullets, excerpt
from shared.core.ops.session_stats import DaySpending, ScopeSpending
from shared.core.session.turns import Caps
from shared.core.values.money import are_old
from shared.locales import Catalogue
from shared.ports import ChatModel, Clock
from shared.services.commands.command_call import CommandHandler, CommandInvocation, CommandReply
from shared.services.commands.usage import UsageStateStore
from shared.services.turns.request_builder import RequestBuilder

NEARLY_USED = 80
"""Percentage of a limit from which a warning sign is shown; from 100 on it is a stop sign."""


class DailySpendingStore(Protocol):
    """Store of today's spending of a session and of each scope whose cap applies; raises UnknownSession."""

    async def load_spending(self, session_id: int, *, caps: Caps) -> DaySpending: ...


class BudgetCommands:
    """Handler of `/budget`."""

    def __init__(
        self,
        *,
        spending: DailySpendingStore,
        states: UsageStateStore,
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
        """Handler of `/budget` by command name."""
        return {"budget": self._budget}

    async def _budget(self, call: CommandInvocation) -> CommandReply:
        day = await self._spending.load_spending(call.session_id, caps=self._caps)
        state = await self._states.load_state(call.session_id)
        card = await self._model.load_card(self._requests.resolve_model(state.agent_config))
        prices = card.prices
        is_old = prices is not None and are_old(prices, self._clock.now().date())
        lines = render_day(day, call.texts)
        if day.scopes:
            anew = _clock_time(day.anew_at, day.timezone or self._caps.timezone)
            lines.append(call.texts.say("budget_resets", time=anew))
        if prices is None and not card.offline:
            lines.append(call.texts.say("budget_unpriced", model=excerpt(card.name)))
        if prices is not None and is_old:
            lines.append(call.texts.say("budget_old_price", date=excerpt(prices.dated)))
        return True, f"{call.texts.say('budget_head')}\n\n{bullets(lines)}"


def render_day(day: DaySpending, texts: Catalogue) -> list[str]:
    """Return one line for each spending limit, and a last one for today's cost of the conversation."""
    lines = [_render_limit(one, texts) for one in day.scopes] or [texts.say("budget_no_limit")]
    spent = texts.dollars(day.session_micro)
    if day.unknown_calls:
        return [*lines, texts.say("budget_spent_unknown", spent=spent, count=day.unknown_calls)]
    return [*lines, texts.say("budget_spent", spent=spent)]


def _render_limit(one: ScopeSpending, texts: Catalogue) -> str:
    percent = 100 if one.cap_micro <= 0 else min(100, 100 * one.spent_micro // one.cap_micro)
    sign = " ⛔" if percent >= 100 else " ⚠️" if percent >= NEARLY_USED else ""
    spent, cap = texts.dollars(one.spent_micro), texts.dollars(one.cap_micro)
    return texts.say(f"budget_{one.scope}", spent=spent, cap=cap, percent=percent) + sign


def _clock_time(moment: datetime, timezone: str) -> str:
    """Return the time of day in the person's time zone; in UTC if the zone is unknown."""
    try:
        local = moment.astimezone(ZoneInfo(timezone))
    except (ZoneInfoNotFoundError, ValueError):
        return f"{moment:%H:%M} (UTC)"
    return f"{local:%H:%M} ({timezone})"
