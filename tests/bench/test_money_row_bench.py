"""The bench of the shared row of money runs, and turns are paid from slices."""

from __future__ import annotations

import pytest

from tests.bench.money_row import measure


@pytest.mark.night
async def test_the_bench_samples_who_waits_and_slices_are_taken() -> None:
    found = await measure(people=4, seconds=6.0)
    assert found["turns_per_second"] > 0
    assert found["samples"] > 0
    assert found["slices"] >= 1
