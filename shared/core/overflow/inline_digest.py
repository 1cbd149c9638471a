"""A digest for one request, so that nobody waits for a summary: made without a model, stored nowhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from shared.core.compaction.digest import digest
from shared.core.compaction.plan import CompactionPlan, plan_compaction, render_summary
from shared.core.overflow.overflow_recovery import TAIL_TURNS, Build, Shrunk, shrink_to_fit
from shared.core.session.budget import ContextBudget
from shared.core.session.policy import ContextPolicy
from shared.core.session.session import Compaction, View, unresolved_turns

Count = Callable[[str], int]


def fit(
    view: View,
    *,
    hard: int,
    build: Build,
    count: Count,
    ratio: float,
    budget: ContextBudget,
    policy: ContextPolicy,
    opens: bool = False,
) -> Shrunk:
    """The ladder's steps without a model, in their order; raises ContextBudgetExceeded."""

    def hide(whole: View, keep_turns: int, unresolved: bool) -> View | None:
        return behind_digest(
            whole,
            keep_turns=keep_turns,
            unresolved=unresolved,
            budget=budget,
            policy=policy,
            count=count,
            ratio=ratio,
        )

    keep = tuple(dict.fromkeys((max(policy.keep_turns, TAIL_TURNS), TAIL_TURNS)))
    return shrink_to_fit(
        view, hard=hard, build=build, count=count, ratio=ratio, hide=hide, keep=keep, opens=opens
    )


def behind_digest(
    view: View,
    *,
    keep_turns: int,
    budget: ContextBudget,
    policy: ContextPolicy,
    count: Count,
    ratio: float = 1.0,
    unresolved: bool = True,
) -> View | None:
    """The view with all but the last turns behind a digest; None when nothing old is there.

    With `unresolved`, hidden turns without an answer or with a failed last step stay word for word, too.

    A pure function of the view: the same request can be made again at any time. The background writes the
    real summary over the same range.
    """
    plan = plan_compaction(
        view, budget=budget, policy=policy, now_tokens=0, force=True, keep_turns=keep_turns, ratio=ratio
    )
    if not isinstance(plan, CompactionPlan):
        return None
    ledger = digest(plan.entries, plan.former, count, budget_tokens=plan.summary_limit)
    text = render_summary(ledger)
    head = Compaction(
        id=0,
        kind="digest",
        from_turn=plan.from_turn,
        through_turn=plan.through_turn,
        through_seq=plan.through_seq,
        summary_text=text,
        ledger=ledger,
        tokens=count(text),
    )
    staying = unresolved_turns(view.entries, view.open_turn) if unresolved else frozenset()
    hidden = [e for e in view.entries if e.turn <= plan.through_turn and e.turn not in staying]
    return replace(
        view,
        base_turn=plan.through_turn,
        head=head,
        entries=tuple(e for e in view.entries if e.turn > plan.through_turn or e.turn in staying),
        pins=view.pins + tuple(entry for entry in hidden if entry.pinned),
    )
