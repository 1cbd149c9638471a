"""Figures of one conversation: its content, tokens and cost."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFigures:
    """Figures of a session.

    Tokens are the provider's counts; money is micro-dollars, None if a price is unknown.
    """

    answered_turns: int
    hidden_turns: int
    summaries: int
    pins: int
    input_tokens: int
    """Input tokens, cached ones included."""
    output_tokens: int
    cache_read_tokens: int
    last_cached_percent: int | None
    """Percentage of the last request that the provider read from its cache; None if unknown."""
    cost_micro: int | None
    upkeep_micro: int | None
    """Micro-dollars of `cost_micro` that summaries and memory cost."""
    today_micro: int | None
    """Micro-dollars that the conversation cost today."""

    @property
    def cached_percent(self) -> int | None:
        """Share of input tokens read from the provider's cache, 0 to 100; None without input."""
        return round(100 * self.cache_read_tokens / self.input_tokens) if self.input_tokens else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeSpending:
    """Spending of a capped scope today, in micro-dollars; `held_micro` is reserved for running calls."""

    scope: Literal["contact", "session", "total"]
    spent_micro: int
    held_micro: int
    cap_micro: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DaySpending:
    """Today's spending as far as it concerns one conversation, with the caps that apply to it."""

    scopes: tuple[ScopeSpending, ...]
    session_micro: int
    """Cost of this conversation today in micro-dollars, without calls of unknown price."""
    unknown_calls: int
    """Number of this conversation's calls today whose price is unknown."""
    anew_at: datetime
    """Time at which the day of spending ends."""
    timezone: str | None
    """Time zone of the person; None if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedMessage:
    """Pinned message of a session; `author` as in `Entry.author`."""

    seq: int
    author: str
    text: str
    tokens: int

    @property
    def mid(self) -> str:
        """Public id of the message, such as `m12`."""
        return f"m{self.seq}"
