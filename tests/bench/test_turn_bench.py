"""The bench runs and says what it must; how fast anything is, is nobody's test."""

from __future__ import annotations

from tests.bench.turn import as_table, measure


async def test_the_bench_counts_what_a_turn_costs() -> None:
    found = await measure(turns=3, blocks=1, with_processes=False, profile=False)
    assert {"overhead_ratio", "cpu_ms_per_turn", "statements", "commits", "redis_commands"} <= found.keys()
    assert found["commits"] == 2
    assert found["statements"] == 2
    assert found["redis_commands"] <= 2
    assert "overhead_ratio" in as_table(found)
