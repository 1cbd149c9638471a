"""Commands on content and cost of a conversation: `/status`, `/context` and `/usage`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol
from unicodedata import combining, east_asian_width

from shared.core.commands.texts import Markdown, bullets, excerpt
from shared.core.compaction.note_requests import APART, FlushWay
from shared.core.ops.session_stats import SessionFigures
from shared.core.session.session_state import SessionState
from shared.core.session.turns import Caps, ContextMeasured
from shared.locales import Catalogue
from shared.services.commands.command_call import CommandHandler, CommandInvocation, CommandReply
from shared.services.commands.context import CompactionForecast
from shared.services.turns.session_service import SessionService

_BAR_CELLS = 20


class UsageStateStore(Protocol):
    """Store of session states; raises UnknownSession."""

    async def load_state(self, session_id: int) -> SessionState: ...


class SessionStatsStore(Protocol):
    """Store of figures for the whole life of a session; raises UnknownSession."""

    async def load_stats(self, session_id: int) -> SessionFigures: ...


class UsageCommands:
    """Handlers of `/status`, `/context` and `/usage`."""

    def __init__(
        self,
        *,
        store: UsageStateStore,
        figures: SessionStatsStore,
        sessions: SessionService,
        forecast: CompactionForecast,
        caps: Caps,
        model_name: str,
    ) -> None:
        self._store = store
        self._figures = figures
        self._sessions = sessions
        self._forecast = forecast
        self._caps = caps
        self._model_name = model_name

    @property
    def handlers(self) -> dict[str, CommandHandler]:
        """Handlers of `/status`, `/context` and `/usage` by command name."""
        return {"status": self._status, "context": self._context, "usage": self._usage}

    async def _status(self, call: CommandInvocation) -> CommandReply:
        state = await self._store.load_state(call.session_id)
        measured = await self._sessions.measure_context(call.session_id)
        texts, gauge = call.texts, "–"
        if measured is not None:
            gauge = texts.say(
                "gauge", percent=f"{measured.percent:.0f}", used=texts.thousands(measured.used),
                limit=texts.thousands(measured.limit),
            )  # fmt: skip
        lines = [
            texts.say(
                "status_model", model=excerpt(str(state.agent_config.get("model") or self._model_name))
            ),
            texts.say("status_turns", turns=state.answered_turn, count=state.view.base_turn),
            texts.say("status_summaries", summaries=state.view.cycle),
            texts.say("status_context", gauge=gauge),
        ]
        return True, bullets(lines)

    async def _context(self, call: CommandInvocation) -> CommandReply:
        measured = await self._sessions.measure_context(call.session_id)
        if measured is None:
            return True, call.texts.say("context_empty")
        figures = await self._figures.load_stats(call.session_id)
        way = await self._forecast.load_flush_way(call.session_id)
        return True, render_context(measured, figures, call.texts, way=way)

    async def _usage(self, call: CommandInvocation) -> CommandReply:
        figures = await self._figures.load_stats(call.session_id)
        return True, render_usage(figures, self._caps.session, call.texts)


def render_context(
    measured: ContextMeasured,
    figures: SessionFigures,
    texts: Catalogue,
    *,
    way: FlushWay = "prefix",
) -> Markdown:
    """Return contents, fill and next summary of a conversation's context as Markdown.

    `way` is how notes are saved from it.
    """
    say = texts.say
    rows = {say(f"part_{name}"): texts.number(size) for name, size in measured.parts.items() if size}
    rows[say("part_free")] = texts.number(max(0, measured.limit - measured.used))
    block = f"```\n{_bar(measured.percent)} {measured.percent:.0f} %\n{_columns(rows)}\n```"
    lines = [say("context_summarised", count=figures.hidden_turns)] if figures.hidden_turns else []
    if measured.summary_withheld:
        lines.append(say(f"context_summaries_{measured.summary_withheld}"))
    if measured.summary_withheld not in ("off", "manual"):
        lines.append(say("context_next_summary", limit=measured.summary_at or measured.limit))
    if measured.summary_turns:
        lines.append(say("context_turns_left", turns=measured.summary_turns))
    if measured.summary_at and measured.window:
        share = round(100 * measured.summary_at / measured.window)
        lines.append(say("context_share", percent=share, window=measured.window))
    if measured.reserved:
        lines.append(say("context_reserved", tokens=measured.reserved))
    if way in APART:
        lines.append(say("context_memory_apart"))
    elif way == "code":
        lines.append(say("context_memory_code"))
    if figures.pins:
        lines.append(say("context_pins", pins=figures.pins))
    if figures.last_cached_percent:
        lines.append(say("context_cached", percent=figures.last_cached_percent))
    if figures.cost_micro is not None:
        lines.append(say("context_spent", spent=texts.dollars(figures.cost_micro)))
    head = say(
        "context_head_estimated" if measured.estimated else "context_head",
        used=measured.used, limit=measured.limit,
    )  # fmt: skip
    return "\n\n".join([head, block, bullets(lines)])


def render_usage(figures: SessionFigures, cap_micro: int | None, texts: Catalogue) -> Markdown:
    """Return tokens and cost of a conversation as Markdown.

    `cap_micro` is the conversation's cap per day in micro-dollars, None without one.
    """
    say, dollars, cached = texts.say, texts.dollars, figures.cached_percent
    lines = [
        say("usage_turns", turns=figures.answered_turns, summaries=figures.summaries),
        say("usage_sent", tokens=figures.input_tokens)
        if cached is None
        else say("usage_sent_cached", tokens=figures.input_tokens, percent=cached),
        say("usage_written", tokens=figures.output_tokens),
        say("usage_cost", spent=dollars(figures.cost_micro), upkeep=dollars(figures.upkeep_micro)),
        say(
            "usage_today" if cap_micro is None else "usage_today_cap",
            spent=dollars(figures.today_micro), cap=dollars(cap_micro),
        ),
    ]  # fmt: skip
    return f"{say('usage_head')}\n\n{bullets(lines)}"


def _bar(percent: float) -> str:
    filled = round(min(100.0, max(0.0, percent)) / 100 * _BAR_CELLS)
    return "█" * filled + "░" * (_BAR_CELLS - filled)


def _columns(rows: Mapping[str, str]) -> str:
    """Return rows with names left and values right aligned, for a code block."""
    left = max(map(_width, rows))
    right = max(map(len, rows.values()))
    return "\n".join(
        f"{name}{' ' * (left - _width(name))}  {value.rjust(right)}" for name, value in rows.items()
    )


def _width(text: str) -> int:
    """Return the width of a text in cells: East Asian letters take two, combining marks none."""
    return sum(0 if combining(letter) else 2 if east_asian_width(letter) in "WF" else 1 for letter in text)
