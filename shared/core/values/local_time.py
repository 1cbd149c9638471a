"""Times and days as the model reads them, in a person's time zone."""

from __future__ import annotations

from datetime import UTC, date, datetime
from functools import lru_cache
from zoneinfo import ZoneInfo


def moment_text(moment: datetime, zone: str) -> str:
    """Return a time as a sentence for the model: weekday, ISO time with UTC offset, zone, and the time in
    UTC.

    `moment` must be in the zone already; `zone` is the zone's name.
    """
    offset = moment.strftime("%z")
    return (
        f"{moment:%A}, {moment.isoformat(timespec='seconds')} in {zone} (UTC{offset[:3]}:{offset[3:5]}); "
        f"in UTC it is {moment.astimezone(UTC):%A, %Y-%m-%d %H:%M}."
    )


@lru_cache(maxsize=512)
def day_text(day: date) -> str:
    """Return a day such as `Friday, 2026-11-20`."""
    return f"{day:%A}, {day.isoformat()}"


def distance_text(day: date, today: date) -> str:
    """Return how long ago `day` was, seen from `today`, such as `12 days ago`, `5 months ago` or `today`.

    Months count from 60 days, years from 730 days. A later day gives `in the future`.
    """
    days = (today - day).days
    if days <= 0:
        return "today" if days == 0 else "in the future"
    if days == 1:
        return "yesterday"
    for unit, length in _UNITS:
        if days >= 2 * length:
            return f"{days // length} {unit}s ago"
    return f"{days} days ago"


_UNITS = (("year", 365), ("month", 30))


def minute_text(moment: datetime, zone: ZoneInfo) -> str:
    """Return a time to the minute in a zone, such as `Friday, 2026-11-20 14:05 in Europe/Berlin`."""
    place = zone.key if zone.key == "UTC" else f"in {zone.key}"
    return f"{moment.astimezone(zone):%A, %Y-%m-%d %H:%M} {place}"


def resolve_zone(own: str | None, otherwise: str) -> ZoneInfo:
    """Return the time zone named `own`, else `otherwise`, else UTC; None and unknown names are skipped."""
    for name in filter(None, (own, otherwise)):
        try:
            return ZoneInfo(name)
        except (ValueError, OSError, KeyError):
            continue
    return ZoneInfo("UTC")
