"""Part of a policy that decides which old tool results are shortened in requests, and how."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from shared.core.session.prune_rules import NO_RULES, PruneRules, ToolRule

Findings = tuple[tuple[bool, str], ...]
"""Checks of settings, one pair for each: True if it failed, and the text of the contradiction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneStrategy:
    """Settings for shortening old tool results. Lengths are in characters or tokens, as each name says."""

    prune_rule: Literal["calls", "age", "protect", "none"] = "calls"
    """How the age of a result is measured.

    `calls` counts later model calls, also inside a turn, and prunes in batches once reading the results has
    cost as much as writing the cache again. `age` counts later answers. `protect` spares the newest
    `prune_protect_tokens` of results. `none` shortens nothing.
    """
    prune_protect_tokens: int = 40_000
    """Tokens of newest results that rule `protect` spares."""
    prune_first: bool = False
    """True clears old results only above the limit; a summary follows if that is not enough."""
    prune_keep_last_assistants: int = 3
    """Age, in answers or calls by `prune_rule`, below which a result stays whole."""
    prune_over_chars: int = 4_000
    """Characters above which a result is trimmed."""
    prune_head_chars: int = 1_500
    """Characters kept at the start of a trimmed result."""
    prune_tail_chars: int = 1_500
    """Characters kept at the end of a trimmed result."""
    prune_error_tail_chars: int = 1_500
    """Characters kept at the end of a trimmed result whose end mentions an error."""
    prune_clear_after_assistants: int = 10
    """Age, in answers or calls by `prune_rule`, from which a result is cleared."""
    prune_clear_over_chars: int = 200
    """Characters up to which a result is never cleared, since that would save nothing."""
    prune_batch: int = 8_000
    """Tokens that a batch must save to be applied, except by rule `calls`; 0 applies every decision at once.
    """
    prune_batch_over: bool = False
    """True if a batch must save more than `prune_batch`, False if exactly as many tokens suffice."""
    prune_when_cold: bool = True
    """True applies a batch of any size when the provider's cache has expired anyway."""
    prune_duplicates: bool = True
    """True replaces a result by a mark if a newer result of the same tool has the same text."""
    prune_mark: str = "\n[… {chars:,} characters left out …]\n"
    """Text in place of the middle of a trimmed result, with the placeholder `{chars}`."""
    prune_cleared: str = "[Tool result cleared]"
    """Text in place of a cleared result."""
    prune_duplicate: str = "[Same as a newer result of this tool]"
    """Text in place of a result that a newer one repeats."""
    spill_over: int = 8_000
    """Tokens above which a tool result becomes an artifact; the log then holds head, tail and the artifact's
    id.
    """
    prune_rules: PruneRules = NO_RULES
    """Rules by tool name, from an agent's configuration and from plug-ins."""

    @property
    def works_between_calls(self) -> bool:
        """True if pruning is decided before each model call, not only at the start of a turn."""
        return self.prune_rule == "calls"

    @property
    def clears_above_limit(self) -> bool:
        """True if old results are cleared only once the context exceeds the threshold of a compaction."""
        return self.prune_first and self.prune_rule != "none"

    @property
    def works_by_age(self) -> bool:
        """True if results are shortened by their age, whatever the size of the context; False with
        `prune_first`.
        """
        return not self.prune_first and self.prune_rule != "none"

    def is_long(self, text: str) -> bool:
        """Return whether a tool result has more than `prune_over_chars` characters, so that it can be
        trimmed.
        """
        return len(text) > self.prune_over_chars

    def is_clearable(self, text: str) -> bool:
        """Return whether a tool result has more than `prune_clear_over_chars` characters, so that clearing it
        saves.
        """
        return len(text) > self.prune_clear_over_chars

    def is_batch_worth(self, saved: int) -> bool:
        """Return whether a batch that saves `saved` tokens reaches `prune_batch`, and so pays for rewriting
        the cache.
        """
        return saved > self.prune_batch if self.prune_batch_over else saved >= self.prune_batch

    def for_tool(self, rule: ToolRule) -> PruneStrategy:
        """Return the strategy with the numbers of a tool's own rule; its None values keep those of the
        policy.
        """
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
        """Return one pair for each check of these settings: True if it failed, and the text of the
        contradiction.
        """
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
"""Pruning by the default values of `PruneStrategy`."""


def _takes_chars(mark: str) -> bool:
    try:
        mark.format(chars=1)
    except (KeyError, IndexError, ValueError, AttributeError):
        return False
    return True
