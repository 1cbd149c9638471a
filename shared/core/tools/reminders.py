"""Reminders as values: times in words, quiet hours, and limits."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Literal

from shared.core.values.errors import EvertalkError

ReminderState = Literal["pending", "claimed", "done", "cancelled", "failed"]
"""States of a reminder: waiting for its time, being delivered, delivered, cancelled, or given up."""
Refusal = Literal["public", "too_many", "too_many_repeat", "crowded"]
"""Reasons why a reminder is not stored.

`public`: the chat is public; `too_many` and `too_many_repeat`: the person has too many (repeating) reminders;
`crowded`: too many are due in that hour.
"""

TEXT_CHARS = 500
"""Most characters of a reminder's text."""
PENDING_AT_MOST = 20
"""Most pending reminders of one person or group."""
REPEATING_AT_MOST = 10
"""Most repeating reminders of one person or group, since each repetition is a turn."""
PER_HOUR = 6
"""Most reminders due within an hour, since each is a turn that costs money."""
LEAST_AHEAD = timedelta(minutes=1)
"""Shortest time from now to a reminder."""
MOST_AHEAD = timedelta(days=366)
"""Longest time from now to a reminder."""

_MOMENT = re.compile(
    r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d(?::\d\d)?)(?:\.\d{1,6})?\s*(Z|[+-]\d\d:?\d\d)?", re.IGNORECASE
)
_UNITS = {
    "minute": timedelta(minutes=1), "min": timedelta(minutes=1), "hour": timedelta(hours=1),
    "day": timedelta(days=1), "week": timedelta(weeks=1),
}  # fmt: skip
_STEP = r"(\d{1,6}|an?|one)\s+(minute|min|hour|day|week)s?"
_AHEAD = re.compile(rf"in\s+{_STEP}(?:(?:\s*+(?:,(?:\s*+and)?|and))?\s++{_STEP})?", re.IGNORECASE)
_QUIET = re.compile(r"([01]?\d|2[0-3])\s*-\s*([01]?\d|2[0-3])")


