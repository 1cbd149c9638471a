"""What is shown of a message that a search found, and where the next page begins."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.core.memory.search import EXCERPT_CHARS, SearchKey, SearchWord, excerpt_of, search_words

TEXTS = st.text(max_size=600)
MOMENTS = st.integers(min_value=0, max_value=10**16).map(
    lambda past: datetime.fromtimestamp(0, UTC) + timedelta(microseconds=past)
)
IDS = st.integers(min_value=0, max_value=10**17)


def marked(text: str, words: str) -> list[str]:
    looked_for = [SearchWord(word=word) for word in search_words(words)]
    return [part.text for part in excerpt_of(text, looked_for) if part.hit]


@pytest.mark.parametrize(
    ("text", "words", "hits"),
    [
        ("The hike was long; hiking is fun.", "hik", ["hike", "hiking"]),
        ("Plan B, not a bee.", "b", ["B"]),
        ("Der Schlüssel, die SCHLÜSSEL", "schlüssel", ["Schlüssel", "SCHLÜSSEL"]),
        ("In der Straße", "strasse", []),
        ("我把备用钥匙放在花瓶里", "备用钥匙", ["备用钥匙"]),
        ("snake_case and case", "case", ["case", "case"]),
        ("nothing here", "zeppelin", []),
    ],
)
def test_hits_are_marked_as_they_are_written(text: str, words: str, hits: list[str]) -> None:
    assert marked(text, words) == hits


@given(TEXTS, st.text(max_size=40))
def test_an_excerpt_is_a_short_part_of_its_text_in_order(text: str, words: str) -> None:
    parts = excerpt_of(text, [SearchWord(word=word) for word in search_words(words)])
    shown = "".join(part.text for part in parts)
    assert len(shown) <= EXCERPT_CHARS + 2
    line = " ".join(text.split())
    assert shown in line or shown.strip("…") in line
    assert len(line) > EXCERPT_CHARS or shown == line


@given(MOMENTS, IDS, IDS)
def test_a_key_is_read_as_it_was_written(at: datetime, session_id: int, seq: int) -> None:
    key = SearchKey(at=at, session_id=session_id, seq=seq)
    assert SearchKey.parse(str(key)) == key


@given(st.text(max_size=60))
def test_what_is_no_key_is_none(text: str) -> None:
    key = SearchKey.parse(text)
    assert key is None or text.count("-") == 2
