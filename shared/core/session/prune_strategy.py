"""Strategy of a policy: which old tool results are shortened in requests, and how."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from shared.core.session.prune_rules import NO_RULES, PruneRules, ToolRule

Findings = tuple[tuple[bool, str], ...]
"""Contradictions of a strategy: whether each holds, and its reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneStrategy:
    """Rules for old tool results. Lengths are in characters or tokens, as each name says."""

    prune_rule: Literal["calls", "age", "protect", "none"] = "calls"
    """`calls` counts calls since, also inside a turn, and takes a batch when reading on has cost what writing
    again costs; `age` counts answers; `protect` leaves the newest `prune_protect_tokens` of results alone."""
    prune_protect_tokens: int = 40_000
    prune_first: bool = False
    """Old results are cleared only above the limit; a summary follows only if that is not enough."""
    prune_keep_last_assistants: int = 3
    prune_over_chars: int = 4_000
    prune_head_chars: int = 1_500
    prune_tail_chars: int = 1_500
    prune_error_tail_chars: int = 1_500
    """The tail of a result that speaks of an error."""
    prune_clear_after_assistants: int = 10
    prune_clear_over_chars: int = 200
    """A short result stays: clearing it would save nothing."""
    prune_batch: int = 8_000
    """But by rule `calls`, a batch is taken when it saves this much; 0 takes every decision at once."""
    prune_batch_over: bool = False
    """Whether a batch must save more than `prune_batch` instead of as much (the source's own boundary)."""
    prune_when_cold: bool = True
    """Whether a batch of any size is taken when the provider has forgotten the prefix anyway."""
    prune_duplicates: bool = True
    prune_mark: str = "\n[… {chars:,} characters left out …]\n"
    prune_cleared: str = "[Tool result cleared]"
    prune_duplicate: str = "[Same as a newer result of this tool]"
    spill_over: int = 8_000
    """A tool result above this becomes an artifact; the log gets its head, its tail and the artifact's id."""
    prune_rules: PruneRules = NO_RULES
    """An agent's own rules by tool name, and those of plug-ins."""

    @property
    def works_between_calls(self) -> bool:
        """True if decisions are made before each call of a turn, not only at its start."""
        return self.prune_rule == "calls"

    @property
    def clears_above_limit(self) -> bool:
        """True if results are cleared only when a request is above the limit."""
        return self.prune_first and self.prune_rule != "none"

    @property
    def works_by_age(self) -> bool:
        """True if the age of results decides at any size of the context."""
        return not self.prune_first and self.prune_rule != "none"

    def is_long(self, text: str) -> bool:
        """Return whether a result may be trimmed."""
        return len(text) > self.prune_over_chars

    def is_clearable(self, text: str) -> bool:
        """Return whether replacing a result by one line saves anything."""
        return len(text) > self.prune_clear_over_chars

    def is_batch_worth(self, saved: int) -> bool:
        """Return whether a batch saves enough tokens to pay for a lost cache."""
        return saved > self.prune_batch if self.prune_batch_over else saved >= self.prune_batch

    def for_tool(self, rule: ToolRule) -> PruneStrategy:
        """Return the strategy with the numbers of a tool's own rule."""
        tail = self.prune_tail_chars if rule.tail_chars is None else rule.tail_chars
        more = max(0, self.prune_error_tail_chars - self.prune_tail_chars)
        clears = rule.rule == "clear" and rule.over_chars is not None
        over = self.prune_over_chars if rule.over_chars is None else rule.over_chars
        return replace(
            self,
            prune_over_chars=over,
            prune_head_chars=self.prune_head_chars if rule.head_chars is None else rule.head_chars,
            prune_tail_chars=tail,
            prune_error_tail_chars=tail + more,
            prune_clear_over_chars=over if clears else self.prune_clear_over_chars,
        )

    def find_contradictions(self) -> Findings:
        """Return each contradiction of these numbers, and whether it holds."""
        counts = (
            "prune_keep_last_assistants", "prune_over_chars", "prune_head_chars", "prune_tail_chars",
            "prune_error_tail_chars", "prune_clear_after_assistants", "prune_clear_over_chars", "prune_batch",
            "prune_protect_tokens",
        )  # fmt: skip
        trimmed = self.prune_head_chars + max(self.prune_tail_chars, self.prune_error_tail_chars)
        kept, cleared = self.prune_keep_last_assistants, self.prune_clear_after_assistants
        return (
            *(
                (getattr(self, name) < 0, f"{name}={getattr(self, name)} must not be negative")
                for name in counts
            ),
            (
                trimmed > self.prune_over_chars,
                f"a trimmed result has {trimmed} characters, above prune_over_chars={self.prune_over_chars}",
            ),
            (
                cleared < kept,
                f"prune_clear_after_assistants={cleared} is below prune_keep_last_assistants={kept}",
            ),
            (
                not _takes_chars(self.prune_mark),
                f"prune_mark={self.prune_mark!r} may hold no braces but {{chars}}",
            ),
            (self.spill_over < 1_000, f"spill_over={self.spill_over} must be at least 1000"),
        )


USUAL_PRUNING = PruneStrategy()
"""Pruning of policies that set nothing else."""


def _takes_chars(mark: str) -> bool:
    try:
        mark.format(chars=1)
    except (KeyError, IndexError, ValueError, AttributeError):
        return False
    return True
