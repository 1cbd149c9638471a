"""Search through messages: words of a query, positions of result pages, and excerpts."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from shared.core.values.searching import is_unspaced, words_of

WORDS_AT_MOST = 8
"""Most words of a query."""
QUERY_CHARS = 300
"""Characters of a query that are read."""
HITS_PER_PAGE = 20
"""Most hits of a page."""
EXCERPT_CHARS = 180
"""Most characters of an excerpt."""
_BEFORE_THE_HIT = 50
_PREFIX_CHARS = 3
"""Fewest letters of a word that also matches as the beginning of a longer word."""
_KEY = re.compile(r"([0-9]{1,17})-([0-9]{1,18})-([0-9]{1,18})")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Fragment(NamedTuple):
    """Part of an excerpt; `hit` is True if it matches a word of the search."""

    text: str
    hit: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchKey:
    """Position of a message in search results, newest first; the next page has the older messages."""

    at: datetime
    session_id: int
    seq: int

    def __str__(self) -> str:
        """Return the text form `microseconds-session-seq`, which `parse` reads."""
        return f"{(self.at - _EPOCH) // timedelta(microseconds=1)}-{self.session_id}-{self.seq}"

    @classmethod
    def parse(cls, text: str) -> SearchKey | None:
        """Return the key of its text form, `microseconds-session-seq`; None if `text` has another form."""
        found = _KEY.fullmatch(text)
        if found is None:
            return None
        at = _EPOCH + timedelta(microseconds=int(found[1]))
        return cls(at=at, session_id=int(found[2]), seq=int(found[3]))


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageHit:
    """Message that matches a search, with its public id `mid` and an excerpt.

    `here` is False in a conversation from before a `/link`.
    """

    key: SearchKey
    session: str
    """Public id of the session."""
    here: bool
    mid: str
    turn: int
    author: str
    excerpt: tuple[Fragment, ...]

    @property
    def at(self) -> datetime:
        """Time of the message."""
        return self.key.at


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagesFound:
    """Page of search results, newest first; `next` is the key of the next page, None for the last page.

    A page without hits can have a `next`, if the search stopped after looking far back.
    """

    hits: tuple[MessageHit, ...] = ()
    next: SearchKey | None = None
    timezone: str | None = None
    """Time zone of the person; None if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SaidMessage:
    """Whole message, as a search result opens it; `timezone` is the person's, None if unknown."""

    turn: int
    author: str
    at: datetime
    text: str
    timezone: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchWord:
    """One word of a search, in lower case; `stem` is its stem in the language of the search, empty if
    unknown.
    """

    word: str
    stem: str = ""

    @property
    def inside(self) -> bool:
        """True for a word in a script without blanks, which may occur inside other text."""
        return is_unspaced(self.word[0])

    @property
    def letter(self) -> bool:
        """True for a single character of a script without blanks, which the index finds only with a
        neighbour.
        """
        return self.inside and len(self.word) == 1

    @property
    def begins(self) -> bool:
        """True if the word also matches longer words that begin with it: it has three letters or more."""
        return not self.inside and len(self.word) >= _PREFIX_CHARS

    @property
    def pattern(self) -> str:
        """Regular expression for Postgres that finds the word in lower-case text.

        It is not escaped, since words have only letters and digits.
        """
        if self.inside:
            return self.word
        words = "|".join(self._forms()).replace("ss", "(?:ss|ß)")
        return rf"\m(?:{words})" if self.begins else rf"\m(?:{words})\M"

    def _forms(self) -> list[str]:
        forms = [self.word]
        if self.begins and len(self.stem) >= _PREFIX_CHARS:
            forms.append(self.stem)
            forms += [f"{self.stem[:-1]}y"] if self.stem.endswith("i") else []
        return list(dict.fromkeys(forms))

    def mark(self) -> re.Pattern[str]:
        """Return a pattern that finds the word in a text of `_plain_text`: in lower case without accents."""
        words = "|".join(re.escape(_plain_text(form)) for form in self._forms())
        if self.inside:
            return re.compile(words)
        end = r"[^\W_]*" if self.begins else r"(?![^\W_])"
        return re.compile(rf"(?<![^\W_])(?:{words}){end}")


def search_words(text: str) -> tuple[str, ...]:
    """Return the different words of a query in their order, in lower case, at most 8.

    Only the first 300 characters are read.
    """
    return tuple(dict.fromkeys(words_of(text[:QUERY_CHARS])))[:WORDS_AT_MOST]


def excerpt_of(text: str, words: Sequence[SearchWord], *, most: int = EXCERPT_CHARS) -> tuple[Fragment, ...]:
    """Return up to `most` characters around the first hit, on one line, as fragments of which hits are
    marked.

    Ellipses at the cut ends are not counted. Without a hit it is the beginning of the text.
    """
    line = " ".join(text.split())
    plain = _plain_text(line)
    spans = _join_spans([found.span() for word in words for found in word.mark().finditer(plain)])
    begin = max(0, spans[0][0] - _BEFORE_THE_HIT) if spans and len(line) > most else 0
    begin = min(begin, max(0, len(line) - most))
    if begin:
        blank = line.find(" ", begin, spans[0][0])
        begin = blank + 1 if blank >= 0 else begin
    end = min(len(line), begin + most)
    parts = [Fragment("…")] if begin else []
    at = begin
    for first, last in spans:
        if first >= end or last <= begin:
            continue
        parts += [Fragment(line[at:first]), Fragment(line[first : min(last, end)], hit=True)]
        at = min(last, end)
    parts.append(Fragment(line[at:end] + ("…" if end < len(line) else "")))
    return tuple(part for part in parts if part.text)


def _plain_text(text: str) -> str:
    """Return the text in lower case without accents, one character for each, so that positions
    stay the same.
    """
    return "".join(map(_plain_char, text))


def _plain_char(char: str) -> str:
    small = unicodedata.normalize("NFKD", char)[:1].casefold()
    return small if len(small) == 1 else char


def _join_spans(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    made: list[tuple[int, int]] = []
    for first, last in sorted(spans):
        if made and first <= made[-1][1]:
            made[-1] = (made[-1][0], max(last, made[-1][1]))
        else:
            made.append((first, last))
    return made
