"""What of the live view is sent: sliding windows, rounds, turns by channel, trimming."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import get_args

from shared.core.session.policy import Channel, ContextPolicy
from shared.core.session.session import Entry, View, turns_of, unresolved_turns
from shared.core.values.messages import BEGINNERS, Block, ToolUse
from shared.core.values.tokens import RATIO_LEAST

WINDOW_SLACK = 50
"""A `window` link is made when so many turns can never be sent again."""
WINDOW_WAITS = 200
"""An unresolved turn stops the link, until so many turns wait behind it."""

Turn = tuple[Entry, ...]
Chosen = frozenset[int]
LeftOut = Callable[[View], int]
"""Stored tokens of a view that the next request would not hold."""
_ALL_CHANNELS = frozenset(get_args(Channel))


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    view: View
    """What the request is built from: pinned messages that were left out stand among its pins."""
    left_out: tuple[Entry, ...] = ()
    """Live entries that are not sent, in order; the log and the next summary still have them."""

    @property
    def slides(self) -> bool:
        """Whether messages leave as new ones come, so that an earlier measurement holds what is gone now."""
        return any(entry.pruned != "hide" for entry in self.left_out)

    @property
    def tokens_left_out(self) -> int:
        return sum(entry.tokens for entry in self.left_out)


def select(
    view: View,
    policy: ContextPolicy,
    *,
    channel: Channel | None = None,
    ratio: float = 1.0,
    unread: bool = False,
) -> Selection:
    """The part of the view that the policy sends; the same view when the policy sends all of it.

    Pins, the open turn and unresolved turns always stay. With `unread`, turns that no flush has read stay,
    too: a ghost turn must not pass over what will be counted as read. `ratio` turns stored estimates into the
    model's tokens.
    """
    if not _selects(view, policy, channel):
        return Selection(view=view)
    chosen = _chosen(view, policy, channel, ratio) | _always(view, unread=unread)
    kept = tuple(entry for entry in view.entries if entry.seq in chosen)
    gone = tuple(entry for entry in view.entries if entry.seq not in chosen)
    if not gone:
        return Selection(view=view)
    pins = view.pins + tuple(entry for entry in gone if entry.pinned)
    left_out = tuple(entry for entry in gone if not entry.pinned)
    return Selection(view=replace(view, entries=kept, pins=pins), left_out=left_out)


def leaves_out(policy: ContextPolicy, *, channel: Channel | None, ratio: float) -> LeftOut | None:
    """Measures what of a view the policy would not send; None when it may send all of any."""
    if not _limits(policy, channel):
        return None
    return lambda view: select(view, policy, channel=channel, ratio=ratio).tokens_left_out


# ---- windows, rounds, turns, tokens


def _selects(view: View, policy: ContextPolicy, channel: Channel | None) -> bool:
    if _limits(policy, channel):
        return True
    return policy.hide_chatter_at is not None and any(entry.pruned == "hide" for entry in view.entries)


def _limits(policy: ContextPolicy, channel: Channel | None) -> bool:
    limits = (policy.window_messages, policy.max_rounds, policy.trim_tokens, turns_for(policy, channel))
    return any(limit is not None for limit in limits)


def turns_for(policy: ContextPolicy, channel: Channel | None) -> int | None:
    """How many turns of history a channel gets; None when all."""
    return dict(policy.history_turns).get(channel) if channel else None


def _chosen(view: View, policy: ContextPolicy, channel: Channel | None, ratio: float) -> Chosen:
    kept = _without_hidden(view.entries, policy)
    if policy.max_rounds is not None:
        kept = _newest_turns(kept, policy.max_rounds)
    history = turns_for(policy, channel)
    if history is not None:
        ended = _newest_turns([e for e in kept if e.turn != view.open_turn], history)
        kept = [*ended, *(e for e in kept if e.turn == view.open_turn)]
    if policy.window_messages is not None:
        kept = _newest_messages(kept, policy.window_messages)
    if policy.trim_tokens is not None:
        kept = _trimmed(kept, view, policy, ratio)
    return frozenset(entry.seq for entry in kept)


def _always(view: View, *, unread: bool) -> Chosen:
    """The newest message with its turn, and what is not finished."""
    stay = {view.open_turn} if view.open_turn is not None else set()
    stay |= unresolved_turns(view.entries, view.open_turn)
    return frozenset(
        entry.seq
        for entry in view.entries
        if entry.turn in stay or (unread and entry.turn > view.flushed_turn)
    )


def _without_hidden(entries: Iterable[Entry], policy: ContextPolicy) -> list[Entry]:
    if policy.hide_chatter_at is None:
        return list(entries)
    return [entry for entry in entries if entry.pinned or entry.pruned != "hide"]


def _newest_turns(entries: Sequence[Entry], most: int) -> list[Entry]:
    numbers = sorted({entry.turn for entry in entries})[-most:]
    return [entry for entry in entries if numbers and entry.turn >= numbers[0]]


def _newest_messages(entries: Sequence[Entry], most: int) -> list[Entry]:
    """At most so many messages with words, from a person's message on: so no tool call loses its result."""
    start, counted = len(entries), 0
    for index in range(len(entries) - 1, -1, -1):
        counted += _is_said(entries[index])
        if counted > most:
            break
        if entries[index].author in BEGINNERS:
            start = index
    return list(entries[start:])


