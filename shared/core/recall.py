"""Which passages of the past answer a question best, and how they are laid before the model."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

from shared.core.searching import words_of
from shared.core.secrets_filter import redact

Lane = Literal["said", "note", "knowledge"]
Count = Callable[[str], int]

K1, B = 1.2, 0.4
"""Of BM25: how soon a repeated word stops to count, and how much a long passage is held against itself."""
NEIGHBOUR = 0.4
"""What a passage gets of the one beside it; of the next but one half as much."""
NEIGHBOURS = 2
SITTING_PRIOR, SITTING_BEST = 0.3, 3
"""How much it counts that others said in the same sitting are good, too: the mean of so many best."""
SPEAKER_PRIOR = 0.1
NOTE_HIT = 0.5
NOTE_TURNS = 2
"""A note of more turns than this says too little about where its words were said."""
LEAST_STRENGTH, LEAST_WEIGHT = 0.12, 2.5
"""How much of the question's weight the best passage must carry, as a share and in all: below that,
nothing is worth recalling."""
OF_RAREST = 0.7
LEAST_SHARE = 0.1
"""Of the best score: what is worse is left out."""
NOTE_MARK = "[note] "
OF_FILES = "Files; when an answer rests on one of them, name the file and the heading"
"""Stands above passages of an agent's own files, where a day stands above what was said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A passage that may be worth recalling: a candidate, or the neighbour of one."""

    lane: Lane
    owner: int
    """The session it was said in; of a note its own id, of knowledge the agent."""
    number: int
    """Its place among the passages of its owner."""
    text: str
    terms: int
    """How many words it has, small ones left out."""
    hits: tuple[int, ...]
    """How often each word of the question occurs in it."""
    at: datetime
    seq: int = 0
    part: int = 0
    turn: int = 0
    author: str = ""
    speaker: str = ""
    sitting: int = 0
    through_turn: int = 0
    """Of a note: the last turn it was made from; `turn` is the first."""
    session: int = 0
    """Of a note: the session it was made in."""
    path: str = ""
    heading: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frequencies:
    """What a lane holds in all: passages, words, and in how many passages each word of the question is."""

    passages: int
    terms: int
    with_word: tuple[int, ...]

    @property
    def mean_terms(self) -> float:
        return max(1.0, self.terms / max(1, self.passages))

    @property
    def least_weight(self) -> float:
        """What few passages can hold is little: there, most of one rare word is enough."""
        return min(LEAST_WEIGHT, OF_RAREST * math.log(1 + (max(1, self.passages) - 0.5) / 1.5))

    def rarity(self, word: int) -> float:
        """The word's weight; one that occurs nowhere is the rarest."""
        number = self.with_word[word]
        return math.log(1 + (max(self.passages, number) - number + 0.5) / (number + 0.5))


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """All that a store knows about one question."""

    found: tuple[Found, ...] = ()
    frequencies: Mapping[Lane, Frequencies] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    passage: Found
    score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Recalled:
    """What one turn is reminded of, and the little of it that is left under pressure."""

    text: str = ""
    short: str = ""

    @property
    def shortened(self) -> Recalled:
        return Recalled(text=self.short, short=self.short)


NOTHING_RECALLED = Recalled()


def ranked(search: Search, question: str) -> tuple[Ranked, ...]:
    """The passages from the best to the last that is worth anything; newer ones first where all is equal."""
    own = {
        _key(passage): _bm25(passage, search.frequencies[passage.lane])
        for passage in search.found
        if passage.lane in search.frequencies
    }
    if not own or not _worth_it(search, own):
        return ()
    scores = _said(search, own, question)
    scores.update(_others(search, own))
    best = max(scores.values(), default=0.0)
    kept = [
        Ranked(passage=passage, score=scores[_key(passage)])
        for passage in search.found
        if scores.get(_key(passage), 0.0) > max(0.0, LEAST_SHARE * best)
    ]
    return tuple(sorted(kept, key=_order))


def _order(item: Ranked) -> tuple[float, float, str, int, int]:
    passage = item.passage
    return (-round(item.score, 9), -passage.at.timestamp(), passage.path, passage.owner, passage.number)


_Key = tuple[str, int, str, int]


def _key(passage: Found) -> _Key:
    return (passage.lane, passage.owner, passage.path, passage.number)


def _bm25(passage: Found, of: Frequencies) -> float:
    if not any(passage.hits):
        return 0.0
    long = K1 * (1 - B + B * passage.terms / of.mean_terms)
    return sum(
        of.rarity(word) * often * (K1 + 1) / (often + long)
        for word, often in enumerate(passage.hits)
        if often
    )


def _worth_it(search: Search, own: Mapping[_Key, float]) -> bool:
    """Whether any passage carries enough of what was asked."""
    for lane, of in search.frequencies.items():
        whole = sum(of.rarity(word) for word in range(len(of.with_word)))
        best = max((score for key, score in own.items() if key[0] == lane), default=0.0)
        if whole and best >= max(of.least_weight, LEAST_STRENGTH * whole):
            return True
    return False


