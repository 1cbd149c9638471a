"""Token budget of a context: how much it may hold, how full it is, and which work that makes due."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from shared.core.session.policy import ContextPolicy, ContradictoryPolicy, NoRoom

Pressure = Literal["calm", "flush", "compact", "overflow"]
"""State of a context: below all thresholds, memory to be saved, compaction due, or too large for a
request.
"""
Status = Literal["ok", "warning", "critical"]

ROOM = 4_000
"""Tokens between the limit and the hard limit, for messages that arrive while a summary is written.

Small windows leave a tenth. The room exists only if the policy lets the answer shrink for it.
"""
LEAST_ROOM = 1_000
"""Fewest tokens that a chosen limit must leave for summary, pins and messages."""
SHRUNK_SHARE = 0.03
"""Share of the window for the shortest answer, and for the room above the limit, if the limit is a share of
the window.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextBudget:
    """Token limits of requests to one model: sizes in tokens, `warning_at` and `critical_at` as shares."""

    window: int
    """Tokens of the model's window that the policy uses."""
    out: int
    """Tokens of the longest answer."""
    out_least: int
    """Tokens of the answer that stay free next to a request of `hard` tokens."""
    hard: int
    """Most tokens of a request."""
    reserve: int
    """Tokens of the window that the policy keeps free, by which the limit is lowered."""
    limit: int
    """Tokens that the gauge shows as 100 percent, unless it is measured against the window."""
    flush_at: int
    """Tokens of a context above which memory is saved."""
    compact_at: int
    """Tokens of a context above which a compaction is due."""
    fixed: int
    """Tokens of the system text and the tools, which are part of every request."""
    gauge_of: int
    """Tokens that the gauge shows as 100 percent, before recall is deducted: the window or the limit."""
    status_of: int
    """Tokens of which `warning_at` and `critical_at` are shares: the window or the limit."""
    warning_at: float
    critical_at: float
    recall: int = 0
    """Tokens reserved for recalled passages once a compaction has hidden messages."""

    @property
    def beside(self) -> int:
        """Tokens of a request besides summary, pins and messages: system text, tools, and the room for
        recall.
        """
        return self.fixed + self.recall

    @property
    def conversation(self) -> int:
        """Tokens of the context limit that are left for summary, pins and messages; at least 1."""
        return max(1, self.limit - self.beside)

    def answer_beside(self, tokens: int) -> int:
        """Return the most tokens that the answer to a request of `tokens` tokens may have, from `out_least`
        to `out`.
        """
        return min(self.out, self.out_least + max(0, self.hard - tokens))


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauge:
    """Fill level of a context: tokens used and reserved, percent of `limit`, and status."""

    used: int
    reserved: int
    limit: int
    """Tokens that count as 100 percent: the budget's `gauge_of` less `reserved`, at least 1."""
    percent: float
    status: Status


def budget_for(policy: ContextPolicy, window: int, max_output: int, fixed: int) -> ContextBudget:
    """Return the budget of a model under a policy, in tokens.

    `window` and `max_output` are the model's limits, `fixed` is the size of system text and tools. Raises
    NoRoom if they leave nothing for a conversation.
    """
    usable = policy.usable_window(window)
    out = min(policy.max_output, max_output, math.floor(policy.max_output_share * usable))
    out_least = (
        out if policy.answer_least is None else min(out, policy.answer_least, _shrunk_size(policy, usable))
    )
    hard = usable - out_least - max(policy.overhead, math.floor(policy.overhead_share * usable))
    reserve = min(policy.reserve, usable - _least_left(policy, usable))
    limit = _limit(policy, usable, hard, reserve, fixed)
    _refuse_what_leaves_nothing(usable, out_least, hard, fixed, limit)
    timing = policy.timing
    above_hard = timing.compact_above == "hard" and timing.compact_at is None
    compact_at = hard if above_hard else limit - timing.compact_at_equal
    of_window = policy.status_of == "window"
    return ContextBudget(
        window=usable,
        out=out,
        out_least=out_least,
        hard=hard,
        reserve=reserve,
        limit=limit,
        flush_at=compact_at - timing.find_flush_margin(compact_at),
        compact_at=compact_at,
        fixed=fixed,
        gauge_of=usable if of_window else limit,
        status_of=usable if of_window and limit >= math.floor(policy.critical_at * usable) else limit,
        warning_at=policy.warning_at,
        critical_at=policy.critical_at,
    )


def refuse_heavy_fixed(policy: ContextPolicy, budget: ContextBudget) -> None:
    """Raise ContradictoryPolicy if system and tools take more than `fixed_share` of the limit."""
    most = math.floor(policy.fixed_share * budget.limit)
    if budget.fixed > most:
        raise ContradictoryPolicy(
            f"system and tools take {budget.fixed} tokens, more than {most} of a limit of {budget.limit}"
        )


