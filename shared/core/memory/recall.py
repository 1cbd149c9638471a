"""Which passages of the past answer a question best, and how they are laid before the model."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal, NamedTuple

from shared.core.values.searching import words_of
from shared.core.values.secrets_filter import redact

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
CHARS_PER_TOKEN_MOST = 8
"""Longer words than these say nothing that is worth recalling."""
NOTE_MARK = "[note] "
OF_FILES = "Files; when an answer rests on one of them, name the file and the heading"
"""Stands above passages of an agent's own files, where a day stands above what was said."""


class Found(NamedTuple):
    """A passage that may be worth recalling: a candidate, or the neighbour of one.

    A question has hundreds of them, of which few are shown: a tuple is made in a tenth of a dataclass's time.
    """

    lane: Lane
    owner: int
    """The session it was said in; of a note its own id, of knowledge the agent."""
    number: int
    """Its place among the passages of its owner."""
    at: datetime
    text: str
    terms: int
    """How many words it has, small ones left out."""
    hits: tuple[int, ...]
    """How often each word of the question occurs in it; empty when none does."""
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

    @property
    def weights(self) -> tuple[float, ...]:
        """Of each word: the rarer, the heavier; one that occurs nowhere is the rarest."""
        return tuple(
            math.log(1 + (max(self.passages, number) - number + 0.5) / (number + 0.5))
            for number in self.with_word
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """All that a store knows about one question."""

    found: tuple[Found, ...] = ()
    frequencies: Mapping[Lane, Frequencies] = field(default_factory=dict)


class Ranked(NamedTuple):
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
    found = [passage for passage in search.found if passage.lane in search.frequencies]
    own = _own_scores(found, search.frequencies)
    lanes = {lane: [at for at, passage in enumerate(found) if passage.lane == lane] for lane in _LANES}
    if not _worth_it(search.frequencies, lanes, own):
        return ()
    scores = _said(found, lanes, own, question)
    for lane in ("note", "knowledge"):
        best_of = max((own[at] for at in lanes[lane]), default=0.0)
        scores.update({at: own[at] / best_of for at in lanes[lane] if best_of})
    least = LEAST_SHARE * max(scores.values(), default=0.0)
    kept = [Ranked(found[at], score) for at, score in scores.items() if score > least]
    kept.sort(key=_place)
    kept.sort(key=_worth, reverse=True)
    return tuple(kept)


_LANES: tuple[Lane, ...] = ("said", "note", "knowledge")
_Scores = dict[int, float]
"""By a passage's place among those that were found."""


def _place(item: Ranked) -> tuple[str, int, int]:
    return (item.passage.path, item.passage.owner, item.passage.number)


def _worth(item: Ranked) -> tuple[float, datetime]:
    return (round(item.score, 9), item.passage.at)


def _own_scores(found: Sequence[Found], frequencies: Mapping[Lane, Frequencies]) -> list[float]:
    """BM25 of each passage by itself."""
    weights = {lane: of.weights for lane, of in frequencies.items()}
    lengths = {lane: K1 * B / of.mean_terms for lane, of in frequencies.items()}
    own: list[float] = []
    for passage in found:
        score = 0.0
        if passage.hits:
            long = K1 * (1 - B) + lengths[passage.lane] * passage.terms
            for weight, often in zip(weights[passage.lane], passage.hits, strict=True):
                if often:
                    score += weight * often * (K1 + 1) / (often + long)
        own.append(score)
    return own


def _worth_it(
    frequencies: Mapping[Lane, Frequencies], lanes: Mapping[Lane, Sequence[int]], own: Sequence[float]
) -> bool:
    """Whether any passage carries enough of what was asked."""
    for lane, of in frequencies.items():
        whole = sum(of.weights)
        best = max((own[at] for at in lanes[lane]), default=0.0)
        if whole and best >= max(of.least_weight, LEAST_STRENGTH * whole):
            return True
    return False


def _said(
    found: Sequence[Found], lanes: Mapping[Lane, Sequence[int]], own: Sequence[float], question: str
) -> _Scores:
    """Between 0 and about 2: words, neighbours, notes that point there, the speaker, the sitting."""
    scores = _scaled(_smoothed(found, lanes["said"], own))
    hits = _note_hits(found, lanes["note"], own)
    if hits:
        for at in scores:
            scores[at] += NOTE_HIT * hits.get((found[at].owner, found[at].turn), 0.0)
    asked = _speaker_asked_about({found[at].speaker for at in scores}, question)
    best = max(scores.values(), default=0.0)
    if asked:
        for at in scores:
            scores[at] += SPEAKER_PRIOR * best * (found[at].speaker == asked)
    return _with_sittings(found, _scaled(scores))


def _smoothed(found: Sequence[Found], said: Sequence[int], own: Sequence[float]) -> _Scores:
    """Each with what those beside it give; without those that have nothing and get nothing."""
    places: defaultdict[int, dict[int, int]] = defaultdict(dict)
    for at in said:
        places[found[at].owner][found[at].number] = at
    smooth = dict.fromkeys(said, 0.0)
    for at in said:
        score, passage = own[at], found[at]
        if not score:
            continue
        smooth[at] += score
        mine = places[passage.owner]
        for apart, share in _BESIDE:
            beside = mine.get(passage.number + apart)
            if beside is not None and found[beside].sitting == passage.sitting:
                smooth[beside] += share * score
    return {at: score for at, score in smooth.items() if score > 0}


_BESIDE = tuple((apart, NEIGHBOUR / abs(apart)) for apart in range(-NEIGHBOURS, NEIGHBOURS + 1) if apart)


def _with_sittings(found: Sequence[Found], scores: _Scores) -> _Scores:
    sittings: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    for at in scores:
        sittings[found[at].owner, found[at].sitting].append(at)
    raised: _Scores = {}
    for members in sittings.values():
        best = sorted((scores[at] for at in members), reverse=True)[:SITTING_BEST]
        more = SITTING_PRIOR * sum(best) / len(best)
        raised.update({at: scores[at] + more for at in members})
    return raised


def _note_hits(
    found: Sequence[Found], notes: Sequence[int], own: Sequence[float]
) -> dict[tuple[int, int], float]:
    """By session and turn: how well a note fits that was made there."""
    best = max((own[at] for at in notes), default=0.0)
    hits: dict[tuple[int, int], float] = {}
    for at in notes:
        note = found[at]
        if best and note.session and note.through_turn - note.turn < NOTE_TURNS:
            for turn in range(note.turn, note.through_turn + 1):
                place = (note.session, turn)
                hits[place] = max(hits.get(place, 0.0), own[at] / best)
    return hits


def _speaker_asked_about(names: Iterable[str], question: str) -> str:
    """The one speaker whose name is in the question; '' when it names none, or several."""
    words = set(words_of(question))
    named = {name for name in names if name and words & set(words_of(name))}
    return named.pop() if len(named) == 1 else ""


def _scaled(scores: _Scores) -> _Scores:
    best = max(scores.values(), default=0.0)
    return {at: score / best if best else 0.0 for at, score in scores.items()}


def packed(items: Iterable[Ranked], *, limit_tokens: int, count: Count, session_id: int) -> tuple[Found, ...]:
    """The best passages that fit, in the order in which they are shown."""
    taken: list[Found] = []
    days: set[str] = set()
    left = limit_tokens
    for item in items:
        if len(item.passage.text) > left * CHARS_PER_TOKEN_MOST:
            continue  # as most of them, once the best are taken: counting costs more than all else
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
