"""People who talk on through a storm, and what they find on their screens after it."""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count, cycle

import aiohttp

from tests.kit.deployment.person import Frame, Person
from tests.kit.deployment.telegram import Talker, Telegram

MARK = re.compile(r"\b[a-z]\d+_x\d+\b")
"""In every message, once; the fake model says it again."""
OPEN_AT_MOST = 3
"""Nobody goes on writing for ever to somebody who does not answer."""
WALK = "We walked along the river and talked of this and that. " * 6


@dataclass(slots=True, kw_only=True)
class Tally:
    """What people were promised, counted from their side."""

    said: int = 0
    acknowledged: int = 0
    answered: int = 0
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    out_of_order: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    """Answers that speak of another message than their turn's."""
    answer_seconds: list[float] = field(default_factory=list)

    def numbers(self) -> dict[str, int]:
        return {
            "said": self.said, "acknowledged": self.acknowledged, "answered": self.answered,
            "lost": len(self.lost), "doubled": len(self.doubled), "out_of_order": len(self.out_of_order),
            "wrong": len(self.wrong),
        }  # fmt: skip

    def broken(self) -> list[str]:
        named = {"lost": self.lost, "doubled": self.doubled, "out of order": self.out_of_order}
        return [f"{name}: {what}" for name, found in {**named, "wrong": self.wrong}.items() for what in found]


class Wanderer(Person):
    """Reaches the site through whichever of its processes answers, as through a balancer."""

    def __init__(self, ports: Sequence[int], name: str, seed: int) -> None:
        super().__init__(port=ports[0], name=name)
        self.chance = random.Random(f"{seed} {name}")
        self.said_at: dict[str, float] = {}
        self.ended_at: dict[int, float] = {}
        self._numbers = count(1)
        self._ports = cycle(ports)

    async def __aenter__(self) -> Wanderer:
        await super().__aenter__()
        return self

    async def talk(self, gap_seconds: float) -> None:
        """Until it is cancelled."""
        while True:
            await asyncio.sleep(self.chance.uniform(0.5, 1.5) * gap_seconds)
            if sum(self.answer_to(cid) is None for cid in list(self.said)[-OPEN_AT_MOST:]) < OPEN_AT_MOST:
                await self.say_something()

    async def say_something(self) -> None:
        mark = f"{self.name}x{next(self._numbers)}"
        before = time.monotonic()
        cid = await self.say(self.chance.choice((f"I say {mark} now.", f"I say {mark} now. {WALK}")))
        self.said_at[cid] = before

    async def _talk(self, browser: aiohttp.ClientSession) -> None:
        self.port = next(self._ports)
        await super()._talk(browser)

    def _heard(self, frame: Frame) -> None:
        super()._heard(frame)
        if frame["t"] == "msg" and frame["role"] in ("assistant", "notice") and not frame.get("waiting"):
            self.ended_at.setdefault(frame["turn"], time.monotonic())

    def tally(self, into: Tally) -> None:
        """Text by text: each of mine is there once and in order, with one answer that speaks of it."""
        own = [frame for frame in self.messages if frame["role"] == "person"]
        shown = Counter(frame["text"] for frame in own)
        finals: dict[int, list[Frame]] = {}
        for frame in self.finals:
            finals.setdefault(frame["turn"], []).append(frame)
        into.said += len(self.said)
        into.acknowledged += len(self.acks)
        into.lost += [text for cid, text in self.said.items() if cid in self.acks and not shown[text]]
        into.doubled += [text for text, times in shown.items() if times > 1]
        if [frame["text"] for frame in own] != list(self.said.values()):
            into.out_of_order.append(f"{self.name} wrote in another order")
        turns = [frame["turn"] for frame in self.finals]
        if turns != sorted(turns):
            into.out_of_order.append(f"{self.name} was answered in another order: {turns}")
        for turn, ends in finals.items():
            into.doubled += [f"turn {turn} of {self.name}"] * (len(ends) - 1)
        for frame in own:
            self._judge(frame, finals.get(frame["turn"], []), into)
        into.answer_seconds += self._seconds(own)

    def _judge(self, asked: Frame, ends: Sequence[Frame], into: Tally) -> None:
        if not ends:
            into.lost.append(f"no answer to {asked['text'][:40]}")
            return
        into.answered += 1
        marks = {m for frame in self.messages if frame["role"] == "person" and frame["turn"] == asked["turn"]
                 for m in MARK.findall(frame["text"])}  # fmt: skip
        for end in ends:
            heard = set(MARK.findall(end["text"]))
            if end["role"] == "assistant" and (not heard or not heard <= marks):
                into.wrong.append(f"{end['text'][:80]!r} to {sorted(marks)}")

    def _seconds(self, own: Sequence[Frame]) -> list[float]:
        turn_of = {frame["text"]: frame["turn"] for frame in own}
        ends = (
            (self.ended_at.get(turn_of.get(text, 0)), self.said_at.get(cid))
            for cid, text in self.said.items()
        )
        return [end - said for end, said in ends if end is not None and said is not None]


class Caller:
    """Somebody with a telephone who writes now and then."""

    def __init__(self, talker: Talker, name: str, seed: int) -> None:
        self.talker = talker
        self.name = name
        self._chance = random.Random(f"{seed} {name}")
        self._numbers = count(1)
        self._answers = self._open = 0

    async def talk(self, gap_seconds: float) -> None:
        """Until it is cancelled; waits for an answer when too many messages have none."""
        while True:
            await asyncio.sleep(self._chance.uniform(0.5, 1.5) * gap_seconds)
            answers = len((await self.talker.person.screen()).answers)
            if answers > self._answers:
                self._answers, self._open = answers, 0
            if self._open < OPEN_AT_MOST:
                self._open += 1
                await self.talker.say(f"I say {self.name}x{next(self._numbers)} now.")


async def tally_callers(telegram: Telegram, into: Tally, *, strays: int) -> list[str]:
    """The counts of Telegram; what its whole verdict says against them, if anything."""
    for talker in telegram.people:
        heard = await telegram.heard(talker.id)
        into.said += len(talker.said)
        into.acknowledged += len(talker.said)
        into.answered += sum(text in heard for text in talker.said)
        into.lost += [text for text in talker.said if text not in heard]
        into.doubled += [text for text in talker.said if heard.count(text) > 1]
        places = [heard.find(text) for text in talker.said]
        if places != sorted(places):
            into.out_of_order.append(f"chat {talker.id}: {places}")
    try:
        await telegram.promises_hold(strays=strays)
    except AssertionError as error:
        return [f"Telegram: {error}"]
    return []
