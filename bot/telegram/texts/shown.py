"""What texts are made of: values that they show, and how words of others stand in them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeAlias

Markdown: TypeAlias = str
"""A message as `markup.render` reads it."""
Plain: TypeAlias = str
"""Shown as it stands: labels of buttons, short answers to a press (at most 200 characters), notes."""

_MARKS = re.compile(r"[!-'*-/:-@\[-`{-~]")
_BAR_CELLS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextShown:
    """What `/context` tells; None is what nobody knows yet."""

    percent: float
    used: int
    limit: int
    parts: Mapping[str, int]
    """Sizes by the names of `core.context`: system, tools, memory, summary, history."""
    pins: int = 0
    summarised_turns: int = 0
    next_summary_at: int | None = None
    cached_percent: int | None = None
    """How much of the last request the provider had read before, which costs a tenth."""
    spent_usd: Decimal | None = None
    """By this conversation, ever."""


def literal(words: str, *, most: int = 60) -> Markdown:
    """Words of a person or a file's name, on one line, none of them read as Markdown."""
    line = " ".join(words.split())
    short = line if len(line) <= most else line[: most - 1].rstrip() + "…"
    # Not backslashes: models write formulas as \[x\], and so the renderer reads them.
    return _MARKS.sub(lambda mark: f"&#{ord(mark[0])};", short)


def bar(percent: float) -> str:
    filled = round(min(100.0, max(0.0, percent)) / 100 * _BAR_CELLS)
    return "█" * filled + "░" * (_BAR_CELLS - filled)


def columns(rows: Mapping[str, str]) -> str:
    """Names to the left, values to the right, for a code block."""
    left = max(map(len, rows), default=0)
    right = max(map(len, rows.values()), default=0)
    return "\n".join(f"{name.ljust(left)}  {value.rjust(right)}" for name, value in rows.items())
