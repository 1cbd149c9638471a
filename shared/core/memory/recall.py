"""Ranking of passages for a question, and their text in the request."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Literal, NamedTuple

from shared.core.context.question import QUESTION_WORDS, Author, Question, is_small_talk
from shared.core.memory.facts import CitedFact, is_same_subject, stems_of
from shared.core.values.local_time import day_text, distance_text
from shared.core.values.searching import is_unspaced, normalise, words_of
from shared.core.values.secrets_filter import redact
from shared.core.values.spoken_times import Span
from shared.core.values.tokens import Count
from shared.core.values.ttl_cache import ttl_cache

Lane = Literal["said", "note", "knowledge"]
"""Kinds of passages: messages, notes, and the agent's files."""

K1, B = 1.2, 0.4
"""Parameters of BM25: how slowly repeated words stop counting, and how much long passages are penalised."""
NEIGHBOUR = 0.5
"""Share of its score that a passage adds to a direct neighbour; the second neighbour gets half of it."""
NEIGHBOURS = 2
"""Neighbours on each side to which a passage adds a share of its score."""
NEIGHBOUR_CHARS = 250
"""Characters above which a passage gets less from its neighbours, since its own text says enough."""
SITTING_PRIOR, SITTING_BEST = 0.15, 3
"""Weight, and number, of the best passages of a sitting, whose mean raises all passages of the sitting."""
ANSWER = 0.2
"""Extra share for a reply to a question of the other side. It is small, since assistants end most messages
with a question."""
TIMES_AT_MOST = 3
"""Most occurrences of a word in a passage that count."""
SENTENCE, SENTENCE_WORDS, SENTENCES_AT_MOST = 0.7, 4, 12
"""Exponent, 0 to 1, that raises each sentence's best passage towards the best of all; fewest words of a
sentence; most sentences.
"""
MORE_WORDS, MORE_WORDS_AT_MOST = 0.2, 3
"""Bonus for each further word of the question that a passage has, and the most such words that count.

The limit is needed since long passages share some words with any long message.
"""
SPEAKER_PRIOR = 0.5
"""Bonus for messages of the side that the question is about, as a share of the best score."""
NOTE_HIT = 0.5
"""Bonus of the message from which the best-fitting note was made."""
FACT_HIT = 0.3
"""Bonus of the message that the best-fitting fact of the summary cites."""
NOTE_TURNS = 2
"""Most turns of a note that raises their messages; a longer note does not show where its text was said."""
LEAST_CARRIED, SURE = 0.03, 0.2
"""Shares of the question's weight in the best passage.

Below the first, a lane is not recalled; from the second on, it may fill all the room.
"""
TOLD_BESIDE = 0.95
"""Weight of a word in a statement next to a question; a word of the question has weight 1."""
FEW_PASSAGES = 20
"""Fewest passages that word weights assume, since small numbers would distort them."""
TOLD_RARE = 0.65
"""Exponent of rarity: a word is rare if at most `passages ** TOLD_RARE` passages have it."""
TOLD_LEAST, TOLD_SOME, TOLD_SURE = 1.5, 3.0, 7.0
"""Scores of the best passage for a message without a question, in weights of the rarest word.

Below the first, nothing is recalled; from the second on, the room grows; from the third on, it is full. Rare
words that together weigh less than the first are not searched for.
"""
OFTEN_SAID = 3
"""Fewest candidates with the same text that make it a set phrase, which counts as no neighbour."""
LEAST_OF_WORDS, LEAST_SHARE = 0.05, 0.05
"""Shares of the best score by words, and of the best final score, below which a passage is left out."""
MEANING = 0.7
"""Score of a passage with nearness 1; the best passage by words has score 1."""
WORDS_SURE = 0.5
"""Share of the question's weight in the best passage from which scores by words count fully."""
NEAR_LEAST, NEAR_SOME, NEAR_SURE = 0.12, 0.3, 0.45
"""Nearness, 0 to 1, of the nearest passage to a question.

From the first on, a few passages are recalled even without common words, as in another language; from the
second on, the room grows; from the third on, it is full.
"""
LENGTH, LENGTH_CHARS = 0.17, 150
"""Exponent by which scores of longer passages are reduced, and characters added to their length before."""
SPOKEN_OF, SPOKEN_OF_SHARE = 0.4, 0.3
"""Bonus for messages of a day that the question names, as a share of the best score, and their least share of
the room.
"""
CITED_SHARE = 0.2
"""Share of the room for messages that a note or fact cites, if no message has enough words of the
question.
"""
SHORT_TOKENS = 100
"""Tokens for recall in a turn whose best passage barely fits, and in a request that must shrink."""
SHARED_TOKENS = 1_100
"""Tokens above `SHORT_TOKENS` that passages use by their share; room above them is open to every passage."""
CALLED, CALLED_SHARE = 3, 0.3
"""Fewest mentions, and least share of mentions, in which one side addresses the other by a name.

Below these, the name is not assumed to be the other side's.
"""
CHARS_PER_TOKEN_MOST = 8
"""Characters per free token above which a passage is skipped without counting its tokens."""
MAX_CACHED_PASSAGES = 2_048
"""Most passages whose cleaned text a process caches; those of about ten conversations, one megabyte."""
NOTE_MARK = "[note] "
"""Mark before a recalled note."""
LATER_NOTE_MARK = "[note, later] "
"""Mark before a recalled note if an older one on the same subject is shown, too."""
LATER = ", later"
"""Mark of a passage if an older passage on the same subject is shown, too."""
LATER_TOKENS = 2
"""Tokens of the mark `LATER`."""
LATER_CHARS = 250
"""Most characters of a passage that is compared with others on the same subject."""
OF_FILES = "Files; when an answer rests on one of them, name the file and the heading"
"""Line above passages of an agent's files, in place of the day above messages."""
BEGINS = r"^(([A-Z][a-z]+, )?[0-9]{4}-[0-9]{2}-[0-9]{2}( \([a-z0-9 ]+\))?:|Files[;:])"
"""Beginning of recalled text, in the present and former forms, by which erasures find stored texts."""


