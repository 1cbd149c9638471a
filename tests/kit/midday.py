"""Time zones in which midnight is far: what a test adds up "today" is of one day until its run is over."""

from __future__ import annotations

from datetime import UTC, datetime

FURTHEST_WEST, FURTHEST_EAST = -12, 14
"""Hours from UTC of the fixed zones that both Postgres and Python know."""


def zone_where_it_is(hour: int, *, now: datetime | None = None) -> str:
    """In which the clock shows that hour and the minutes of UTC."""
    ahead = hour - (now or datetime.now(UTC)).astimezone(UTC).hour
    if ahead < FURTHEST_WEST:
        ahead += 24
    elif ahead > FURTHEST_EAST:
        ahead -= 24
    # These names count the hours westwards.
    return f"Etc/GMT{-ahead:+d}"


MIDDAY = zone_where_it_is(12)
"""Of this run: its day is that of UTC when the run begins, and lasts for eleven hours more."""
TODAY = f"(now() AT TIME ZONE '{MIDDAY}')::date"
"""In SQL, as `reservations` and `spend_days` have it."""
DAY_BEGAN = f"date_trunc('day', now() AT TIME ZONE '{MIDDAY}') AT TIME ZONE '{MIDDAY}'"
"""In SQL, as the ledger of calls is asked."""
