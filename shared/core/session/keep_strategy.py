"""Part of a policy that selects messages: what requests hold, what a compaction leaves, what is recalled."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import floor
from typing import Literal

from shared.core.session.channels import CHANNELS
from shared.core.session.prune_strategy import Findings


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepStrategy:
    """Settings that select messages.

    Sizes are in tokens and shares are fractions, unless a name says otherwise.
    """

    # Which part of the conversation is sent.
    window_messages: int | None = None
    """Newest messages to send, starting with one of the person; None sends all. The log keeps the rest."""
    max_rounds: int | None = None
    """Newest rounds to send, the open turn included; a round is a person's message and its answer.

    None sends all.
    """
    history_turns: tuple[tuple[str, int], ...] = ()
    """Most turns of history before the newest message, as pairs of channel and number."""
    trim_tokens: int | None = None
    """Tokens for summary, pins and messages above which whole messages are left out; None has no such limit.
    """
    trim_from: Literal["last", "first"] = "last"
    """End of the conversation that `trim_tokens` keeps: the newest (`last`) or the oldest messages (`first`).
    """
    hide_chatter_at: float | None = None
    """Share of the input budget from which low-signal messages of assistant and tools are left out; None
    never does.
    """

    # What a compaction keeps and must reach.
    keep_turns: int = 5
    """Newest ended turns that a compaction keeps live, if the token limits allow."""
    keep_turns_least: int = 2
    """Newest ended turns that a compaction keeps live whatever their size."""
    tail_share: float = 0.25
    """Share of the conversation's budget up to which a compaction keeps more turns than `keep_turns`."""
    tail_least: int = 1_500
    """Lower bound, in tokens, of what `tail_share` gives."""
    tail_most: int = 20_000
    """Upper bound, in tokens, of what `tail_share` gives."""
    tail_share_most: float = 0.5
    """Largest share of the conversation's budget that the kept turns may take."""
    tail_room: int = 0
    """Tokens that the newest turns may keep even above their share, up to half the budget."""
    land_at: float = 0.6
    """Share of the conversation's budget below which a compaction must bring the context."""
    gain_at_most: float = 0.75
    """Largest size after a compaction as a share of the size before; a compaction that saves less is not
    committed.
    """
    pins_share: float = 0.10
    """Most tokens of all pins, as a share of the context limit."""

    picture_turns: int | None = 4
    """Turns for which requests show pictures; older ones are replaced by their description.

    Pictures leave in batches, so they may stay for twice as many turns. None keeps them until they are
    summarised; 0 shows them in their own turn only.
    """
    recall_tokens: int = 0
    """Tokens of hidden passages that each turn may recall; 0 recalls nothing."""

    def turns_for(self, channel: str | None) -> int | None:
        """Return how many turns of history requests of `channel` hold at most; None without a limit or a
        channel.
        """
        return dict(self.history_turns).get(channel) if channel else None

    def limits(self, channel: str | None) -> bool:
        """Return whether a setting limits the number or size of messages in requests of this channel."""
        limits = (self.window_messages, self.max_rounds, self.trim_tokens, self.turns_for(channel))
        return any(limit is not None for limit in limits)

    @property
    def differs_by_channel(self) -> bool:
        """True if the limit of history may differ between channels."""
        return bool(self.history_turns)

    @property
    def turns_of_all_channels(self) -> int | None:
        """Largest of the channels' limits of history, in turns; None if a channel has no limit."""
        if {channel for channel, _ in self.history_turns} != set(CHANNELS):
            return None
        return max(turns for _, turns in self.history_turns)

    @property
    def tokens_ever_sent(self) -> int | None:
        """Most tokens of the newest messages that any request of the conversation holds; None without such a
        limit.
        """
        return self.trim_tokens if self.trim_from == "last" else None

    @property
    def is_bounded(self) -> bool:
        """True if turns that a request leaves out never return to a later one."""
        counted = (self.max_rounds, self.window_messages, self.turns_of_all_channels, self.tokens_ever_sent)
        return any(limit is not None for limit in counted)

    @property
    def can_grow_unseen(self) -> bool:
        """True if requests leave out turns that a later request may show again.

        The live view can then outgrow every request, and only a summary hides such turns for good.
        """
        return not self.is_bounded and (self.differs_by_channel or self.trim_tokens is not None)

    @property
    def hides_chatter(self) -> bool:
        """True if low-signal messages of assistant and tools are left out of nearly full requests."""
        return self.hide_chatter_at is not None

    def choose_recall(self, own: object) -> int:
        """Return the tokens that a turn may recall: `own` if it is a whole number from 0 on, else the
        policy's.
        """
        if isinstance(own, int) and not isinstance(own, bool) and own >= 0:
            return own
        return self.recall_tokens

    def find_landing(self, conversation: int) -> int:
        """Return the tokens that summary, pins and messages may have after a compaction.

        `conversation` is the budget for them in tokens.
        """
        return floor(self.land_at * conversation)

    def find_least_tail(self, conversation: int) -> int:
        """Return the tokens of newest turns up to which a compaction keeps more than `keep_turns`.

        `conversation` is the budget of summary, pins and messages in tokens.
        """
        return min(max(floor(self.tail_share * conversation), self.tail_least), self.tail_most)

    def find_tail_room(self, conversation: int) -> int:
        """Return the most tokens of newest turns that a compaction keeps beyond `keep_turns_least`.

        `conversation` is the budget of summary, pins and messages in tokens.
        """
        return max(floor(self.tail_share_most * conversation), min(self.tail_room, conversation // 2))

    def find_pin_room(self, limit: int) -> int:
        """Return the most tokens that all pins together may take, for a context limit of `limit` tokens."""
        return int(self.pins_share * limit)

    def without_tail(self) -> KeepStrategy:
        """Return a copy of the strategy with which a compaction keeps no ended turn."""
        return replace(self, keep_turns=0, keep_turns_least=0, tail_share_most=0.0, tail_room=0)

    def find_contradictions(self) -> Findings:
        """Return one pair for each check of these settings: True if it failed, and the text of the
        contradiction.
        """
        return (*self._check_selection(), *self._check_tail())

    def _check_selection(self) -> Findings:
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

    def _check_tail(self) -> Findings:
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
"""Selection of messages by the default values of `KeepStrategy`."""
