"""Time zones in which midnight is hours away, so that sums of "today" in a test cover one day only."""

from __future__ import annotations

from datetime import UTC, datetime

FURTHEST_WEST, FURTHEST_EAST = -12, 14
"""Hours from UTC of the outermost fixed zones that Postgres and Python both know."""


def zone_where_it_is(hour: int, *, now: datetime | None = None) -> str:
    """Return the name of a fixed zone in which it is now that hour, with the minutes of UTC."""
    ahead = hour - (now or datetime.now(UTC)).astimezone(UTC).hour
    if ahead < FURTHEST_WEST:
        ahead += 24
    elif ahead > FURTHEST_EAST:
        ahead -= 24
    # these names count hours to the west
    return f"Etc/GMT{-ahead:+d}"


MIDDAY = zone_where_it_is(12)
"""Zone in which this test run began between 12 and 13 o'clock; its day lasts for 11 hours more."""
TODAY = f"(now() AT TIME ZONE '{MIDDAY}')::date"
"""Today as SQL, in the form that `reservations` and `spend_days` store."""
DAY_BEGAN = f"date_trunc('day', now() AT TIME ZONE '{MIDDAY}') AT TIME ZONE '{MIDDAY}'"
"""The beginning of today as SQL, in the form that queries of the ledger of calls use."""
