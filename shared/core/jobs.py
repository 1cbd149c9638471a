"""Which silent job a session needs now; asking twice gives the same key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from shared.core.budget import ContextBudget, pressure
from shared.core.compaction import CompactionPlan, NothingToCompact, plan_compaction
from shared.core.policy import ContextPolicy
from shared.core.pruning import clearing_suffices
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
    """What is due by size alone: a compaction above the limit, else a flush shortly before it."""
    state = pressure(budget, context_tokens)
    if state == "calm":
        return None
    if clearing_suffices(view, budget, policy, context_tokens, ratio=ratio):
        return None
    if state in ("compact", "overflow") and (state == "overflow" or not view.hold_compaction):
        plan = plan_compaction(view, budget=budget, policy=policy, now_tokens=context_tokens, ratio=ratio)
        if isinstance(plan, CompactionPlan):
            trigger = "overflow" if state == "overflow" else "limit"
            return _compaction(view, plan, trigger=trigger)
    return _flush(view, threshold=NEAR_LIMIT)


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
