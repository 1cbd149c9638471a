"""Vectors of passages are kept for a short time, and not more of them than there is room for."""

from __future__ import annotations

import asyncio
from array import array

from shared.adapters.models.embeddings import VectorCache

SOON = 0.02
PATIENCE = 10.0


def vector(*numbers: float) -> array[float]:
    return array("f", numbers)


async def test_what_is_kept_is_found_by_the_same_words_only() -> None:
    kept = VectorCache()
    kept.keep({"the boat": vector(1, 0)})
    assert kept.find(["the boat", "The boat", ""]) == {"the boat": vector(1, 0)}


async def test_the_oldest_go_where_there_is_no_room() -> None:
    kept = VectorCache(numbers=6)
    for number in range(5):
        kept.keep({f"passage {number}": vector(number, 1)})
    assert kept.find(f"passage {number}" for number in range(5)) == {
        f"passage {number}": vector(number, 1) for number in (2, 3, 4)
    }
    kept.keep({f"new {number}": vector(0, number) for number in range(9)})
    assert list(kept.find(f"new {number}" for number in range(9))) == ["new 6", "new 7", "new 8"]


async def test_a_vector_that_needs_more_than_all_room_is_not_kept() -> None:
    kept = VectorCache(numbers=2)
    kept.keep({"long": vector(1, 2, 3)})
    assert kept.find(["long"]) == {}


async def test_cached_vector_expires_without_another_request() -> None:
    kept = VectorCache(seconds=SOON)
    kept.keep({"erased words": vector(1, 0)})
    async with asyncio.timeout(PATIENCE):
        while kept._vectors:
            await asyncio.sleep(SOON)
