"""The zone of the tests about money: no midnight comes between two steps of theirs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import asyncpg
import pytest

from tests.kit.midday import DAY_BEGAN, MIDDAY, TODAY, zone_where_it_is

HOURS = 5


def moments(hour: int) -> list[datetime]:
    begins = datetime(2026, 12, 31, hour, tzinfo=UTC)
    return [begins, begins + timedelta(minutes=30), begins + timedelta(seconds=3599.999999)]


@pytest.mark.parametrize("shown", [6, 9, 12, 18])
@pytest.mark.parametrize("hour", range(24))
def test_at_each_hour_of_the_day_its_midnight_is_hours_away(hour: int, shown: int) -> None:
    for now in moments(hour):
        local = now.astimezone(ZoneInfo(zone_where_it_is(shown, now=now)))
        assert (local.hour, local.minute) == (shown, now.minute)
        for other in (now - timedelta(hours=HOURS), now + timedelta(hours=HOURS)):
            assert other.astimezone(local.tzinfo).date() == local.date()


@pytest.mark.parametrize("hour", range(24))
def test_at_each_hour_its_day_is_that_of_utc(hour: int) -> None:
    for now in moments(hour):
        assert now.astimezone(ZoneInfo(zone_where_it_is(12, now=now))).date() == now.date()


async def test_postgres_knows_each_of_them_as_python_does(database_url: str) -> None:
    connection = await asyncpg.connect(database_url, timeout=60)
    try:
        for hour in range(24):
            now = datetime(2026, 12, 31, hour, 17, tzinfo=UTC)
            zone = zone_where_it_is(12, now=now)
            local = await connection.fetchval("SELECT $1::timestamptz AT TIME ZONE $2", now, zone)
            assert local == now.astimezone(ZoneInfo(zone)).replace(tzinfo=None), zone
    finally:
        await connection.close(timeout=30)


async def test_this_runs_own_midnight_is_hours_away_in_postgres_too(database_url: str) -> None:
    connection = await asyncpg.connect(database_url, timeout=60)
    try:
        row = await connection.fetchrow(
            f"""SELECT {TODAY} AS day, now() - {DAY_BEGAN} AS since,
                       ({DAY_BEGAN} AT TIME ZONE $1)::time AS began""",
            MIDDAY,
        )
    finally:
        await connection.close(timeout=30)
    assert row is not None
    assert row["began"].isoformat() == "00:00:00"
    assert timedelta(hours=HOURS) < row["since"] < timedelta(hours=24 - HOURS)
    assert row["day"] == datetime.now(ZoneInfo(MIDDAY)).date()
