"""What each look of the background costs after 10⁶ turns in a day: `python -m tests.bench.sweeps [--json]`.

The rows are made by SQL. Each look is counted at rest, when it has nothing to do: blocks of the database that
it touches and milliseconds, the least of several. Then turns are answered, and the looks that follow them do
their work: their time beside that of the turns is the share of the background.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
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
from web.app import make_parts
from web.parts import ModelInfo

GROWING: Mapping[str, str] = {
    "alerts": "looks through today's turns when a daily cap is near",
    "metrics_gauges": "counts failed jobs and undone summaries",
    "metrics_durations": "reads what came since the last scrape",
    "metrics_sums": "reads the turns of the last quarter of an hour again",
    "overview": "counts the last hour and day of the session list",
}
"""Looks that touch more blocks with more conversations, notes or recent turns, and why."""
TIMES = 5
PEOPLE = 20
_FLUSH = "SELECT pg_stat_force_next_flush()"
_BLOCKS = """
SELECT blks_hit + blks_read FROM pg_stat_database WHERE datname = current_database()
"""
Look: TypeAlias = Callable[[], Awaitable[object]]


def list_looks(pool: Pool, stores: Stores, worker_id: int) -> Mapping[str, tuple[float, Look]]:
    """Name every look that runs by the clock or with each scrape, with its period in seconds."""
    sums, durations, gauges = RunningSums(pool), Durations(pool), MetricsInsights(pool, timezone="UTC")
    period = {name: float(SCHEDULES[name].seconds) for name in DUTY_NAMES}

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
        "metrics_gauges": (15.0, gauges.load_gauges),
        "metrics_durations": (15.0, durations.catch_up),
        "metrics_sums": (15.0, sums.read),
        "overview": (15.0, Insights(pool).load_overview),
        "pulse": (2.0, JobInsights(pool).load_pulse),
    }  # fmt: skip


async def measure(*, turns: int, days: int, talk: int) -> dict[str, Any]:
    async with ground(durable=False) as (servers, folder):
        pool = await open_pool(servers.database_url, size=1)
        admin = await open_pool(servers.database_url, size=1)
        try:
            await dashboard_seed.seed(pool, sessions=turns // 2, longest=1, entries=2_000, days=days)
            await pool.execute("ALTER SYSTEM SET autovacuum = off")
            await pool.execute("SELECT pg_reload_conf()")
            stores = build_stores(pool)
            worker_id = await stores.workers.register("worker")
            began = time.monotonic()
            while await stores.hour_counts.catch_up():
                pass
            history = time.monotonic() - began
            await _come_to_rest(pool, stores)
            looks = list_looks(pool, stores, worker_id)
            found = {name: await _look(pool, admin, look) for name, (_, look) in looks.items()}
            return {
                "turns": turns, "days": days, "seconds_to_count_the_past": round(history, 1),
                "blocks_at_rest": {name: blocks for name, (blocks, _) in found.items()},
                "ms_at_rest": {name: round(ms, 2) for name, (_, ms) in found.items()},
                "most_blocks_at_rest": max(found[name][0] for name in found if name not in GROWING),
                "most_ms_at_rest": round(max(found[name][1] for name in found if name not in GROWING), 2),
                "ms_at_rest_per_second": round(
                    sum(found[name][1] / seconds for name, (seconds, _) in looks.items()), 2
                ),
                **await _share(servers, folder, talk),
            }  # fmt: skip
        finally:
            await pool.close()
            await admin.close()


async def _come_to_rest(pool: Pool, stores: Stores) -> None:
    """Do what is due after so many rows were poured in, as the workers would within some hours."""
    while await stores.recall_index.index_notes():
        pass
    while await stores.consolidation.request_due(timezone="UTC", hour=0, limit=10_000):
        pass
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
    parts = make_parts(app, model=ModelInfo(name="bench", offline=False))
    parts.hub.start()
    try:
        people = [WholeTurns(app, parts.hub) for _ in range(PEOPLE)]
        for person in people:
            await person.begin()
            await person.turn(QUESTION)
        began = time.perf_counter()
        for _ in range(talk // PEOPLE):
            await app.sessions.heartbeat()
            for person in people:
                await person.turn(QUESTION)
        by_turns = time.perf_counter() - began
        began = time.perf_counter()
        for catch_up in (app.stores.session_list.catch_up, app.stores.hour_counts.catch_up):
            while await catch_up():
                pass
        by_looks = time.perf_counter() - began
        return {
            "ms_per_turn": round(by_turns / talk * 1000, 2),
            "ms_of_looks_per_turn": round(by_looks / talk * 1000, 3),
            "share_of_looks": round(by_looks / by_turns, 3),
        }
    finally:
        await parts.tasks.drain(2.0)
        await app.close()


def main(arguments: Sequence[str] | None = None) -> int:
    return run("sweeps", __doc__, measure, arguments, turns=1_000_000, days=1, talk=1_000)


if __name__ == "__main__":
    sys.exit(main())
