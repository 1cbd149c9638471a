"""Increments by the hour equal a full count, after any order of commits, clock steps and crashes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import asyncpg
import pytest

from shared.adapters.postgres.db import hour_counts
from shared.adapters.postgres.db.hour_counts import PostgresHourCounts
from shared.adapters.postgres.operations.invariants import check_invariants
from shared.bootstrap.app import App
from shared.bootstrap.from_settings import resolve_server_urls
from shared.core.ops.latency import BUCKETS, LEAST_MS, MOST_MS
from tests.kit.app_driver import Visit, visit

COLUMNS = (
    "messages", "answers", "errors", "first_tokens", "calls", "unknown_calls", "cost_micro", "input_tokens",
    "cache_read_tokens", "cache_write_tokens", "output_tokens", "summaries", "handovers", "jobs",
)  # fmt: skip
STORED = f"SELECT hour, {', '.join(COLUMNS)} FROM hourly_stats ORDER BY hour"
FROM_TABLES = f"""
SELECT n.hour, {", ".join(f"c.{name}" for name in COLUMNS)} FROM hourly_stats n
 CROSS JOIN LATERAL recount_hour(n.hour) c ORDER BY n.hour
"""
PEOPLE = """
SELECT coalesce(sum(people), 0)::int AS people, coalesce(sum(new_today), 0)::int AS new_today
  FROM hourly_stats
"""
CALL = """
INSERT INTO usage (at, session_id, contact_id, purpose, model, input_tokens, output_tokens, cache_read_tokens,
                   cache_write_tokens, cost_micro)
SELECT coalesce($2, now()), id, contact_id, 'chat', 'a-model', 7, 5, 3, 2, 11 FROM sessions WHERE id = $1
"""


@pytest.fixture
def rows_by_hand() -> bool:
    return True


async def count(app: App) -> None:
    while await app.stores.hour_counts.catch_up():
        pass


async def rows_of(app: App, statement: str) -> list[dict[str, Any]]:
    return [dict(row) for row in await app.pool.fetch(statement)]


async def expect_exact(app: App) -> Mapping[str, Any]:
    """Count what is new and compare each hour with its tables; return the newest hour's row."""
    await count(app)
    stored = await rows_of(app, STORED)
    assert stored == await rows_of(app, FROM_TABLES)
    connection = await asyncpg.connect(resolve_server_urls(app.settings)[0])
    try:
        assert [found for found in await check_invariants(connection) if "hour" in found.what] == []
    finally:
        await connection.close()
    return stored[-1]


async def test_call_that_commits_late_is_counted(guest: Visit) -> None:
    """Its number is smaller than those of calls that are counted already."""
    await guest.ask("Hello")
    app = guest.app
    async with app.pool.acquire() as slow, slow.transaction():
        await slow.execute(CALL, guest.session_id, None)
        await app.pool.execute(CALL, guest.session_id, None)
        before = await count_calls(app)
        for _ in range(3):
            await count(app)
    assert await count_calls(app) == before + 1
    await expect_exact(app)


async def count_calls(app: App) -> int:
    await count(app)
    return int(await app.pool.fetchval("SELECT sum(calls)::int FROM hourly_stats"))


async def test_turn_that_commits_late_is_counted(guest: Visit) -> None:
    app, other = guest.app, await visit(guest.app)
    await guest.say("Are you there?")
    await count(app)
    async with app.pool.acquire() as slow, slow.transaction():
        await slow.execute("UPDATE turns SET state = 'answered', ended_at = now() WHERE ended_at IS NULL")
        await slow.execute("UPDATE sessions SET answered_turn = 1 WHERE id = $1", guest.session_id)
        for _ in range(2):
            await other.ask("Hello")
            assert (await expect_exact(app))["messages"] >= 2
    newest = await expect_exact(app)
    assert (newest["messages"], newest["answers"]) == (3, 3)


