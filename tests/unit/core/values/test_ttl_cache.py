"""What was worked out of somebody's words is forgotten together, after a while."""

from __future__ import annotations

from typing import Any

import pytest

from shared.adapters.models.token_counter import VocabularyCounter
from shared.core.context import build_context
from shared.core.context.prompts import SystemLayers
from shared.core.values import ttl_cache
from shared.core.values.ttl_cache import SECONDS_AT_MOST, clear_recent
from shared.services.turns import request_builder


@pytest.fixture
def beginning(monkeypatch: pytest.MonkeyPatch) -> float:
    """Nothing was forgotten yet but now."""
    monkeypatch.setattr(ttl_cache, "_BEGAN", [1_000.0])
    return 1_000.0


def test_it_is_asked_once_until_it_is_forgotten(beginning: float) -> None:
    asked: list[str] = []

    @ttl_cache.ttl_cache(2)
    def length(text: str) -> int:
        asked.append(text)
        return len(text)

    assert [length("ab"), length("abc"), length("ab")] == [2, 3, 2]
    clear_recent(beginning + SECONDS_AT_MOST - 1)
    assert (length("ab"), asked) == (2, ["ab", "abc"])
    clear_recent(beginning + SECONDS_AT_MOST)
    assert (length("ab"), asked) == (2, ["ab", "abc", "ab"])
    clear_recent(beginning + 2 * SECONDS_AT_MOST - 1)
    assert (length("ab"), asked) == (2, ["ab", "abc", "ab"])


def test_no_words_of_a_person_stay(beginning: float) -> None:
    counter = VocabularyCounter()
    counter.count_tokens("My cat is called Miso.")
    layers = SystemLayers(base="You help.", agent="", person="This is Ada, who has a cat.")
    parts = build_context._system_parts(layers, "Ada has a cat.")
    request_builder._key_of(parts[0].text)
    request_builder._size_of_long(counter, "Miso " * 1_000)
    told: list[Any] = [
        counter._remembered,
        build_context._system_parts,
        request_builder._key_of,
        request_builder._size_of_long,
    ]
    assert [kept.cache_info().currsize for kept in told] == [1, 1, 1, 1]
    clear_recent(beginning + SECONDS_AT_MOST)
    assert [kept.cache_info().currsize for kept in told] == [0, 0, 0, 0]
