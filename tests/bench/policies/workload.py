"""Conversations to replay: generated from a seed, or recorded ones, with the gaps between their messages."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

BEGIN = datetime(2026, 1, 5, 8, 0, tzinfo=UTC)
TELEGRAM_GAPS = ((0.55, 5, 120), (0.12, 120, 300), (0.18, 300, 3_600), (0.15, 3_600, 86_400))
"""Share of messages, shortest and longest gap in seconds (reference/compaction.md 3.6)."""
TOOL_TURNS = 0.30
FACT_EVERY = 12
"""One turn in so many plants a fact that is asked for at the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRound:
    name: str
    argument: str
    result: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One turn: what the person wrote, what tools returned, what was answered."""

    at: datetime
    person: str
    rounds: tuple[ToolRound, ...]
    answer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    question: str
    literal: str
    """Reached when these words stand in what the model is shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    name: str
    turns: tuple[Said, ...]
    facts: tuple[Fact, ...]


def telegram(
    turns: int, *, seed: int, tool_turns: float = TOOL_TURNS, name: str = "telegram"
) -> Conversation:
    """A talk with the gaps of a Telegram chat; `tool_turns` is the share of turns that use tools."""
    chance = random.Random(seed)
    facts = _facts(chance, turns // FACT_EVERY + 1)
    planted: list[Fact] = []
    said: list[Said] = []
    at = BEGIN
    for number in range(turns):
        at += timedelta(seconds=_gap(chance))
        words = _prose(chance, chance.lognormvariate(3.4, 0.8))
        if number % FACT_EVERY == FACT_EVERY // 2:
            sentence, fact = facts[len(planted)]
            words = f"{words} {sentence}"
            planted.append(fact)
        said.append(
            Said(
                at=at,
                person=words,
                rounds=tuple(_rounds(chance)) if chance.random() < tool_turns else (),
                answer=_prose(chance, chance.lognormvariate(5.0, 0.7)),
            )
        )
    return Conversation(name=name, turns=tuple(said), facts=tuple(planted))


def recorded(path: Path) -> list[Conversation]:
    """Two-person conversations in the shape of LoCoMo: the first speaker is the person, the second answers.

    A message without an answer before the next session gets a short one; sessions keep their dates.
    """
    return [_recorded(sample) for sample in json.loads(path.read_text("utf-8"))]


def _recorded(sample: dict[str, Any]) -> Conversation:
    talk = sample["conversation"]
    person = talk["speaker_a"]
    said: list[Said] = []
    words: list[str] = []
    at = _date(talk.get("session_1_date_time", ""), BEGIN)
    numbers = sorted(int(key[8:]) for key in talk if re.fullmatch(r"session_\d+", key))
    for number in numbers:
        begun = _date(talk.get(f"session_{number}_date_time", ""), at + timedelta(days=1))
        at = max(begun, at + timedelta(minutes=1))
        for line in talk[f"session_{number}"]:
            if line["speaker"] == person:
                words.append(_line(line))
                continue
            at += timedelta(seconds=45)
            said.append(Said(at=at, person="\n".join(words) or "…", rounds=(), answer=_line(line)))
            words = []
    if words:
        said.append(Said(at=at, person="\n".join(words), rounds=(), answer="I see."))
    return Conversation(name=sample["sample_id"], turns=tuple(said), facts=_literal_facts(sample, said))


def _literal_facts(sample: dict[str, Any], said: Sequence[Said]) -> tuple[Fact, ...]:
    """Questions whose answer stands in the conversation word for word."""
    spoken = " ".join(f"{turn.person} {turn.answer}" for turn in said).casefold()
    found = []
    for row in sample.get("qa", ()):
        literal = str(row.get("answer", "")).strip().rstrip(".")
        if len(literal) >= 3 and re.search(rf"\b{re.escape(literal.casefold())}\b", spoken):
            found.append(Fact(question=row["question"], literal=literal))
    return tuple(found)


def _line(line: dict[str, Any]) -> str:
    caption = line.get("blip_caption")
    return f"{line['text']} [a picture: {caption}]" if caption else str(line["text"])


def _date(text: str, otherwise: datetime) -> datetime:
    for form in ("%I:%M %p on %d %B, %Y", "%I:%M %p on %d %B %Y"):
        try:
            return datetime.strptime(text, form).replace(tzinfo=UTC)
        except ValueError:
            continue
    return otherwise


def _gap(chance: random.Random) -> float:
    shares = [share for share, _, _ in TELEGRAM_GAPS]
    _, least, most = chance.choices(TELEGRAM_GAPS, shares)[0]
    return chance.uniform(least, most)


def _rounds(chance: random.Random) -> Iterator[ToolRound]:
    for _ in range(chance.choice((1, 1, 2, 3))):
        kind = chance.choice(("fetch_url", "search_files", "run_query"))
        size = chance.lognormvariate(7.0, 1.0)
        yield ToolRound(name=kind, argument=_prose(chance, 6), result=_table(chance, size))


def _prose(chance: random.Random, words: float) -> str:
    left = max(3, round(words))
    sentences = []
    while left > 0:
        length = min(left, chance.randint(5, 16))
        sentences.append(" ".join(chance.choices(WORDS, k=max(3, length))).capitalize() + ".")
        left -= length
    return " ".join(sentences)


def _table(chance: random.Random, tokens: float) -> str:
    rows = max(1, round(tokens / 16))
    lines = (
        f"{chance.randint(1, 10**6):>7} | {chance.choice(WORDS)}-{chance.choice(WORDS)} | "
        f"{chance.uniform(0, 999):.2f} | {chance.choice(WORDS)}"
        for _ in range(rows)
    )
    return "\n".join(lines)


def _facts(chance: random.Random, count: int) -> list[tuple[str, Fact]]:
    """Sentences that say something exact about one thing each, with the question for it."""
    things = [f"{owner} {thing}" for thing in THINGS for owner in OWNERS]
    chance.shuffle(things)
    if count > len(things):
        raise ValueError(f"{count} facts wanted, {len(things)} things are known")
    found = []
    for thing in things[:count]:
        code = f"{chance.choice('ABCDEFGHKLMNPRSTUVWXYZ')}{chance.randint(1000, 9999)}"
        sentence = f"By the way, the number of {thing} is {code}."
        found.append((sentence, Fact(question=f"What is the number of {thing}?", literal=code)))
    return found


OWNERS = ("my", "our neighbour's", "my mother's", "my brother's", "the office's", "Nina's", "the club's")
THINGS = (
    "bicycle lock", "garage", "library card", "insurance", "boat", "locker", "parking place", "alarm",
    "gym card", "passport", "savings account", "piano", "allotment", "dog tag", "season ticket", "safe",
    "mailbox", "workshop", "camera", "tent", "printer", "freezer", "scooter", "water meter",
)  # fmt: skip
_VOCABULARY = """
    morning coffee garden river weather train office meeting friend dinner kitchen window holiday music
    letter paper answer question number market station bridge summer winter evening message picture story
    brother sister mother father children school teacher lesson language sentence word table chair house
    street corner village city country mountain forest beach island boat water bread cheese apple tomato
    soup cake sugar salt pepper price ticket journey luggage hotel room key door floor stairs roof wall
    colour green yellow purple silver light shadow noise silence voice song dance guitar piano concert
    doctor medicine headache sleep dream exercise running walking swimming football match player team
    computer keyboard screen program update password file folder backup network cable battery camera
    think believe remember forget decide choose plan start finish continue change improve repair build
    carry bring take send receive open close read write listen watch look find lose keep share borrow
    little large early late quick slow warm cold heavy bright quiet simple careful honest gentle proud
    always often sometimes perhaps maybe tomorrow yesterday today together without before after because
    although while between around under above behind inside outside almost enough another several
"""
WORDS = tuple(_VOCABULARY.split())
