"""Rules for repetition, such as "every Monday at 9", in the time zone of a person."""

from __future__ import annotations

import calendar
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Literal

from shared.core.tools.reminders import BadMoment

Unit = Literal["day", "week", "month"]
WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
"""Names of the days of the week in rules, Monday first."""
MOST_BETWEEN = 99
"""Most days, weeks or months between two repetitions; a year is twelve months."""
LAST_DAY = 31
"""Day of the month that means the last day in shorter months."""
ADVICE = (
    "`repeat` is {words!r}, which cannot be read. Say it as `daily`, `weekdays`, "
    "`every Monday and Thursday at 9`, `every 2 weeks`, `monthly on the 31st at 18:30` or `yearly`; "
    "at most once a day."
)
"""Text for the model about a repetition that cannot be read; `{words}` is what it gave."""
_RULE = re.compile(r"(day|week|month)/(\d{1,2})/((?:[a-z]{3}(?:,[a-z]{3})*)|\d{0,2})/(\d\d):(\d\d)")
_TIME = re.compile(
    r"(?<!\s)\s*+\bat\s++(\d{1,2})(?:[:.h](\d\d))?(?:\s*+(am|pm|a\.m\.|p\.m\.|o'clock|h|uhr))?\s*+$"
)
_NAMED_DAY = re.compile(
    r"\b(mon|tues?|wed(?:nes)?|thu(?:rs?)?|fri|sat(?:ur)?|sun)(?:days?)?\b", re.IGNORECASE
)
_WORKDAYS = re.compile(
    r"(?:on |every )?(?:week|work|working |business )days?|monday (?:to|through|-|–) friday"
)
_STEP = re.compile(
    r"every (?:(\d{1,2})|(other|second)|(third)) (day|week|month|year)s?|every (day|week|month|year)"
)
_SINGLE: dict[str, tuple[Unit, int]] = {
    "daily": ("day", 1), "weekly": ("week", 1), "biweekly": ("week", 2), "fortnightly": ("week", 2),
    "monthly": ("month", 1), "quarterly": ("month", 3), "yearly": ("month", 12), "annually": ("month", 12),
}  # fmt: skip
_MONTH_DAY = re.compile(
    r"(?<!\bon )(?<!\bthe )(?<!\bday )\b(?:on |the |day )+(?:(\d{1,2})(?:st|nd|rd|th)?|(last)(?: day)?)\b"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeat:
    """Rule of repetition: every `every` days, weeks or months, at the time of day `at` in the person's time
    zone.
    """

    unit: Unit
    every: int
    at: time
    weekdays: tuple[str, ...] = ()
    """Days of the week, Monday first; empty unless `unit` is `week`."""
    day: int = 0
    """Day of the month, 31 for the last; 0 unless `unit` is `month`."""

    def __str__(self) -> str:
        """Return the stored form, such as `week/1/mon,thu/09:00`, which `parse` reads."""
        what = ",".join(self.weekdays) if self.unit == "week" else str(self.day or "")
        return f"{self.unit}/{self.every}/{what}/{self.at:%H:%M}"

    @classmethod
    def parse(cls, text: str) -> Repeat | None:
        """Return the rule whose stored form this is; None for any other text, such as an empty one."""
        found = _RULE.fullmatch(text)
        if found is None:
            return None
        unit: Unit = "day" if found[1] == "day" else "week" if found[1] == "week" else "month"
        weekdays = tuple(found[3].split(",")) if unit == "week" else ()
        day = int(found[3] or 0) if unit == "month" else 0
        at = time(int(found[4]), int(found[5]))
        return cls(unit=unit, every=int(found[2]), at=at, weekdays=weekdays, day=day)


def repeat_of(words: str, *, first: datetime | None) -> Repeat:
    """Return the rule described by English words such as `every Monday at 9`.

    `first` is the first time in the person's time zone, from which a missing time or day is taken. Raises
    BadMoment for words that cannot be read, and for a missing part if `first` is None.
    """
    said = " ".join(words.casefold().replace("’", "'").split())
    said, at = _without_time(said)
    clock = at if at is not None else _require_first(first).time().replace(second=0, microsecond=0)
    said, day = _without_month_day(said)
    found = _rhythm(said, monthly=bool(day))
    if found is None:
        raise BadMoment(ADVICE.format(words=words[:60]))
    unit, every, weekdays = found
    if not 1 <= every <= MOST_BETWEEN or (day and unit != "month"):
        raise BadMoment(ADVICE.format(words=words[:60]))
    if unit == "week" and not weekdays:
        weekdays = (WEEKDAYS[_require_first(first).weekday()],)
    if unit == "month":
        day = day or _require_first(first).day
    return Repeat(unit=unit, every=every, at=clock, weekdays=weekdays, day=day)


def find_next_time(rule: Repeat, *, after: datetime, anchor: datetime, zone: tzinfo) -> datetime:
    """Return the first time of the rule after `after`, in UTC.

    `anchor` is a time of the rule: no earlier day counts, and if `every` exceeds one, it decides which days,
    weeks or months do. A time that the zone's clock skips comes an hour later; an ambiguous one is the first.
    """
    begin = anchor.astimezone(zone).date()
    since = max(begin, after.astimezone(zone).date() - timedelta(days=1))
    for day in _days(rule, begin, since):
        moment = datetime.combine(day, rule.at, tzinfo=zone).astimezone(UTC)
        if moment > after:
            return moment
    raise AssertionError("the calendar has ended")


def _days(rule: Repeat, begin: date, since: date) -> Iterator[date]:
    """Yield the days of a rule from `since` on, in order, without end.

    In a month shorter than `rule.day`, the last day counts.
    """
    match rule.unit:
        case "day":
            steps = -(-(since - begin).days // rule.every)
            day = begin + timedelta(days=steps * rule.every)
            while True:
                yield day
                day += timedelta(days=rule.every)
        case "week":
            monday = begin - timedelta(days=begin.weekday())
            steps = (since - monday).days // 7 // rule.every
            monday += timedelta(weeks=steps * rule.every)
            while True:
                for name in rule.weekdays:
                    day = monday + timedelta(days=WEEKDAYS.index(name))
                    if day >= since:
                        yield day
                monday += timedelta(weeks=rule.every)
        case "month":
            months = begin.year * 12 + begin.month - 1
            steps = (since.year * 12 + since.month - 1 - months) // rule.every
            months += steps * rule.every
            while True:
                year, month = months // 12, months % 12 + 1
                day = date(year, month, min(rule.day, calendar.monthrange(year, month)[1]))
                if day >= since:
                    yield day
                months += rule.every


def _require_first(first: datetime | None) -> datetime:
    if first is None:
        raise BadMoment("Say when it comes first: give `when`, or day and time, as in `every Monday at 9`.")
    return first


def _without_time(said: str) -> tuple[str, time | None]:
    found = _TIME.search(said)
    if found is None:
        return said, None
    hour, minute, half = int(found[1]), int(found[2] or 0), (found[3] or "")[:1]
    if half in ("a", "p") and 1 <= hour <= 12:
        hour = hour % 12 + 12 * (half == "p")
    if hour > 23 or minute > 59:
        raise BadMoment(f"There is no time {found[0].strip()!r}. Say for example `at 9:30` or `at 18:00`.")
    return said[: found.start()].strip(" ,"), time(hour, minute)


def _without_month_day(said: str) -> tuple[str, int]:
    found = _MONTH_DAY.search(said)
    if found is None:
        return said, 0
    day = LAST_DAY if found[2] else int(found[1])
    if not 1 <= day <= LAST_DAY:
        raise BadMoment(f"No month has a day {day}.")
    rest = f"{said[: found.start()]} {said[found.end() :]}"
    return " ".join(re.sub(r"\bof (the|each|every) month\b", " every month", rest).split()).strip(" ,"), day


def _rhythm(said: str, *, monthly: bool) -> tuple[Unit, int, tuple[str, ...]] | None:
    if _WORKDAYS.fullmatch(said):
        return "week", 1, WEEKDAYS[:5]
    if re.fullmatch(r"(?:on |every )?weekends?", said):
        return "week", 1, WEEKDAYS[5:]
    if said in _SINGLE:
        return *_SINGLE[said], ()
    names = {WEEKDAYS[at] for at in range(7) for one in _NAMED_DAY.findall(said) if one[:3] == WEEKDAYS[at]}
    rest = " ".join(re.sub(r"\band\b|,|&", " ", _NAMED_DAY.sub(" ", said)).split())
    every = {"every": 1, "": 1, "on": 1, "each": 1, "weekly on": 1, "every week on": 1, "every other": 2,
             "every second": 2, "every 2 weeks on": 2, "every other week on": 2}.get(rest)  # fmt: skip
    if names:
        return None if every is None else ("week", every, tuple(day for day in WEEKDAYS if day in names))
    if monthly and rest in ("", "every month every month"):
        return "month", 1, ()
    found = _STEP.fullmatch(said)
    if found is None:
        return None
    number = int(found[1]) if found[1] else 2 if found[2] else 3 if found[3] else 1
    word = found[4] or found[5]
    if word == "year":
        return "month", 12 * number, ()
    return ("day" if word == "day" else "week" if word == "week" else "month"), number, ()