class BadMoment(EvertalkError):
    """Words for a time or a repetition that cannot be used; `advice` tells the model what to say instead."""

    sentence = "This time cannot be used for a reminder."
    code = "bad_moment"

    def __init__(self, advice: str) -> None:
        super().__init__(advice, advice=advice)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewReminder:
    """Request for a reminder, to be stored; a second request with the same `key` stores nothing.

    `turn` is the turn in which it is made, 0 outside of turns.
    """

    key: str
    contact_id: int
    session_id: int
    address_id: int
    text: str
    due_at: datetime
    repeat: str = ""
    """Stored rule of `repeating`; empty for a reminder that comes once."""
    turn: int = 0
    epoch: int = 0
    """Epoch of the turn's claim, so that a turn without its lease cannot set a reminder; 0
    outside of turns.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Reminder:
    """Stored reminder; `reason` says why it was not delivered, empty otherwise."""

    id: int
    text: str
    due_at: datetime
    state: ReminderState
    reason: str = ""
    timezone: str | None = None
    """Time zone of the person; None if unknown."""
    repeat: str = ""
    """Stored rule of `repeating`; empty for a reminder that comes once."""
    paused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DueReminder:
    """Due reminder, with the facts that decide about its delivery.

    `reachable` is False if the person's chat refuses messages and no further attempt is planned.
    """

    id: int
    text: str
    asked_at: datetime
    due_at: datetime
    now: datetime
    """Time of the clock by which it was found due."""
    timezone: str | None
    reachable: bool
    repeat: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuietHours:
    """Hours of the day, 0 to 23, in the person's time zone, in which no reminder is sent.

    `end` is excluded; `start` may be later than `end`, across midnight.
    """

    start: int
    end: int


def parse_quiet_hours(text: str) -> QuietHours | None:
    """Return the hours in a text such as `22-8`; None if it is blank, which means no quiet hours.

    Raises ValueError for other text, and for two equal hours.
    """
    if not text.strip():
        return None
    found = _QUIET.fullmatch(text.strip())
    if found is None or int(found[1]) == int(found[2]):
        raise ValueError("must be two different hours from 0 to 23 such as 22-8, or empty")
    return QuietHours(start=int(found[1]), end=int(found[2]))


def quiet_until(at: datetime, quiet: QuietHours | None, zone: tzinfo) -> datetime | None:
    """Return the end, in UTC, of the quiet hours in which the time `at` lies in this zone; None outside of
    them.

    `quiet` None means that there are no quiet hours. The result is at least a minute after `at`.
    """
    if quiet is None:
        return None
    local = at.astimezone(zone)
    if not _is_quiet(local.hour, quiet):
        return None
    day = local.date() + timedelta(days=int(local.hour >= quiet.end))
    ends = datetime(day.year, day.month, day.day, quiet.end, tzinfo=zone).astimezone(UTC)
    return max(ends, at.astimezone(UTC) + timedelta(minutes=1))


def _is_quiet(hour: int, quiet: QuietHours) -> bool:
    if quiet.start < quiet.end:
        return quiet.start <= hour < quiet.end
    return hour >= quiet.start or hour < quiet.end


def due_of(when: str, *, now: datetime, zone: tzinfo, least: timedelta = LEAST_AHEAD) -> datetime:
    """Return the time, in UTC, described by English words such as `in 2 hours`, or by a date with a time.

    Without an offset the zone's clock counts: a skipped time is read as an hour later, an ambiguous one as
    the first. Days and weeks are counted by that clock, to the same time of day. Raises BadMoment if the
    words cannot be read, or if the time is less than `least` or more than 366 days after `now`.
    """
    words = " ".join(when.split())
    due = _moment(words, zone) or _parse_ahead(words, now, zone)
    if due is None:
        raise BadMoment(
            f"`when` is {words[:60]!r}, which cannot be read. Give a date with a time such as "
            "YYYY-MM-DDThh:mm, with or without an offset, or a distance such as `in 2 hours` or `in 3 days`."
        )
    if due - now < least:
        shown = f"{now.astimezone(zone):%Y-%m-%d %H:%M}"
        raise BadMoment(f"That is in the past or too soon: it is {shown} there now. Give a later time.")
    if due - now > MOST_AHEAD:
        raise BadMoment("That is more than a year ahead. Reminders can be set for one year at most.")
    return due


def _moment(words: str, zone: tzinfo) -> datetime | None:
    found = _MOMENT.fullmatch(words)
    if found is None:
        return None
    offset = (found[3] or "").upper().replace("Z", "+00:00")
    try:
        at = datetime.fromisoformat(f"{found[1]}T{found[2]}{offset}")
        return (at if at.tzinfo else at.replace(tzinfo=zone)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise BadMoment(f"`when` is {words!r}, and there is no such date or time.") from None


def _parse_ahead(words: str, now: datetime, zone: tzinfo) -> datetime | None:
    found = _AHEAD.fullmatch(words)
    if found is None:
        return None
    by_calendar, by_clock = timedelta(), timedelta()
    for number, unit in ((found[1], found[2]), (found[3], found[4])):
        if number is None:
            continue
        step = _UNITS[unit.lower()] * (int(number) if number.isdecimal() else 1)
        if step >= timedelta(days=1) and unit.lower() in ("day", "week"):
            by_calendar += step
        else:
            by_clock += step
    try:
        local = (now.astimezone(zone).replace(tzinfo=None) + by_calendar).replace(tzinfo=zone)
        day = local.astimezone(UTC) if by_calendar else now.astimezone(UTC)
        return day + by_clock
    except OverflowError:
        raise BadMoment(
            "That is more than a year ahead. Reminders can be set for one year at most."
        ) from None


def format_moment(at: datetime, zone: tzinfo) -> str:
    """Return a time in a zone, to the minute, such as `2026-11-22 09:00`."""
    return f"{at.astimezone(zone):%Y-%m-%d %H:%M}"


def reminder_text(text: str) -> str:
    """Return the text that the program itself sends for a reminder, in any language, if no model can
    answer.
    """
    return f"⏰ {text}"
