"""Looks of the background cost little at rest, however many turns there are."""

from __future__ import annotations

from tests.bench.sweeps import measure

MOST_BLOCKS = 200
SHARE = 0.1


async def test_looks_at_rest_touch_few_blocks_however_many_turns() -> None:
    found = await measure(turns=20_000, days=1, talk=200)
    blocks = found["blocks_at_rest"]
    assert {name: number for name, number in blocks.items() if number > MOST_BLOCKS} == {}
    assert found["share_of_looks"] <= SHARE
