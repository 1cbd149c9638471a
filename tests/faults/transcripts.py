"""What each person sent and what they saw, in order, as they could have written it down themselves.

Nothing here asks the database: whether a message is lost, doubled or out of order is told by its person.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count, pairwise
from typing import Any

from tests.faults.crowd import Wanderer
from tests.kit.fakes.bot_api import Person as Phone
from tests.kit.fakes.bot_api.rich import plain

MARK = re.compile(r"\b[a-z]\d+_x\d+\b")
"""In every message, once; the fake model repeats those of all messages that it answers."""
OPEN_AT_MOST = 3
"""Nobody goes on writing for ever to somebody who does not answer."""
GIVES_UP_SECONDS = 20.0
"""Who waited in vain for so long writes the next message nevertheless."""
GLANCE_SECONDS = 0.5
BRING = "Bring the answer"
"""The button of a notice that an answer may be missing."""
LOOKS_AGAIN_SECONDS = 10.0
MARKER_CHARS = 2
"""By so much an answer may become shorter: the mark that it goes on is taken away."""
STRAY_SECONDS = 3.0
"""A bubble that a killed bot may have sent without storing its number came at most so long before. The time
without storage is not counted.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Of the other side, as it stands on the screen in the end."""

    text: str
    at: float
    """Unix time of its last change."""

    has_button: bool = False
    """One that brings an answer which may not have arrived."""
    about: tuple[str, ...] = ()
    """The marks of the message that it replies to."""

    @property
    def marks(self) -> list[str]:
        return MARK.findall(self.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript:
    person: str
    channel: str
    sent: tuple[str, ...]
    """The marks of what they wrote, in the order in which they wrote it."""
    own: tuple[str, ...]
    """The marks of their own lines as their screen shows them."""
    seen: tuple[Line, ...]
    seconds: tuple[float, ...] = ()
    """From each message that was answered until its answer was seen."""
    flickers: tuple[str, ...] = ()
    """What became of bubbles of answers that became shorter or went away, each bubble once."""


@dataclass(slots=True, kw_only=True)
class Judgement:
    """Of one transcript or of many."""

    people: int = 0
    sent: int = 0
    answered: int = 0
    strays: int = 0
    """Bubbles of a bot that was killed at that very moment, see the exceptions in docs/faults.md."""
    flickers: int = 0
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    out_of_order: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    @property
    def broken(self) -> list[str]:
        named = {"lost": self.lost, "doubled": self.doubled, "out of order": self.out_of_order}
        return [f"{what}: {which}" for what, found in named.items() for which in found]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kills:
    """Unix times."""

    bot: Sequence[float] = ()
    storage_away: Sequence[tuple[float, float]] = ()
    """From a kill of Postgres until it answered again."""

    def cut_off(self, line: Line) -> bool:
        """Whether a bot was killed before it can have stored the number of this line."""
        return any(at - line.at >= 0 and self._lived(line.at, at) <= STRAY_SECONDS for at in self.bot)

    def _lived(self, since: float, until: float) -> float:
        """How long there was storage in between."""
        away = sum(max(0.0, min(until, end) - max(since, begin)) for begin, end in self.storage_away)
        return until - since - away


def judged(transcripts: Sequence[Transcript], *, kills: Kills | None = None) -> Judgement:
    total = Judgement()
    for one in transcripts:
        _judge(one, kills or Kills(), total)
    return total


def _judge(one: Transcript, kills: Kills, into: Judgement) -> None:
    lines, strays = _without_strays(one, kills)
    heard = [mark for line in lines for mark in line.marks]
    times = Counter(heard)
    into.people += 1
    into.sent += len(one.sent)
    into.answered += sum(mark in times for mark in one.sent)
    into.strays += strays
    into.flickers += len(one.flickers)
    into.seconds += one.seconds
    into.lost += [f"{mark} was never answered" for mark in one.sent if mark not in times]
    into.lost += [f"{mark} is not on its own screen" for mark in one.sent if mark not in one.own]
    into.doubled += [f"{mark} was answered {n} times" for mark, n in times.items() if n > 1]
    into.doubled += [f"{mark} is there {n} times" for mark, n in Counter(one.own).items() if n > 1]
    place = {mark: number for number, mark in enumerate(one.sent)}
    for what, found in (("answered", list(dict.fromkeys(heard))), ("shown", list(one.own))):
        known = [mark for mark in found if mark in place]
        into.out_of_order += [
            f"{later} was {what} before {earlier}"
            for later, earlier in pairwise(known)
            if place[later] > place[earlier]
        ]
        into.out_of_order += [f"{mark} of somebody else was {what}" for mark in found if mark not in place]


def _without_strays(one: Transcript, kills: Kills) -> tuple[list[Line], int]:
    """Of two lines with the same mark, the earlier one is a stray if its bot was killed just then."""
    kept: list[Line] = []
    for number, line in enumerate(one.seen):
        later = {mark for other in one.seen[number + 1 :] for mark in other.marks}
        if not (line.marks and kills.cut_off(line) and set(line.marks) <= later):
            kept.append(line)
    return kept, len(one.seen) - len(kept)


class Visitor(Wanderer):
    """On the web: sends again what was not acknowledged, as the widget does."""

    async def __aenter__(self) -> Visitor:
        await super().__aenter__()
        return self

    async def say_something(self) -> None:
        mark = f"{self.name}x{next(self._numbers)}"
        before = time.monotonic()
        self.said_at[await self.say(f"I say {mark} now.")] = before

    def missing(self) -> bool:
        return any(self.answer_to(cid) is None for cid in self.said)

    def transcript(self) -> Transcript:
        own = [frame for frame in self.messages if frame["role"] == "person"]
        return Transcript(
            person=self.name,
            channel="web",
            sent=tuple(mark for text in self.said.values() for mark in MARK.findall(text)),
            own=tuple(mark for frame in own for mark in MARK.findall(frame["text"])),
            seen=tuple(Line(text=frame["text"], at=0.0) for frame in self.finals),
            seconds=tuple(self._seconds(own)),
        )


class Texter:
    """On Telegram: writes, glances at the screen, and remembers all that ever stood there."""

    def __init__(self, phone: Phone, name: str, seed: int) -> None:
        self.phone = phone
        self.name = name
        self.sent: list[str] = []
        self._said_at: dict[str, float] = {}
        self._heard_at: dict[str, float] = {}
        self._own: dict[int, str] = {}
        self._lines: dict[int, Line] = {}
        self._seen = 0
        self._flickered: dict[int, str] = {}
        self._pressed: set[int] = set()
        self._chance = random.Random(f"{seed} {name}")
        self._numbers = count(1)

    async def talk(self, gap_seconds: float) -> None:
        """Until it is cancelled; waits for an answer when too many messages have none."""
        while True:
            await asyncio.sleep(self._chance.uniform(0.5, 1.5) * gap_seconds)
            await self.glance()
            if len(self._open()) < OPEN_AT_MOST:
                await self.say_something()

    async def say_something(self) -> None:
        mark = f"{self.name}x{next(self._numbers)}"
        self.sent.append(mark)
        self._said_at[mark] = time.time()
        await self.phone.say(f"I say {mark} now.")

    async def glance(self) -> None:
        """What has changed on the screen since the last time."""
        for view in await self.phone.views(since=self._seen):
            self._seen = max(self._seen, view["number"])
            self._note(view)
        for number in self._missed():
            self._pressed.add(number)
            await self.phone.tap(BRING, message_id=number)

    def missing(self) -> bool:
        return any(mark not in self._heard_at for mark in self.sent)

    def transcript(self) -> Transcript:
        return Transcript(
            person=self.name,
            channel="Telegram",
            sent=tuple(self.sent),
            own=tuple(mark for number in sorted(self._own) for mark in MARK.findall(self._own[number])),
            seen=tuple(self._lines[number] for number in sorted(self._lines)),
            seconds=tuple(self._heard_at[m] - self._said_at[m] for m in self.sent if m in self._heard_at),
            flickers=tuple(self._flickered.values()),
        )

    def _open(self) -> list[str]:
        newest = self.sent[-OPEN_AT_MOST:]
        now = time.time()
        return [m for m in newest if m not in self._heard_at and now - self._said_at[m] < GIVES_UP_SECONDS]

    def _missed(self) -> list[int]:
        """Notices of an answer that is not there although a later one is, or although they looked twice.

        A notice replies to its question; one whose question has gone may be about any that is missing.
        """
        heard = [number for number, mark in enumerate(self.sent) if mark in self._heard_at]
        last = max(heard, default=-1)
        old = time.time() - LOOKS_AGAIN_SECONDS
        missing = [
            m
            for n, m in enumerate(self.sent)
            if m not in self._heard_at and (n < last or self._said_at[m] < old)
        ]
        return [
            number
            for number, line in self._lines.items()
            if line.has_button
            and number not in self._pressed
            and any(self._said_at[m] < line.at and m in (line.about or missing) for m in missing)
        ]

    def _note(self, view: dict[str, Any]) -> None:
        number, text = view.get("message_id"), _text_of(view)
        if number is not None and (before := self._lines.get(number)) is not None:
            shrinks = len(text) < len(before.text) - MARKER_CHARS
            if shrinks and not before.has_button:
                became = f"{len(before.text)} -> {len(text)} characters, {view['kind']} at {view['at']:.3f}"
                self._flickered.setdefault(number, f"{number}: {became}: {before.text[:40]!r}")
        match view["kind"], view.get("by"):
            case ("deleted", _) if number is not None:
                self._lines.pop(number, None)
            case (_, "person") if number is not None and text:
                self._own.setdefault(number, text)
            case ("sent" | "edited", "bot") if number is not None:
                about = _text_of(view.get("reply_to_message") or {})
                self._lines[number] = Line(
                    text=text,
                    at=view["at"],
                    has_button=BRING in _labels_of(view),
                    about=tuple(MARK.findall(about)),
                )
                for mark in MARK.findall(text):
                    self._heard_at.setdefault(mark, view["at"])


def _text_of(view: dict[str, Any]) -> str:
    rich = view.get("rich_message")
    return plain(rich["blocks"]) if rich else str(view.get("text") or "")


def _labels_of(view: dict[str, Any]) -> list[str]:
    rows = (view.get("reply_markup") or {}).get("inline_keyboard") or []
    return [button["text"] for row in rows for button in row]
