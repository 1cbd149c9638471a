"""What each look of the background costs after 10⁶ turns in a day: `python -m tests.bench.sweeps [--json]`.

The rows are made by SQL, in the order of time as turns write them. Each look is counted at rest, when it has
nothing to do: blocks of the database that it touches and milliseconds, the least of several. Then turns are
answered, and the looks that follow them do their work: their time beside that of the turns is the share of
the background.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias

from shared.adapters.embedded import EmbeddedServers
from shared.adapters.postgres.dashboard.alerts import Rules
from shared.adapters.postgres.dashboard.job_queries import JobInsights
from shared.adapters.postgres.dashboard.metrics_queries import Durations, MetricsInsights
from shared.adapters.postgres.dashboard.read_models import Insights
from shared.adapters.postgres.db.pool import Pool, open_pool
from shared.adapters.postgres.turns.counters import RunningSums
from shared.bootstrap.stores import Stores, build_stores
from shared.core.ops.duties import DUTY_NAMES, SCHEDULES
from tests.bench import dashboard_seed
from tests.bench.ground import ground, run, settings_of
from tests.bench.turn import ANSWER, QUESTION
from tests.bench.whole import WholeTurns, app_with_instant_model
from web.app import build_web_process
from web.ports import ModelInfo

SPENT_MICRO = 900_000_000
"""Spending of the day beside a cap of which it is nine tenths."""
WAITING = 10
"""Turns that wait for an answer, however many there were: a look reads some four blocks of each."""
TIMES = 5
PEOPLE = 20
ROUNDS = 3
"""Rounds of turns and looks; the middle one counts, since others compute on the machine."""
_FLUSH = "SELECT pg_stat_force_next_flush()"
_BLOCKS = """
SELECT blks_hit + blks_read FROM pg_stat_database WHERE datname = current_database()
"""
Look: TypeAlias = Callable[[], Awaitable[object]]


def list_looks(pool: Pool, stores: Stores, worker_id: int) -> Mapping[str, tuple[float, Look]]:
    """Name every look that runs by the clock or with each scrape, with its period in seconds."""
    passing = count(0.0, 61.0)
    sums, durations = RunningSums(pool, clock=lambda: next(passing)), Durations(pool)
    gauges = MetricsInsights(pool, timezone="UTC", clock=lambda: next(passing))
    period = {name: float(SCHEDULES[name].seconds) for name in DUTY_NAMES}

    near_cap = Rules(cap_micro=SPENT_MICRO * 10 // 9)

    async def look_for_unindexed() -> None:
        await stores.recall_index.list_unindexed()
        await stores.recall_index.index_notes()

    return {
        "session_list": (period["session_list"], stores.session_list.catch_up),
        "erasures": (period["erasures"], stores.erasure.list_running),
        "reservations": (period["reservations"], stores.jobs.sweep_reservations),
        "recall_index": (period["recall_index"], look_for_unindexed),
        "hourly_stats": (period["hourly_stats"], stores.hour_counts.catch_up),
        "owed_flushes": (period["owed_flushes"], stores.flushes.request_owed_flushes),
        "contacts": (period["contacts"], stores.jobs.backfill_contacts),
        "page_deliveries": (period["page_deliveries"], stores.jobs.settle_pages),
        "consolidation": (
            period["consolidation"], lambda: stores.consolidation.request_due(timezone="UTC", hour=0),
        ),
        "due_jobs": (1.0, stores.jobs.due_jobs),
        "overdue_duties": (
            1.0, lambda: stores.duties.list_overdue(list(DUTY_NAMES), patience_seconds=1.0),
        ),
        "unanswered_turns": (1.0, lambda: stores.turns.list_unanswered("web")),
        "alerts": (5.0, lambda: stores.alerts.sweep(Rules(), worker_id=worker_id, targets=[])),
        "alerts_near_cap": (5.0, lambda: stores.alerts.sweep(near_cap, worker_id=worker_id, targets=[])),
        "metrics_gauges": (15.0, gauges.load_gauges),
        "import_summaries": (3.0, stores.import_summaries.request_due),
        "metrics_durations": (15.0, durations.catch_up),
        "metrics_sums": (15.0, sums.read),
        "overview": (15.0, Insights(pool, clock=lambda: next(passing)).load_overview),
        "pulse": (2.0, JobInsights(pool).load_pulse),
    }  # fmt: skip


_SPENT = """
INSERT INTO spend_days (scope, day, spent_micro)
SELECT 'total', (now() AT TIME ZONE 'UTC')::date, $1::bigint UNION ALL
SELECT 'contact:' || id, (now() AT TIME ZONE 'UTC')::date, 8800 FROM contacts WHERE $1 > 0
"""
_REFUSED = """
UPDATE turns SET state = 'refused', error_code = 'cap_reached', refused_scope = 'total'
 WHERE turn_no = 1 AND session_id % 100 = 0 AND ended_at IS NOT NULL