async def test_edge_moves_only_past_transactions_that_ended(
    guest: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numbers above the edge are kept one by one until no writer of that time runs any more."""
    monkeypatch.setattr(hour_counts, "_MOVE_MARK", without_guard())
    app, mark = guest.app, "SELECT edge, next_edge, cardinality(above) FROM hour_marks WHERE source = 'usage'"
    await guest.ask("Hello")
    async with app.pool.acquire() as slow, slow.transaction():
        await slow.execute(CALL, guest.session_id, None)
        for _ in range(4):
            await app.pool.execute(CALL, guest.session_id, None)
            await count(app)
        edge, _, above = await app.pool.fetchrow(mark) or (0, 0, 0)
        newest = await app.pool.fetchval("SELECT max(id) FROM usage")
        assert edge < newest - 4
        assert above >= 4
    for _ in range(3):
        await expect_exact(app)
    assert tuple(await app.pool.fetchrow(mark) or ()) == (newest, newest, 0)


def without_guard() -> Any:
    """Build the statement without its seconds of patience."""
    moved = object.__new__(type(hour_counts._MOVE_MARK))
    moved.__dict__.update(hour_counts._MOVE_MARK.__dict__)
    moved.sql = hour_counts._MOVE_MARK.sql.replace("> 10", "> -1")
    assert moved.sql != hour_counts._MOVE_MARK.sql
    return moved


async def test_rows_from_a_stepped_clock_are_counted_in_their_hour(guest: Visit) -> None:
    await guest.ask("Hello")
    await count(guest.app)
    for hours in (-3, 0, -1):
        at = await guest.one("SELECT now() + make_interval(hours => $1)", hours)
        await guest.app.pool.execute(CALL, guest.session_id, at)
    await expect_exact(guest.app)
    await guest.app.pool.execute("UPDATE sessions SET created_at = now() - interval '5 hours'")
    await guest.app.pool.execute("UPDATE hour_marks SET since = NULL")
    await expect_exact(guest.app)
    assert await guest.one("SELECT count(*) FROM hourly_stats WHERE calls > 0") == 3


async def test_crash_while_counting_counts_nothing_and_loses_nothing(guest: Visit) -> None:
    app = guest.app
    await guest.ask("Hello")
    await count(app)
    await guest.ask("And again")

    def crash(_: str) -> None:
        raise ZeroDivisionError

    before = await rows_of(app, STORED)
    with pytest.raises(ZeroDivisionError):
        await PostgresHourCounts(app.pool, timezone=app.settings.timezone, crash_point=crash).catch_up()
    assert await rows_of(app, STORED) == before
    newest = await expect_exact(app)
    assert (newest["messages"], newest["answers"]) == (2, 2)


async def test_open_turn_counts_its_messages_once(guest: Visit) -> None:
    """They are counted while the turn waits, and again neither when it is answered nor by a second look."""
    app = guest.app
    await guest.say("Are you there?")
    assert (await expect_exact(app))["messages"] == 1
    await guest.say("I mean you.")
    newest = await expect_exact(app)
    assert (newest["messages"], newest["answers"]) == (2, 0)
    await guest.answered()
    newest = await expect_exact(app)
    assert (newest["messages"], newest["answers"]) == (2, 1)
    assert await guest.one("SELECT count(*) FROM hour_open") == 0
    assert await rows_of(app, PEOPLE) == [{"people": 1, "new_today": 1}]


async def test_many_open_turns_are_counted_in_turn(guest: Visit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hour_counts, "OPEN_AT_ONCE", 2)
    app = guest.app
    others = [guest, *[await visit(app) for _ in range(4)]]
    await count(app)
    for person in others:
        await person.say("Are you there?")
    for counted in (2, 4, 5, 5):
        await count(app)
        assert await guest.one("SELECT sum(messages)::int FROM hourly_stats") == counted
    for person in others:
        await person.answered()
    newest = await expect_exact(app)
    assert (newest["messages"], newest["answers"]) == (5, 5)


async def test_erased_turn_stays_counted(guest: Visit) -> None:
    app, other = guest.app, await visit(guest.app)
    await guest.ask("Hello")
    await other.say("Are you there?")
    await expect_exact(app)
    for one in (guest, other):
        assert (await app.erasure.erase_everything(one.session_id, "person")).finished
    newest = await expect_exact(app)
    assert (newest["messages"], newest["answers"], newest["errors"]) == (2, 1, 0)
    assert await rows_of(app, PEOPLE) == [{"people": 2, "new_today": 2}]


async def test_retried_job_is_no_failure_any_more(guest: Visit) -> None:
    app = guest.app
    await guest.ask("Hello")
    await count(app)
    job = await guest.one(
        "INSERT INTO jobs (kind, session_id, key) VALUES ('tidy', $1, 'x') RETURNING id", guest.session_id
    )
    end = "UPDATE jobs SET state = $2, ended_at = now(), last_error = $3 WHERE id = $1"
    await app.pool.execute(end, job, "dead", "no room")
    assert (await expect_exact(app))["jobs"] == {"tidy": [0, 1]}
    await app.pool.execute("UPDATE jobs SET state = 'due', last_error = '' WHERE id = $1", job)
    assert (await expect_exact(app))["jobs"] == {}
    await app.pool.execute(end, job, "done", "")
    assert (await expect_exact(app))["jobs"] == {"tidy": [1, 0]}


async def test_person_is_new_in_the_first_hour_of_a_day(guest: Visit) -> None:
    app = guest.app
    day = await guest.one("SELECT date_trunc('day', now(), 'UTC')")
    hours = [day + timedelta(hours=9), day + timedelta(hours=11)]
    contact = await guest.one("SELECT contact_id FROM sessions WHERE id = $1", guest.session_id)
    counted: dict[datetime, list[int]] = {hour: [0, 0] for hour in hours}
    for hour in (hours[1], hours[0], hours[1]):
        async with app.pool.acquire() as connection:
            found = await connection.fetch(
                *hour_counts._ADD_PEOPLE(zone="UTC", hours=[hour], contacts=[contact])
            )
        for row in found:
            counted[row["hour"]][0] += row["people"]
            counted[row["hour"]][1] += row["new_today"]
    assert counted == {hours[0]: [1, 1], hours[1]: [1, 0]}


async def test_hours_of_a_worker_that_was_away_are_counted_oldest_first(guest: Visit) -> None:
    app = guest.app
    await guest.ask("Hello")
    await app.pool.execute("UPDATE sessions SET created_at = now() - interval '200 hours'")
    await count(app)
    await app.pool.execute("DELETE FROM hourly_stats WHERE hour > now() - interval '90 hours'")
    await expect_exact(app)
    gaps = """SELECT count(*) FROM generate_series((SELECT min(hour) FROM hourly_stats), now(), '1 hour') h
               WHERE NOT EXISTS (SELECT FROM hourly_stats WHERE hour = h)"""
    assert await guest.one(gaps) == 0


async def test_counts_by_a_former_version_are_replaced(guest: Visit) -> None:
    """It counts whole hours and overwrites what was added, beside a worker of this version."""
    app = guest.app
    await guest.ask("Hello")
    await count(app)
    await guest.ask("Again")
    await app.pool.execute("UPDATE hourly_stats SET messages = 2, counted_at = clock_timestamp()")
    newest = await expect_exact(app)
    assert (newest["messages"], newest["answers"]) == (2, 2)
    assert await rows_of(app, PEOPLE) == [{"people": 1, "new_today": 1}]


async def test_workers_that_count_while_people_write_count_each_message_once(guest: Visit) -> None:
    app = guest.app
    others = [guest, *[await visit(app) for _ in range(3)]]
    stores = [PostgresHourCounts(app.pool, timezone=app.settings.timezone) for _ in range(2)]
    writing = True

    async def keep_counting(store: PostgresHourCounts) -> None:
        while writing:
            await store.catch_up()
            await asyncio.sleep(0)

    async def write(one: Visit) -> None:
        for number in range(6):
            await one.ask(f"Question {number}")

    counting = [asyncio.create_task(keep_counting(store)) for store in stores]
    await asyncio.gather(*(write(one) for one in others))
    writing = False
    await asyncio.gather(*counting)
    newest = await expect_exact(app)
    total = await rows_of(app, "SELECT sum(messages)::int AS m, sum(answers)::int AS a FROM hourly_stats")
    assert total == [{"m": 24, "a": 24}]
    assert newest["calls"] >= 0


async def test_first_token_times_are_counted_in_the_buckets_of_the_core(guest: Visit) -> None:
    await guest.ask("Hello")
    growth = (MOST_MS / LEAST_MS) ** (1 / BUCKETS)
    for milliseconds, bucket in (
        (LEAST_MS - 1, 0), (LEAST_MS, 1), (int(LEAST_MS * growth**7.5), 8), (MOST_MS - 1, BUCKETS),
        (MOST_MS, BUCKETS + 1),
    ):  # fmt: skip
        await guest.app.pool.execute("UPDATE turns SET first_token_ms = $1", milliseconds)
        assert await guest.one("SELECT bucket FROM turn_counts") == bucket, milliseconds
    await guest.app.pool.execute("DELETE FROM hourly_stats")
    await count(guest.app)
    assert len(await guest.one("SELECT first_tokens FROM hourly_stats WHERE answers > 0")) == BUCKETS + 2


async def test_an_ended_turn_is_looked_up_by_its_number(guest: Visit) -> None:
    sql, *values = hour_counts._ENDED_TURNS(zone="UTC", session_id=[1], after_turn=[1], through_turn=[2])
    async with guest.app.pool.acquire() as connection, connection.transaction():
        await connection.execute(
            "SET LOCAL enable_seqscan = off; SET LOCAL plan_cache_mode = force_generic_plan"
        )
        plan = "\n".join(row[0] for row in await connection.fetch(f"EXPLAIN {sql}", *values))
    turns = plan.partition("turns_pkey")[2]
    assert "turn_no > f.after_turn) AND (turn_no <= f.through_turn)" in turns.splitlines()[1]
