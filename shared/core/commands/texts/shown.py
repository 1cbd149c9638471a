"""The values that answers to commands show; None is what nobody knows."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from shared.core.tools.repeating import Repeat

Markdown: TypeAlias = str
"""Read by the widget and by Telegram's renderer alike."""

_MARKS = re.compile(r"[\\`*_~\[<>#|$&!]")
"""Not "]": a formula is read only between both brackets with a backslash."""
_BAR_CELLS = 20
EXCERPT_CHARS = 80
NEARLY_USED = 80
"""Percent of a limit from which on it is warned of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextShown:
    """What `/context` tells, in tokens."""

    percent: float
    used: int
    limit: int
    parts: Mapping[str, int]
    """Sizes by the names of `core.context`: system, tools, memory, summary, history."""
    estimated: bool = False
    pins: int = 0
    summarised_turns: int = 0
    recall: int = 0
    """Of the memory: the most that a question brings back."""
    cached_percent: int | None = None
    """How much of the last request the provider had read before, which costs a tenth."""
    spent_usd: float | None = None
    """By this conversation, ever."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsShown:
    """What a person has chosen for a conversation, and what there is to choose from."""

    goal: str
    mode: str
    modes: Sequence[str]
    model: str
    models: Sequence[str] = ()
    """Empty when the operator offers no choice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageShown:
    """What `/usage` tells of one conversation since its beginning; tokens as the provider counted them."""

    turns: int
    summaries: int
    input_tokens: int
    """Everything that was sent, cached or not."""
    output_tokens: int
    cached_percent: int | None
    """Of what was sent, the share that the provider had read before."""
    spent_usd: float | None
    """None when calls were made whose price is unknown."""
    upkeep_usd: float | None
    """Of it, what summaries and memory cost."""
    today_usd: float | None
    today_cap_usd: float | None = None
    """The most that this conversation may spend in a day; None without such a cap."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitShown:
    scope: str
    """`party`, `session` or `total`."""
    spent_usd: float
    cap_usd: float

    @property
    def percent(self) -> int:
        return 100 if self.cap_usd <= 0 else min(100, int(100 * self.spent_usd / self.cap_usd))

    @property
    def sign(self) -> str:
        return "⛔" if self.percent >= 100 else "⚠️" if self.percent >= NEARLY_USED else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetShown:
    """What `/budget` tells."""

    limits: tuple[LimitShown, ...]
    session_usd: float
    unknown_calls: int
    anew: str
    """Where and when the day begins anew: `00:00 (Europe/Berlin)`."""
    unpriced_model: str = ""
    """The model that answers, when its price is not known."""
    old_price: str = ""
    """Of when its price is, when that is long ago."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PinShown:
    mid: str
    text: str


ReminderVerb = Literal["cancel", "pause", "resume"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReminderShown:
    text: str
    due: str
    """By the person's clock, whose zone is `zone`."""
    zone: str
    repeat: Repeat | None = None
    paused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundShown:
    """A message that a search found; `author` as in the log."""

    day: str
    author: str
    excerpt: Sequence[tuple[str, bool]]
    """Parts of its text, and whether each is what was looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkListed:
    """A channel that was joined with this one."""

    channel: str
    title: str
    day: str


def bar(percent: float) -> str:
    filled = round(min(100.0, max(0.0, percent)) / 100 * _BAR_CELLS)
    return "█" * filled + "░" * (_BAR_CELLS - filled)


def columns(rows: Mapping[str, str]) -> str:
    """Names to the left, values to the right, for a code block."""
    left = max(map(len, rows), default=0)
    right = max(map(len, rows.values()), default=0)
    return "\n".join(f"{name.ljust(left)}  {value.rjust(right)}" for name, value in rows.items())


def excerpt(words: str, *, most: int = EXCERPT_CHARS) -> str:
    """The first words of a message on one line, none of them read as Markdown."""
    line = " ".join(words.split())
    short = line if len(line) <= most else line[: most - 1].rstrip() + "…"
    return _MARKS.sub(r"\\\g<0>", short)


def with_hits(parts: Sequence[tuple[str, bool]]) -> Markdown:
    """An excerpt, with what was looked for in bold."""
    shown = [(_MARKS.sub(r"\\\g<0>", part), hit) for part, hit in parts]
    return "".join(f"**{part}**" if hit else part for part, hit in shown)


def in_full(text: str) -> Markdown:
    """A person's own words as one line, however long, with nothing that would be read as marks."""
    return _MARKS.sub(r"\\\g<0>", " ".join(text.split()))


def choices(names: Sequence[str]) -> Markdown:
    return ", ".join(f"`{name.replace('`', '')}`" for name in names)
