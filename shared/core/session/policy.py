"""Context policy: one immutable set of settings that says when to flush, prune, summarise and refuse."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from itertools import chain
from typing import Any, Literal, get_type_hints

from shared.core.session.keep_strategy import USUAL_KEEPING, KeepStrategy
from shared.core.session.prune_strategy import USUAL_PRUNING, Findings, PruneStrategy
from shared.core.session.summary_strategy import USUAL_WRITING, SummaryStrategy
from shared.core.session.timing_strategy import USUAL_TIMING, TimingStrategy
from shared.core.values.errors import EvertalkError
from shared.core.values.messages import Block
from shared.core.values.tokens import reply_tokens


class ContradictoryPolicy(EvertalkError):
    """Context settings that contradict each other; `reason` names the settings and their numbers."""

    sentence = "The numbers of the context settings contradict each other."
    code = "contradictory_policy"

    def __init__(self, reason: str) -> None:
        super().__init__(reason, advice=f"The context settings contradict each other: {reason}.")


class NoRoom(ContradictoryPolicy):
    """Model whose window leaves no room for a conversation besides system text and tools."""

    sentence = "The model's window leaves no room for a conversation beside system and tools."
    code = "no_room"

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.advice = (
            "The model that answers here takes too little at once just now. Your message is kept in our "
            "conversation; please try again in a few minutes. The operator can see why."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextPolicy:
    """Settings of a conversation's context.

    Sizes are in tokens unless a name says otherwise; shares are fractions.
    """

    name: str

    # How large a request may be.
    context_window: int = 200_000
    """Most tokens of a model's window that are used, even if the window is larger."""
    max_output: int = 8_192
    """Most tokens of an answer, also bounded by `max_output_share` of the window."""
    max_output_share: float = 0.2
    """Most tokens of an answer, as a share of the window."""
    answer_least: int | None = None
    """Tokens left free for the answer next to the largest request; None leaves room for the longest answer.

    With a smaller number, messages that arrive while a summary is written may use the rest.
    """
    overhead: int = 1_024
    """Tokens kept free in every request for errors of the estimate, or `overhead_share` if that is more."""
    overhead_share: float = 0.05
    """Share of the window kept free for errors of the estimate."""
    reserve: int = 20_000
    """Tokens of the window that the context limit leaves free."""
    reserve_leaves: int = 8_000
    """Tokens of the window that `reserve` must leave, or `reserve_leaves_share` of the window if that is
    less.

    The reserve shrinks on small windows to leave them.
    """
    reserve_leaves_share: float = 0.5
    """Share of the window that `reserve` must leave, if that is less than `reserve_leaves`."""
    soft_budget: int | None = 16_000
    """Most tokens of the conversation besides system and tools; None sets no limit but the window."""
    fixed_share: float = 0.5
    """Largest share of the limit for system and tools; a configuration above it is refused."""

    # When work is due.
    timing: TimingStrategy = USUAL_TIMING

    # Which messages are sent, and what a compaction keeps and must reach.
    keeping: KeepStrategy = USUAL_KEEPING

    # Which model writes the summary, how, and how long it may be.
    writing: SummaryStrategy = USUAL_WRITING

    # How old tool results are shortened.
    pruning: PruneStrategy = USUAL_PRUNING

    # What the gauge shows.
    status_of: Literal["limit", "window"] = "limit"
    """Number of tokens of which `warning_at` and `critical_at` are shares."""
    warning_at: float = 0.7
    """Share from which the gauge shows the status `warning`."""
    critical_at: float = 0.9
    """Share from which the gauge shows the status `critical`."""
    exact_outputs: bool = False
    """True stores the provider's token counts of answers; False stores the program's estimates."""

    def usable_window(self, window: int) -> int:
        """Return how many of the `window` tokens of a model are used: at most `context_window`."""
        return min(window, self.context_window)

    def for_model(self, *, sees: bool, summarises: bool) -> ContextPolicy:
        """Return the policy adapted to the chat model.

        `sees` False, for a model without vision, replaces pictures by descriptions at once. `summarises` says
        that the model also writes the summaries; with `flush_with_summary` it then saves memory in the same
        call, so no early flush is made.
        """
        changes: dict[str, Any] = {} if sees else {"picture_turns": 0}
        if summarises and self.writing.flush_with_summary:
            changes["flush_threshold"] = 0
        return self.with_settings(**changes) if changes else self

    @property
    def stores_exact_answers(self) -> bool:
        """True if the provider's token counts of answers are stored instead of estimates; equals
        `exact_outputs`.
        """
        return self.exact_outputs

    def count_answer(
        self, blocks: Iterable[Block], *, reported: int | None, ratio: float, estimate: int
    ) -> int:
        """Return the tokens to store for an answer: the provider's count if `exact_outputs` is on, else
        `estimate`.

        `reported` is the provider's count, None if unknown; `ratio` is the model's tokens per estimated
        token, by which the count is divided.
        """
        return reply_tokens(
            blocks, exact=self.exact_outputs, reported=reported, ratio=ratio, estimate=estimate
        )

    def to_settings(self) -> dict[str, Any]:
        """Return all settings, also those of the strategies, by the names that operators use, without
        `NO_SETTINGS`.
        """
        held: dict[str, Any] = {}
        for one in fields(self):
            value = getattr(self, one.name)
            parts = {one.name: value} if one.name not in _STRATEGIES else _values(value)
            held |= {name: part for name, part in parts.items() if name not in NO_SETTINGS}
        return held

    def with_settings(self, **settings: Any) -> ContextPolicy:
        """Return the policy with these settings changed, without checking them.

        Raises TypeError for an unknown name.
        """
        own = {name: value for name, value in settings.items() if name not in _HOLDERS}
        for strategy in dict.fromkeys(_HOLDERS[name] for name in settings if name in _HOLDERS):
            changed = {name: value for name, value in settings.items() if _HOLDERS.get(name) == strategy}
            own[strategy] = replace(own.get(strategy, getattr(self, strategy)), **changed)
        return replace(self, **own)


