"""Which passages of the past answer a question best, and how they are laid before the model."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, NamedTuple

from shared.core.context.question import QUESTION_WORDS, Author, Question
from shared.core.values.searching import normalise, words_of
from shared.core.values.secrets_filter import redact
from shared.core.values.tokens import Count

Lane = Literal["said", "note", "knowledge"]

K1, B = 1.2, 0.4
"""Of BM25: how soon a repeated word stops to count, and how much a long passage is held against itself."""
NEIGHBOUR = 0.5
"""What a passage gets of the one beside it; of the next but one half as much."""
NEIGHBOURS = 2
SITTING_PRIOR, SITTING_BEST = 0.3, 3
"""How much it counts that others said in the same sitting are good, too: the mean of so many best."""
ANSWER = 0.3
"""What a passage gets more of a question beside it that the other side asked."""
MORE_WORDS = 0.2
"""How much each further word of the question adds that a passage has, too."""
SPEAKER_PRIOR = 0.5
"""How much it counts that the one has said it whose words the question is about."""
NOTE_HIT = 0.5
NOTE_TURNS = 2
"""A note of more turns than this says too little about where its words were said."""
LEAST_CARRIED, SURE = 0.12, 0.3
"""How much of the question's weight the best passage must carry, and more where words of the question were
never said: below the first nothing is worth recalling, below the second a part of the room is enough."""
FEW_WORDS, MORE_CARRIED = 7, 0.025
"""For each word that a question has beyond so many, so much more must be carried, at most `SURE`. The floor
is by cross-validation over the conversations of LoCoMo and BEAM: docs/memory.md has the curve."""
TOLD_BESIDE = 0.4
"""What a word weighs told beside a question, of one that is in it; from 0.3 to 0.5 as much is found."""
FEW_PASSAGES = 20
"""In fewer, the frequencies of words tell nothing yet: they are weighed as if there were so many."""
UNASKED, RARE, MOST = 1.4, 0.3, 0.6
"""What merely tells something is only reminded of passages that are worth so many of the rarest words there
can be, and hold two rare ones: of 1,000 passages not more than 1,000 to this power have such a word. One is
enough in a passage that carries this share of what was told."""
LEAST_OF_WORDS, LEAST_SHARE = 0.1, 0.2
"""Of the best passage's words, and of its score: what has less is left out."""
LENGTH, LENGTH_CHARS = 0.1, 150
"""How much it counts that of two passages as good the shorter one leaves more room for others."""
FUSED_BEHIND = 60
"""The k of reciprocal rank fusion, as Cormack, Clarke and Büttcher (SIGIR 2009) have it: the more, the less
the very first places count."""
SHORT_TOKENS = 100
"""What a message that asks nothing is reminded of, and what is left when the request has to be smaller."""
LONG_TOKENS, OF_LONG = 150, 3
"""A message of more brings along what it is about: it is reminded of this part of what is allowed."""
CALLED, CALLED_SHARE = 3, 0.3
"""So often, and in so many of its mentions, a name must be called before it is taken for the other's."""
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
    def weights(self) -> tuple[float, ...]:
        """Of each word: the rarer, the heavier; one that occurs nowhere is the rarest."""
        return tuple(
            math.log(1 + (max(self.passages, number, FEW_PASSAGES) - number + 0.5) / (number + 0.5))
            for number in self.with_word
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """All that a store knows about one question."""

    found: tuple[Found, ...] = ()
    frequencies: Mapping[Lane, Frequencies] = field(default_factory=dict)
    words: tuple[str, ...] = ()
    """Of the question, those that count: `hits` and `with_word` are in their order."""
    asked: int = QUESTION_WORDS
    """The first so many were searched for."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Of the person and of the assistant, by author."""


class Ranked(NamedTuple):
    passage: Found
    score: float
    sure: float = 1.0
    """The part of the room that it may stand in: the less its lane carries of what was asked, the less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recalled:
    """What one turn is reminded of, and the little of it that is left under pressure."""

    text: str = ""
    short: str = ""

    @property
    def shortened(self) -> Recalled:
        return Recalled(text=self.short, short=self.short)


NOTHING_RECALLED = Recalled()


def rank_passages(search: Search, question: Question) -> tuple[Ranked, ...]:
    """The passages from the best to the last that is worth anything; newer ones first where all is equal."""
    found = [passage for passage in search.found if passage.lane in search.frequencies]
    named = _select_named(search, found, question.text)
    weights = {lane: _weigh(named, of.weights, search.asked) for lane, of in search.frequencies.items()}
    own = _own_scores(found, search.frequencies, weights, search.asked)
    asked = is_asking(search, question)
    scores: _Scores = {}
    sure: dict[Lane, float] = {}
    lanes = {lane: [at for at, passage in enumerate(found) if passage.lane == lane] for lane in _LANES}
    for lane, of in search.frequencies.items():
        best = max((own[at] for at in lanes[lane]), default=0.0)
        carried = _carried(best, of.with_word[: search.asked], weights[lane][: search.asked])
        if best <= 0 or carried < _least(len(of.with_word[: search.asked])):
            continue
        sure[lane] = min(1.0, carried / SURE) if asked else 1.0
        if lane == "said":
            scores.update(_said(found, lanes, own, _about(named, question)))
        else:
            scores.update({at: own[at] / best for at in lanes[lane]})
    scores = {at: score / (len(found[at].text) + LENGTH_CHARS) ** LENGTH for at, score in scores.items()}
    least = LEAST_SHARE * max(scores.values(), default=0.0)
    kept = [
        Ranked(found[at], score, sure[found[at].lane])
        for at, score in scores.items()
        if score > least
        and not _repeats(found[at], question)
        and (asked or _calls_back(found[at], own[at], search.frequencies, weights))
    ]
    kept.sort(key=_place)
    kept.sort(key=_worth, reverse=True)
    return tuple(kept)


def reorder(items: Sequence[Ranked], places: Sequence[int]) -> tuple[Ranked, ...]:
    """Those at these places first; all others behind them, in the order they had."""
    named = set(places)
    rest = (item for at, item in enumerate(items) if at not in named)
    return (*(items[at] for at in places), *rest)


def fuse_orders(*orders: Sequence[int]) -> tuple[int, ...]:
    """One order of several over the same places; where two are worth as much, the first order decides."""
    worth: defaultdict[int, float] = defaultdict(float)
    for order in orders:
        for number, place in enumerate(order, start=1):
            worth[place] += 1 / (FUSED_BEHIND + number)
    return tuple(sorted(worth, key=lambda place: -worth[place]))


def is_asking(search: Search, question: Question) -> bool:
    """Whether something is asked, in words enough to look for it: behind a story, "Why?" asks nothing."""
    alone = search.asked < len(search.words)
    return question.asks and (alone or not set(question.words[question.asked :]) & set(search.words))


_LANES: tuple[Lane, ...] = ("said", "note", "knowledge")
_Scores = dict[int, float]
"""By a passage's place among those that were found."""


def _place(item: Ranked) -> tuple[str, int, int]:
    return (item.passage.path, item.passage.owner, item.passage.number)


def _worth(item: Ranked) -> tuple[float, datetime]:
    return (round(item.score, 9), item.passage.at)


def _select_named(search: Search, found: Sequence[Found], question: str) -> dict[int, Author]:
    """By the place of a word among the question's: the one whose name it is. It tells who, not what."""
    written = {word.casefold(): word for word in _WORD.findall(question) if not word[0].islower()}
    known = [(author, set(words_of(search.names.get(author, "")))) for author in _SIDES]
    named: dict[int, Author] = {}
    for at, word in enumerate(search.words):
        if word in written:
            bearers = [author for author, names in known if word in names]
            named[at] = bearers[0] if bearers else _is_called(found, at, written[word])
    return {at: bearer for at, bearer in named.items() if bearer}


_WORD = re.compile(r"[^\W\d_]+")
_SIDES: tuple[Author, ...] = ("person", "assistant")


def _is_called(found: Sequence[Found], at: int, name: str) -> Author:
    """The side that the other one calls by this name: "Hi Ada!", "Thank you, Ada."."""
    spoken = re.compile(rf"{re.escape(name)}\s*[,.!?]")
    said, called = dict.fromkeys(_SIDES, 0), dict.fromkeys(_SIDES, 0)
    for passage in found:
        if passage.hits and passage.hits[at] and passage.author in said:
            said[passage.author] += 1
            if match := spoken.search(passage.text):
                before = passage.text[: match.start()].rstrip()
                called[passage.author] += before[-1:] in ",.!?" or " " not in before
    for caller, other in (_SIDES, _SIDES[::-1]):
        if called[caller] >= max(CALLED, CALLED_SHARE * said[caller], 10 * called[other]):
            return other
    return ""


def _weigh(named: Mapping[int, Author], weights: Sequence[float], asked: int) -> tuple[float, ...]:
    """Without names, unless there is nothing else, and little for what is only told beside a question."""
    if all(at in named for at in range(min(asked, len(weights)))):
        named = {}
    shares = [1.0 if at < asked else TOLD_BESIDE for at in range(len(weights))]
    return tuple(
        0.0 if at in named else weight * share
        for at, (weight, share) in enumerate(zip(weights, shares, strict=True))
    )


def _about(named: Mapping[int, Author], question: Question) -> Author:
    sides = set(named.values())
    if not sides:
        return question.about
    return sides.pop() if len(sides) == 1 else ""


def _own_scores(
    found: Sequence[Found],
    frequencies: Mapping[Lane, Frequencies],
    weights: Mapping[Lane, Sequence[float]],
    asked: int,
) -> list[float]:
    """BM25 of each passage by itself, and more for each further word of the question."""
    lengths = {lane: K1 * B / of.mean_terms for lane, of in frequencies.items()}
    own: list[float] = []
    for passage in found:
        score, words = 0.0, 0
        if passage.hits:
            long = K1 * (1 - B) + lengths[passage.lane] * passage.terms
            for at, (weight, often) in enumerate(zip(weights[passage.lane], passage.hits, strict=True)):
                if often and weight:
                    score += weight * often * (K1 + 1) / (often + long)
                    words += at < asked
        own.append(score * (1 + MORE_WORDS * max(0, words - 1)))
    return own


def _least(words: int) -> float:
    """A long question finds some of its words everywhere."""
    return min(SURE, LEAST_CARRIED + MORE_CARRIED * max(0, words - FEW_WORDS))


def _carried(best: float, with_word: Sequence[int], weights: Sequence[float]) -> float:
    """How much the best passage carries of what was asked, less where words of it were never said."""
    heard = sum(map(bool, with_word)) / max(1, len(with_word))
    return best * heard / (sum(weights) or 1.0)


def _calls_back(
    passage: Found,
    own: float,
    frequencies: Mapping[Lane, Frequencies],
    weights: Mapping[Lane, Sequence[float]],
) -> bool:
    """Whether what was told unasked has rare words in common with a passage: two, or one and most of it."""
    of = frequencies[passage.lane]
    passages = max(of.passages, FEW_PASSAGES)
    if own < UNASKED * math.log(1 + passages):
        return False
    hits = zip(passage.hits, of.with_word, strict=True)
    rare = sum(1 for often, number in hits if often and number <= passages**RARE)
    return rare > 1 or (rare == 1 and own >= MOST * sum(weights[passage.lane]))


def _repeats(passage: Found, question: Question) -> bool:
    """Whether a passage says nothing but what the question itself says."""
    return len(passage.text) <= len(question.text) and normalise(passage.text) in normalise(question.text)


def _said(
    found: Sequence[Found], lanes: Mapping[Lane, Sequence[int]], own: Sequence[float], about: Author
) -> _Scores:
    """Between 0 and about 2: words, neighbours, notes that point there, the speaker, the sitting."""
    scores = _scale(_smooth(found, lanes["said"], own, about))
    scores = {at: score for at, score in scores.items() if score > LEAST_OF_WORDS}
    hits = _note_hits(found, lanes["note"], own)
    if hits:
        for at in scores:
            scores[at] += NOTE_HIT * hits.get((found[at].owner, found[at].turn), 0.0)
    if about:
        best = max(scores.values(), default=0.0)
        for at in scores:
            scores[at] += SPEAKER_PRIOR * best * (found[at].author == about)
    return _with_sittings(found, _scale(scores))


def _smooth(found: Sequence[Found], said: Sequence[int], own: Sequence[float], about: Author) -> _Scores:
    """Each with what those beside it give; the pieces of one message give each other nothing."""
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
            if beside is None:
                continue
            other = found[beside]
            if other.sitting != passage.sitting or other.seq == passage.seq:
                continue
            if apart == 1 and about in ("", other.author) and _is_answered(passage, other):
                share += ANSWER
            smooth[beside] += share * score
    return {at: score for at, score in smooth.items() if score > 0}


def _is_answered(passage: Found, by: Found) -> bool:
    return passage.author != by.author and passage.text.rstrip().endswith(("?", "？", "؟"))


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


def _scale(scores: _Scores) -> _Scores:
    best = max(scores.values(), default=0.0)
    return {at: score / best if best else 0.0 for at, score in scores.items()}


def recall_budget(search: Search, question: Question, limit_tokens: int, count: Count) -> int:
    """How many tokens a turn is reminded of, where a question may have so many."""
    if not is_asking(search, question):
        return min(limit_tokens, SHORT_TOKENS)
    return limit_tokens // OF_LONG if count(question.text) > LONG_TOKENS else limit_tokens


def pack_passages(
    items: Iterable[Ranked], *, limit_tokens: int, count: Count, session_id: int
) -> tuple[Found, ...]:
    """The best passages that fit, in the order in which they are shown."""
    taken: list[Found] = []
    said: list[str] = []
    days: set[str] = set()
    left = limit_tokens
    for item in items:
        if len(item.passage.text) > left * CHARS_PER_TOKEN_MOST:
            continue  # as most of them, once the best are taken: counting costs more than all else
        words = f" {normalise(item.passage.text)} "
        if any(words in other for other in said):
            continue
        line, day = render_passage(item.passage, session_id=session_id), day_of(item.passage)
        cost = count(line) + 1 + (0 if day in days else count(day) + 2)
        if cost <= left - (1 - item.sure) * limit_tokens:
            taken.append(item.passage)
            said.append(words)
            days.add(day)
            left -= cost
    return tuple(sorted(taken, key=_by_time))


def render_passages(passages: Iterable[Found], *, session_id: int) -> str:
    """Passages under the day they are of; files, which are of no day, come last."""
    lines: list[str] = []
    day = None
    for passage in passages:
        if day_of(passage) != day:
            day = day_of(passage)
            lines.append(f"{day}:")
        lines.append(render_passage(passage, session_id=session_id))
    return "\n".join(lines)


def _by_time(passage: Found) -> tuple[bool, float, str, int, str, int]:
    if passage.lane == "knowledge":
        return (True, 0.0, passage.lane, passage.owner, passage.path, passage.number)
    return (False, passage.at.timestamp(), passage.lane, passage.owner, passage.path, passage.number)


def day_of(passage: Found) -> str:
    return OF_FILES if passage.lane == "knowledge" else f"{passage.at:%Y-%m-%d}"


def note_line(text: str) -> str:
    return f"{NOTE_MARK}{redact(text)}"


def render_passage(passage: Found, *, session_id: int) -> str:
    """A passage with where it comes from, without secrets; `#12` is a message of this conversation."""
    text = redact(passage.text).replace("[#", "(#").replace("[note]", "(note)")
    text = _LIKE_A_LINE.sub("(", text)
    match passage.lane:
        case "note":
            return note_line(passage.text)
        case "knowledge":
            place = f"{passage.path} › {passage.heading}" if passage.heading else passage.path
            return f"[{place}] {text}"
        case _:
            where = f"#{passage.seq}" if passage.owner == session_id else "earlier"
            return f"{where} {passage.author}: {text}"


_LIKE_A_LINE = re.compile(r"^(?=(?:#\d+|earlier) [^\n:]{1,80}:)", re.MULTILINE)
"""Words that begin as a passage does: nobody speaks there in another's name."""
