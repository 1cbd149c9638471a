"""What repeats comes at the same time by the person's clock, on the right days, and never twice at once."""

from __future__ import annotations

import calendar
from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.core.tools.reminders import BadMoment
from shared.core.tools.repeating import WEEKDAYS, Repeat, find_next_time, repeat_of

ZONES = (
    "UTC", "Europe/Berlin", "America/New_York", "America/St_Johns", "Asia/Kathmandu", "Pacific/Apia",
    "Australia/Lord_Howe", "Africa/Casablanca", "Asia/Tehran", "America/Sao_Paulo", "Pacific/Kiritimati",
)  # fmt: skip
TUESDAY = datetime(2026, 11, 24, 9, 30, tzinfo=UTC)
MOMENTS = st.integers(min_value=0, max_value=15 * 366 * 24 * 60).map(
    lambda minutes: datetime(2020, 1, 1, tzinfo=UTC) + timedelta(minutes=minutes)
)
CLOCKS = st.times().map(lambda at: at.replace(second=0, microsecond=0, fold=0))
RULES = st.one_of(
    st.builds(Repeat, unit=st.just("day"), every=st.integers(1, 99), at=CLOCKS),
    st.builds(
        Repeat, unit=st.just("week"), every=st.integers(1, 99), at=CLOCKS,
        weekdays=st.sets(st.sampled_from(WEEKDAYS), min_size=1).map(
            lambda days: tuple(day for day in WEEKDAYS if day in days)),
    ),
    st.builds(Repeat, unit=st.just("month"), every=st.integers(1, 36), at=CLOCKS, day=st.integers(1, 31)),
)  # fmt: skip


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        ("daily", "day/1//09:30"),
        ("every day at 7", "day/1//07:00"),
        ("Weekdays", "week/1/mon,tue,wed,thu,fri/09:30"),
        ("every weekday at 8:15 am", "week/1/mon,tue,wed,thu,fri/08:15"),
        ("weekends at 10", "week/1/sat,sun/10:00"),
        ("weekly", "week/1/tue/09:30"),
        ("every Monday at 9", "week/1/mon/09:00"),
        ("Mondays and Thursdays at 9 pm", "week/1/mon,thu/21:00"),
        ("every thursday, monday", "week/1/mon,thu/09:30"),
        ("every other friday at 12 am", "week/2/fri/00:00"),
        ("every 2 weeks", "week/2/tue/09:30"),
        ("every 3 days at 18:30", "day/3//18:30"),
        ("monthly", "month/1/24/09:30"),
        ("monthly on the 31st at 18:30", "month/1/31/18:30"),
        ("on the 1st of every month", "month/1/1/09:30"),
        ("on the last day of the month at 12 pm", "month/1/31/12:00"),
        ("every 6 months", "month/6/24/09:30"),
        ("yearly", "month/12/24/09:30"),
        ("every year", "month/12/24/09:30"),
    ],
)
def test_words_are_read_as_a_rule(words: str, rule: str) -> None:
    found = repeat_of(words, first=TUESDAY)
    assert str(found) == rule
    assert Repeat.parse(rule) == found


@pytest.mark.parametrize(
    "words",
    ["", "hourly", "every 2 hours", "every minute", "sometimes", "every blue moon", "every 0 days", "at 9",
     "every day at 25", "monthly on the 32nd", "every Monday on the 3rd", "every 100 days", "* * * * *"],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused_with_advice(words: str) -> None:
    with pytest.raises(BadMoment) as refused:
        repeat_of(words, first=TUESDAY)
    assert refused.value.advice


def test_without_a_first_time_the_words_must_say_all() -> None:
    assert str(repeat_of("every Monday at 9", first=None)) == "week/1/mon/09:00"
    for words in ("every Monday", "weekly at 9", "monthly at 9"):
        with pytest.raises(BadMoment):
            repeat_of(words, first=None)


@given(RULES, MOMENTS, MOMENTS, st.sampled_from(ZONES))
def test_the_next_time_is_later_and_at_the_same_time_of_day(
    rule: Repeat, one: datetime, other: datetime, name: str
) -> None:
    zone, (anchor, after) = ZoneInfo(name), sorted((one, other))
    found = find_next_time(rule, after=after, anchor=anchor, zone=zone)
    assert found > after
    local = found.astimezone(zone)
    wanted = datetime.combine(local.date(), rule.at, tzinfo=zone)
    if wanted.astimezone(UTC).astimezone(zone).replace(tzinfo=None) == wanted.replace(tzinfo=None):
        assert local.time() == rule.at
        assert not local.fold
        day = local.date()
    else:  # the clock was put forward over it
        gap = local.replace(tzinfo=None) - datetime.combine(local.date(), rule.at)
        day = local.date() if timedelta(0) < gap <= timedelta(hours=2) else (local - timedelta(days=1)).date()
    assert rule.unit != "week" or WEEKDAYS[day.weekday()] in rule.weekdays
    assert rule.unit != "month" or day.day == min(rule.day, calendar.monthrange(day.year, day.month)[1])
    again = find_next_time(rule, after=found, anchor=found, zone=zone)
    assert again > found


@given(RULES, MOMENTS, st.sampled_from(ZONES))
def test_nothing_of_the_rule_lies_between(rule: Repeat, anchor: datetime, name: str) -> None:
    zone = ZoneInfo(name)
    first = find_next_time(rule, after=anchor, anchor=anchor, zone=zone)
    second = find_next_time(rule, after=first, anchor=anchor, zone=zone)
    assert find_next_time(rule, after=second - timedelta(seconds=1), anchor=anchor, zone=zone) == second
    assert find_next_time(rule, after=first - timedelta(seconds=1), anchor=anchor, zone=zone) == first


def test_the_31st_is_the_last_day_of_shorter_months() -> None:
    rule, zone = Repeat(unit="month", every=1, at=time(9), day=31), ZoneInfo("Europe/Berlin")
    at, met = datetime(2027, 12, 31, 8, tzinfo=UTC), []
    for _ in range(5):
        at = find_next_time(rule, after=at, anchor=at, zone=zone)
        met.append(f"{at.astimezone(zone):%m-%d %H:%M}")
    assert met == ["01-31 09:00", "02-29 09:00", "03-31 09:00", "04-30 09:00", "05-31 09:00"]


def test_every_second_week_keeps_to_its_weeks_after_a_long_pause() -> None:
    rule = repeat_of("every other tuesday at 9", first=TUESDAY)
    begun = datetime(2026, 11, 24, 9, tzinfo=UTC)
    found = find_next_time(rule, after=begun + timedelta(weeks=5), anchor=begun, zone=UTC)
    assert found == begun + timedelta(weeks=6)