def limit_range(*, hard: int, fixed: int, reserved: int = 0) -> tuple[int, int]:
    """Return the smallest and the largest context limit, in tokens, that may be chosen for a conversation.

    `hard` is the most of a request, `fixed` the size of system text and tools, `reserved` the room for
    recall. The smallest leaves 1,000 tokens besides.
    """
    return min(hard, fixed + reserved + LEAST_ROOM), hard


def refuse_limit_out_of_range(policy: ContextPolicy, budget: ContextBudget) -> None:
    """Raise ContradictoryPolicy if the limit that was chosen as a number of tokens is outside the allowed
    range.

    The error names the nearest allowed number. Policies without such a number always pass.
    """
    chosen = policy.timing.compact_at
    if chosen is None:
        return
    least, most = limit_range(hard=budget.hard, fixed=budget.fixed, reserved=policy.keeping.recall_tokens)
    if chosen > most:
        raise ContradictoryPolicy(
            f"compact_at={chosen} is above the hard limit; the largest allowed number is {most}"
        )
    if chosen < least:
        raise ContradictoryPolicy(
            f"compact_at={chosen} leaves no room beside system and tools; the smallest allowed "
            f"number is {least}"
        )


def pressure(budget: ContextBudget, context_tokens: int) -> Pressure:
    """Return what a context of `context_tokens` tokens needs.

    `calm` needs nothing, `flush` a saving of memory, `compact` a compaction, `overflow` exceeds `hard`. A
    context of exactly a threshold's size has not passed it.
    """
    if context_tokens > budget.hard:
        return "overflow"
    if context_tokens > budget.compact_at:
        return "compact"
    return "flush" if context_tokens > budget.flush_at else "calm"


def gauge(budget: ContextBudget, used: int, reserved: int = 0) -> Gauge:
    """Return the gauge of a request of `used` tokens when `reserved` tokens are kept for recall.

    Percent is the share of `gauge_of` less `reserved`. The status is measured against `status_of` less
    `reserved`, which may be another number.
    """
    limit = max(1, budget.gauge_of - reserved)
    share = used / limit
    filled = used / max(1, budget.status_of - reserved)
    status: Status = "ok"
    if filled >= budget.critical_at:
        status = "critical"
    elif filled >= budget.warning_at:
        status = "warning"
    return Gauge(used=used, reserved=reserved, limit=limit, percent=round(share * 100, 1), status=status)


def scale_parts(parts: Mapping[str, int], total: int) -> dict[str, int]:
    """Return sizes scaled to whole numbers that add up to `total`, in the same order; all 0 if the sizes
    are.
    """
    whole = sum(parts.values()) or 1
    made, seen = dict[str, int](), 0
    for name, size in parts.items():
        before = round(total * seen / whole)
        seen += size
        made[name] = round(total * seen / whole) - before
    return made


def _limit(policy: ContextPolicy, usable: int, hard: int, reserve: int, fixed: int) -> int:
    """Return the limit of the gauge, in tokens.

    It is the chosen number within its allowed range, or a chosen share of the window or of `hard`; without
    both, the least of window less reserve, `hard` less its room, and the soft budget.
    """
    timing = policy.timing
    if timing.compact_at is not None:
        # System and tools may have grown, or the window shrunk, since the number was chosen.
        least, most = limit_range(hard=hard, fixed=fixed)
        return max(least, min(timing.compact_at, most))
    room = hard // 10 if timing.compact_share is None else _shrunk_size(policy, usable)
    most = hard if policy.answer_least is None else hard - min(ROOM, room)
    if timing.compact_share is None:
        soft = usable if policy.soft_budget is None else fixed + policy.soft_budget
        return min(usable - reserve, most, soft)
    whole = usable if timing.compact_share_of == "window" else hard
    exact = round(timing.compact_share * whole, 6)
    return min(math.ceil(exact) if timing.compact_at_equal else math.floor(exact), most)


def _shrunk_size(policy: ContextPolicy, window: int) -> int:
    return window if policy.timing.compact_share is None else math.floor(SHRUNK_SHARE * window)


def _least_left(policy: ContextPolicy, window: int) -> int:
    return min(policy.reserve_leaves, math.floor(policy.reserve_leaves_share * window))


def _refuse_what_leaves_nothing(window: int, out: int, hard: int, fixed: int, limit: int) -> None:
    if hard <= 0:
        raise NoRoom(f"a window of {window} tokens less {out} for the answer and its margins leaves {hard}")
    if limit <= fixed:
        raise NoRoom(
            f"system and tools take {fixed} tokens and the limit is {limit}: no room for a conversation"
        )
