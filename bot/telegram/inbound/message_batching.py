"""Which messages belong to one turn, and how a model reads them: who speaks, what they quote and forward.

Long pastes, albums and forwards are gathered, the rest goes at once. Nobody speaks in our name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import groupby
from typing import Literal

from bot.telegram.inbound.updates import IncomingMessage, Media, QuotedMessage
from bot.telegram.markup import MESSAGE_UNITS, utf16_units
from shared.core.context import untrusted_text
from shared.core.context.untrusted_text import without_our_marks

QUOTE_CHARS = 2_000
OWN_ANSWER_CHARS = 400
"""What the bot itself said stands in the conversation anyway; so much of it shows which answer is meant."""
UNNAMED_AUTHOR = "somebody"

_SPEAKER = re.compile(r"^(?=[^\s:>][^:\n]{0,63}: )", re.MULTILINE)


def build_prompt(messages: Sequence[IncomingMessage]) -> str:
    """The messages of one turn as one text; without quotes, forwards and groups it is what was typed.

    Pictures and files are not in it, but what has no file (a place, a contact, a poll) is told in words.
    """
    runs = (list(run) for _, run in groupby(messages, key=_voice))
    return "\n\n".join(text for run in runs if (text := _run_text(run)))


def join_texts(texts: Sequence[str]) -> str:
    """A long text that an app has cut into messages, whole again."""
    whole = ""
    before = ""
    for text in texts:
        if not text:
            continue
        whole += text if not whole or _cut_inside(before, text) else f"\n{text}"
        before = text
    return whole


def sanitize_name(name: str) -> str:
    """On one line and without signs that would end or open a mark."""
    return untrusted_text.label(name, nameless=UNNAMED_AUTHOR)


def _voice(message: IncomingMessage) -> tuple[int, str | None, object]:
    """Messages that read as one: the same person, speaking or forwarding from the same source."""
    forwarded = message.forward_origin.name if message.forward_origin else None
    return message.sender.user_id, forwarded, message if message.quoted else None


def _run_text(run: Sequence[IncomingMessage]) -> str:
    first = run[0]
    group = not first.chat.is_private
    words = join_texts([message.text for message in run])
    notes = "\n".join(note for message in run if (note := _media_note(message.media)))
    if first.forward_origin is not None:
        source = "you" if first.forward_origin.from_this_bot else sanitize_name(first.forward_origin.name)
        body = _marked(f"Forwarded from {source}", words or notes, limit=0)
    else:
        own = without_our_marks(words, foreign=group)
        body = "\n".join(text for text in (_continued(own) if group else own, notes) if text)
    quote = _quote(first.quoted) if first.quoted else ""
    said = f"{sanitize_name(first.sender.name)}: {body}" if group and body else body
    return "\n\n".join(text for text in (quote, said) if text)


def _quote(quoted: QuotedMessage) -> str:
    if quoted.by_bot:
        whose = "your message"
    elif quoted.own:
        whose = "their own message"
    else:
        whose = f"{sanitize_name(quoted.author)}"
    label = f"{'Quoting' if quoted.chosen or quoted.elsewhere else 'In reply to'} {whose}"
    if quoted.elsewhere:
        label += ", from another chat"
    words = quoted.text or (f"({_a(quoted.media)})" if quoted.media else "")
    return _marked(label, words, limit=OWN_ANSWER_CHARS if quoted.by_bot else QUOTE_CHARS)


def _marked(label: str, words: str, *, limit: int) -> str:
    """A label of ours, and each line of the foreign words behind a sign."""
    shown = without_our_marks(untrusted_text.without_invisible(_shortened(words, limit)), foreign=True)
    lines = "\n".join(f"> {line}" for line in shown.splitlines())
    return f"[{label}]\n{lines}" if lines else f"[{label}]"


def _shortened(words: str, limit: int) -> str:
    if not limit or len(words) <= limit:
        return words
    tail = limit // 4
    left_out = len(words) - limit
    return f"{words[: limit - tail]} [… {left_out:,} characters left out …] {words[-tail:]}"


def _continued(words: str) -> str:
    """In a group, no further line can look as if another person spoke."""
    first, newline, rest = words.partition("\n")
    return f"{first}\n{_SPEAKER.sub('  ', rest)}" if newline else first


def _media_note(media: Media | None) -> str:
    if media is None or not media.note or media.kind == "sticker":
        return f"(a sticker: {media.note})" if media is not None and media.note else ""
    return f"({_a(media.kind)}: {without_our_marks(media.note, foreign=True)})"


def _a(kind: str) -> str:
    words = {"dice": "a throw of dice", "other": "something else", "video_note": "a video"}
    return words.get(kind, f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}")


def _cut_inside(before: str, after: str) -> bool:
    """Cut at the limit, in the middle of a text; one unit below it where a wide sign did not fit."""
    length = utf16_units(before)
    return length == MESSAGE_UNITS or (length == MESSAGE_UNITS - 1 and ord(after[0]) > 0xFFFF)


BatchKind = Literal["plain", "paste", "album", "forward", "stale"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchTimeouts:
    """How long a message waits for its fellows, in seconds, and what makes it wait."""

    paste_units: int = 3_800
    paste_tail_units: int = 2_048
    """Apps cut behind the middle of a message: a shorter one is the last part."""
    paste: float = 1.5
    paste_most: float = 8.0
    album: float = 1.5
    album_most: float = 10.0
    forward: float = 0.3
    forward_most: float = 8.0
    late: float = 5.0
    """So long after a paste has gone out, what may be its next part names it in `late_for`."""
    comment: float = 0.0
    """Apps send the comment before what is forwarded. Waiting for it would delay every message, so only what
    arrives together is joined; what comes within `forward` later names it in `late_for`."""
    stale_after: float = 600.0
    stale: float = 0.5
    stale_most: float = 8.0
    most_units: int = 100_000
    """A turn is no larger; the rest is the next one."""
    most_messages: int = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageBatch:
    """Messages that make one turn, or one command; `late_for` names an earlier message that it belongs to."""

    messages: tuple[IncomingMessage, ...]
    late_for: int | None = None
    superseded: tuple[int, ...] = ()
    """Updates that an edit has replaced before anybody saw them."""

    @property
    def first(self) -> IncomingMessage:
        return self.messages[0]

    @property
    def addressed_message(self) -> IncomingMessage:
        """The message that tells whether the bot is meant: only one part of a paste can mention it."""
        return next((one for one in self.messages if one.is_addressed), self.first)

    @property
    def update_ids(self) -> tuple[int, ...]:
        return (*self.superseded, *(one.update_id for one in self.messages))

    @property
    def message_ids(self) -> tuple[int, ...]:
        return tuple(one.message_id for one in self.messages)

    @property
    def text(self) -> str:
        """As the model reads it."""
        return build_prompt(self.messages)

    @property
    def media(self) -> tuple[Media, ...]:
        return tuple(one.media for one in self.messages if one.media is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingBatch:
    """What waits for its fellows."""

    kind: BatchKind
    messages: tuple[IncomingMessage, ...]
    due: datetime
    latest: datetime
    album: str = ""
    late_for: int | None = None
    superseded: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasedBatch:
    """What has gone out already, so that a straggler finds its place."""

    kind: BatchKind
    message_id: int
    at: datetime
    album: str = ""
    open_ended: bool = False
    """A paste whose last part was as long as apps cut them."""


def _any_command(message: IncomingMessage) -> bool:
    return message.command is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderBuffer:
    """The messages of one person in one place. A value: time comes in, new lanes and turns come out."""

    patience: BatchTimeouts = field(default_factory=BatchTimeouts)
    is_command: Callable[[IncomingMessage], bool] = _any_command
    pending: PendingBatch | None = None
    released: tuple[ReleasedBatch, ...] = ()

    @property
    def next_due(self) -> datetime | None:
        """When `elapsed` has something to release; None while nothing waits."""
        return None if self.pending is None else min(self.pending.due, self.pending.latest)

    def add(self, message: IncomingMessage, now: datetime) -> tuple[SenderBuffer, tuple[MessageBatch, ...]]:
        """A group that is due at `now` still takes what arrives at `now`: that came together with it."""
        lane, out = self._before(now)
        if message.is_edited:
            return lane._edited(message, out)
        if self.is_command(message):
            return lane._command(message, out, now)
        if lane.pending is not None:
            grown = _join_batch(lane.pending, message, now, self.patience)
            if grown is not None:
                return replace(lane, pending=grown), out
            lane, more = lane._released(now)
            out += more
        return replace(lane, pending=lane._opened(message, now)), out

    def release_due(self, now: datetime) -> tuple[SenderBuffer, tuple[MessageBatch, ...]]:
        due = self.next_due
        return (self, ()) if due is None or now < due else self._released(now)

    def _before(self, now: datetime) -> tuple[SenderBuffer, tuple[MessageBatch, ...]]:
        due = self.next_due
        return self._released(now) if due is not None and due < now else (self, ())

    def _command(
        self, message: IncomingMessage, out: tuple[MessageBatch, ...], now: datetime
    ) -> tuple[SenderBuffer, tuple[MessageBatch, ...]]:
        """Never delayed, never merged. Single messages before it have nothing to wait for any more."""
        lane = self
        if lane.pending is not None and lane.pending.kind in ("plain", "stale"):
            lane, more = lane._released(now)
            out += more
        return lane, (*out, MessageBatch(messages=(message,)))

    def _edited(
        self, message: IncomingMessage, out: tuple[MessageBatch, ...]
    ) -> tuple[SenderBuffer, tuple[MessageBatch, ...]]:
        """An edit of what still waits replaces it; other edits are for the log."""
        group = self.pending
        if group is None or message.message_id not in {one.message_id for one in group.messages}:
            return self, (*out, MessageBatch(messages=(message,)))
        old = next(one for one in group.messages if one.message_id == message.message_id)
        newer = replace(message, is_edited=False)
        spoken = tuple(newer if one is old else one for one in group.messages)
        changed = replace(group, messages=spoken, superseded=(*group.superseded, old.update_id))
        return replace(self, pending=changed), out

    def _released(self, now: datetime) -> tuple[SenderBuffer, tuple[MessageBatch, ...]]:
        group = self.pending
        if group is None:
            return self, ()
        spoken = tuple(sorted(group.messages, key=lambda one: one.message_id))
        gathered = MessageBatch(messages=spoken, late_for=group.late_for, superseded=group.superseded)
        anchor = group.late_for if group.late_for is not None else spoken[0].message_id
        memory = ReleasedBatch(
            kind=group.kind,
            message_id=anchor,
            at=now,
            album=group.album,
            open_ended=group.kind == "paste"
            and utf16_units(spoken[-1].text) >= self.patience.paste_tail_units,
        )
        return replace(self, pending=None, released=(*self.released, memory)[-4:]), (gathered,)

    def _opened(self, message: IncomingMessage, now: datetime) -> PendingBatch:
        kind = _kind(message, now, self.patience)
        wait, most = _wait_seconds(kind, self.patience)
        return PendingBatch(
            kind=kind,
            messages=(message,),
            due=now + timedelta(seconds=wait),
            latest=now + timedelta(seconds=most),
            album=message.media_group_id,
            late_for=self._straggler_of(message, kind, now),
        )

    def _straggler_of(self, message: IncomingMessage, kind: BatchKind, now: datetime) -> int | None:
        if self.released and self.released[-1].open_ended and kind in ("plain", "paste"):
            past = self.released[-1]
            if message.media is None and (now - past.at).total_seconds() <= self.patience.late:
                return past.message_id
        for past in reversed(self.released):
            age = (now - past.at).total_seconds()
            if message.media_group_id and past.album == message.media_group_id:
                return past.message_id
            if message.forward_origin and past.kind == "plain" and age <= self.patience.forward:
                return past.message_id
        return None


def _kind(message: IncomingMessage, now: datetime, patience: BatchTimeouts) -> BatchKind:
    if (now - message.sent_at).total_seconds() > patience.stale_after:
        return "stale"
    if message.media_group_id:
        return "album"
    if message.forward_origin is not None:
        return "forward"
    return "paste" if message.media is None and utf16_units(message.text) >= patience.paste_units else "plain"


def _wait_seconds(kind: BatchKind, patience: BatchTimeouts) -> tuple[float, float]:
    """For the next one, and at most."""
    match kind:
        case "plain":
            return patience.comment, patience.comment
        case "paste":
            return patience.paste, patience.paste_most
        case "album":
            return patience.album, patience.album_most
        case "forward":
            return patience.forward, patience.forward_most
        case "stale":
            return patience.stale, patience.stale_most


def _join_batch(
    group: PendingBatch, message: IncomingMessage, now: datetime, patience: BatchTimeouts
) -> PendingBatch | None:
    """The group with one more, or None when the message is no fellow of it."""
    room = patience.most_units - sum(utf16_units(one.text) for one in group.messages)
    if utf16_units(message.text) > room or len(group.messages) >= patience.most_messages:
        return None
    becomes = _kind_after_joining(group, message, _kind(message, now, patience))
    return None if becomes is None else _extend_batch(group, message, becomes, now, patience)


def _kind_after_joining(group: PendingBatch, message: IncomingMessage, kind: BatchKind) -> BatchKind | None:
    """What the group is with this message in it."""
    match group.kind:
        case "stale":
            return "stale"
        case "album":
            return "album" if message.media_group_id == group.album else None
        case "paste":
            return "paste" if kind in ("paste", "plain") and message.media is None else None
        case "forward":
            return "forward" if kind in ("forward", "plain") else None
        case "plain":
            return "forward" if kind == "forward" else None


def _extend_batch(
    group: PendingBatch, message: IncomingMessage, kind: BatchKind, now: datetime, patience: BatchTimeouts
) -> PendingBatch:
    wait, most = _wait_seconds(kind, patience)
    last = kind == "paste" and utf16_units(message.text) < patience.paste_tail_units
    latest = now + timedelta(seconds=most) if kind != group.kind else group.latest
    return replace(
        group,
        kind=kind,
        messages=(*group.messages, message),
        due=now if last else now + timedelta(seconds=wait),
        latest=latest,
    )
