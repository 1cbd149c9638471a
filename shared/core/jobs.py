"""Which silent job a session needs now; asking twice gives the same key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil, inf
from typing import Any, Literal

from shared.core.budget import ContextBudget, pressure
from shared.core.compaction import CompactionPlan, NothingToCompact, plan_compaction
from shared.core.policy import ContextPolicy
from shared.core.selection import grows_unseen, window_through
from shared.core.session import View

NEAR_LIMIT = "near_limit"
"""The one threshold of `steady` and `spec008`; presets with shares name theirs after them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobWish:
    kind: Literal["flush", "compact"]
    key: str
    """Unique for what the job is about: session and cycle, for a flush with its threshold. While one is due
    or runs, each further turn asks for the same; its end looks again."""
    trigger: str
    payload: Mapping[str, Any] = field(default_factory=dict)


def next_job(
    view: View, *, budget: ContextBudget, policy: ContextPolicy, context_tokens: int, ratio: float = 1.0
) -> JobWish | None:
    """A compaction by turns or size, a flush shortly before it, or a link for what left the window."""
    due = _due(view, budget=budget, policy=policy, context_tokens=context_tokens, ratio=ratio)
    through = window_through(view, policy) if due is None else None
    return due if through is None else _window(view, through)


def _due(
    view: View, *, budget: ContextBudget, policy: ContextPolicy, context_tokens: int, ratio: float
) -> JobWish | None:
    context_tokens = _counted(view, budget, policy, context_tokens, ratio)
    state = pressure(budget, context_tokens)
    held = view.hold_compaction or not policy.compact_auto
    if not held and turns_since_summary(view, policy) >= (policy.compact_after_turns or inf):
        plan = plan_compaction(
            view, budget=budget, policy=policy, now_tokens=context_tokens, force=True, ratio=ratio
        )
        if isinstance(plan, CompactionPlan):
            return _compaction(view, plan, trigger="turns", force=True)
    if state == "calm":
        return None
    if (state == "overflow" and policy.compact_auto) or (state == "compact" and not held):
        plan = plan_compaction(view, budget=budget, policy=policy, now_tokens=context_tokens, ratio=ratio)
        if isinstance(plan, CompactionPlan):
            trigger = "overflow" if state == "overflow" else "limit"
            return _compaction(view, plan, trigger=trigger)
    return _flush(view, threshold=NEAR_LIMIT)


def _counted(
    view: View, budget: ContextBudget, policy: ContextPolicy, context_tokens: int, ratio: float
) -> int:
    """What is sent; where turns are left out that another channel may still see, the live view as a whole."""
    if not grows_unseen(policy):
        return context_tokens
    live = budget.fixed + ceil(ratio * sum(entry.tokens for entry in view.entries))
    return max(context_tokens, min(live, budget.hard))


def turns_since_summary(view: View, policy: ContextPolicy) -> int:
    """Ended turns since the newest summary was made, or since the start; those it kept are not new."""
    ended = max((entry.turn for entry in view.entries if entry.turn != view.open_turn), default=0)
    head = view.head
    if head is None or head.kind not in ("summary", "digest"):
        return max(0, ended - view.base_turn)
    return max(0, ended - head.through_turn - policy.keep_turns)


def manual_job(
    view: View,
    *,
    budget: ContextBudget,
    policy: ContextPolicy,
    context_tokens: int,
    focus: str | None = None,
    force: bool = False,
    ratio: float = 1.0,
) -> JobWish | NothingToCompact:
    """The compaction that a person asks for; a hold after undo does not stop it."""
    plan = plan_compaction(
        view, budget=budget, policy=policy, now_tokens=context_tokens, force=force, ratio=ratio
    )
    if isinstance(plan, NothingToCompact):
        return plan
    return _compaction(view, plan, trigger="manual", focus=focus, force=force)


def _compaction(
    view: View, plan: CompactionPlan, *, trigger: str, focus: str | None = None, force: bool = False
) -> JobWish:
    return JobWish(
        kind="compact",
        key=f"compact:{view.session_id}:{view.cycle}",
        trigger=trigger,
        payload={
            "through_turn": plan.through_turn,
            "flush_first": view.flushed_turn < plan.through_turn,
            "focus": focus,
            "force": force,
        },
    )


def _window(view: View, through: int) -> JobWish:
    return JobWish(
        kind="compact",
        key=f"compact:{view.session_id}:{view.cycle}",
        trigger="window",
        payload={"through_turn": through, "flush_first": view.flushed_turn < through},
    )


def _flush(view: View, *, threshold: str) -> JobWish | None:
    """Once per cycle and threshold, and only when turns have ended that no flush has read."""
    newest = max((entry.turn for entry in view.entries if entry.turn != view.open_turn), default=0)
    if threshold in view.flush_thresholds or newest <= view.flushed_turn:
        return None
    return JobWish(
        kind="flush",
        key=f"flush:{view.session_id}:{view.cycle}:{threshold}",
        trigger=threshold,
        payload={"threshold": threshold, "from_turn": view.flushed_turn + 1, "through_turn": newest},
    )
