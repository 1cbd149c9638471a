"""When to flush, prune, summarise and refuse: one frozen value, checked for contradictions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from itertools import chain
from typing import Any, Literal, get_type_hints

from shared.core.session.keep_strategy import USUAL_KEEPING, KeepStrategy
from shared.core.session.prune_strategy import USUAL_PRUNING, Findings, PruneStrategy
from shared.core.session.summary_strategy import USUAL_WRITING, SummaryStrategy
from shared.core.values.errors import EvertalkError


class ContradictoryPolicy(EvertalkError):
    """Numbers of a policy that cannot hold together."""

    code = "contradictory_policy"

    def __init__(self, reason: str) -> None:
        super().__init__(reason, advice=f"The context settings contradict each other: {reason}.")


class NoRoom(ContradictoryPolicy):
    """The model's window leaves no room for a conversation beside system and tools."""

    code = "no_room"

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.advice = (
            "The model that answers here takes too little at once just now. Your message is kept in our "
            "conversation; please try again in a few minutes. The operator can see why."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextPolicy:
    """Every number in tokens unless its name says otherwise; shares are fractions."""

    name: str

    # How large a request may be.
    context_window: int = 200_000
    """The most that is used of a model's window, however large it is."""
    max_output: int = 8_192
    max_output_share: float = 0.2
    answer_least: int | None = None
    """For limits just below the hard one: between the two, the answer may shrink down to this, so that what
    is said while a summary is written has room. None: the whole answer is always left free."""
    overhead: int = 1_024
    overhead_share: float = 0.05
    reserve: int = 20_000
    reserve_leaves: int = 8_000
    """On small windows the reserve shrinks until this much, or `reserve_leaves_share`, is left."""
    reserve_leaves_share: float = 0.5
    soft_budget: int | None = 16_000
    """The most for the conversation beside system and tools; None means that only the window counts."""
    fixed_share: float = 0.5
    """System and tools above this share of the limit are refused when they are configured."""

    # When something is due.
    compact_auto: bool = True
    """Whether size alone brings a summary; a person's /compact always may."""
    compact_at: int | None = None
    """Limit in tokens instead of the preset's share, reserve and soft budget; at most the hard limit."""
    compact_share: float | None = None
    """The limit as a share of `compact_share_of`; None means window less reserve, and the soft budget."""
    compact_share_of: Literal["window", "input_budget"] = "window"
    compact_at_equal: bool = False
    """Whether a context of exactly the limit is already due (the source's own boundary: "≥")."""
    compact_after_turns: int | None = None
    """Turns since the last summary after which one is due, however small the context is."""
    compact_before_call: bool = False
    compact_ahead: bool = False
    """Whether a compaction is asked for as soon as the next turn is expected to cross the limit."""
    compact_above: Literal["limit", "hard"] = "limit"
    flush_threshold: int = 4_000
    """How far below the limit memory is saved; 0 means only together with what hides messages."""
    flush_share: float = 0.10
    """Where the limit is below `flush_share_below`, the flush comes at most this share of it earlier."""
    flush_share_below: int = 40_000
    flush_shares: tuple[float, ...] = ()
    """Memory is saved at each of these shares of the window, once per cycle each."""
    flush_cooldown_seconds: int = 300
    checkpoints: bool = False
    """Each early flush also writes a ledger, used when the real summary fails."""
    idle_compaction: bool = True
    idle_over: int = 24_000
    """Idle compaction leaves conversations alone that are smaller."""

    # What is sent at all, and what a compaction keeps and must reach.
    keeping: KeepStrategy = USUAL_KEEPING

    # Who writes the summary, how it is asked for, how long it may be.
    writing: SummaryStrategy = USUAL_WRITING

    # Old tool results.
    pruning: PruneStrategy = USUAL_PRUNING

    # What the gauge shows.
    status_of: Literal["limit", "window"] = "limit"
    warning_at: float = 0.7
    critical_at: float = 0.9
    exact_outputs: bool = False
    """Answers count what the provider reported for them, everything else its estimate."""

    def to_settings(self) -> dict[str, Any]:
        """Return each setting by the name that operators use, whichever strategy holds it."""
        held: dict[str, Any] = {}
        for one in fields(self):
            value = getattr(self, one.name)
            parts = {one.name: value} if one.name not in _STRATEGIES else _values(value)
            held |= {name: part for name, part in parts.items() if name not in NO_SETTINGS}
        return held

    def with_settings(self, **settings: Any) -> ContextPolicy:
        """Return the policy with these settings, unchecked; raises TypeError for an unknown name."""
        own = {name: value for name, value in settings.items() if name not in _HOLDERS}
        for strategy in dict.fromkeys(_HOLDERS[name] for name in settings if name in _HOLDERS):
            changed = {name: value for name, value in settings.items() if _HOLDERS.get(name) == strategy}
            own[strategy] = replace(own.get(strategy, getattr(self, strategy)), **changed)
        return replace(self, **own)


_STRATEGIES: Mapping[str, type] = {
    "keeping": KeepStrategy, "writing": SummaryStrategy, "pruning": PruneStrategy,
}  # fmt: skip
_HOLDERS: Mapping[str, str] = {
    one.name: strategy for strategy, kind in _STRATEGIES.items() for one in fields(kind)
}
"""Field of the policy that holds a setting, by the setting's name."""
NO_SETTINGS = frozenset({"name", "prune_rules"})
"""Fields that no operator sets by name; rules of tools are a separate section of an agent's config."""
SETTING_KINDS: Mapping[str, Any] = {
    name: kind
    for holder in (ContextPolicy, *_STRATEGIES.values())
    for name, kind in get_type_hints(holder).items()
    if name not in NO_SETTINGS and name not in _STRATEGIES
}
"""Type of each setting, by the name that operators use."""


def _values(strategy: Any) -> dict[str, Any]:
    return {one.name: getattr(strategy, one.name) for one in fields(strategy)}


def with_overrides(policy: ContextPolicy, **not_none: Any) -> ContextPolicy:
    """The policy with every given value that is not None; raises `ContradictoryPolicy`."""
    return apply_values(policy, {name: value for name, value in not_none.items() if value is not None})


def apply_values(policy: ContextPolicy, values: Mapping[str, Any]) -> ContextPolicy:
    """Return the policy with these values; a requested number of turns may take half the budget."""
    most = max(policy.keeping.tail_share_most, 0.5)
    room = {} if values.get("keep_turns") is None else {"tail_share_most": most}
    changed = policy.with_settings(**{**room, **values})
    check_policy(changed)
    return changed


def fit_to_window(policy: ContextPolicy, context_window: int) -> ContextPolicy:
    """The policy for an operator's own window, its margins shrunk by the formula where they would not fit."""
    least_left = min(policy.reserve_leaves, int(policy.reserve_leaves_share * context_window))
    reserve = min(policy.reserve, context_window - least_left)
    left = context_window - reserve
    margin = policy.flush_threshold if policy.flush_threshold < left else int(policy.flush_share * left)
    return with_overrides(policy, context_window=context_window, reserve=reserve, flush_threshold=margin)


def check_policy(policy: ContextPolicy) -> None:
    """Raise `ContradictoryPolicy` with the first contradiction of the policy and its strategies."""
    checks = (_size, _shares, _counts, _triggers)
    strategies = (getattr(policy, name) for name in _STRATEGIES)
    findings = (*(check(policy) for check in checks), *(one.find_contradictions() for one in strategies))
    for wrong, reason in chain.from_iterable(findings):
        if wrong:
            raise ContradictoryPolicy(reason)


def _size(p: ContextPolicy) -> Findings:
    left = p.context_window - p.reserve
    soft = p.soft_budget
    return (
        (p.context_window <= 0, f"context_window={p.context_window} must be positive"),
        (p.max_output <= 0, f"max_output={p.max_output} must be positive"),
        (
            p.answer_least is not None and p.answer_least <= 0,
            f"answer_least={p.answer_least} must be positive",
        ),
        (p.reserve < 0, f"reserve={p.reserve} must not be negative"),
        (left <= 0, f"reserve={p.reserve} leaves nothing of context_window={p.context_window}"),
        (soft is not None and soft <= 0, f"soft_budget={soft} must be positive"),
        (p.flush_threshold < 0, f"flush_threshold={p.flush_threshold} must not be negative"),
        (
            p.flush_threshold >= left > 0,
            f"flush_threshold={p.flush_threshold} is not below context_window − reserve = {left}",
        ),
        (
            soft is not None and 0 < soft <= p.flush_threshold,
            f"flush_threshold={p.flush_threshold} is not below soft_budget={soft}",
        ),
    )


def _shares(p: ContextPolicy) -> Findings:
    """Fractions between nothing and the whole; the first may be neither."""
    most = p.max_output_share
    wholes = {
        "overhead_share": p.overhead_share,
        "reserve_leaves_share": p.reserve_leaves_share,
        "fixed_share": p.fixed_share,
        "flush_share": p.flush_share,
    }
    return (
        (not 0 < most < 1, f"max_output_share={most} must lie between 0 and 1"),
        *((not 0 <= part <= 1, f"{name}={part} must lie from 0 to 1") for name, part in wholes.items()),
    )


def _counts(p: ContextPolicy) -> Findings:
    counts = {
        name: getattr(p, name)
        for name in (
            "overhead", "reserve_leaves", "flush_share_below", "flush_cooldown_seconds", "idle_over",
        )
    }  # fmt: skip
    return tuple((count < 0, f"{name}={count} must not be negative") for name, count in counts.items())


def _triggers(p: ContextPolicy) -> Findings:
    share, turns = p.compact_share, p.compact_after_turns
    kept = p.keeping.keep_turns
    return (
        (
            kept < 1 and p.compact_auto,
            f"keep_turns={kept} must be at least 1 with compact_auto",
        ),
        (p.compact_at is not None and p.compact_at < 1, f"compact_at={p.compact_at} must be positive"),
        (share is not None and not 0 < share <= 1, f"compact_share={share} must lie above 0, at most 1"),
        (turns is not None and turns <= kept, f"compact_after_turns={turns} is not above keep_turns={kept}"),
        (
            any(not 0 < at <= 1 for at in p.flush_shares),
            f"flush_shares={p.flush_shares} must lie above 0, at most 1",
        ),
        (
            list(p.flush_shares) != sorted(set(p.flush_shares)),
            f"flush_shares={p.flush_shares} must grow",
        ),
        (
            not 0 < p.warning_at < p.critical_at <= 1,
            f"warning_at={p.warning_at} must be below critical_at={p.critical_at}, both at most 1",
        ),
        (p.checkpoints and not p.flush_shares, "checkpoints need flush_shares, they are written with them"),
    )
