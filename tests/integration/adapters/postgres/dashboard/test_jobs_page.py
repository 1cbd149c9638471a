"""The page of jobs reads as much of a long history as of a short one, and says what it counts."""

from __future__ import annotations

import json

import asyncpg

from shared.adapters.postgres.dashboard import job_list_sql
from shared.adapters.postgres.dashboard.job_queries import JobInsights
from shared.core.ops.job_views import JobMatch
from tests.kit.dashboard import seed, seed_work

MATCHES = (
    JobMatch(),
    JobMatch(state="done"),
    JobMatch(state="dead"),
    JobMatch(state="failing"),
    JobMatch(kind="tidy"),
    JobMatch(kind="tidy", state="dead"),
)
HISTORY = """
INSERT INTO jobs (kind, session_id, key, state, started_at, ended_at)
SELECT CASE n % 2 WHEN 0 THEN 'flush' ELSE 'compact' END, ($1::bigint[])[1 + n % cardinality($1)],
       'old:' || $2 || n, 'done',
       now() - interval '20 days', now() - interval '20 days' + n * interval '1 second'
  FROM generate_series(1, $3::int) n
"""


async def blocks(pool: asyncpg.Pool[asyncpg.Record], match: JobMatch) -> int:
    """How many pages of the database one look at the page of jobs touches."""
    jobs = job_list_sql.render_jobs(match)
    sql, *values = jobs(kind=match.kind, session=match.session or None, before=2**62, limit=50)
    plan = await pool.fetchval(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql}", *values)
    (told,) = json.loads(plan) if isinstance(plan, str) else plan
    found = told["Plan"]["Shared Hit Blocks"] + told["Plan"]["Shared Read Blocks"]
    assert isinstance(found, int)
    return found


async def test_a_long_history_costs_the_page_of_jobs_nothing(pool: asyncpg.Pool[asyncpg.Record]) -> None:
    await seed_work.jobs(pool)
    async with pool.acquire() as connection:
        others = [(await seed.a_session(connection)).session_id for _ in range(30)]

    async def looked() -> list[int]:
        await pool.execute("VACUUM ANALYZE jobs")
        return [await blocks(pool, match) for match in MATCHES]

    await pool.execute(HISTORY, others, "a", 2_000)
    short = await looked()
    await pool.execute(HISTORY, others, "b", 40_000)
    long = await looked()
    assert max(after - before for before, after in zip(short, long, strict=True)) < 40, (short, long)


async def test_job_counts_cover_the_last_day_up_to_a_bound(
    pool: asyncpg.Pool[asyncpg.Record],
) -> None:
    async with pool.acquire() as connection:
        seeded = await seed.a_session(connection)
    insights, most = JobInsights(pool), job_list_sql.COUNTED_TO
    await pool.execute(HISTORY, [seeded.session_id], "a", 10)
    done = """INSERT INTO jobs (kind, session_id, key, state, ended_at)
              SELECT 'flush', $1, 'new', $2, now() FROM generate_series(1, $3::int)"""
    await pool.execute(done, seeded.session_id, "done", most - 1)
    found = await insights.load_jobs(JobMatch())
    assert (found["states"]["done"], found["counted_to"]) == (most - 1, most)
    await pool.execute(done, seeded.session_id, "done", 2)
    await pool.execute(done, seeded.session_id, "dead", most + 1)
    found = await insights.load_jobs(JobMatch())
    assert found["states"] == {"due": 0, "running": 0, "done": most, "dead": most}
    assert found["dead_lately"] == most
    assert found["retry_all"] == {"jobs": 1, "more": True}, "the newest of a key stands for the others"
    assert (await insights.load_jobs(JobMatch(kind="tidy")))["retry_all"] == {"jobs": 0, "more": False}


async def test_page_of_jobs_shows_how_each_duty_fares(pool: asyncpg.Pool[asyncpg.Record]) -> None:
    await pool.execute(
        """INSERT INTO duties (name, seconds, due_at, succeeded_at, failures, failed_runs, runs, last_error)
           VALUES ('contacts', 300, now(), now(), 0, 0, 7, ''),
                  ('hourly_stats', 15, now(), now() - interval '1 hour', 3, 3, 9, 'TimeoutError'),
                  ('owed_flushes', 30, now(), now(), 1, 1, 9, 'canceling statement')"""
    )
    page = await JobInsights(pool).load_jobs(JobMatch())
    told = [(one["name"], one["state"], one["error"]) for one in page["duties"]]
    assert told == [
        ("hourly_stats", "late", "TimeoutError"),
        ("owed_flushes", "failing", "canceling statement"),
        ("contacts", "waiting", None),
    ]
