"""Conversations with questions whose answers are known: read from a file, or made up."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

UNANSWERABLE = "abstention"
"""Of questions to which the conversation holds no answer."""
CATEGORIES = {1: "multi_hop", 2: "temporal", 3: "open_domain", 4: "single_hop", 5: "adversarial"}
_EVIDENCE = re.compile(r"D:?(\d+):(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    id: str
    by_person: bool
    text: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    text: str
    category: str
    evidence: tuple[tuple[str, ...], ...]
    """Each is found with any of its messages: one message, or all of an earlier session."""
    answer: str
    before: str = ""
    """The message that asks: only earlier ones may be recalled. Empty: all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A sentence that somebody noted, and where it was said."""

    text: str
    evidence: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    name: str
    person: str
    assistant: str
    said: tuple[Said, ...]
    questions: tuple[Question, ...]
    facts: tuple[Fact, ...] = ()


def conversations(path: Path) -> list[Conversation]:
    """Read a LoCoMo file, a list of talks between two named people, or one of talks with an assistant."""
    raw = json.loads(path.read_text(encoding="utf-8"))
    if isinstance(raw, list):
        return [_locomo(talk) for talk in raw]
    return [_beam(talk) for talk in raw["conversations"]]


def _beam(raw: Mapping[str, Any]) -> Conversation:
    said = tuple(
        Said(
            id=message["id"], by_person=message["by"] == "person", text=message["text"],
            at=datetime.fromisoformat(message["at"]),
        )
        for message in raw["said"]
    )  # fmt: skip
    known = {message.id for message in said}
    asked = tuple(
        Question(
            text=item["question"], category=item["category"], answer=str(item["answer"]),
            evidence=_earlier_sessions(item, known) or tuple(
                dict.fromkeys((place,) for place in item.get("evidence", ()) if place in known)
            ),
            before=item.get("before", ""),
        )
        for item in raw["questions"]
    )  # fmt: skip
    return Conversation(name=raw["name"], person="", assistant="", said=said, questions=asked)


def _earlier_sessions(item: Mapping[str, Any], known: set[str]) -> tuple[tuple[str, ...], ...]:
    sessions = (
        tuple(place for place in session if place in known) for session in item.get("evidence_sessions", ())
    )
    return tuple(session for session in sessions if session)


def _locomo(raw: Mapping[str, Any]) -> Conversation:
    talk = raw["conversation"]
    said = tuple(_said(talk))
    known = {message.id for message in said}
    return Conversation(
        name=raw["sample_id"],
        person=talk["speaker_a"],
        assistant=talk["speaker_b"],
        said=said,
        questions=tuple(_question(item, known) for item in raw["qa"]),
        facts=tuple(_facts(raw.get("observation", {}), known)),
    )


def _said(talk: Mapping[str, Any]) -> Iterable[Said]:
    names = [name for name in talk if re.fullmatch(r"session_\d+", name)]
    for name in sorted(names, key=lambda name: int(name.removeprefix("session_"))):
        begun = datetime.strptime(talk[f"{name}_date_time"], "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)
        for minute, message in enumerate(talk[name]):
            seen = message.get("blip_caption")
            yield Said(
                id=message["dia_id"],
                by_person=message["speaker"] == talk["speaker_a"],
                text=f"{message['text']} [image: {seen}]" if seen else message["text"],
                at=begun + timedelta(minutes=minute),
            )


def _question(item: Mapping[str, Any], known: set[str]) -> Question:
    return Question(
        text=item["question"],
        category=CATEGORIES[item["category"]],
        evidence=tuple((place,) for place in _places(item.get("evidence") or (), known)),
        answer=str(item.get("answer", item.get("adversarial_answer", ""))),
    )


def _facts(observations: Mapping[str, Any], known: set[str]) -> Iterable[Fact]:
    for by_speaker in observations.values():
        for facts in by_speaker.values():
            for text, where in facts:
                yield Fact(text=text, evidence=_places([where] if isinstance(where, str) else where, known))


def _places(marks: Iterable[str], known: set[str]) -> tuple[str, ...]:
    """`D8:6; D9:17` names two, `D30:05` and `D:11:26` are written in their own way."""
    found = [f"D{int(day)}:{int(line)}" for mark in marks for day, line in _EVIDENCE.findall(mark)]
    return tuple(dict.fromkeys(place for place in found if place in known))


_SYLLABLES = [f"{consonant}{vowel}" for consonant in "bdfgklmnprst" for vowel in "aeio"]
OTHER_SCRIPTS = (
    [f"{consonant}{vowel}" for consonant in "бдгклмнпрст" for vowel in "аеио"],
    [f"{consonant}{vowel}" for consonant in "بتجدرسفكلمن" for vowel in "اوي"],
    [f"{consonant}{vowel}" for consonant in "कगजतदनपबमरल" for vowel in "ािे"],
    [chr(0x4E00 + 37 * number) for number in range(300)],
)
"""Syllables of Cyrillic, Arabic, Devanagari and Chinese, for talk in several languages."""
UNSPACED = frozenset(OTHER_SCRIPTS[-1])
_SENTENCES = (
    "I told {who} that the {thing} in {place} costs {number} {coin}.",
    "On Sunday {who} will bring the {thing} to {place}.",
    "We should ask {who} about the {thing}, it was {number} {coin} last time.",
    "In {place} everybody talks about {who} and the {thing}.",
)


def made_up(
    *, days: int, messages_a_day: int, seed: int = 1, scripts: Sequence[Sequence[str]] = ()
) -> Conversation:
    """Return small talk over made-up words, with the frequencies of a language, and a fact in some messages.

    With `scripts`, one day in two is talked in the words of one of them.
    """
    chance = random.Random(seed)
    vocabularies = [
        [_word(chance, syllables) for _ in range(8_000)]
        for script in scripts or ((),)
        for syllables in ((_SYLLABLES, script) if script else (_SYLLABLES,))
    ]
    weights = [1 / (rank + 3) for rank in range(8_000)]
    said: list[Said] = []
    questions: list[Question] = []
    for day in range(days):
        begun = datetime(2024, 1, 1, 9, tzinfo=UTC) + timedelta(days=day)
        for minute in range(messages_a_day):
            words = chance.choices(vocabularies[day % len(vocabularies)], weights, k=chance.randint(8, 30))
            text = f"{_join(words).capitalize()}."
            id_ = f"D{day + 1}:{minute + 1}"
            if chance.random() < 0.03:
                thing, place, number = _word(chance), _word(chance).capitalize(), chance.randint(100, 9_999)
                sentence = chance.choice(_SENTENCES).format(
                    who=_word(chance).capitalize(), thing=thing, place=place, number=number, coin="crowns"
                )
                text = f"{text} {sentence}"
                questions.append(
                    Question(
                        text=f"What did I say about {thing} {chance.choice(words)} {chance.choice(words)}?",
                        category="single_hop", evidence=((id_,),), answer=thing,
                    )
                )  # fmt: skip
            said.append(
                Said(id=id_, by_person=minute % 2 == 0, text=text, at=begun + timedelta(minutes=minute))
            )
    return Conversation(
        name=f"made-up-{seed}",
        person="Ada",
        assistant="Evertalk",
        said=tuple(said),
        questions=tuple(questions),
    )


def _word(chance: random.Random, syllables: Sequence[str] = _SYLLABLES) -> str:
    return "".join(chance.choices(syllables, k=chance.randint(2, 4)))


def _join(words: Sequence[str]) -> str:
    return ("" if words[0][0] in UNSPACED else " ").join(words)
