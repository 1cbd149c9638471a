"""Hours in which the team answers, such as `Mo-Fr 9-17:30, Sa 10-14 Europe/Berlin`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

_DAYS = ("mo", "tu", "we", "th", "fr", "sa", "su")
_DAY, _HOUR = "(mo|tu|we|th|fr|sa|su)", r"([0-9]{1,2})(?::([0-5][0-9]))?"
_PART = re.compile(rf"{_DAY}(?:-{_DAY})? +{_HOUR}-{_HOUR}", re.IGNORECASE)
_HELP = "is not of the kind Mo-Fr 9-17:30, Sa 10-14 Europe/Berlin"
_DAY_MINUTES = 24 * 60


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkingHours:
    """Working hours of a week, as spans in the time zone `zone`.

    A span is a day, 0 for Monday, and its begin and end in minutes after midnight; the end is excluded.
    """

    spans: tuple[tuple[int, int, int], ...]
    zone: ZoneInfo

    def is_open(self, moment: datetime) -> bool:
        """Return whether a time, of any zone, lies within the working hours."""
        here = moment.astimezone(self.zone)
        minute = here.hour * 60 + here.minute
        return any(here.weekday() == day and begin <= minute < end for day, begin, end in self.spans)


def parse_working_hours(text: str, zone: str) -> WorkingHours | None:
    """Return the hours that a text such as `Mo-Fr 9-17:30 Europe/Berlin` names; None for a blank text.

    None means always open. `zone` is the time zone if the text names none. Raises ValueError for text of
    another form, for an unknown zone, and for hours that end before they begin.
    """
    text = text.strip()
    if not text:
        return None
    hours, _, last = text.rpartition(" ")
    if not re.fullmatch(r"[0-9:]+-[0-9:]+", last):
        text, zone = hours, last
    try:
        place = ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(_HELP) from None
    return WorkingHours(spans=tuple(span for part in text.split(",") for span in _spans(part)), zone=place)


def _spans(part: str) -> list[tuple[int, int, int]]:
    found = _PART.fullmatch(part.strip())
    if found is None:
        raise ValueError(_HELP)
    first, last, hour, minute, end_hour, end_minute = found.groups()
    begin, end = int(hour) * 60 + int(minute or 0), int(end_hour) * 60 + int(end_minute or 0)
    if not begin < end <= _DAY_MINUTES:
        raise ValueError("has hours that end before they begin")
    start = _DAYS.index(first.lower())
    count = (_DAYS.index((last or first).lower()) - start) % 7 + 1
    return [((start + day) % 7, begin, end) for day in range(count)]
