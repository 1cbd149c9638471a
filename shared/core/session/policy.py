"""When to flush, prune, summarise and refuse: one frozen value, checked for contradictions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from itertools import chain
from typing import Any, Literal, get_type_hints

from shared.core.session.prune_strategy import USUAL_PRUNING, Findings, PruneStrategy
from shared.core.session.summary_strategy import USUAL_WRITING, SummaryStrategy
from shared.core.values.errors import EvertalkError

Channel = Literal["telegram", "web"]


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

    # What of the conversation is sent at all.
    window_messages: int | None = None
    """Newest messages of people and assistant to send, from a person's message on; the rest stays in the
    log.
    """
    max_rounds: int | None = None
    """Newest rounds to send: a person's message and its answer; the open turn is one."""
    history_turns: tuple[tuple[Channel, int], ...] = ()
    """The most turns of history that stand before the newest message, by the channel that asks."""
    trim_tokens: int | None = None
    """Whole messages are left out until summary, pins and messages take at most this much."""
    trim_from: Literal["last", "first"] = "last"
    """End of the conversation that a trim keeps."""

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

    # What a compaction keeps and must reach.
    keep_turns: int = 5
    keep_turns_least: int = 2
    tail_share: float = 0.25
    tail_least: int = 1_500
    tail_most: int = 20_000
    tail_share_most: float = 0.5
    tail_room: int = 0
    """Tokens of the tail that are kept whatever their share, up to half the budget."""
    land_at: float = 0.6
    """Share of the conversation's budget that a compaction must reach."""
    gain_at_most: float = 0.75
    """Tokens after a compaction, as a share of those before, above which it does not count."""
    pins_share: float = 0.10

    picture_turns: int | None = 4
    """Turns for which pictures stay in requests, up to twice as many since they leave in batches; then their
    description replaces them. None: until they are summarised. 0: in their own turn only.
    """
    recall_tokens: int = 0
    """Tokens of hidden passages that each turn recalls; 0 is none."""

    # Who writes the summary, how it is asked for, how long it may be.
    writing: SummaryStrategy = USUAL_WRITING

    # Old messages and tool results.
    hide_chatter_at: float | None = None
    """At this share of the input budget (≥) low-signal messages of assistant and tools are left out whole."""
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


_STRATEGIES: Mapping[str, type] = {"writing": SummaryStrategy, "pruning": PruneStrategy}
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
    room = {} if values.get("keep_turns") is None else {"tail_share_most": max(policy.tail_share_most, 0.5)}
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
    checks = (_size, _shares, _counts, _selection, _triggers, _hiding)
    findings = (
        *(check(policy) for check in checks),
        policy.writing.find_contradictions(),
        policy.pruning.find_contradictions(),
    )
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
        (
            p.picture_turns is not None and p.picture_turns < 0,
            f"picture_turns={p.picture_turns} must not be negative",
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
    """Fractions between nothing and the whole; the first two may be neither."""
    parts = {"max_output_share": p.max_output_share, "gain_at_most": p.gain_at_most}
    wholes = {
        "overhead_share": p.overhead_share,
        "reserve_leaves_share": p.reserve_leaves_share,
        "fixed_share": p.fixed_share,
        "flush_share": p.flush_share,
        "tail_share": p.tail_share,
        "tail_share_most": p.tail_share_most,
        "pins_share": p.pins_share,
    }
    return (
        *((not 0 < part < 1, f"{name}={part} must lie between 0 and 1") for name, part in parts.items()),
        *((not 0 <= part <= 1, f"{name}={part} must lie from 0 to 1") for name, part in wholes.items()),
    )


def _counts(p: ContextPolicy) -> Findings:
    counts = {
        name: getattr(p, name)
        for name in (
            "overhead", "reserve_leaves", "flush_share_below", "flush_cooldown_seconds", "idle_over",
            "keep_turns_least", "tail_least", "tail_most", "recall_tokens",
        )
    }  # fmt: skip
    return tuple((count < 0, f"{name}={count} must not be negative") for name, count in counts.items())


def _selection(p: ContextPolicy) -> Findings:
    limits = {
        "window_messages": p.window_messages,
        "max_rounds": p.max_rounds,
        "trim_tokens": p.trim_tokens,
        **{f"history_turns of {channel}": turns for channel, turns in p.history_turns},
    }
    return tuple(
        (most is not None and most < 1, f"{name}={most} must be at least 1") for name, most in limits.items()
    )


def _triggers(p: ContextPolicy) -> Findings:
    share, turns = p.compact_share, p.compact_after_turns
    kept = p.keep_turns
    return (
        (kept < 0, f"keep_turns={kept} must not be negative"),
        (
            kept < 1 and p.compact_auto,
            f"keep_turns={kept} must be at least 1 with compact_auto",
        ),
        (
            p.keep_turns_least > kept,
            f"keep_turns={kept} must be at least keep_turns_least={p.keep_turns_least}",
        ),
        (p.compact_at is not None and p.compact_at < 1, f"compact_at={p.compact_at} must be positive"),
        (not 0 < p.land_at < 1, f"land_at={p.land_at} must lie between 0 and 1"),
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


def _hiding(p: ContextPolicy) -> Findings:
    hide = p.hide_chatter_at
    return ((hide is not None and not 0 < hide <= 1, f"hide_chatter_at={hide} must lie above 0, at most 1"),)
