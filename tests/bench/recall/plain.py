"""Plain BM25 over the same passages: what recall must never fall below."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence

from shared.core.memory.recall import FoundPassage, Ranked
from shared.core.values.searching import words_of

K1, B = 1.2, 0.75
"""Lucene's defaults."""


class PlainSearch:
    """An index of one conversation in memory, without stems, small words, neighbours or a floor."""

    def __init__(self, passages: Sequence[FoundPassage]) -> None:
        self._passages = passages
        self._terms = [Counter(words_of(passage.text)) for passage in passages]
        self._lengths = [sum(terms.values()) for terms in self._terms]
        self._places: defaultdict[str, list[int]] = defaultdict(list)
        for place, terms in enumerate(self._terms):
            for word in terms:
                self._places[word].append(place)

    def rank(self, question: str, *, before_seq: int) -> tuple[Ranked, ...]:
        """Return passages with a word of the question, best first; later messages do not exist yet."""
        known = sum(1 for passage in self._passages if passage.seq < before_seq)
        mean = max(1.0, sum(self._lengths[:known]) / max(1, known))
        scores: defaultdict[int, float] = defaultdict(float)
        for word in dict.fromkeys(words_of(question)):
            places = [place for place in self._places.get(word, ()) if place < known]
            weight = math.log(1 + (known - len(places) + 0.5) / (len(places) + 0.5))
            for place in places:
                often = self._terms[place][word]
                long = K1 * (1 - B + B * self._lengths[place] / mean)
                scores[place] += weight * often * (K1 + 1) / (often + long)
        best = sorted(scores, key=lambda place: (-scores[place], -place))
        return tuple(Ranked(self._passages[place], scores[place]) for place in best)