_STRATEGIES: Mapping[str, type] = {
    "timing": TimingStrategy, "keeping": KeepStrategy, "writing": SummaryStrategy, "pruning": PruneStrategy,
}  # fmt: skip
_HOLDERS: Mapping[str, str] = {
    one.name: strategy for strategy, kind in _STRATEGIES.items() for one in fields(kind)
}
"""Name of the strategy field that holds a setting, by the setting's name."""
NO_SETTINGS = frozenset({"name", "prune_rules"})
"""Fields that operators cannot set by name; pruning rules are a separate section of an agent's
configuration.
"""
SETTING_KINDS: Mapping[str, Any] = {
    name: kind
    for holder in (ContextPolicy, *_STRATEGIES.values())
    for name, kind in get_type_hints(holder).items()
    if name not in NO_SETTINGS and name not in _STRATEGIES
}
"""Python type of each setting, by the name that operators use."""


def _values(strategy: Any) -> dict[str, Any]:
    return {one.name: getattr(strategy, one.name) for one in fields(strategy)}


def with_overrides(policy: ContextPolicy, **not_none: Any) -> ContextPolicy:
    """Return the policy with the given settings changed, and checked; None leaves a setting as it is.

    Raises ContradictoryPolicy if the result contradicts itself, TypeError for an unknown name.
    """
    return apply_values(policy, {name: value for name, value in not_none.items() if value is not None})


def apply_values(policy: ContextPolicy, values: Mapping[str, Any]) -> ContextPolicy:
    """Return the policy with these settings changed, and checked; here None is a value like others.

    Setting `keep_turns` also lets the kept turns take half the budget. Raises ContradictoryPolicy if the
    result contradicts itself, TypeError for an unknown name.
    """
    most = max(policy.keeping.tail_share_most, 0.5)
    room = {} if values.get("keep_turns") is None else {"tail_share_most": most}
    changed = policy.with_settings(**{**room, **values})
    check_policy(changed)
    return changed


def fit_to_window(policy: ContextPolicy, context_window: int) -> ContextPolicy:
    """Return the policy for an operator's window of `context_window` tokens, checked.

    `reserve` and `flush_threshold` shrink if they would not fit. Raises ContradictoryPolicy if the result
    still contradicts itself.
    """
    least_left = min(policy.reserve_leaves, int(policy.reserve_leaves_share * context_window))
    reserve = min(policy.reserve, context_window - least_left)
    left = context_window - reserve
    timing = policy.timing
    margin = timing.flush_threshold if timing.flush_threshold < left else int(timing.flush_share * left)
    return with_overrides(policy, context_window=context_window, reserve=reserve, flush_threshold=margin)


def check_policy(policy: ContextPolicy) -> None:
    """Raise ContradictoryPolicy for the first contradiction in the policy or its strategies, if there is
    one.
    """
    checks = (_size, _shares, _triggers)
    strategies = (getattr(policy, name) for name in _STRATEGIES)
    findings = (*(check(policy) for check in checks), *(one.find_contradictions() for one in strategies))
    for wrong, reason in chain.from_iterable(findings):
        if wrong:
            raise ContradictoryPolicy(reason)


def _size(p: ContextPolicy) -> Findings:
    left = p.context_window - p.reserve
    soft, flush = p.soft_budget, p.timing.flush_threshold
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
        (flush >= left > 0, f"flush_threshold={flush} is not below context_window − reserve = {left}"),
        (
            soft is not None and 0 < soft <= flush,
            f"flush_threshold={flush} is not below soft_budget={soft}",
        ),
    )


def _shares(p: ContextPolicy) -> Findings:
    """Return the checks of fractions; `max_output_share` must lie strictly between 0 and 1."""
    most = p.max_output_share
    wholes = {
        "overhead_share": p.overhead_share,
        "reserve_leaves_share": p.reserve_leaves_share,
        "fixed_share": p.fixed_share,
    }
    counts = {"overhead": p.overhead, "reserve_leaves": p.reserve_leaves}
    return (
        (not 0 < most < 1, f"max_output_share={most} must lie between 0 and 1"),
        *((not 0 <= part <= 1, f"{name}={part} must lie from 0 to 1") for name, part in wholes.items()),
        *((count < 0, f"{name}={count} must not be negative") for name, count in counts.items()),
        (
            not 0 < p.warning_at < p.critical_at <= 1,
            f"warning_at={p.warning_at} must be below critical_at={p.critical_at}, both at most 1",
        ),
    )


def _triggers(p: ContextPolicy) -> Findings:
    """Return the checks of settings that belong to two different strategies."""
    kept, turns = p.keeping.keep_turns, p.timing.compact_after_turns
    return (
        (kept < 1 and p.timing.compact_auto, f"keep_turns={kept} must be at least 1 with compact_auto"),
        (turns is not None and turns <= kept, f"compact_after_turns={turns} is not above keep_turns={kept}"),
    )
