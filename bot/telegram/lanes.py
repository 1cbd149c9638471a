"""Which messages belong to one turn: long pastes, albums and forwards are gathered, the rest goes at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Literal

from bot.telegram.arrivals import Media, Spoken
from bot.telegram.markup import units
from bot.telegram.quoting import prompt_of

Kind = Literal["plain", "paste", "album", "forward", "stale"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
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
class Gathered:
    """Messages that make one turn, or one command; `late_for` names an earlier message that it belongs to."""

    spoken: tuple[Spoken, ...]
    late_for: int | None = None
    superseded: tuple[int, ...] = ()
    """Updates that an edit has replaced before anybody saw them."""

    @property
    def first(self) -> Spoken:
        return self.spoken[0]

    @property
    def asked(self) -> Spoken:
        """The message that tells whether the bot is meant: only one part of a paste can mention it."""
        return next((one for one in self.spoken if one.addressed), self.first)

    @property
    def updates(self) -> tuple[int, ...]:
        return (*self.superseded, *(one.update_id for one in self.spoken))

    @property
    def message_ids(self) -> tuple[int, ...]:
        return tuple(one.message_id for one in self.spoken)

    @property
    def text(self) -> str:
        """As the model reads it."""
        return prompt_of(self.spoken)

    @property
    def media(self) -> tuple[Media, ...]:
        return tuple(one.media for one in self.spoken if one.media is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """What waits for its fellows."""

    kind: Kind
    spoken: tuple[Spoken, ...]
    due: datetime
    latest: datetime
    album: str = ""
    late_for: int | None = None
    superseded: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """What has gone out already, so that a straggler finds its place."""

    kind: Kind
    message_id: int
    at: datetime
    album: str = ""


def _any_command(message: Spoken) -> bool:
    return message.command is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """The messages of one person in one place. A value: time comes in, new lanes and turns come out."""

    patience: Patience = field(default_factory=Patience)
    is_command: Callable[[Spoken], bool] = _any_command
    group: Group | None = None
    released: tuple[Released, ...] = ()

    @property
    def next_due(self) -> datetime | None:
        """When `elapsed` has something to release; None while nothing waits."""
        return None if self.group is None else min(self.group.due, self.group.latest)

    def arrived(self, message: Spoken, now: datetime) -> tuple[Lane, tuple[Gathered, ...]]:
        """A group that is due at `now` still takes what arrives at `now`: that came together with it."""
        lane, out = self._before(now)
        if message.edited:
            return lane._edited(message, out)
        if self.is_command(message):
            return lane._command(message, out, now)
        if lane.group is not None:
            grown = _joined(lane.group, message, now, self.patience)
            if grown is not None:
                return replace(lane, group=grown), out
            lane, more = lane._released(now)
            out += more
        return replace(lane, group=lane._opened(message, now)), out

    def elapsed(self, now: datetime) -> tuple[Lane, tuple[Gathered, ...]]:
        due = self.next_due
        return (self, ()) if due is None or now < due else self._released(now)

    def _before(self, now: datetime) -> tuple[Lane, tuple[Gathered, ...]]:
        due = self.next_due
        return self._released(now) if due is not None and due < now else (self, ())

    def _command(
        self, message: Spoken, out: tuple[Gathered, ...], now: datetime
    ) -> tuple[Lane, tuple[Gathered, ...]]:
        """Never delayed, never merged. Single messages before it have nothing to wait for any more."""
        lane = self
        if lane.group is not None and lane.group.kind in ("plain", "stale"):
            lane, more = lane._released(now)
            out += more
        return lane, (*out, Gathered(spoken=(message,)))

    def _edited(self, message: Spoken, out: tuple[Gathered, ...]) -> tuple[Lane, tuple[Gathered, ...]]:
        """An edit of what still waits replaces it; other edits are for the log."""
        group = self.group
        if group is None or message.message_id not in {one.message_id for one in group.spoken}:
            return self, (*out, Gathered(spoken=(message,)))
        old = next(one for one in group.spoken if one.message_id == message.message_id)
        newer = replace(message, edited=False)
        spoken = tuple(newer if one is old else one for one in group.spoken)
        changed = replace(group, spoken=spoken, superseded=(*group.superseded, old.update_id))
        return replace(self, group=changed), out

    def _released(self, now: datetime) -> tuple[Lane, tuple[Gathered, ...]]:
        group = self.group
        if group is None:
            return self, ()
        spoken = tuple(sorted(group.spoken, key=lambda one: one.message_id))
        gathered = Gathered(spoken=spoken, late_for=group.late_for, superseded=group.superseded)
        anchor = group.late_for if group.late_for is not None else spoken[0].message_id
        memory = Released(kind=group.kind, message_id=anchor, at=now, album=group.album)
        return replace(self, group=None, released=(*self.released, memory)[-4:]), (gathered,)

    def _opened(self, message: Spoken, now: datetime) -> Group:
        kind = _kind(message, now, self.patience)
        wait, most = _waits(kind, self.patience)
        return Group(
            kind=kind,
            spoken=(message,),
            due=now + timedelta(seconds=wait),
            latest=now + timedelta(seconds=most),
            album=message.media_group_id,
            late_for=self._straggler_of(message, now),
        )

    def _straggler_of(self, message: Spoken, now: datetime) -> int | None:
        for past in reversed(self.released):
            age = (now - past.at).total_seconds()
            if message.media_group_id and past.album == message.media_group_id:
                return past.message_id
            if message.forwarded and past.kind == "plain" and age <= self.patience.forward:
                return past.message_id
        return None


def _kind(message: Spoken, now: datetime, patience: Patience) -> Kind:
    if (now - message.at).total_seconds() > patience.stale_after:
        return "stale"
    if message.media_group_id:
        return "album"
    if message.forwarded is not None:
        return "forward"
    return "paste" if message.media is None and units(message.text) >= patience.paste_units else "plain"


def _waits(kind: Kind, patience: Patience) -> tuple[float, float]:
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


def _joined(group: Group, message: Spoken, now: datetime, patience: Patience) -> Group | None:
    """The group with one more, or None when the message is no fellow of it."""
    room = patience.most_units - sum(units(one.text) for one in group.spoken)
    if units(message.text) > room or len(group.spoken) >= patience.most_messages:
        return None
    becomes = _fellows(group, message, _kind(message, now, patience))
    return None if becomes is None else _grown(group, message, becomes, now, patience)


def _fellows(group: Group, message: Spoken, kind: Kind) -> Kind | None:
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


def _grown(group: Group, message: Spoken, kind: Kind, now: datetime, patience: Patience) -> Group:
    wait, most = _waits(kind, patience)
    last = kind == "paste" and units(message.text) < patience.paste_tail_units
    latest = now + timedelta(seconds=most) if kind != group.kind else group.latest
    return replace(
        group,
        kind=kind,
        spoken=(*group.spoken, message),
        due=now if last else now + timedelta(seconds=wait),
        latest=latest,
    )
