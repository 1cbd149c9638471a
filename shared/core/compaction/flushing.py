"""When memory is saved early, how a range is read in portions, and what is still owed."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from shared.core.session.budget import ContextBudget, pressure
from shared.core.session.policy import ContextPolicy
from shared.core.session.session import View

NEAR_LIMIT = "near_limit"
"""The one threshold of presets without shares."""
LATE = "late"
"""For ranges that were hidden before anybody had read them."""
WITH_COMPACTION = "compaction"
"""The flush that a compaction makes by itself, however short ago the last one was."""


def mark_of(share: float) -> str:
    """The name of an early flush: `at_75` for three quarters of the window."""
    return f"at_{100 * share:g}"


def reached_mark(budget: ContextBudget, policy: ContextPolicy, context_tokens: int) -> str | None:
    """The highest threshold that this context has reached; a context of exactly a share has reached it."""
    if policy.flush_shares:
        reached = [
            at for at in policy.flush_shares if context_tokens >= math.ceil(round(at * budget.window, 6))
        ]
        return mark_of(reached[-1]) if reached else None
    early = policy.flush_threshold > 0 and pressure(budget, context_tokens) != "calm"
    return NEAR_LIMIT if early else None


def was_flushed(threshold: str, tried: Iterable[str], policy: ContextPolicy) -> bool:
    """Whether this threshold had its flush in this cycle: a jump over two marks does one flush for both."""
    marks = [mark_of(share) for share in policy.flush_shares]
    if threshold not in marks:
        return threshold in tried
    return bool(set(marks[marks.index(threshold) :]) & set(tried))


def due_threshold(
    view: View, *, budget: ContextBudget, policy: ContextPolicy, context_tokens: int
) -> str | None:
    """Once per cycle and threshold, and only when turns have ended that no flush has read."""
    threshold = reached_mark(budget, policy, context_tokens)
    if threshold is None or newest_ended(view) <= view.flushed_turn:
        return None
    return None if was_flushed(threshold, view.flush_thresholds, policy) else threshold


def newest_ended(view: View) -> int:
    return max((entry.turn for entry in view.entries if entry.turn != view.open_turn), default=0)


def next_portion(view: View, *, through: int, room: int) -> tuple[View, int]:
    """What one ghost turn reads, and the last turn that has been read after it.

    The whole view when it fits, as the provider remembers it; else whole turns from the first that no flush
    has read, as many as fit into `room` tokens, at least one.
    """
    if _tokens(view) <= room:
        return view, through
    fresh: dict[int, int] = {}
    for entry in view.entries:
        if view.flushed_turn < entry.turn <= through:
            fresh[entry.turn] = fresh.get(entry.turn, 0) + entry.tokens
    left, last = room, through
    for number, turn in enumerate(sorted(fresh)):
        if number and fresh[turn] > left:
            break
        left -= fresh[turn]
        last = turn
    entries = tuple(entry for entry in view.entries if view.flushed_turn < entry.turn <= last)
    return replace(view, entries=entries), last


def retry_seconds(faults: int) -> float:
    """How long a late flush waits after so many failures: half a minute at first, an hour at most."""
    return float(min(3_600, 30 * 2 ** min(faults, 10)))


def _tokens(view: View) -> int:
    return sum(entry.tokens for entry in view.entries)