class FoundPassage(NamedTuple):
    """Passage that may be worth recalling, as the store found it: a candidate, or a neighbour of one.

    It is a named tuple, since a question has hundreds and a dataclass takes ten times longer to make.
    """

    lane: Lane
    owner: int
    """Session id of a message, note id of a note, or agent id of a passage in a file."""
    number: int
    """Position among the passages of its owner."""
    at: datetime
    text: str
    terms: int
    """Number of words, without small ones."""
    hits: tuple[int, ...]
    """Indices into `Search.words` of the words that occur in the passage."""
    seq: int = 0
    """Number of a message in its session; 0 for notes and files."""
    part: int = 0
    turn: int = 0
    """Turn of a message, or the first turn that a note was made from."""
    author: str = ""
    """Author of a message, as in `Entry.author`; empty for notes and files."""
    speaker: str = ""
    sitting: int = 0
    """Number of the sitting: messages without a long pause between them."""
    through_turn: int = 0
    """Last turn that a note was made from; `turn` is the first."""
    session: int = 0
    """Session in which a note was made."""
    path: str = ""
    """Path of a file; empty for messages and notes."""
    heading: str = ""
    """Heading of a passage in a file, or subject of a note."""
    nearness: float = 0.0
    """Cosine similarity between passage and message; 0 if it is unknown."""
    cites: tuple[int, ...] = ()
    """`seq` of the messages from which a note was taken."""
    is_later: bool = False
    """True if an older passage on the same subject is shown, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frequencies:
    """Counts of a lane: its passages, their words together, and how many passages have each word of the
    question.
    """

    passages: int
    terms: int
    with_word: tuple[int, ...]

    @property
    def mean_terms(self) -> float:
        """Average number of words of a passage, at least 1."""
        return max(1.0, self.terms / max(1, self.passages))

    @property
    def weights(self) -> tuple[float, ...]:
        """Weight of each word, in the order of `with_word`, at least 0: the fewer passages have it, the
        larger.
        """
        return tuple(
            math.log(1 + (max(self.passages, number, FEW_PASSAGES) - number + 0.5) / (number + 0.5))
            for number in self.with_word
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """Result of a store's search for one question, still to be ranked."""

    found: tuple[FoundPassage, ...] = ()
    frequencies: Mapping[Lane, Frequencies] = field(default_factory=dict)
    """Counts by lane; passages of a lane without counts are ignored."""
    words: tuple[str, ...] = ()
    """Words that were searched for; `with_word` has their order and `hits` are indices into them."""
    asked: int = QUESTION_WORDS
    """Number of leading `words` that come from questions; the others come from statements next to them."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Names of the person and of the assistant, by author."""


