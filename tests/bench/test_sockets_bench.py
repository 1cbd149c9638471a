"""The bench of sockets runs and says what it must; how fast anything is, is nobody's test."""

from __future__ import annotations

import pytest

from tests.bench.sockets import as_table, measure


@pytest.mark.night
async def test_the_bench_counts_what_a_socket_costs() -> None:
    found = await measure(sockets=20, deltas=3, frames=20, blocks=1)
    assert {
        "delta_latency_ratio", "frames_ratio", "frames_per_second", "slow_reader_ratio",
        "slow_reader_p99_ratio", "idle_kib_house", "idle_kib_echo",
    } <= found.keys()  # fmt: skip
    assert "slow_reader_ratio" in as_table(found)
