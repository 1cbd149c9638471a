"""Part of a policy that decides when memory is saved and when a summary is due."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor
from typing import Literal

from shared.core.session.prune_strategy import Findings


def mark_of(share: float) -> str:
    """Return the name of the memory flush at a share of the window, such as `at_75` for 0.75."""
    return f"at_{100 * share:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingStrategy:
    """Thresholds of flushes and compactions. Sizes are in tokens and shares are fractions."""

    compact_auto: bool = True
    """True makes summaries automatic; False leaves them to a person's /compact."""
    compact_at: int | None = None
    """Context limit in tokens, at most the hard limit; None derives it from the other settings."""
    compact_share: float | None = None
    """Context limit as a share of `compact_share_of`; None takes window less reserve, bounded by the soft
    budget.
    """
    compact_share_of: Literal["window", "input_budget"] = "window"
    """Number of tokens of which `compact_share` is a share: the model's window, or the largest request."""
    compact_at_equal: bool = False
    """True makes a context of exactly the limit due; False only a larger one."""
    compact_after_turns: int | None = None
    """Ended turns since the last summary after which one is due at any size; None sets no such number."""
    compact_before_call: bool = False
    """True lets a turn wait for a due summary before it calls the model; False writes it in the
    background.
    """
    compact_ahead: bool = False
    """True requests a compaction as soon as the expected next turn would cross the limit."""
    compact_above: Literal["limit", "hard"] = "limit"
    """Threshold above which a compaction is due: the context limit, or the largest request (`hard`)."""
    flush_threshold: int = 4_000
    """Tokens below the limit at which memory is saved; 0 saves it only together with a compaction."""
    flush_share: float = 0.10
    """Largest flush margin as a share of the limit, for limits below `flush_share_below` tokens."""
    flush_share_below: int = 40_000
    flush_shares: tuple[float, ...] = ()
    """Shares of the window at which memory is saved, each once per cycle; empty uses `flush_threshold`."""
    flush_cooldown_seconds: int = 300
    """Fewest seconds from any successful memory flush of a session to its next early one."""
    checkpoints: bool = False
    """True also writes a checkpoint at each early flush, used if the real summary fails."""
    idle_compaction: bool = True
    """True lets a conversation be compacted while no messages arrive, before the limit is reached."""
    idle_over: int = 24_000
    """Tokens up to which an idle conversation is not compacted."""

    @property
    def looks_before_call(self) -> bool:
        """True if a turn waits for a due summary before it calls the model; equals `compact_before_call`."""
        return self.compact_before_call

    def is_waited_for(self, trigger: str) -> bool:
        """Return whether a person waits for a compaction with this trigger, as for `overflow`."""
        return self.looks_before_call or trigger == "overflow"

    @property
    def share_of_window(self) -> float | None:
        """Share of the model's window that is the context limit.

        None if `compact_at` is set, if the limit is a share of the input budget, or if it is no share at all.
        """
        chosen = self.compact_at is not None or self.compact_share_of != "window"
        return None if chosen else self.compact_share

    @property
    def flush_marks(self) -> tuple[str, ...]:
        """Names of the memory flushes at shares of the window, such as `at_75`, ascending."""
        return tuple(map(mark_of, self.flush_shares))

    @property
    def checkpoint_marks(self) -> frozenset[str]:
        """Names of the memory flushes that also write a checkpoint; empty without `checkpoints`."""
        return frozenset(self.flush_marks if self.checkpoints else ())

    def find_reached_mark(self, tokens: int, *, window: int) -> str | None:
        """Return the name, such as `at_75`, of the highest flush share that a context of `tokens` tokens has
        reached.

        None if it has reached none. A context of exactly the share has reached it.
        """
        reached = [one for one in self.flush_shares if tokens >= ceil(round(one * window, 6))]
        return mark_of(reached[-1]) if reached else None

    def find_flush_margin(self, limit: int) -> int:
        """Return how many tokens below `limit` memory is saved.

        Below `flush_share_below` tokens the margin is at most `flush_share` of the limit.
        """
        if limit >= self.flush_share_below:
            return min(self.flush_threshold, limit)
        return min(self.flush_threshold, floor(self.flush_share * limit))

    def find_contradictions(self) -> Findings:
        """Return one pair for each check of these settings: True if it failed, and the text of the
        contradiction.
        """
        at, share, shares = self.compact_at, self.compact_share, self.flush_shares
        counts = {
            name: getattr(self, name)
            for name in ("flush_threshold", "flush_share_below", "flush_cooldown_seconds", "idle_over")
        }
        return (
            *((count < 0, f"{name}={count} must not be negative") for name, count in counts.items()),
            (not 0 <= self.flush_share <= 1, f"flush_share={self.flush_share} must lie from 0 to 1"),
            (at is not None and at < 1, f"compact_at={at} must be positive"),
            (share is not None and not 0 < share <= 1, f"compact_share={share} must lie above 0, at most 1"),
            (any(not 0 < one <= 1 for one in shares), f"flush_shares={shares} must lie above 0, at most 1"),
            (list(shares) != sorted(set(shares)), f"flush_shares={shares} must grow"),
            (self.checkpoints and not shares, "checkpoints need flush_shares, they are written with them"),
        )


USUAL_TIMING = TimingStrategy()
"""Timing by the default values of `TimingStrategy`."""
