"""Digest: a summary made without a model, from sentences, questions and identifiers of the conversation."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from shared.core.compaction.next_ledger import LedgerPatch, NewItem, apply_patch
from shared.core.compaction.plan import SourceLine, render_source, source_lines
from shared.core.compaction.summary_filters import may_be_quoted
from shared.core.session.ledger import ItemKind, Ledger
from shared.core.session.session import Entry
from shared.core.session.summary import ITEM_CHARS, fit_ledger, render_summary
from shared.core.values.identifiers import NO_NAMES, NUMBER, identifiers_of
from shared.core.values.searching import is_unspaced
from shared.core.values.tokens import Count

_SENTENCE = re.compile(r"(?<=[.!?…])\s+|(?<=[。！？])|\n+")
_WORD = re.compile(r"\w+")
_CAPITAL = re.compile(r"(?<=[\w,;] )[^\W\d_a-zß-öø-ÿ][\w’'-]+")
"""Capitalised word inside a sentence; used as a guess at names when sentences are weighed."""
_FORBIDS = re.compile(r"\b(?:never|must not|do not|don['’]t|nie|niemals|никогда)\b", re.IGNORECASE)
_NUMBER_WEIGHT, _NAME_WEIGHT = 0.6, 0.25
_SHORTEST_WORDS = 3
_QUESTION_ENDS = ("?", "？")
_LINE_OVERHEAD = 6
_TRIES = 24
"""Sentences in a row that do not fit, after which no more are tried."""
_QUESTION_SHARE = 0.4
"""Share of the room for the persons' questions, the newest first."""


class _Sentence(NamedTuple):
    """Sentence of a message; a named tuple because thousands are made at a time."""

    place: int
    seq: int
    author: str
    text: str
    words: tuple[str, ...]
    is_question: bool


def digest(entries: Sequence[Entry], former: Ledger, count: Count, *, budget_tokens: int) -> Ledger:
    """Return the ledger that extends `former` with the most telling sentences of the entries, without a
    model.

    The person's newest questions come first, then rare words, numbers and names count. Its text has at most
    `budget_tokens` tokens where possible; at least half of them are for new sentences.
    """
    lines = source_lines(render_source(entries, count=count))
    sentences = _sentences(lines)
    room = max(budget_tokens // 2, budget_tokens - count(render_summary(former)))
    questions = _questions(sentences, count, math.floor(room * _QUESTION_SHARE))
    used = sum(_cost(sentence, count) for sentence in questions)
    others = _weightiest(sentences, count, room - used)
    chosen = sorted((*questions, *others), key=lambda sentence: sentence.place)
    patch = LedgerPatch(narrative=_narrative(entries, former), add=tuple(_item(s) for s in chosen))
    exact = identifiers_of("\n".join(line.text for line in lines), most=40, redacted=True)
    ledger = apply_patch(former, patch, identifiers=exact, most_new=len(patch.add), keep_form=True)
    return fit_ledger(ledger, budget_tokens, count)


def _sentences(lines: Iterable[SourceLine]) -> list[_Sentence]:
    found: list[_Sentence] = []
    for line in lines:
        if line.author in ("tool", "program"):
            continue
        for text in _SENTENCE.split(line.text):
            words = tuple(_words(text.casefold()))
            if words and len(text) <= ITEM_CHARS and not text.startswith("(uses "):
                bare = text.strip()
                asks = bare.endswith(_QUESTION_ENDS)
                found.append(_Sentence(len(found), line.seq, line.author, bare, words, asks))
    return found


def _words(text: str) -> Iterator[str]:
    """Yield the words of a text; in scripts without blanks, each two characters count as a word."""
    for word in _WORD.findall(text):
        if is_unspaced(word[0]):
            yield from (word[at : at + 2] for at in range(0, len(word), 2))
        else:
            yield word


def _questions(sentences: Iterable[_Sentence], count: Count, room: int) -> list[_Sentence]:
    asked = [s for s in sentences if s.is_question and s.author == "person"]
    return _pack_sentences(reversed(asked), count, room)


def _weightiest(sentences: Sequence[_Sentence], count: Count, room: int) -> list[_Sentence]:
    """Return the statements that fit into `room` tokens, persons' first, since answers mostly repeat or
    explain.
    """
    plain = [s for s in sentences if not s.is_question and len(s.words) >= _SHORTEST_WORDS]
    frequency = Counter(chain.from_iterable(map(set, (sentence.words for sentence in plain))))
    rarity = {word: math.log(len(plain) / times) for word, times in frequency.items()}
    ranked = sorted(plain, key=lambda s: (s.author != "person", -_weight(s, rarity), s.place))
    return _pack_sentences(ranked, count, room)


def _pack_sentences(sentences: Iterable[_Sentence], count: Count, room: int) -> list[_Sentence]:
    packed: list[_Sentence] = []
    seen: set[tuple[str, ...]] = set()
    too_long = 0
    for sentence in sentences:
        if room <= _LINE_OVERHEAD or too_long > _TRIES:
            break
        if sentence.words in seen:
            continue
        cost = _cost(sentence, count)
        if cost > room:
            too_long += 1
            continue
        if not may_be_quoted(sentence.text):
            continue
        seen.add(sentence.words)
        packed.append(sentence)
        room -= cost
    return packed


def _cost(sentence: _Sentence, count: Count) -> int:
    return count(sentence.text) + _LINE_OVERHEAD


def _weight(sentence: _Sentence, rarity: Mapping[str, float]) -> float:
    """Return the weight of a sentence: the average rarity of its words, plus a bonus for numbers
    and names.
    """
    words = dict.fromkeys(sentence.words)
    rare = sum([rarity[word] for word in words]) / (len(words) + _SHORTEST_WORDS)
    names = [name for name in _CAPITAL.findall(sentence.text) if name not in NO_NAMES]
    return rare + _NUMBER_WEIGHT * len(NUMBER.findall(sentence.text)) + _NAME_WEIGHT * len(names)


def _item(sentence: _Sentence) -> NewItem:
    kind: ItemKind = "fact"
    if sentence.is_question:
        kind = "question"
    elif sentence.author == "person" and _FORBIDS.search(sentence.text):
        kind = "constraint"
    return NewItem(kind=kind, text=sentence.text, sources=(sentence.seq,), author=sentence.author)


def _narrative(entries: Sequence[Entry], former: Ledger) -> str:
    if former.narrative or former.sections or not entries:
        return former.narrative
    return f"Sentences picked from messages #{entries[0].seq} to #{entries[-1].seq}, in their order."
