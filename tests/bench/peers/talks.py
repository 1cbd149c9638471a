"""Talk to play, with facts planted in it that are asked for later: recorded elsewhere, or made up."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from tests.bench.policies.workload import WORDS, recorded

ASKED_AFTER = 0.8
"""Facts are said in this share of the talk, so that the last of them is some turns old when it is asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    sentence: str
    question: str
    literal: str
    """Known when these words stand in what the model is shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    person: str
    answer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Talk:
    exchanges: tuple[Exchange, ...]
    facts: tuple[Planted, ...]


def everyday(folder: Path | None, *, turns: int, every: int, seed: int) -> Talk:
    """Small talk of two people, one after the other until there are enough turns."""
    if folder is None:
        return _planted(_made_up(turns, seed, words=25), every, seed)
    said = (turn for talk in recorded(folder / "locomo-dev.json") for turn in talk.turns)
    pairs = [Exchange(person=turn.person, answer=turn.answer) for turn in islice(said, turns)]
    return _planted(pairs, every, seed)


def long_turns(folder: Path | None, *, turns: int, every: int, seed: int) -> Talk:
    """Talk with an assistant whose answers are long."""
    if folder is None:
        return _planted(_made_up(turns, seed, words=400), every, seed)
    return _planted(list(islice(_beam(folder / "beam-dev.json"), turns)), every, seed)


def _beam(path: Path) -> Iterable[Exchange]:
    for talk in json.loads(path.read_text("utf-8"))["conversations"]:
        words: list[str] = []
        for message in talk["said"]:
            if message["by"] == "person":
                words.append(message["text"])
            elif words:
                yield Exchange(person="\n".join(words), answer=message["text"])
                words = []


def _made_up(turns: int, seed: int, *, words: int) -> list[Exchange]:
    chance = random.Random(seed)
    return [Exchange(person=_prose(chance, words), answer=_prose(chance, 2 * words)) for _ in range(turns)]


def _prose(chance: random.Random, words: int) -> str:
    sentences = (chance.choices(WORDS, k=chance.randint(5, 15)) for _ in range(max(1, words // 10)))
    return " ".join(f"{' '.join(sentence).capitalize()}." for sentence in sentences)


def _planted(pairs: Sequence[Exchange], every: int, seed: int) -> Talk:
    """One fact for so many turns, all of them in the first part of the talk."""
    known = planted(len(pairs) // every, seed)
    step = ASKED_AFTER * every
    where = {round(step * (number + 0.5)): fact for number, fact in enumerate(known)}
    return Talk(
        exchanges=tuple(
            Exchange(person=f"{pair.person} {where[at].sentence}", answer=pair.answer)
            if at in where
            else pair
            for at, pair in enumerate(pairs)
        ),
        facts=known,
    )


def planted(count: int, seed: int) -> tuple[Planted, ...]:
    """Things that people tell an assistant and come back to, each with a number that is said once."""
    chance = random.Random(seed)
    things = [(owner, *thing) for thing in THINGS for owner in OWNERS]
    chance.shuffle(things)
    if count > len(things):
        raise ValueError(f"{count} facts wanted, {len(things)} are known")
    found = []
    for owner, thing, told in things[:count]:
        code = f"{chance.choice('ABCDEFGHKLMNPRSTUVWXYZ')}{chance.randint(1000, 9999)}"
        whose = f"{owner} {thing}"
        found.append(
            Planted(
                sentence=told.format(whose=whose, code=code),
                question=f"What was the number of {whose}?",
                literal=code,
            )
        )
    return tuple(found)


OWNERS = ("my mother's", "our neighbour's", "my brother's", "Nina's", "the club's")
THINGS = (
    ("garage", "I had {whose} painted, it is number {code} now."),
    ("insurance", "They wrote that {whose} policy has number {code}."),
    ("boat", "You can read {code} on the side of {whose}, that is its number."),
    ("locker", "We got {whose} at last, number {code}."),
    ("library card", "I looked for {whose} all day; its number is {code}."),
    ("parking place", "It turns out that {whose} is number {code}."),
    ("gym card", "When they ask for the number of {whose}, say {code}."),
    ("piano", "The tuner noted {code} as the number of {whose}."),
    ("allotment", "The letter says that {whose} is number {code} from spring on."),
    ("season ticket", "Somebody found {whose}, the one with number {code}."),
    ("scooter", "I have rented out {whose}; number {code} is on its plate."),
    ("water meter", "The man from the works read {whose}, number {code}."),
)
"""What there is, and how it is told."""