class Ranked(NamedTuple):
    """Passage with its score; scores can be compared only within one ranking."""

    passage: FoundPassage
    score: float
    sure: float = 1.0
    """Share, 0 to 1, of the first `SHARED_TOKENS` above `SHORT_TOKENS` that the passage may use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recalled:
    """Text of the passages recalled for one turn, empty if there are none; `short` replaces it if the request
    must shrink.
    """

    text: str = ""
    short: str = ""

    @property
    def shortened(self) -> Recalled:
        """Copy whose text is the short form."""
        return Recalled(text=self.short, short=self.short)


NOTHING_RECALLED = Recalled()
"""Result of a recall without passages."""


def rank_passages(
    search: Search,
    question: Question,
    spans: Sequence[Span] = (),
    *,
    cited: Mapping[int, CitedFact] | None = None,
    session_id: int = 0,
) -> tuple[Ranked, ...]:
    """Return the passages worth recalling of all that the search found, best first; of equal scores, newer
    first.

    `spans` are days that the message names. `cited` are facts by `seq` of the message that they cite in the
    session `session_id`, None without facts. Passages that the question itself contains are left out.
    """
    found = [passage for passage in search.found if passage.lane in search.frequencies]
    named = _select_named(search, found, question.text)
    weights = {lane: _weigh(named, of, search.asked) for lane, of in search.frequencies.items()}
    own = _own_scores(found, search, weights)
    own = _with_sentences(found, search, weights.get("said", ()), own, question)
    asked = is_asking(search, question)
    facts = {(session_id, seq): fact for seq, fact in (cited or {}).items()}
    scores: _Scores = {}
    sure: dict[Lane, float] = {}
    lanes = {lane: [at for at, passage in enumerate(found) if passage.lane == lane] for lane in _LANES}
    best = {lane: max((own[at] for at in lanes[lane]), default=0.0) for lane in search.frequencies}
    carried = {
        lane: _find_carried_share(best[lane], of.with_word, weights[lane], search)
        for lane, of in search.frequencies.items()
    }
    shares = {
        lane: _share_of_room(best[lane], carried[lane], of, asked=asked)
        for lane, of in search.frequencies.items()
    }
    turns, notes = _note_hits(found, lanes["note"], own)
    if asked and shares.get("said", 0.0) is None and (facts or (notes and shares.get("note") is not None)):
        cites = facts.keys() | notes.keys()
        shares["said"] = CITED_SHARE if any(_place_of(found[at]) in cites for at in lanes["said"]) else None
    for lane in search.frequencies:
        share = shares[lane]
        if lane == "said" and spans and any(_in_spans(found[at], spans) for at in lanes[lane]):
            share = max(share or 0.0, SPOKEN_OF_SHARE)
        if asked:
            share = _share_by_meaning(share, max((found[at].nearness for at in lanes[lane]), default=0.0))
        if share is None:
            continue
        sure[lane] = share
        if lane == "said":
            raised = _Raised(turns, notes, facts)
            by_words = _score_messages(found, lanes["said"], own, _find_subject(named, question), raised)
            said = _with_meaning(found, lanes[lane], by_words, carried[lane])
            scores.update(_raise_named_days(found, lanes[lane], said, spans))
        else:
            by_words = _scale({at: own[at] for at in lanes[lane]})
            scores.update(_with_meaning(found, lanes[lane], by_words, carried[lane]))
    scores = {at: score / (len(found[at].text) + LENGTH_CHARS) ** LENGTH for at, score in scores.items()}
    least = LEAST_SHARE * max(scores.values(), default=0.0)
    asked_text = normalise(question.text)
    kept = [
        Ranked(found[at], score, sure[found[at].lane])
        for at, score in scores.items()
        if score > least
        and not (len(found[at].text) <= len(question.text) and _repeats(found[at], asked_text))
    ]
    kept.sort(key=_place)
    kept.sort(key=_worth, reverse=True)
    return tuple(kept)


def reorder(items: Sequence[Ranked], places: Sequence[int]) -> tuple[Ranked, ...]:
    """Return the items at the indices `places` first, in that order, then the others in their order."""
    named = set(places)
    rest = (item for at, item in enumerate(items) if at not in named)
    return (*(items[at] for at in places), *rest)


def is_asking(search: Search, question: Question) -> bool:
    """Return whether a message asks a question that has words to search for.

    A short question after a story, such as "Why?", does not count, since its words come from statements.
    """
    alone = search.asked < len(search.words)
    return question.asks and (alone or not set(question.words[question.asked :]) & set(search.words))


_LANES: tuple[Lane, ...] = ("said", "note", "knowledge")
_Scores = dict[int, float]
"""Scores by index into `found`."""
_ByTurn = dict[tuple[int, int], float]
_ByMessage = dict[tuple[int, int], CitedFact]
"""Facts by session id and `seq` of a message."""


def _place_of(passage: FoundPassage) -> tuple[int, int]:
    return (passage.owner, passage.seq)


def _place(item: Ranked) -> tuple[str, int, int]:
    return (item.passage.path, item.passage.owner, item.passage.number)


def _worth(item: Ranked) -> tuple[float, datetime]:
    return (round(item.score, 9), item.passage.at)


def _select_named(search: Search, found: Sequence[FoundPassage], question: str) -> dict[int, Author]:
    """Return, by index into `search.words`, the author whom a word of the question names.

    Words that name no author are left out.
    """
    written = {word.casefold(): word for word in _WORD.findall(question) if not word[0].islower()}
    known = [(author, set(words_of(search.names.get(author, "")))) for author in _SIDES]
    named: dict[int, Author] = {}
    for at, word in enumerate(search.words):
        if word in written:
            bearers = [author for author, names in known if word in names]
            named[at] = bearers[0] if bearers else _find_addressed_side(found, at, written[word])
    return {at: bearer for at, bearer in named.items() if bearer}


_WORD = re.compile(r"[^\W\d_]+")
_SIDES: tuple[Author, ...] = ("person", "assistant")


def _find_addressed_side(found: Sequence[FoundPassage], at: int, name: str) -> Author:
    """Return the side that the other one addresses by this name, as in "Hi Ada!"; empty if neither does."""
    bearing = [passage for passage in found if at in passage.hits]
    if len(bearing) < CALLED:
        return ""  # most such words only begin a sentence; a pattern for each would cost too much
    spoken = re.compile(rf"{re.escape(name)}\s*[,.!?]")
    said, called = dict.fromkeys(_SIDES, 0), dict.fromkeys(_SIDES, 0)
    for passage in bearing:
        if passage.author in said:
            said[passage.author] += 1
            if match := spoken.search(passage.text):
                before = passage.text[: match.start()].rstrip()
                called[passage.author] += before[-1:] in ",.!?" or " " not in before
    for caller, other in (_SIDES, _SIDES[::-1]):
        if called[caller] >= max(CALLED, CALLED_SHARE * said[caller], 10 * called[other]):
            return other
    return ""


def _weigh(named: Mapping[int, Author], of: Frequencies, asked: int) -> tuple[float, ...]:
    """Return the weight of each word; words of statements next to a question weigh less.

    Names weigh 0, unless the question has no other words.
    """
    weights = of.weights
    if all(at in named for at in range(min(asked, len(weights)))):
        named = {}
    weights = tuple(0.0 if at in named else weight for at, weight in enumerate(weights))
    return tuple(weight * (1.0 if at < asked else TOLD_BESIDE) for at, weight in enumerate(weights))


def _rarest(passages: int) -> float:
    """Return the largest weight that a word can have."""
    return math.log(1 + max(passages, FEW_PASSAGES))


def _find_subject(named: Mapping[int, Author], question: Question) -> Author:
    sides = set(named.values())
    if not sides:
        return question.about
    return sides.pop() if len(sides) == 1 else ""


def _own_scores(
    found: Sequence[FoundPassage], search: Search, weights: Mapping[Lane, Sequence[float]]
) -> list[float]:
    """Return the BM25 score of each passage, without shares from its neighbours."""
    lengths = {lane: K1 * B / of.mean_terms for lane, of in search.frequencies.items()}
    written = [word if is_unspaced(word[0]) else f" {word}" for word in search.words]
    own: list[float] = []
    for passage in found:
        score = 0.0
        if passage.hits:
            worth = weights[passage.lane]
            of_question = sum(1 for at in passage.hits if at < search.asked and worth[at])
            more = min(MORE_WORDS_AT_MOST, max(0, of_question - 1))
            long = K1 * (1 - B) + lengths[passage.lane] * passage.terms
            text = passage.text.lower()
            for at in passage.hits:
                # an inflected form counts once; otherwise count occurrences of the word as it is written
                times = min(TIMES_AT_MOST, text.count(written[at]) or 1)
                score += worth[at] * times * (K1 + 1) / (times + long)
            score *= 1 + MORE_WORDS * more
        own.append(score)
    return own


def _with_sentences(
    found: Sequence[FoundPassage],
    search: Search,
    worth: Sequence[float],
    own: list[float],
    question: Question,
) -> list[float]:
    """Return the scores, raised for passages that fit one sentence of the message well.

    Each of two questions in one message is thus answered by the passages that fit it best.
    """
    sentences = _sentences_of(search, question)
    said = [at for at, passage in enumerate(found) if passage.lane == "said" and own[at]]
    if len(sentences) < 2 or not said:
        return own
    best = max(own[at] for at in said)
    parts: list[_Scores] = [defaultdict(float) for _ in sentences]
    parts_of = [
        [part for part, sentence in zip(parts, sentences, strict=True) if word in sentence]
        for word in range(len(worth))
    ]
    for at in said:
        hits = found[at].hits
        each = own[at] / sum([worth[word] for word in hits])
        for word in hits:
            for part in parts_of[word]:
                part[at] += each * worth[word]
    raised = list(own)
    for part in parts:
        lift = (best / (max(part.values(), default=0.0) or best)) ** SENTENCE
        for at, score in part.items():
            if score * lift > raised[at]:
                raised[at] = score * lift
    return raised


def _sentences_of(search: Search, question: Question) -> list[frozenset[int]]:
    """Return the indices of the words in `search.words` for each sentence with at least 4 of them.

    Returns at most 12 sentences.
    """
    places = (
        frozenset(at for at, word in enumerate(search.words) if word in sentence)
        for sentence in question.sentences
    )
    return list(dict.fromkeys(of for of in places if len(of) >= SENTENCE_WORDS))[:SENTENCES_AT_MOST]


def _find_carried_share(
    best: float, with_word: Sequence[int], weights: Sequence[float], search: Search
) -> float:
    """Return the share of the question's weight that the best passage has, reduced for words that were never
    said.

    A pair of characters from a script without blanks that was never said is no word, so it does not count.
    """
    asked = [
        (number, weight)
        for at, (number, weight) in enumerate(zip(with_word, weights, strict=True))
        if at < search.asked and (number or not _is_pair(search.words, at))
    ]
    heard = sum(1 for number, _ in asked if number) / max(1, len(asked))
    return best * heard / (sum(weight for _, weight in asked) or 1.0)


def _is_pair(words: Sequence[str], at: int) -> bool:
    return at < len(words) and is_unspaced(words[at][0])


def _share_of_room(best: float, carried: float, of: Frequencies, *, asked: bool) -> float | None:
    """Return the share of the first `SHARED_TOKENS` that a lane may fill; None if it is not recalled."""
    if best <= 0:
        return None
    if asked:
        return min(1.0, carried / SURE) if carried >= LEAST_CARRIED else None
    worth = best / _rarest(of.passages)
    if worth < TOLD_LEAST:
        return None
    return min(1.0, max(0.0, (worth - TOLD_SOME) / (TOLD_SURE - TOLD_SOME)))


def _repeats(passage: FoundPassage, said: str) -> bool:
    """Return whether the message, given in its normal form, contains the whole passage."""
    return _normalise_passage(passage.text) in said


class _Raised(NamedTuple):
    """Messages and turns whose scores notes and facts raise."""

    turns: _ByTurn
    """How well the notes made from a turn fit, by session id and turn."""
    notes: _ByMessage
    """Best-fitting notes by the message that they cite."""
    facts: _ByMessage
    """Best-fitting facts of the summary by the message that they cite."""


def _score_messages(
    found: Sequence[FoundPassage], said: Sequence[int], own: Sequence[float], about: Author, raised: _Raised
) -> _Scores:
    """Return scores of messages, 0 to about 2: by words, neighbours, notes, facts, speaker and sitting."""
    scores = _scale(_smooth(found, said, own, about))
    scores = {at: score for at, score in scores.items() if score > LEAST_OF_WORDS}
    if raised.turns:
        for at in scores:
            scores[at] += NOTE_HIT * raised.turns.get((found[at].owner, found[at].turn), 0.0)
    for at, hit in _cited_hits(found, said, raised.notes, raised.facts).items():
        scores[at] = scores.get(at, 0.0) + hit
    if about:
        best = max(scores.values(), default=0.0)
        for at in scores:
            scores[at] += SPEAKER_PRIOR * best * (found[at].author == about)
    return _with_sittings(found, _scale(scores))


def _smooth(
    found: Sequence[FoundPassage], said: Sequence[int], own: Sequence[float], about: Author
) -> _Scores:
    """Return the scores with shares from neighbours; parts of one message give each other nothing.

    Small talk and phrases end a subject, so no share passes over them.
    """
    places: defaultdict[int, dict[int, int]] = defaultdict(dict)
    for at in said:
        places[found[at].owner][found[at].number] = at
    smooth = dict.fromkeys(said, 0.0)
    phrases = Counter(found[at].text for at in said)
    idle: dict[str, bool] = {}

    def is_idle(place: int | None) -> bool:
        if place is None:
            return False
        text = found[place].text
        if text not in idle:
            idle[text] = phrases[text] >= OFTEN_SAID or is_small_talk(text)
        return idle[text]

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
            if is_idle(beside) or (apart * apart > 1 and is_idle(mine.get(passage.number + apart // 2))):
                continue
            if apart == 1 and about in ("", other.author) and _is_answered(passage, other):
                share += ANSWER
            smooth[beside] += share * score * min(1.0, NEIGHBOUR_CHARS / len(other.text))
    return {at: score for at, score in smooth.items() if score > 0}


def _is_answered(passage: FoundPassage, by: FoundPassage) -> bool:
    return passage.author != by.author and passage.text.rstrip().endswith(("?", "？", "؟"))


_BESIDE = tuple((apart, NEIGHBOUR / abs(apart)) for apart in range(-NEIGHBOURS, NEIGHBOURS + 1) if apart)


def _with_sittings(found: Sequence[FoundPassage], scores: _Scores) -> _Scores:
    sittings: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    for at in scores:
        sittings[found[at].owner, found[at].sitting].append(at)
    raised: _Scores = {}
    for members in sittings.values():
        best = sorted((scores[at] for at in members), reverse=True)[:SITTING_BEST]
        more = SITTING_PRIOR * sum(best) / len(best)
        raised.update({at: scores[at] + more for at in members})
    return raised


def _share_by_meaning(share: float | None, nearest: float) -> float | None:
    """Return the share of the room for a lane, limited by the nearness in meaning of its best passage.

    `share` is the share by words, None if words recall nothing; then nearness alone decides. Below
    `NEAR_LEAST`, `share` is returned unchanged.
    """
    if nearest < NEAR_LEAST:
        return share
    meant = min(1.0, max(0.0, (nearest - NEAR_SOME) / (NEAR_SURE - NEAR_SOME)))
    return meant if share is None else min(share, meant)


def _with_meaning(
    found: Sequence[FoundPassage], said: Sequence[int], scores: _Scores, carried: float
) -> _Scores:
    """Return the scores raised by nearness in meaning.

    Scores by words count less if the best passage has little of the question.
    """
    raised = {at: MEANING * found[at].nearness for at in said if found[at].nearness > 0}
    if not raised:
        return scores
    worth = min(1.0, carried / WORDS_SURE)
    return {at: worth * scores.get(at, 0.0) + raised.get(at, 0.0) for at in scores.keys() | raised.keys()}


def _raise_named_days(
    found: Sequence[FoundPassage], said: Sequence[int], scores: _Scores, spans: Sequence[Span]
) -> _Scores:
    """Return the scores, raised for passages from the days that the message names."""
    if not spans:
        return scores
    best = max(scores.values(), default=1.0)
    raised = {at: SPOKEN_OF * best for at in said if _in_spans(found[at], spans)}
    return {at: scores.get(at, 0.0) + raised.get(at, 0.0) for at in scores.keys() | raised.keys()}


def _in_spans(passage: FoundPassage, spans: Sequence[Span]) -> bool:
    return any(span.holds(passage.at.date()) for span in spans)


def _fit(fact: CitedFact) -> float:
    return fact.score


def _cited_hits(
    found: Sequence[FoundPassage], said: Sequence[int], notes: _ByMessage, facts: _ByMessage
) -> _Scores:
    """Return the bonus of each message that a note or a fact cites, by its index in `found`."""
    if not (notes or facts):
        return {}
    hits: _Scores = {}
    for at in said:
        place = _place_of(found[at])
        for facts_of, worth in ((notes, NOTE_HIT), (facts, FACT_HIT)):
            if fact := facts_of.get(place):
                hits[at] = max(hits.get(at, 0.0), worth * fact.weigh(found[at].text))
    return hits


def _note_hits(
    found: Sequence[FoundPassage], notes: Sequence[int], own: Sequence[float]
) -> tuple[_ByTurn, _ByMessage]:
    """Return how well notes fit, 0 to 1: by session and turn, and by session and message.

    A note that cites messages counts for these messages only.
    """
    best = max((own[at] for at in notes), default=0.0)
    turns: _ByTurn = {}
    seqs: _ByMessage = {}
    for at in notes:
        note = found[at]
        fits = max(own[at] / best if best else 0.0, note.nearness if note.nearness >= NEAR_SOME else 0.0)
        if not (note.session and fits):
            continue
        for seq in note.cites:
            fact = CitedFact(fits, stems_of(note.text))
            seqs[note.session, seq] = max(seqs.get((note.session, seq), fact), fact, key=_fit)
        if not note.cites and note.through_turn - note.turn < NOTE_TURNS:
            for turn in range(note.turn, note.through_turn + 1):
                turns[note.session, turn] = max(turns.get((note.session, turn), 0.0), fits)
    return turns, seqs


def _scale(scores: _Scores) -> _Scores:
    best = max(scores.values(), default=0.0)
    return {at: score / best if best else 0.0 for at, score in scores.items()}


def pack_passages(
    items: Iterable[Ranked],
    *,
    limit_tokens: int,
    count: Count,
    session_id: int,
    today: date | None = None,
) -> tuple[FoundPassage, ...]:
    """Return the best passages that fit into `limit_tokens`, by time, with those of files last.

    `items` come best first. A passage contained in one already taken is left out. Of two on the same subject,
    the later is marked. `session_id` and `today` are as in `render_passages`, whose text is measured.
    """
    taken: list[FoundPassage] = []
    said: list[str] = []
    days: set[str] = set()
    left = limit_tokens
    shared = min(SHARED_TOKENS, max(0, limit_tokens - SHORT_TOKENS))
    for item in items:
        if len(item.passage.text) > left * CHARS_PER_TOKEN_MOST:
            continue  # as most of them, once the best are taken: counting costs more than all else
        words = f" {_normalise_passage(item.passage.text)} "
        if any(words in other for other in said):
            continue
        line, day = render_passage(item.passage, session_id=session_id), day_of(item.passage, today)
        cost = count(line) + 1 + (0 if day in days else count(day) + 2)
        if cost <= left - (1 - item.sure) * shared:
            taken.append(item.passage)
            left -= _mark_later(taken, left - cost)
            said.append(words)
            days.add(day)
            left -= cost
    return tuple(sorted(taken, key=_by_time))


def _mark_later(taken: list[FoundPassage], left: int) -> int:
    """Mark passages that are later than another on the same subject as the last one; return the marks'
    tokens.

    Marks are set while `left` tokens suffice.
    """
    newest = taken[-1]
    cost = 0
    for at, other in enumerate(taken[:-1]):
        place = len(taken) - 1 if taken[-1].at > other.at else at
        if cost + LATER_TOKENS <= left and not taken[place].is_later and _is_on_same_subject(newest, other):
            taken[place] = taken[place]._replace(is_later=True)
            cost += LATER_TOKENS
    return cost


def _is_on_same_subject(one: FoundPassage, other: FoundPassage) -> bool:
    """Return whether two passages have the same subject, so that the later one is marked.

    Notes need equal subjects and different times; messages need the same author, different days and similar
    text. Passages of files and those above 250 characters never count.
    """
    if "knowledge" in (one.lane, other.lane) or max(len(one.text), len(other.text)) > LATER_CHARS:
        return False
    if one.lane == other.lane == "note":
        subject = normalise(one.heading)
        return bool(subject) and subject == normalise(other.heading) and one.at != other.at
    if one.lane != other.lane or one.author != other.author or one.at.date() == other.at.date():
        return False
    return is_same_subject(one.text, other.text)


def render_passages(passages: Iterable[FoundPassage], *, session_id: int, today: date | None = None) -> str:
    """Return passages as text, in the given order, each below a line with its day.

    Passages of files stand below a separate line. With `today`, the line says how long ago the day was; None
    leaves it out. Messages of the session `session_id` are cited by number. Secrets are removed.
    """
    lines: list[str] = []
    day = None
    for passage in passages:
        if day_of(passage, today) != day:
            day = day_of(passage, today)
            lines.append(f"{day}:")
        lines.append(render_passage(passage, session_id=session_id))
    return "\n".join(lines)


def _by_time(passage: FoundPassage) -> tuple[bool, float, str, int, str, int]:
    if passage.lane == "knowledge":
        return (True, 0.0, passage.lane, passage.owner, passage.path, passage.number)
    return (False, passage.at.timestamp(), passage.lane, passage.owner, passage.path, passage.number)


def day_of(passage: FoundPassage, today: date | None) -> str:
    """Return the line to show above a passage, without its colon: its day, or a fixed line for files.

    With `today`, the line also says how long ago the day was; None leaves it out.
    """
    if passage.lane == "knowledge":
        return OF_FILES
    day = passage.at.date()
    return f"{day_text(day)} ({distance_text(day, today)})" if today else day_text(day)


@ttl_cache(MAX_CACHED_PASSAGES)
def note_line(text: str, *, is_later: bool = False) -> str:
    """Return a recalled note as one line with its mark, secrets removed.

    `is_later` True marks the later of two notes on one subject.
    """
    return f"{LATER_NOTE_MARK if is_later else NOTE_MARK}{redact(text)}"


def render_passage(passage: FoundPassage, *, session_id: int) -> str:
    """Return a passage with its source in front, secrets removed and imitated sources changed.

    `#12` is a message of the session `session_id`, `earlier` one of another session, brackets hold the place
    in a file.
    """
    match passage.lane:
        case "note":
            return note_line(passage.text, is_later=passage.is_later)
        case "knowledge":
            place = f"{passage.path} › {passage.heading}" if passage.heading else passage.path
            return f"[{place}] {_clean_passage(passage.text)}"
        case _:
            where = f"#{passage.seq}" if passage.owner == session_id else "earlier"
            later = LATER if passage.is_later else ""
            return f"{where} {passage.author}{later}: {_clean_passage(passage.text)}"


@ttl_cache(MAX_CACHED_PASSAGES)
def _clean_passage(text: str) -> str:
    """Return a text without secrets, and with marks changed that only the program may write."""
    return _LIKE_A_LINE.sub("(", redact(text).replace("[#", "(#").replace("[note", "(note"))


@ttl_cache(MAX_CACHED_PASSAGES)
def _normalise_passage(text: str) -> str:
    return normalise(text)


_LIKE_A_LINE = re.compile(r"^(?=(?:#\d+|earlier) [^\n:]{1,80}:)", re.MULTILINE)
"""Beginning of a text that looks like a passage's; it is changed so that no text imitates another author."""
