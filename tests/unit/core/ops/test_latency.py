"""Quantiles of counted latencies are those of the values, within five percent."""

from __future__ import annotations

import math
import random

import pytest

from shared.core.ops.latency import BUCKETS, LEAST_MS, MOST_MS, quantile


def counted(values: list[float]) -> list[int]:
    """As PostgreSQL's `width_bucket` places them."""
    counts = [0] * (BUCKETS + 2)
    for value in values:
        place = (math.log(value) - math.log(LEAST_MS)) / (math.log(MOST_MS) - math.log(LEAST_MS))
        counts[min(BUCKETS + 1, max(0, 1 + math.floor(place * BUCKETS)))] += 1
    return counts


@pytest.mark.parametrize("share", [0.5, 0.95])
@pytest.mark.parametrize("seed", range(20))
def test_a_quantile_is_within_five_percent(seed: int, share: float) -> None:
    dice = random.Random(seed)
    values = sorted(dice.lognormvariate(7, 1.2) + LEAST_MS for _ in range(1 + 37 * seed))
    true = values[math.ceil(len(values) * share) - 1]
    assert quantile(counted(values), share) == pytest.approx(min(true, MOST_MS), rel=0.055)


def test_empty_quantile_is_none_and_outliers_are_at_the_edge() -> None:
    assert quantile([], 0.5) is None
    assert quantile([0] * (BUCKETS + 2), 0.95) is None
    assert quantile(counted([0.5]), 0.5) == pytest.approx(LEAST_MS, rel=0.06)
    assert quantile(counted([10 * MOST_MS]), 0.5) == pytest.approx(MOST_MS, rel=0.06)
