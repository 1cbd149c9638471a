"""Splits text into sentences and rates them by simple, deterministic rules."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

SENTENCE_END = re.compile(r"(?<=[.!?…])\s+|\n+")
WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
TAG = re.compile(r"</?[A-Za-z_][^<>\n]*>")
TAGGED = re.compile(r"<([A-Za-z_][\w-]*)(?:\s[^<>\n]*)?>.*?</\1>", re.DOTALL)
LEADING = re.compile(r"^\s*(?:[-*•]\s+|\[#\d+[^\]]*\]\s*)")
STOP_WORDS = frozenset(
    [
        "the",
        "and",
        "for",
        "are",
        "was",
        "were",
        "did",
        "does",
        "has",
        "have",
        "had",
        "how",
        "what",
        "when",
        "where",
        "which",
        "who",
        "whom",
        "whose",
        "why",
        "with",
        "you",
        "your",
        "yours",
        "that",
        "this",
        "these",
        "those",
        "they",
        "them",
        "their",
        "there",
        "then",
        "than",
        "from",
        "into",
        "about",
        "can",
        "could",
        "would",
        "should",
        "will",
        "not",
        "but",
        "our",
        "its",
        "his",
        "her",
        "she",
        "him",
        "any",
        "all",
        "some",
        "one",
        "also",
        "just",
        "tell",
        "know",
        "say",
        "said",
        "please",
    ]
)


def outside_tags(text: str) -> str:
    """Return a message without the tagged blocks that a program has added to it."""
    return TAGGED.sub("\n", text)


def sentences(text: str) -> list[str]:
    """Return the sentences of a text, without tags, list marks and message numbers."""
    parts = (LEADING.sub("", part).strip() for part in SENTENCE_END.split(TAG.sub("\n", text)))
    return [part for part in parts if WORD.search(part)]


def key_words(text: str) -> set[str]:
    """Return the distinctive words of a text: lower case, without plural endings, short words and stop
    words.
    """
    words = (word.lower().replace("’", "'").removesuffix("'s") for word in WORD.findall(text))
    return {_stem(word) for word in words if (len(word) > 2 or word.isdigit()) and word not in STOP_WORDS}


def best_match(question: str, candidates: Iterable[str]) -> str | None:
    """Return the sentence that shares most words with the question; None if none shares any.

    Of equals, the one with the rarer words wins, then the later one.
    """
    wanted = key_words(question)
    pool = [(sentence, key_words(sentence) & wanted) for sentence in candidates]
    frequency = Counter(word for _, shared in pool for word in shared)
    best, best_score = None, (0, 0.0)
    for sentence, shared in pool:
        score = (len(shared), sum(1 / frequency[word] for word in sorted(shared)))
        if shared and score >= best_score:
            best, best_score = sentence, score
    return best


def salience(sentence: str) -> int:
    """Return a score of how much a sentence is worth keeping.

    Numbers, names, facts in the first person and decisions raise it.
    """
    score = 2 * bool(re.search(r"\d", sentence))
    score += min(3, len(re.findall(r"(?<=[\w,;] )[A-Z][\w'-]+", sentence)))
    score += 2 * bool(
        re.search(r"\b(my|I am|I'm|I live|I work|we decided|named|called)\b", sentence, re.IGNORECASE)
    )
    score += bool(
        re.search(r"\b(prefer|always|never|like|love|hate|birthday|agreed|plan)", sentence, re.IGNORECASE)
    )
    return score - 3 * sentence.endswith("?") - 2 * (len(sentence) > 400)


def shortened(text: str, chars: int) -> str:
    """Return the text cut to at most `chars` characters at the end of a word."""
    if len(text) <= chars:
        return text
    return text[: chars + 1].rsplit(None, 1)[0][:chars].rstrip(",;:")


def _stem(word: str) -> str:
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word
