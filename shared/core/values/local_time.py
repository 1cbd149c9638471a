"""A moment as the model reads it: the zone's own time, weekday, and difference from UTC."""

from __future__ import annotations

from datetime import UTC, datetime


def moment_text(moment: datetime, zone: str) -> str:
    """`moment` stands in the zone already; `zone` is its name."""
    offset = moment.strftime("%z")
    return (
        f"{moment:%A}, {moment.isoformat(timespec='seconds')} in {zone} (UTC{offset[:3]}:{offset[3:5]}); "
        f"in UTC it is {moment.astimezone(UTC):%A, %Y-%m-%d %H:%M}."
    )