def _is_said(entry: Entry) -> bool:
    """A message as people count them: a person's, or the assistant's last word, not a call of a tool."""
    if entry.author == "tool":
        return False
    return entry.author in BEGINNERS or not any(isinstance(block, ToolUse) for block in entry.blocks)


def _trimmed(entries: Sequence[Entry], view: View, policy: ContextPolicy, ratio: float) -> list[Entry]:
    """Whole messages of one end of the conversation, as many as fit beside the summary and the pins."""
    assert policy.trim_tokens is not None
    beside = (view.head.tokens if view.head else 0) + _tokens(view.pins)
    room = policy.trim_tokens - math.ceil(beside * ratio)
    if policy.trim_from == "last":
        return _last_that_fit(entries, room, ratio)
    return _first_that_fit(entries, view.open_turn, room, ratio)


def _last_that_fit(entries: Sequence[Entry], room: int, ratio: float) -> list[Entry]:
    start, tokens = len(entries), 0
    for index in range(len(entries) - 1, -1, -1):
        tokens += entries[index].tokens
        if math.ceil(tokens * ratio) > room:
            break
        if entries[index].author in BEGINNERS:
            start = index
    if start == len(entries):  # not even the newest message of the person fits: it stays all the same
        start = max((i for i, entry in enumerate(entries) if entry.author in BEGINNERS), default=start)
    return list(entries[start:])


def _first_that_fit(entries: Sequence[Entry], open_turn: int | None, room: int, ratio: float) -> list[Entry]:
    tokens = _tokens(entry for entry in entries if entry.turn == open_turn)
    kept: list[Entry] = []
    for unit in units_of([entry for entry in entries if entry.turn != open_turn]):
        tokens += _tokens(unit)
        if math.ceil(tokens * ratio) > room:
            break
        kept += unit
    return [*kept, *(entry for entry in entries if entry.turn == open_turn)]


def units_of(entries: Sequence[Entry]) -> list[Turn]:
    """Messages that go or stay together: a call of tools with its results, anything else by itself."""
    units: list[Turn] = []
    for entry in entries:
        belongs = units and entry.author == "tool" and _calls(units[-1][-1].blocks)
        if belongs:
            units[-1] = (*units[-1], entry)
        else:
            units.append((entry,))
    return units


def _calls(blocks: Iterable[Block]) -> bool:
    return any(isinstance(block, ToolUse) for block in blocks)


def _tokens(entries: Iterable[Entry]) -> int:
    return sum(entry.tokens for entry in entries)


# ---- the link that keeps a window's session bounded


def window_through(view: View, policy: ContextPolicy) -> int | None:
    """The newest turn that can never be sent again, when enough of them have gathered; else None."""
    if not _is_bounded(policy):
        return None
    ended = [turn for turn in turns_of(view.entries) if turn[0].turn != view.open_turn]
    kept = _turns_ever_sent(ended, policy)
    if kept is None:
        return None
    gone = ended[: len(ended) - kept]
    if len(gone) <= WINDOW_SLACK:
        return None
    return _before_unresolved(gone, unresolved_turns(view.entries, view.open_turn))


def grows_unseen(policy: ContextPolicy) -> bool:
    """Whether turns may be left out of requests without ever leaving for good: only a summary hides those."""
    return not _is_bounded(policy) and (bool(policy.history_turns) or policy.trim_tokens is not None)


def _is_bounded(policy: ContextPolicy) -> bool:
    return _limits_of_all(policy) or (policy.trim_tokens is not None and policy.trim_from == "last")


def _limits_of_all(policy: ContextPolicy) -> bool:
    """Whether a number of messages or turns bounds every channel."""
    if policy.max_rounds is not None or policy.window_messages is not None:
        return True
    return {channel for channel, _ in policy.history_turns} >= _ALL_CHANNELS


def _turns_ever_sent(ended: Sequence[Turn], policy: ContextPolicy) -> int | None:
    """How many of the newest ended turns any coming request may hold; None when all of them."""
    limits: list[int] = []
    if policy.max_rounds is not None:
        limits.append(policy.max_rounds)
    if {channel for channel, _ in policy.history_turns} >= _ALL_CHANNELS:
        limits.append(max(turns for _, turns in policy.history_turns))
    flat = [entry for turn in ended for entry in turn]
    if policy.window_messages is not None:
        limits.append(len(turns_of(_newest_messages(flat, policy.window_messages))))
    if policy.trim_tokens is not None and policy.trim_from == "last":
        limits.append(len(turns_of(_last_that_fit(flat, policy.trim_tokens, RATIO_LEAST))))
    return min(limits, default=None)


def _before_unresolved(gone: Sequence[Turn], unresolved: frozenset[int]) -> int | None:
    place = next((i for i, turn in enumerate(gone) if turn[0].turn in unresolved), None)
    if place is None or len(gone) - place > WINDOW_WAITS:
        return gone[-1][0].turn
    return gone[place - 1][0].turn if place > WINDOW_SLACK else None
