"""Figures of one conversation: contents and usage."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFigures:
    """Tokens as providers counted them; money in micro-dollars, None where a price is unknown."""

    answered_turns: int
    hidden_turns: int
    summaries: int
    pins: int
    input_tokens: int
    """Cached or not."""
    output_tokens: int
    cache_read_tokens: int
    last_cached_percent: int | None
    """Percent of the last request that the provider read from its cache."""
    cost_micro: int | None
    upkeep_micro: int | None
    """Micro-dollars of the total that summaries and memory cost."""
    today_micro: int | None

    @property
    def cached_percent(self) -> int | None:
        return round(100 * self.cache_read_tokens / self.input_tokens) if self.input_tokens else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeSpending:
    """Spending of a capped scope today in micro-dollars; `held_micro` is reserved for running calls."""

    scope: Literal["contact", "session", "total"]
    spent_micro: int
    held_micro: int
    cap_micro: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DaySpending:
    """Today's money as one conversation meets it."""

    scopes: tuple[ScopeSpending, ...]
    session_micro: int
    """Cost of this conversation today in micro-dollars, without calls of unknown price."""
    unknown_calls: int
    """Calls of today in this conversation whose price is unknown."""
    anew_at: datetime
    """When the day of spending ends."""
    timezone: str | None
    """The person's own, where it is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedMessage:
    seq: int
    author: str
    text: str
    tokens: int

    @property
    def mid(self) -> str:
        return f"m{self.seq}"
