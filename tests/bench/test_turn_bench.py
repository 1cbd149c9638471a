"""The bench runs and says what it must; how fast anything is, is nobody's test."""

from __future__ import annotations

import pytest

from tests.bench.turn import _groups, as_table, measure


async def test_the_bench_counts_what_a_turn_costs() -> None:
    found = await measure(turns=3, blocks=1, with_processes=False, profile=False)
    assert {"overhead_ratio", "cpu_ms_per_turn", "statements", "commits", "redis_commands"} <= found.keys()
    assert found["commits"] == 2
    # Two for each of three turns, and the first one reads the entries before it.
    assert found["statements"] == round(7 / 3, 2)
    assert found["redis_commands"] <= 2
    assert found["cpu_ms_per_turn_behind_summaries"] > found["floor_cpu_ms_per_turn"]
    assert "overhead_ratio" in as_table(found)


@pytest.mark.night
async def test_blocks_that_are_spread_are_all_measured() -> None:
    found = await measure(turns=2, blocks=3, minutes=0.01, with_processes=False, profile=False)
    assert len(found["overhead_ratio_of_groups"]) == 2
    assert (found["blocks"], len(found["overhead_ratios"])) == (3, 3)


def test_groups_of_blocks_stand_evenly_over_the_minutes() -> None:
    assert _groups(21, 0) == [(0.0, 21)]
    assert _groups(3, 1) == [(0.0, 2), (60.0, 1)]
    groups = _groups(77, 5)
    assert [blocks for _, blocks in groups] == [7] * 11
    assert sum(seconds for seconds, _ in groups) == 300
