"""Running sums are what SQL says of all rows, whether these were settled, new or under way at each look."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import asyncpg
import pytest

from shared.adapters.postgres.db.page_read import read_page
from shared.adapters.postgres.turns import counters
from shared.adapters.postgres.turns.counters import SOURCES, RunningSums, SpentToday
from tests.kit.dashboard import seed
from tests.kit.dashboard.seed import a_long_session, a_session
from tests.kit.midday import DAY_BEGAN, MIDDAY, zone_where_it_is

Pool = asyncpg.Pool
Connection: TypeAlias = "asyncpg.pool.PoolConnectionProxy[asyncpg.Record]"


SUMS = {
    "spend": """
        SELECT coalesce(sum(input_tokens), 0) AS input_tokens,
               coalesce(sum(output_tokens), 0) AS output_tokens,
               coalesce(sum(cache_read_tokens), 0) AS cache_read_tokens,
               coalesce(sum(cache_write_tokens), 0) AS cache_write_tokens,
               coalesce(sum(cost_micro), 0) AS cost_micro, count(*) - count(cost_micro) AS cost_unknown_calls
          FROM usage""",
    "calls": """
        SELECT count(*) FILTER (WHERE prune_triggered) AS prunes,
               count(*) FILTER (WHERE overflow_rejected) AS overflows,
               count(coalesce(reported_input_tokens, estimated_input_tokens_after_prune)) AS prompts,
               coalesce(sum(coalesce(reported_input_tokens, estimated_input_tokens_after_prune)), 0)
                 AS prompt_tokens
          FROM turn_context_audit""",
    "compactions": """
        SELECT count(*) FILTER (WHERE kind IN ('summary', 'digest')) AS summaries FROM compactions""",
    "sessions": "SELECT count(*) AS all FROM sessions",
    "jobs": "SELECT count(*) AS all FROM jobs",
}
COUNTED = {
    "flushes": ("outcome", "flushes", ("running", "saved", "nothing", "failed")),
    "turns": ("state", "turns", ("open", "claimed", "answered", "stopped", "refused", "failed")),
    "steps": ("status", "turn_steps", ("intent", "done", "failed", "unknown")),
}
"""Column, table and values whose rows are counted, by source."""


async def as_sql_says(pool: Pool) -> Mapping[str, Mapping[str, Any]]:
    """Every sum over the whole table."""
    sums = {}
    for name, statement in SUMS.items():
        row = await pool.fetchrow(statement)
        assert row is not None
        sums[name] = dict(row)
    for name, (column, table, values) in COUNTED.items():
        rows = await pool.fetch(f"SELECT {column} AS value, count(*) AS number FROM {table} GROUP BY 1")
        sums[name] = dict.fromkeys(values, 0) | {row["value"]: row["number"] for row in rows}
    return sums


async def agree(pool: Pool, sums: RunningSums) -> Mapping[str, Mapping[str, Any]]:
    found = await sums.read()
    assert found == await as_sql_says(pool)
    return found


async def age(pool: Pool, minutes: int) -> None:
    """All that is there was written so long ago."""
    for table, columns in (
        ("compactions", ("created_at",)), ("jobs", ("created_at",)), ("sessions", ("created_at",)),
        ("flushes", ("created_at",)), ("turns", ("opened_at",)), ("turn_steps", ("at",)),
        ("usage", ("at",)), ("turn_context_audit", ("created_at",)),
    ):  # fmt: skip
        told = ", ".join(f"{one} = {one} - make_interval(mins => {minutes})" for one in columns)
        await pool.execute(f"UPDATE {table} SET {told}")


async def more(pool: Pool) -> None:
    async with pool.acquire() as connection:
        seeded, _ = await a_long_session(connection, turns=12)
        await connection.execute("DELETE FROM session_totals")
        await connection.execute("DELETE FROM usage")
        await seed.spend(connection, seeded)
        names = ["input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens"]
        sums = ", ".join(f"sum({name})" for name in names)
        await connection.execute(
            f"""INSERT INTO session_totals (session_id, {", ".join(names)}, cost_micro, cost_unknown_calls)
                SELECT session_id, {sums}, coalesce(sum(cost_micro), 0),
                       count(*) FILTER (WHERE cost_micro IS NULL) FROM usage GROUP BY session_id"""
        )


async def test_new_rows_are_added_to_what_was_counted(pool: Pool) -> None:
    sums = RunningSums(pool)
    await agree(pool, sums)
    await more(pool)
    first = await agree(pool, sums)
    assert first["spend"]["input_tokens"] > 0
    assert first["turns"]["answered"] == 12
    await agree(pool, sums)
    async with pool.acquire() as connection:
        await a_session(connection, turns=5)
    found = await agree(pool, sums)
    assert found["turns"]["answered"] == 17
    assert found["sessions"]["all"] == 2


async def test_what_is_settled_is_not_read_again_and_what_may_change_is(pool: Pool) -> None:
    await more(pool)
    await age(pool, 30)
    async with pool.acquire() as connection:
        seeded = await a_session(connection, turns=4)
    await pool.execute(
        """UPDATE turns SET state = 'claimed', ended_at = NULL, opened_at = now() - interval '20 min'
            WHERE session_id = $1 AND turn_no = 4""",
        seeded.session_id,
    )
    await pool.execute(
        """INSERT INTO flushes (session_id, cycle, threshold, from_turn, through_turn, created_at)
           VALUES ($1, 9, 'limit', 1, 2, now() - interval '20 min')""",
        seeded.session_id,
    )
    sums = RunningSums(pool)
    await agree(pool, sums)
    await agree(pool, sums)
    await pool.execute("UPDATE turns SET state = 'failed', ended_at = now() WHERE ended_at IS NULL")
    await pool.execute("UPDATE flushes SET outcome = 'saved', ended_at = now() WHERE outcome = 'running'")
    found = await agree(pool, sums)
    assert found["turns"]["failed"] == 1
    await pool.execute("DELETE FROM jobs WHERE state = 'done'")
    assert await sums.read() != await as_sql_says(pool)
    assert await sums.read(whole=True) == await as_sql_says(pool)


def count_minutes() -> Callable[[], float]:
    """Return a clock that a minute and more passes on with each look."""
    minutes = iter(range(999))
    return lambda: next(minutes) * 61.0


async def open_turn(connection: Connection | Pool, number: int) -> None:
    """Add a turn that waits, with a call of unknown cost."""
    await connection.execute(
        """INSERT INTO turns (session_id, turn_no, channel, address_id)
           SELECT session_id, $1, channel, address_id FROM turns WHERE turn_no = 1 LIMIT 1""",
        number,
    )
    await connection.execute(
        """INSERT INTO usage (session_id, contact_id, turn_no, purpose, model, input_tokens, output_tokens,
                              cache_read_tokens, cache_write_tokens)
           SELECT id, contact_id, $1, 'chat', 'm', 1, 1, 1, 1 FROM sessions LIMIT 1""",
        number,
    )


async def test_rows_after_a_waiting_turn_are_settled(pool: Pool) -> None:
    await more(pool)
    await pool.execute(
        "UPDATE turns SET state = 'open', ended_at = NULL, claimed_at = NULL WHERE turn_no = 3"
    )
    sums = RunningSums(pool, clock=count_minutes())
    for _ in range(4):
        await agree(pool, sums)
    kept = sums._kept["turns"]
    assert (kept.sums["answered"], kept.sums["open"]) == (11, 0)
    assert len(kept.held) == 1
    await pool.execute("UPDATE turns SET state = 'stopped', ended_at = now() WHERE turn_no = 3")
    found = await agree(pool, sums)
    assert found["turns"]["stopped"] == 1
    assert sums._kept["turns"].held == ()
    await agree(pool, sums)


async def test_nothing_is_read_again_at_rest(pool: Pool) -> None:
    await more(pool)
    sums = RunningSums(pool, clock=count_minutes())
    for _ in range(4):
        await agree(pool, sums)
    for name, source in SOURCES.items():
        found = await read_page(pool, *source.ask(sums._kept[name]))
        assert found["new"] is None, name


async def test_sums_wait_for_a_transaction_that_is_under_way(pool: Pool) -> None:
    await more(pool)
    sums = RunningSums(pool, clock=count_minutes())
    for _ in range(3):
        await agree(pool, sums)
    unknown = (await agree(pool, sums))["spend"]["cost_unknown_calls"]
    async with pool.acquire() as slow, slow.transaction():
        await open_turn(slow, 20)
        await open_turn(pool, 21)
        for _ in range(4):
            await agree(pool, sums)
    for _ in range(3):
        await agree(pool, sums)
    found = await agree(pool, sums)
    assert found["turns"]["open"] == 2
    assert found["spend"]["cost_unknown_calls"] == unknown + 2


async def test_many_changing_rows_hold_the_edge(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "MOST_HELD", 2)
    await more(pool)
    await pool.execute("UPDATE turns SET state = 'claimed', ended_at = NULL WHERE turn_no > 8")
    sums = RunningSums(pool, clock=count_minutes())
    edges = set()
    for _ in range(3):
        await agree(pool, sums)
        edges.add(sums._kept["turns"].edge)
    assert (len(edges), sums._kept["turns"].held) == (1, ())
    await pool.execute("UPDATE turns SET state = 'failed', ended_at = now() WHERE turn_no > 8")
    for _ in range(3):
        await agree(pool, sums)
    assert sums._kept["turns"].sums["failed"] == 4


async def test_daily_spend_restarts_at_midnight(pool: Pool) -> None:
    async with pool.acquire() as connection:
        seeded = await a_session(connection)
        await seed.spend(connection, seeded)
    today = SpentToday(pool, MIDDAY)
    began = DAY_BEGAN

    async def as_sql() -> dict[str, Any]:
        row = await pool.fetchrow(
            f"""SELECT coalesce(sum(cost_micro), 0) AS spent,
                       count(*) FILTER (WHERE cost_micro IS NULL) AS unknown, count(*) AS calls
                  FROM usage WHERE at >= {began}"""
        )
        assert row is not None
        return dict(row)

    assert await today.read() == await as_sql()
    async with pool.acquire() as connection:
        await seed.spend(connection, await a_session(connection))
    assert await today.read() == await as_sql()
    today._timezone = zone_where_it_is(9)
    began = DAY_BEGAN.replace(MIDDAY, today._timezone)
    assert await today.read() == await as_sql()


async def test_what_was_being_written_when_others_were_counted_is_not_forgotten(pool: Pool) -> None:
    async with pool.acquire() as connection:
        seeded = await a_session(connection)
        await seed.spend(connection, seeded)
    minutes = iter(range(99))
    today = SpentToday(pool, MIDDAY, clock=lambda: next(minutes) * 60.0)
    of_today = f"SELECT count(*) FROM usage WHERE at >= {DAY_BEGAN}"
    for _ in range(2):
        await today.read()
    settled = today._kept.edge
    assert settled == await pool.fetchval("SELECT max(id) FROM usage")
    async with pool.acquire() as slow, slow.transaction():
        await seed.spend(slow, seeded)
        async with pool.acquire() as quick:
            await seed.spend(quick, seeded)
        for _ in range(4):
            assert (await today.read())["calls"] == await pool.fetchval(of_today)
        assert today._kept.edge == settled < await pool.fetchval("SELECT max(id) FROM usage")
    for _ in range(3):
        assert (await today.read())["calls"] == await pool.fetchval(of_today)
    assert today._kept.edge == await pool.fetchval("SELECT max(id) FROM usage")
