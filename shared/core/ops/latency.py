"""Latencies counted in a fixed number of buckets, and the quantiles that can be read from them."""

from __future__ import annotations

import math
from collections.abc import Sequence

LEAST_MS, MOST_MS = 20, 600_000
BUCKETS = 104
"""Between the two, each a tenth wider than the one before; one more on either side takes the rest."""
_GROWTH = math.log(MOST_MS / LEAST_MS) / BUCKETS


def quantile(counts: Sequence[int], share: float) -> float | None:
    """In ms, within five percent; None of nothing.

    `counts` are numbers of values by bucket, those below `LEAST_MS` first and those from `MOST_MS` last,
    as `width_bucket(ln(ms), ln(LEAST_MS), ln(MOST_MS), BUCKETS)` of PostgreSQL places them.
    """
    rank, seen = math.ceil(sum(counts) * share), 0
    for bucket, number in enumerate(counts):
        seen += number
        if number and seen >= rank:
            middle = min(max(bucket, 1), BUCKETS) - 0.5
            return round(LEAST_MS * math.exp(middle * _GROWTH), 1)
    return None
