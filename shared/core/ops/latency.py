"""Latencies counted in a fixed number of buckets, and quantiles computed from the counts."""

from __future__ import annotations

import math
from collections.abc import Sequence

LEAST_MS, MOST_MS = 20, 600_000
"""Limits of the buckets in milliseconds; shorter and longer latencies are counted in one bucket each.

The view `turn_counts` of the database has the same limits and number of buckets.
"""
BUCKETS = 104
"""Number of buckets between both limits, each a tenth wider than the last; two more count values outside."""
_GROWTH = math.log(MOST_MS / LEAST_MS) / BUCKETS


def quantile(counts: Sequence[int], share: float) -> float | None:
    """Return a quantile of counted latencies in milliseconds, within five percent; None without values.

    `share` is 0 to 1. `counts` are numbers of values by bucket: those below `LEAST_MS` first, those from
    `MOST_MS` last, as the view `turn_counts` assigns them.
    """
    rank, seen = math.ceil(sum(counts) * share), 0
    for bucket, number in enumerate(counts):
        seen += number
        if number and seen >= rank:
            middle = min(max(bucket, 1), BUCKETS) - 0.5
            return round(LEAST_MS * math.exp(middle * _GROWTH), 1)
    return None