"""
"""Turns of the morning that the cap of then refused; a later turn of each was answered."""
_ENDED = """
WITH t AS (
  UPDATE turns SET state = 'answered', claimed_at = opened_at, ended_at = opened_at
   WHERE ended_at IS NULL AND session_id > (
         SELECT session_id FROM turns WHERE ended_at IS NULL ORDER BY session_id OFFSET $1 LIMIT 1)
  RETURNING session_id, turn_no
)
UPDATE sessions s SET answered_turn = t.turn_no FROM t WHERE s.id = t.session_id
"""
_COUNTED = """
UPDATE hour_marks SET edge = newest, next_edge = newest
  FROM (SELECT 'usage' AS name, max(id) AS newest FROM usage
        UNION ALL SELECT 'compactions', max(id) FROM compactions) n
 WHERE source = n.name
"""
"""The rows that SQL wrote pass for counted: their hours were, before the bench begins."""


async def measure(*, turns: int, days: int, talk: int) -> dict[str, Any]:
    async with ground(durable=False) as (servers, folder):
        pool = await open_pool(servers.database_url, size=1)
        admin = await open_pool(servers.database_url, size=1)
        try:
            stores = build_stores(pool)
            await stores.hour_counts.catch_up()
            began = time.monotonic()
            await dashboard_seed.seed(pool, sessions=turns // 2, longest=1, entries=2_000, days=days)
            await pool.execute(_SPENT, SPENT_MICRO, timeout=60)
            await pool.execute(_REFUSED, timeout=60)
            await pool.execute(_ENDED, WAITING - 1)
            await pool.execute(_COUNTED)
            seeded = time.monotonic() - began
            await pool.execute("ALTER SYSTEM SET autovacuum = off")
            await pool.execute("SELECT pg_reload_conf()")
            worker_id = await stores.workers.register("worker")
            await _come_to_rest(pool, stores)
            looks = list_looks(pool, stores, worker_id)
            found = {name: await _look(pool, admin, look) for name, (_, look) in looks.items()}
            return {
                "turns": turns, "days": days, "seconds_to_write_the_rows": round(seeded, 1),
                "blocks_at_rest": {name: blocks for name, (blocks, _) in found.items()},
                "ms_at_rest": {name: round(ms, 2) for name, (_, ms) in found.items()},
                "most_blocks_at_rest": max(blocks for blocks, _ in found.values()),
                "most_ms_at_rest": round(max(ms for _, ms in found.values()), 2),
                "ms_at_rest_per_second": round(
                    sum(found[name][1] / seconds for name, (seconds, _) in looks.items()), 2
                ),
                **await _share(servers, folder, talk),
            }  # fmt: skip
        finally:
            await pool.close()
            await admin.close()


async def _come_to_rest(pool: Pool, stores: Stores) -> None:
    """Empty the queues that writing so many rows at once has filled, and count what is left."""
    await pool.execute("TRUNCATE unindexed_notes, due_tidyings")
    await pool.execute("UPDATE jobs SET state = 'done', ended_at = now() WHERE state IN ('due', 'running')")
    for _ in range(3):
        await pool.execute("UPDATE hour_marks SET next_at = next_at - interval '1 minute'")
        while await stores.hour_counts.catch_up():
            pass
    await dashboard_seed.settle(pool)


async def _look(pool: Pool, admin: Pool, look: Look) -> tuple[int, float]:
    """Return blocks and milliseconds, the least of several; the first looks do what is due and warm up."""
    blocks: list[int] = []
    times: list[float] = []
    for number in range(TIMES + 3):
        await pool.execute(_FLUSH)
        before = await admin.fetchval(_BLOCKS)
        began = time.perf_counter()
        await look()
        took = (time.perf_counter() - began) * 1000
        await pool.execute(_FLUSH)
        await pool.execute("SELECT 1")
        after = await admin.fetchval(_BLOCKS)
        if number >= 3:
            blocks.append(after - before)
            times.append(took)
    return min(blocks), min(times)


async def _share(servers: EmbeddedServers, folder: Path, talk: int) -> dict[str, Any]:
    """Return what the looks after turns cost beside the turns themselves."""
    app = await app_with_instant_model(settings_of(servers, folder), answer=ANSWER)
    process = build_web_process(app, model=ModelInfo(name="bench", offline=False))
    process.hub.start()
    try:
        people = [WholeTurns(app, process.hub) for _ in range(PEOPLE)]
        for person in people:
            await person.begin()
            await person.turn(QUESTION)
        rounds: list[tuple[float, float]] = []
        for _ in range(ROUNDS):
            began = time.perf_counter()
            for _ in range(talk // PEOPLE):
                await app.sessions.check_leases()
                for person in people:
                    await person.turn(QUESTION)
            by_turns = time.perf_counter() - began
            began = time.perf_counter()
            for catch_up in (app.stores.session_list.catch_up, app.stores.hour_counts.catch_up):
                while await catch_up():
                    pass
            rounds.append((by_turns, time.perf_counter() - began))
        turns = talk // PEOPLE * PEOPLE
        return {
            "ms_per_turn": round(statistics.median(one for one, _ in rounds) / turns * 1000, 2),
            "ms_of_looks_per_turn": round(statistics.median(one for _, one in rounds) / turns * 1000, 3),
            "share_of_looks": round(statistics.median(looks / by_turns for by_turns, looks in rounds), 3),
        }
    finally:
        await process.tasks.drain(2.0)
        await app.close()


def main(arguments: Sequence[str] | None = None) -> int:
    return run("sweeps", __doc__, measure, arguments, turns=1_000_000, days=1, talk=1_000)


if __name__ == "__main__":
    sys.exit(main())
