"""Numbers by the hour agree with a plain count of the tables, whatever was undone, erased or came late."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from shared.adapters.postgres.dashboard.hourly_stats import Period, PostgresHourlyStats
from shared.adapters.postgres.db.hour_counts import PostgresHourCounts
from shared.adapters.postgres.db.pool import open_pool
from shared.bootstrap.app import App
from tests.kit.app_driver import Visit, visit
from tests.kit.midday import MIDDAY

PLAIN = """
SELECT (SELECT count(*) FROM entries WHERE author = 'person') AS messages,
       (SELECT count(*) FROM turns WHERE state = 'answered') AS answers,
       (SELECT count(*) FROM turns WHERE state = 'failed' AND error_code IS DISTINCT FROM 'erased') AS errors,
       (SELECT count(*) FROM usage) AS calls, (SELECT sum(input_tokens)::bigint FROM usage) AS input_tokens,
       (SELECT sum(output_tokens)::bigint FROM usage) AS output_tokens,
       (SELECT sum(cache_read_tokens)::bigint FROM usage) AS cache_read_tokens,
       (SELECT sum(cache_write_tokens)::bigint FROM usage) AS cache_write_tokens,
       (SELECT coalesce(sum(cost_micro), 0)::bigint FROM usage) AS cost_micro,
       (SELECT count(*) FROM usage WHERE cost_micro IS NULL) AS unknown_calls,
       (SELECT count(*) FROM compactions WHERE kind IN ('summary', 'digest')) AS summaries
"""


async def week_of(store: PostgresHourlyStats, zone: str = MIDDAY) -> dict[str, Any]:
    now = datetime.now(UTC)
    return await store.load_series(
        Period(start=now - timedelta(days=7), end=now + timedelta(hours=1), zone=zone), "day"
    )


async def counted(app: App) -> PostgresHourlyStats:
    while await app.stores.hour_counts.catch_up():
        pass
    return app.stores.hourly_stats


async def test_hourly_counts_match_tables_after_undo_and_erasure(
    guest: Visit,
) -> None:
    app, first, second = guest.app, guest, await visit(guest.app)
    for number in range(9):
        await first.ask(f"My {number}th question is about the garden. " + "The roses grow well. " * 90)
    await second.ask("Hello")
    await second.say("Are you there?")
    await app.job_runner.run(await asked_for(first, "compact"))
    await app.stores.jobs.undo_compaction(first.session_id, limit_tokens=100_000, fixed_tokens=0)
    plain = dict(await app.pool.fetchrow(PLAIN) or {})
    store = await counted(app)
    week = await week_of(store)
    assert {name: week["total"][name] for name in plain} == plain
    assert (plain["messages"], plain["answers"], plain["summaries"]) == (11, 10, 1)
    assert sum(one["people"] for one in week["steps"]) == 2
    assert 0 < week["total"]["first_token_p50_ms"] <= week["total"]["first_token_p95_ms"] < 60_000
    assert week["total"]["jobs"]["compact"] == [1, 0]
    assert week["before"] is None
    assert (await app.erasure.erase_everything(second.session_id, "person")).finished
    again = await week_of(await counted(app))
    assert {name: again["total"][name] for name in plain} == plain


async def asked_for(guest: Visit, kind: str) -> int:
    return int(
        await guest.one(
            """INSERT INTO jobs (kind, session_id, key, trigger, payload)
               VALUES ($1, $2, 'by hand', 'manual', '{"force": true}') RETURNING id""",
            kind, guest.session_id,
        )
    )  # fmt: skip


async def test_late_answer_is_counted_and_missing_hours_are_filled(
    guest: Visit,
) -> None:
    await guest.ask("Hello")
    await guest.app.pool.execute("UPDATE turns SET opened_at = now() - interval '5 hours'")
    await guest.app.pool.execute("UPDATE sessions SET created_at = now() - interval '9 hours'")
    store = await counted(guest.app)
    assert await guest.one("SELECT count(*) FROM hourly_stats") >= 9
    assert (await week_of(store))["total"]["answers"] == 1
    await guest.app.pool.execute(
        """UPDATE hourly_stats SET answers = 0, counted_at = hour + interval '1 hour'
            WHERE hour < now() - interval '4 hours'"""
    )
    assert (await week_of(await counted(guest.app)))["total"]["answers"] == 1
    await guest.app.pool.execute("DELETE FROM hourly_stats WHERE hour < now() - interval '4 hours'")
    assert (await week_of(await counted(guest.app)))["total"]["answers"] == 1


async def test_change_of_time_zone_recounts_all_hours(guest: Visit) -> None:
    await guest.ask("Hello")
    await counted(guest.app)
    counts = PostgresHourCounts(guest.app.pool, timezone="Asia/Kolkata")
    while await counts.catch_up():
        pass
    elsewhere = PostgresHourlyStats(guest.app.pool, timezone="Asia/Kolkata")
    assert await guest.one("SELECT array_agg(DISTINCT zone) FROM hourly_stats") == ["Asia/Kolkata"]
    assert await guest.one("SELECT bool_and(extract(minute FROM hour) = 30) FROM hourly_stats")
    assert (await week_of(elsewhere, "Asia/Kolkata"))["total"]["messages"] == 1


@pytest.mark.parametrize(
    ("day", "hours"), [(date(2026, 3, 29), 23), (date(2026, 10, 25), 25), (date(2026, 6, 1), 24)]
)
async def test_a_day_on_which_the_clocks_change_has_all_of_its_hours(
    database_url: str, day: date, hours: int
) -> None:
    pool = await open_pool(database_url, size=2)
    zone = "Europe/Berlin"
    period = Period.from_days(day, day, zone)
    await pool.execute(
        """INSERT INTO hourly_stats (hour, zone, messages)
           SELECT x, $3, 1
             FROM generate_series($1::timestamptz - interval '2 days', $2, interval '1 hour') x""",
        period.start, period.end, zone,
    )  # fmt: skip
    store = PostgresHourlyStats(pool, timezone=zone)
    by_hour, by_day = await store.load_series(period, "hour"), await store.load_series(period, "day")
    assert len(by_hour["steps"]) == by_hour["total"]["messages"] == by_day["total"]["messages"] == hours
    assert [one["messages"] for one in by_day["steps"]] == [hours]
    assert by_day["before"]["messages"] == 24
    await pool.close()


async def test_what_two_workers_count_at_once_is_counted_once(guest: Visit) -> None:
    await guest.ask("Hello")
    store = guest.app.stores.hour_counts
    async with guest.app.pool.acquire() as rival, rival.transaction():
        await rival.execute("SELECT pg_advisory_xact_lock(hashtext('evertalk.hourly_stats'))")
        assert not await store.catch_up()
        assert await rival.fetchval("SELECT count(*) FROM hourly_stats") == 0
    assert (await week_of(await counted(guest.app)))["total"]["messages"] == 1
