"""When to flush, prune, summarise and refuse: one frozen value per preset, checked for contradictions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from shared.core.errors import EvertalkError

Summariser = Literal["cheap", "warm", "auto"]


class ContradictoryPolicy(EvertalkError):
    """Numbers of a policy that cannot hold together."""

    code = "contradictory_policy"

    def __init__(self, reason: str) -> None:
        super().__init__(reason, advice=f"The context settings contradict each other: {reason}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextPolicy:
    """Every number in tokens unless its name says otherwise; shares are fractions."""

    name: str

    # How large a request may be.
    context_window: int = 200_000
    """The most that is used of a model's window, however large it is."""
    max_output: int = 8_192
    max_output_share: float = 0.2
    overhead: int = 1_024
    overhead_share: float = 0.05
    reserve: int = 20_000
    reserve_leaves: int = 8_000
    """On small windows the reserve shrinks until this much, or `reserve_leaves_share`, is left."""
    reserve_leaves_share: float = 0.5
    soft_budget: int | None = 40_000
    """The most for the conversation beside system and tools; None means that only the window counts."""
    fixed_share: float = 0.5
    """System and tools above this share of the limit are refused when they are configured."""

    # When something is due.
    flush_threshold: int = 4_000
    flush_share: float = 0.10
    """Where the limit is below `flush_share_below`, the flush comes at most this share of it earlier."""
    flush_share_below: int = 40_000
    flush_cooldown_seconds: int = 300
    compact_before_call: bool = False
    compact_above: Literal["limit", "hard"] = "limit"
    idle_compaction: bool = True

    # What a compaction keeps and must reach.
    keep_turns: int = 5
    keep_turns_least: int = 2
    tail_share: float = 0.25
    tail_least: int = 1_500
    tail_most: int = 20_000
    tail_share_most: float = 0.5
    land_at: float = 0.6
    gain_at_most: float = 0.75
    """Tokens after a compaction, as a share of those before, above which it does not count."""
    pins_share: float = 0.10
    summariser: Summariser = "cheap"
    summary_falls_back: bool = True
    """Whether the session's own model may write the summary when the cheap one cannot."""

    # Old tool results.
    prune_keep_last_assistants: int = 3
    prune_over_chars: int = 4_000
    prune_head_chars: int = 1_500
    prune_tail_chars: int = 1_500
    prune_error_tail_chars: int = 1_500
    """The tail of a result that speaks of an error."""
    prune_clear_after_assistants: int = 10
    prune_clear_over_chars: int = 400
    """A short result stays: clearing it would save nothing."""
    prune_batch: int = 8_000
    """A batch is taken when it saves this much; 0 takes every decision at once."""
    prune_duplicates: bool = True
    prune_mark: str = "\n[… {chars:,} characters left out …]\n"
    prune_cleared: str = "[Tool result cleared]"
    prune_duplicate: str = "[Same as a newer result of this tool]"

    # What the gauge shows.
    status_of: Literal["limit", "window"] = "limit"
    warning_at: float = 0.7
    critical_at: float = 0.9


PRESETS: dict[str, ContextPolicy] = {
    policy.name: policy
    for policy in (
        ContextPolicy(name="steady", prune_error_tail_chars=2_500),
        ContextPolicy(
            name="spec008",
            soft_budget=None,
            idle_compaction=False,
            compact_before_call=True,
            summary_falls_back=False,
            prune_batch=0,
            prune_clear_over_chars=0,
            prune_duplicates=False,
            prune_mark="...",
        ),
    )
}


def preset(name: str) -> ContextPolicy:
    """Raises `ContradictoryPolicy` for a name that no preset has."""
    if name not in PRESETS:
        raise ContradictoryPolicy(f"there is no preset {name!r}; choose one of {', '.join(sorted(PRESETS))}")
    return PRESETS[name]


def with_overrides(policy: ContextPolicy, **not_none: Any) -> ContextPolicy:
    """The policy with every given value that is not None; raises `ContradictoryPolicy`."""
    changed = replace(policy, **{name: value for name, value in not_none.items() if value is not None})
    check_policy(changed)
    return changed


def fitted(policy: ContextPolicy, context_window: int) -> ContextPolicy:
    """The policy for an operator's own window, its margins shrunk by the formula where they would not fit."""
    least_left = min(policy.reserve_leaves, int(policy.reserve_leaves_share * context_window))
    reserve = min(policy.reserve, context_window - least_left)
    left = context_window - reserve
    margin = policy.flush_threshold if policy.flush_threshold < left else int(policy.flush_share * left)
    return with_overrides(policy, context_window=context_window, reserve=reserve, flush_threshold=margin)


def check_policy(policy: ContextPolicy) -> None:
    for wrong, reason in _contradictions(policy):
        if wrong:
            raise ContradictoryPolicy(reason)


def _contradictions(policy: ContextPolicy) -> tuple[tuple[bool, str], ...]:
    p = policy
    left = p.context_window - p.reserve
    trimmed = p.prune_head_chars + max(p.prune_tail_chars, p.prune_error_tail_chars)
    soft = p.soft_budget
    kept, cleared = p.prune_keep_last_assistants, p.prune_clear_after_assistants
    return (
        (p.context_window <= 0, f"context_window={p.context_window} must be positive"),
        (p.max_output <= 0, f"max_output={p.max_output} must be positive"),
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
        (p.keep_turns < 1, f"keep_turns={p.keep_turns} must be at least 1"),
        (not 0 < p.land_at < 1, f"land_at={p.land_at} must lie between 0 and 1"),
        (
            not 0 < p.warning_at < p.critical_at <= 1,
            f"warning_at={p.warning_at} must be below critical_at={p.critical_at}, both at most 1",
        ),
        (
            trimmed > p.prune_over_chars,
            f"a trimmed result has {trimmed} characters, above prune_over_chars={p.prune_over_chars}",
        ),
        (
            cleared < kept,
            f"prune_clear_after_assistants={cleared} is below prune_keep_last_assistants={kept}",
        ),
    )
