"""Strategy of a policy: which messages requests hold, what a compaction leaves, what is recalled."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import floor
from typing import Literal

from shared.core.session.channels import CHANNELS
from shared.core.session.prune_strategy import Findings


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepStrategy:
    """Selection of messages. Sizes are in tokens and shares are fractions, unless a name says otherwise."""

    # What of the conversation is sent at all.
    window_messages: int | None = None
    """Newest messages of people and assistant to send, from a person's message on; the rest stays in the
    log.
    """
    max_rounds: int | None = None
    """Newest rounds to send: a person's message and its answer; the open turn is one."""
    history_turns: tuple[tuple[str, int], ...] = ()
    """The most turns of history that stand before the newest message, by the channel that asks."""
    trim_tokens: int | None = None
    """Whole messages are left out until summary, pins and messages take at most this much."""
    trim_from: Literal["last", "first"] = "last"
    """End of the conversation that a trim keeps."""
    hide_chatter_at: float | None = None
    """At this share of the input budget (≥) low-signal messages of assistant and tools are left out whole."""

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

    def turns_for(self, channel: str | None) -> int | None:
        """Return how many turns of history a channel gets; None when all."""
        return dict(self.history_turns).get(channel) if channel else None

    def limits(self, channel: str | None) -> bool:
        """Return whether a request of this channel may leave out messages by their number or size."""
        limits = (self.window_messages, self.max_rounds, self.trim_tokens, self.turns_for(channel))
        return any(limit is not None for limit in limits)

    @property
    def differs_by_channel(self) -> bool:
        """True if the channel of a turn decides how much history it gets."""
        return bool(self.history_turns)

    @property
    def turns_of_all_channels(self) -> int | None:
        """Turns of history that the most generous channel gets; None if a channel has no limit."""
        if {channel for channel, _ in self.history_turns} != set(CHANNELS):
            return None
        return max(turns for _, turns in self.history_turns)

    @property
    def tokens_ever_sent(self) -> int | None:
        """Tokens that bound each request from the newest message back; None if there is no such bound."""
        return self.trim_tokens if self.trim_from == "last" else None

    @property
    def is_bounded(self) -> bool:
        """True if turns that are left out of requests leave for good."""
        counted = (self.max_rounds, self.window_messages, self.turns_of_all_channels, self.tokens_ever_sent)
        return any(limit is not None for limit in counted)

    @property
    def can_grow_unseen(self) -> bool:
        """True if turns are left out of requests without leaving for good: only a summary hides those."""
        return not self.is_bounded and (self.differs_by_channel or self.trim_tokens is not None)

    @property
    def hides_chatter(self) -> bool:
        """True if low-signal messages are left out of requests that are nearly full."""
        return self.hide_chatter_at is not None

    def choose_recall(self, own: object) -> int:
        """Return the tokens that a turn recalls: an agent's own number if it is one, else the policy's."""
        if isinstance(own, int) and not isinstance(own, bool) and own >= 0:
            return own
        return self.recall_tokens

    def find_landing(self, conversation: int) -> int:
        """Return the tokens that a compaction must reach, of a conversation's budget."""
        return floor(self.land_at * conversation)

    def find_least_tail(self, conversation: int) -> int:
        """Return the tokens that the newest turns take at least after a compaction, if there are as many."""
        return min(max(floor(self.tail_share * conversation), self.tail_least), self.tail_most)

    def find_tail_room(self, conversation: int) -> int:
        """Return the tokens that the newest turns may take after a compaction."""
        return max(floor(self.tail_share_most * conversation), min(self.tail_room, conversation // 2))

    def find_pin_room(self, limit: int) -> int:
        """Return the tokens that all pins together may take."""
        return int(self.pins_share * limit)

    def without_tail(self) -> KeepStrategy:
        """Return the strategy of a compaction that hides everything that has ended."""
        return replace(self, keep_turns=0, keep_turns_least=0, tail_share_most=0.0, tail_room=0)

    def find_contradictions(self) -> Findings:
        """Return each contradiction of these numbers, and whether it holds."""
        return (*self._of_selection(), *self._of_tail())

    def _of_selection(self) -> Findings:
        limits = {
            "window_messages": self.window_messages,
            "max_rounds": self.max_rounds,
            "trim_tokens": self.trim_tokens,
            **{f"history_turns of {channel}": turns for channel, turns in self.history_turns},
        }
        pictures, hide = self.picture_turns, self.hide_chatter_at
        return (
            *(
                (most is not None and most < 1, f"{name}={most} must be at least 1")
                for name, most in limits.items()
            ),
            (pictures is not None and pictures < 0, f"picture_turns={pictures} must not be negative"),
            (hide is not None and not 0 < hide <= 1, f"hide_chatter_at={hide} must lie above 0, at most 1"),
            (self.recall_tokens < 0, f"recall_tokens={self.recall_tokens} must not be negative"),
        )

    def _of_tail(self) -> Findings:
        kept, least = self.keep_turns, self.keep_turns_least
        counts = {"keep_turns_least": least, "tail_least": self.tail_least, "tail_most": self.tail_most}
        shares = {
            "tail_share": self.tail_share,
            "tail_share_most": self.tail_share_most,
            "pins_share": self.pins_share,
        }
        return (
            (
                not 0 < self.gain_at_most < 1,
                f"gain_at_most={self.gain_at_most} must lie between 0 and 1",
            ),
            *(
                (not 0 <= share <= 1, f"{name}={share} must lie from 0 to 1")
                for name, share in shares.items()
            ),
            *((count < 0, f"{name}={count} must not be negative") for name, count in counts.items()),
            (kept < 0, f"keep_turns={kept} must not be negative"),
            (least > kept, f"keep_turns={kept} must be at least keep_turns_least={least}"),
            (not 0 < self.land_at < 1, f"land_at={self.land_at} must lie between 0 and 1"),
        )


USUAL_KEEPING = KeepStrategy()
"""Selection of policies that set nothing else."""
