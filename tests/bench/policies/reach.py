"""Whether a fact can still be reached: in the prompt, or by plain full-text recall in a token budget."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Sequence

from shared.core.values.tokens import Count

RECALL_TOKENS = 2_000
_K1, _B = 1.2, 0.4
"""As the recall of long-term memory will weigh them."""
_WORD = re.compile(r"\w+")
_SMALL_WORDS = """
    a an and are as at be but by do does did for from had has have he her his how i in is it its me my of on
    or our she that the their them they this to was we were what when where which who why will with you your
"""
COMMON = frozenset(_SMALL_WORDS.split())


class Recall:
    """BM25 with OR over messages as they were said; nothing learned, no model."""

    def __init__(self, texts: Sequence[str], count: Count) -> None:
        self._texts = texts
        self._count = count
        self._words = [Counter(_terms(text)) for text in texts]
        self._lengths = [sum(words.values()) for words in self._words]
        self._mean = sum(self._lengths) / max(1, len(texts))
        self._postings: dict[str, list[int]] = {}
        for index, words in enumerate(self._words):
            for word in words:
                self._postings.setdefault(word, []).append(index)

    def found(self, question: str, *, tokens: int = RECALL_TOKENS) -> str:
        """The best messages for a question, whole, up to the budget."""
        scores: defaultdict[int, float] = defaultdict(float)
        for word in set(_terms(question)):
            holders = self._postings.get(word, ())
            rarity = math.log(1 + (len(self._texts) - len(holders) + 0.5) / (len(holders) + 0.5))
            for index in holders:
                often = self._words[index][word]
                length = 1 - _B + _B * self._lengths[index] / self._mean
                scores[index] += rarity * often * (_K1 + 1) / (often + _K1 * length)
        taken: list[str] = []
        left = tokens
        for index in sorted(scores, key=scores.__getitem__, reverse=True)[:200]:
            size = self._count(self._texts[index])
            if size <= left:
                taken.append(self._texts[index])
                left -= size
        return "\n".join(taken)


def holds(text: str, literal: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(literal.casefold())}(?!\w)", text.casefold()) is not None


def _terms(text: str) -> list[str]:
    return [stem(word) for word in _WORD.findall(text.casefold()) if word not in COMMON]


def stem(word: str) -> str:
    for ending in ("ing", "ed", "es", "s"):
        if len(word) > len(ending) + 2 and word.endswith(ending):
            return word[: -len(ending)]
    return word
