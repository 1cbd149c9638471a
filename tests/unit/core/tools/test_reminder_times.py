"""When a reminder is due, and when the night is too quiet for it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from shared.core.tools.reminders import (
    BadMoment,
    QuietHours,
    due_of,
    format_moment,
    parse_quiet_hours,
    quiet_until,
    reminder_text,
)

BERLIN = ZoneInfo("Europe/Berlin")
NOW = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)
NIGHT = QuietHours(start=22, end=8)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


@pytest.mark.parametrize(
    ("when", "due"),
    [
        ("2026-11-22T09:00", "2026-11-22T09:00+01:00"),
        ("2026-11-22 09:00:30", "2026-11-22T09:00:30+01:00"),
        ("2026-11-22T09:00Z", "2026-11-22T09:00+00:00"),
        ("2026-11-22T09:00:00.000z", "2026-11-22T09:00+00:00"),
        ("2026-11-22T09:00-05:00", "2026-11-22T09:00-05:00"),
        ("2026-11-22T09:00 +0530", "2026-11-22T09:00+05:30"),
        ("in 2 hours", "2026-11-21T12:00+00:00"),
        ("In an hour", "2026-11-21T11:00+00:00"),
        ("in  90   minutes", "2026-11-21T11:30+00:00"),
        ("in 1 hour and 30 minutes", "2026-11-21T11:30+00:00"),
        ("in 1 day, 2 hours", "2026-11-22T12:00+00:00"),
        ("in 2 weeks", "2026-12-05T10:00+00:00"),
    ],
)
def test_a_moment_is_read_by_the_persons_clock(when: str, due: str) -> None:
    assert due_of(when, now=NOW, zone=BERLIN) == at(due)


@pytest.mark.parametrize(
    "when",
    ["", "tomorrow", "soon", "at nine", "2026-11-22", "09:00", "in two hours", "2 hours", "in 2 hours please",
     "in -1 hours", "2026-W47-7T09:00", "P1D", "in 2 hours and"],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_with_what_to_say_instead(when: str) -> None:
    with pytest.raises(BadMoment) as refused:
        due_of(when, now=NOW, zone=BERLIN)
    assert "YYYY-MM-DDThh:mm" in refused.value.advice


@pytest.mark.parametrize(
    ("when", "reason"),
    [
        ("2026-11-21T10:59", "too soon"),
        ("2026-11-21T11:00:59", "too soon"),
        ("2020-01-01T00:00", "past"),
        ("in 0 minutes", "too soon"),
        ("2028-01-01T00:00", "more than a year"),
        ("in 53 weeks", "more than a year"),
        ("in 999999 weeks", "more than a year"),
        ("2026-02-30T09:00", "no such date"),
        ("2026-11-22T25:00", "no such date"),
        ("9999-12-31T23:59-12:00", "no such date"),
    ],
)
def test_a_moment_out_of_reach_is_refused_with_its_reason(when: str, reason: str) -> None:
    with pytest.raises(BadMoment, match=reason):
        due_of(when, now=NOW, zone=BERLIN)


def test_a_minute_ahead_is_soon_enough_and_less_is_not() -> None:
    assert due_of("in 1 minute", now=NOW, zone=UTC) == NOW + timedelta(minutes=1)
    assert due_of("in 0 minutes", now=NOW, zone=UTC, least=timedelta(0)) == NOW


def test_skipped_clock_time_is_next_hour_and_doubled_one_first() -> None:
    now = at("2026-03-01T00:00+00:00")
    assert due_of("2026-03-29T02:30", now=now, zone=BERLIN) == at("2026-03-29T03:30+02:00")
    assert due_of("2026-10-25T02:30", now=now, zone=BERLIN) == at("2026-10-25T02:30+02:00")


def test_tomorrow_is_the_same_time_of_day_although_the_clocks_change() -> None:
    now = at("2026-03-28T12:00+01:00")
    assert due_of("in 1 day", now=now, zone=BERLIN) == at("2026-03-29T12:00+02:00")
    assert due_of("in 24 hours", now=now, zone=BERLIN) == at("2026-03-29T13:00+02:00")


@pytest.mark.parametrize(
    ("text", "quiet"),
    [("22-8", NIGHT), (" 22 - 08 ", NIGHT), ("1-5", QuietHours(start=1, end=5)), ("", None), ("  ", None)],
)
def test_quiet_hours_are_two_hours_of_the_day(text: str, quiet: QuietHours | None) -> None:
    assert parse_quiet_hours(text) == quiet


@pytest.mark.parametrize("text", ["8-8", "22", "24-8", "22:00-8:00", "-1-8", "a-b", "22-8-9"])
def test_quiet_hours_that_mean_nothing_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="22-8"):
        parse_quiet_hours(text)


@pytest.mark.parametrize(
    ("now", "until"),
    [
        ("2026-11-21T21:59+01:00", None),
        ("2026-11-21T22:00+01:00", "2026-11-22T08:00+01:00"),
        ("2026-11-22T00:00+01:00", "2026-11-22T08:00+01:00"),
        ("2026-11-22T07:59+01:00", "2026-11-22T08:00+01:00"),
        ("2026-11-22T08:00+01:00", None),
        ("2026-03-28T23:00+01:00", "2026-03-29T08:00+02:00"),
    ],
)
def test_a_night_is_quiet_until_its_end_by_the_persons_clock(now: str, until: str | None) -> None:
    assert quiet_until(at(now), NIGHT, BERLIN) == (at(until) if until else None)


def test_quiet_hours_of_one_day_end_on_the_same_day() -> None:
    quiet = QuietHours(start=13, end=15)
    assert quiet_until(at("2026-11-21T14:30+01:00"), quiet, BERLIN) == at("2026-11-21T15:00+01:00")
    assert quiet_until(at("2026-11-21T16:30+01:00"), quiet, BERLIN) is None
    assert quiet_until(NOW, None, BERLIN) is None


@pytest.mark.parametrize("month", range(1, 13))
def test_the_end_of_the_quiet_is_always_ahead(month: int) -> None:
    """Also where the clocks change: nothing is put off to a moment that has been."""
    start = datetime(2026, month, 24, tzinfo=UTC)
    for quarter in range(4 * 24 * 7):
        now = start + timedelta(minutes=15 * quarter)
        until = quiet_until(now, QuietHours(start=23, end=2), BERLIN)
        assert until is None or now < until <= now + timedelta(hours=5)


def test_a_moment_is_shown_by_the_persons_clock() -> None:
    assert format_moment(NOW, BERLIN) == "2026-11-21 11:00"
    assert reminder_text("water the plants") == "⏰ water the plants"
