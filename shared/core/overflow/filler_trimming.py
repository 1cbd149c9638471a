"""Hiding of old messages of the assistant and its tools in a nearly full context."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from shared.core.compaction.jobs import is_in_backoff
from shared.core.compaction.plan import NothingToCompact, plan_compaction
from shared.core.context.build_context import Turn, units_of
from shared.core.session.budget import ContextBudget
from shared.core.session.policy import ContextPolicy
from shared.core.session.pruning import PruneDecision
from shared.core.session.session import Entry, View, find_unresolved_turns
from shared.core.values.identifiers import identifiers_of
from shared.core.values.messages import text_of

CITED_KINDS = frozenset({"fact", "decision", "question"})
"""Kinds of ledger items whose cited messages are never hidden."""
HIDE_DOWN_TO = 0.9
"""Share of the threshold down to which a batch hides messages, so that the next turns need not hide more."""


def hiding_threshold(policy: ContextPolicy, budget: ContextBudget) -> int | None:
    """Return the tokens of a context from which low-signal messages are hidden.

    None if the policy never hides them.
    """
    if policy.keeping.hide_chatter_at is None:
        return None
    return math.ceil(round(policy.keeping.hide_chatter_at * budget.hard, 6))


def plan_hiding(
    view: View, policy: ContextPolicy, *, budget: ContextBudget, context_tokens: int, ratio: float = 1.0
) -> tuple[PruneDecision, ...]:
    """Return decisions to hide old messages of the assistant and its tools, until the context is at 90
    percent of the threshold.

    Empty below the threshold, and if a summary can be made instead. Call it at the start of a turn only.
    Messages of people, pins, recent and unresolved turns, and messages that the newest summary cites stay.
    `ratio` is the model's tokens per estimated token.
    """
    at = hiding_threshold(policy, budget)
    if at is None or context_tokens < at:
        return ()
    if context_tokens <= budget.hard and _can_be_summarised(view, policy, budget, context_tokens, ratio):
        return ()
    target = math.floor(HIDE_DOWN_TO * at)
    decisions: list[PruneDecision] = []
    size = context_tokens
    for unit in _chatter(view, policy):
        if size <= target:
            break
        decisions += [PruneDecision(seq=entry.seq, form="hide") for entry in unit]
        size -= math.floor(_tokens(unit) * ratio)
    return tuple(decisions)


def _can_be_summarised(
    view: View, policy: ContextPolicy, budget: ContextBudget, context_tokens: int, ratio: float
) -> bool:
    if view.hold_compaction or not policy.timing.compact_auto:
        return False
    if view.backoff is not None and is_in_backoff(view, limit=budget.limit, model=view.backoff.model):
        return False
    plan = plan_compaction(view, budget=budget, policy=policy, now_tokens=context_tokens, ratio=ratio)
    return not isinstance(plan, NothingToCompact)


def _chatter(view: View, policy: ContextPolicy) -> list[Turn]:
    """Return the assistant's messages that may be hidden, with their tool results; tool rounds and vague
    texts come first.
    """
    ended = sorted({entry.turn for entry in view.entries if entry.turn != view.open_turn})
    recent = {
        *ended[max(0, len(ended) - policy.keeping.keep_turns) :],
        *find_unresolved_turns(view.entries, view.open_turn),
    }
    cited = cited_seqs(view)
    units = [
        unit
        for unit in units_of(view.entries)
        if unit[0].author in ("assistant", "tool")
        and unit[0].turn in ended
        and unit[0].turn not in recent
        and not any(entry.pinned or entry.pruned == "hide" or entry.seq in cited for entry in unit)
    ]
    return sorted(units, key=lambda unit: not _is_low_signal(unit))


def cited_seqs(view: View) -> frozenset[int]:
    """Return the `seq` of messages that open facts, decisions and questions of the newest summary cite."""
    items = view.head.ledger.items if view.head else ()
    standing = (item for item in items if item.kind in CITED_KINDS and item.closed is None)
    return frozenset(seq for item in standing for seq in item.sources)


def _is_low_signal(unit: Sequence[Entry]) -> bool:
    words = text_of(unit[0].blocks)
    return len(unit) > 1 or not (identifiers_of(words) or words.rstrip().endswith("?") or "```" in words)


def _tokens(entries: Iterable[Entry]) -> int:
    return sum(entry.tokens for entry in entries)
