"""Facts of a summary that fit a question, which raise the messages they cite, and comparison of subjects."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from shared.core.context.question import Question
from shared.core.session.ledger import Ledger
from shared.core.values.searching import is_unspaced, words_of
from shared.core.values.ttl_cache import ttl_cache

FACTS_AT_MOST = 8
"""Most ledger items whose messages are raised for one question."""
CITED_AT_MOST = 24
"""Most messages that the facts of one question may raise."""
ITEMS_LOOKED_AT = 400
"""Newest items of a ledger that are compared with a question."""
LEAST_WORDS = 2
"""Fewest words that an item must share with a question, since one word alone makes no subject."""
LEAST_OF_BEST = 0.5
"""Share of the best item's score below which an item raises no messages."""
SAME_SUBJECT = 0.5
"""Share of the shorter text's words that two texts on the same subject must share."""
STEM_CHARS = 5
"""Letters of a word by which its forms are compared."""
MAX_CACHED_STEMS = 4_096
"""Most texts whose stems a process caches; those of about ten conversations."""
_LEAST_CHARS = 4


class CitedFact(NamedTuple):
    """Ledger item that cites a message, compared with a question; `stems` are those of its text."""

    score: float
    """Fit to the question, 0 to 1, where 1 is the best of the items."""
    stems: frozenset[str]

    def weigh(self, passage: str) -> float:
        """Return the item's score for a passage of the cited message, at most `score`.

        The more of the item's words the passage has, the higher it is.
        """
        return self.score * (1 + len(self.stems & stems_of(passage))) / (1 + len(self.stems))


def find_cited(ledger: Ledger, question: Question) -> Mapping[int, CitedFact]:
    """Return, by message `seq`, the ledger item that cites it and fits the question best; empty if none fits.

    Only the newest 400 open items with a source and two words of the question count. The rarer a word is
    among the items, the more it counts. At most 24 messages are returned.
    """
    items = [item for item in ledger.items if item.closed is None and item.sources][-ITEMS_LOOKED_AT:]
    asked = stems_of(" ".join(question.words))
    if not items or len(asked) < LEAST_WORDS:
        return {}
    shared = [(item, stems_of(item.text) & asked) for item in items]
    often = Counter(stem for _, stems in shared for stem in stems)
    scores = [
        (sum(math.log(1 + len(items) / often[stem]) for stem in stems), item)
        for item, stems in shared
        if len(stems) >= LEAST_WORDS
    ]
    best = max((score for score, _ in scores), default=0.0)
    scores.sort(key=_by_score, reverse=True)
    cited: dict[int, CitedFact] = {}
    for score, item in scores[:FACTS_AT_MOST]:
        if score >= LEAST_OF_BEST * best:
            for seq in item.sources:
                cited.setdefault(seq, CitedFact(score / best, stems_of(item.text)))
    return dict(list(cited.items())[:CITED_AT_MOST])


def _by_score(scored: tuple[float, object]) -> float:
    return scored[0]


def is_same_subject(one: str, other: str) -> bool:
    """Return whether two texts say different things about the same subject.

    They share at least two words and half of the shorter text's, and each has a word that the other lacks.
    """
    here, there = stems_of(one), stems_of(other)
    shared = len(here & there)
    if shared < LEAST_WORDS or shared < SAME_SUBJECT * min(len(here), len(there)):
        return False
    return shared < len(here) and shared < len(there)


@ttl_cache(MAX_CACHED_STEMS)
def stems_of(text: str) -> frozenset[str]:
    """Return the first five letters of each word of four or more, in lower case.

    Words with digits stay whole, as do pairs of characters in scripts without blanks.
    """
    return frozenset(_stems(words_of(text)))


def _stems(words: Iterable[str]) -> Iterable[str]:
    for word in words:
        if is_unspaced(word[0]) or any(char.isdigit() for char in word):
            yield word
        elif len(word) >= _LEAST_CHARS:
            yield word[:STEM_CHARS]
