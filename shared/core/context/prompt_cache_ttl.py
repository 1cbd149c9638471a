"""How often a person writes, and how long the provider shall therefore keep the prefix of a conversation."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from statistics import median

SHORT_LIFE = timedelta(minutes=5)
LONG_LIFE = timedelta(hours=1)
TURNS_LOOKED_AT = 20


def cache_life(times: Sequence[datetime]) -> timedelta:
    """Of the two lives on offer the one that pays, from when the last turns began, in any order.

    The long life costs more to write: it pays for somebody who mostly comes back within the hour, but not
    within five minutes. With no rhythm to speak of the short one is the smaller mistake.
    """
    gap = median_gap(times)
    return LONG_LIFE if gap is not None and SHORT_LIFE < gap <= LONG_LIFE else SHORT_LIFE


def median_gap(times: Sequence[datetime]) -> timedelta | None:
    """Between the last twenty turns; None while there are fewer than three gaps."""
    newest = sorted(times)[-TURNS_LOOKED_AT - 1 :]
    gaps = [(later - earlier).total_seconds() for earlier, later in pairwise(newest)]
    return timedelta(seconds=median(gaps)) if len(gaps) >= 3 else None
