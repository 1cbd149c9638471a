"""Working hours: days and hours of a zone, read strictly."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from shared.core.identity.working_hours import parse_working_hours


def at(day: int, hour: int, minute: int = 0) -> datetime:
    """The 2nd of November 2026 is a Monday."""
    return datetime(2026, 11, day, hour, minute, tzinfo=UTC)


@pytest.mark.parametrize(
    ("moment", "is_open"),
    [
        (at(2, 8), True), (at(2, 7, 59), False), (at(2, 16, 29), True), (at(2, 16, 30), False),
        (at(6, 12), True), (at(7, 8), False), (at(7, 9), True), (at(8, 12), False),
    ],
)  # fmt: skip
def test_a_week_is_open_in_its_zone(moment: datetime, is_open: bool) -> None:
    hours = parse_working_hours("Mo-Fr 9-17:30, sa 10-14 Europe/Berlin", "UTC")
    assert hours is not None
    assert hours.is_open(moment) is is_open


def test_working_hours_cross_the_week_end_and_time_zones() -> None:
    hours = parse_working_hours("Sa-Mo 0-24", "Asia/Tokyo")
    assert hours is not None
    assert [hours.is_open(at(day, 12)) for day in range(2, 9)] == [True, *[False] * 4, True, True]
    assert hours.is_open(at(2, 15)) is False, "in Tokyo it is Tuesday"
    assert parse_working_hours("  ", "UTC") is None


@pytest.mark.parametrize(
    "text",
    [
        "always", "Mo-Fr", "Mo-Fr 9", "Mo-Fr 17-9", "Mo-Fr 9-25", "Mo-Fr 9-17 Europe/Nowhere", "Xx 9-17",
        "Mo 9-17,", "Mo 9:60-17", "Mo 9-17 ../etc",
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not of the kind|end before"):
        parse_working_hours(text, "UTC")