def _said(search: Search, own: Mapping[_Key, float], question: str) -> dict[_Key, float]:
    """Between 0 and about 2: words, neighbours, notes that point there, the speaker, the sitting."""
    said = [passage for passage in search.found if passage.lane == "said" and _key(passage) in own]
    smooth = _smoothed(said, own)
    said = [passage for passage in said if smooth[_key(passage)] > 0]
    scores = _scaled({_key(passage): smooth[_key(passage)] for passage in said})
    hits = _note_hits(search, own)
    if hits:
        for passage in said:
            scores[_key(passage)] += NOTE_HIT * hits.get((passage.owner, passage.turn), 0.0)
    asked = _speaker_asked_about(said, question)
    best = max(scores.values(), default=0.0)
    if asked:
        for passage in said:
            scores[_key(passage)] += SPEAKER_PRIOR * best * (passage.speaker == asked)
    return _with_sittings(said, _scaled(scores))


def _smoothed(said: Sequence[Found], own: Mapping[_Key, float]) -> dict[_Key, float]:
    places = {(passage.owner, passage.number): passage for passage in said}
    smooth: dict[_Key, float] = {}
    for passage in said:
        score = own[_key(passage)]
        for distance in range(1, NEIGHBOURS + 1):
            for number in (passage.number - distance, passage.number + distance):
                beside = places.get((passage.owner, number))
                if beside is not None and beside.sitting == passage.sitting:
                    score += NEIGHBOUR / distance * own[_key(beside)]
        smooth[_key(passage)] = score
    return smooth


def _with_sittings(said: Sequence[Found], scores: Mapping[_Key, float]) -> dict[_Key, float]:
    sittings: defaultdict[tuple[int, int], list[float]] = defaultdict(list)
    for passage in said:
        sittings[passage.owner, passage.sitting].append(scores[_key(passage)])
    means = {
        sitting: sum(sorted(values, reverse=True)[:SITTING_BEST]) / min(len(values), SITTING_BEST)
        for sitting, values in sittings.items()
    }
    return {
        _key(passage): scores[_key(passage)] + SITTING_PRIOR * means[passage.owner, passage.sitting]
        for passage in said
    }


def _note_hits(search: Search, own: Mapping[_Key, float]) -> dict[tuple[int, int], float]:
    """By session and turn: how well a note fits that was made there."""
    notes = [passage for passage in search.found if passage.lane == "note" and _key(passage) in own]
    best = max((own[_key(note)] for note in notes), default=0.0)
    hits: dict[tuple[int, int], float] = {}
    for note in notes:
        if best and note.session and note.through_turn - note.turn < NOTE_TURNS:
            for turn in range(note.turn, note.through_turn + 1):
                place = (note.session, turn)
                hits[place] = max(hits.get(place, 0.0), own[_key(note)] / best)
    return hits


def _speaker_asked_about(said: Sequence[Found], question: str) -> str:
    """The one speaker whose name is in the question; '' when it names none, or several."""
    words = set(words_of(question))
    names = {passage.speaker for passage in said if passage.speaker}
    named = {name for name in names if words & set(words_of(name))}
    return named.pop() if len(named) == 1 else ""


def _others(search: Search, own: Mapping[_Key, float]) -> dict[_Key, float]:
    """Notes and knowledge, each measured by its own best."""
    scores: dict[_Key, float] = {}
    for lane in ("note", "knowledge"):
        scores.update(_scaled({key: score for key, score in own.items() if key[0] == lane}))
    return scores


def _scaled(scores: Mapping[_Key, float]) -> dict[_Key, float]:
    best = max(scores.values(), default=0.0)
    return {key: score / best if best else 0.0 for key, score in scores.items()}


def packed(items: Iterable[Ranked], *, limit_tokens: int, count: Count, session_id: int) -> tuple[Found, ...]:
    """The best passages that fit, in the order in which they are shown."""
    taken: list[Found] = []
    days: set[str] = set()
    left = limit_tokens
    for item in items:
        line, day = shown(item.passage, session_id=session_id), day_of(item.passage)
        cost = count(line) + 1 + (0 if day in days else count(day) + 2)
        if cost <= left:
            taken.append(item.passage)
            days.add(day)
            left -= cost
    return tuple(sorted(taken, key=_by_time))


def rendered(passages: Iterable[Found], *, session_id: int) -> str:
    """Passages under the day they are of; files, which are of no day, come last."""
    lines: list[str] = []
    day = None
    for passage in passages:
        if day_of(passage) != day:
            day = day_of(passage)
            lines.append(f"{day}:")
        lines.append(shown(passage, session_id=session_id))
    return "\n".join(lines)


def _by_time(passage: Found) -> tuple[bool, float, str, int, str, int]:
    if passage.lane == "knowledge":
        return (True, 0.0, passage.lane, passage.owner, passage.path, passage.number)
    return (False, passage.at.timestamp(), passage.lane, passage.owner, passage.path, passage.number)


def day_of(passage: Found) -> str:
    return OF_FILES if passage.lane == "knowledge" else f"{passage.at.astimezone(UTC):%Y-%m-%d}"


def note_line(text: str) -> str:
    return f"{NOTE_MARK}{redact(text)}"


def shown(passage: Found, *, session_id: int) -> str:
    """A passage with where it comes from, without secrets; `#12` is a message of this conversation."""
    text = (
        redact(passage.text).replace("[#", "(#").replace("[note]", "(note)").replace("[earlier]", "(earlier)")
    )
    match passage.lane:
        case "note":
            return note_line(passage.text)
        case "knowledge":
            place = f"{passage.path} › {passage.heading}" if passage.heading else passage.path
            return f"[{place}] {text}"
        case _:
            where = f"#{passage.seq}" if passage.owner == session_id else "earlier"
            return f"[{where}] {passage.author}: {text}"
