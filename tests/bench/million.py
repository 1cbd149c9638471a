"""What a million idle conversations cost: `python -m tests.bench.million [--json] [--sessions N]`.

The look for unanswered turns, the memory of a web process, and the dashboard's first and far page, each
beside the same with a thousand. The database is the one of `tests.bench.dashboard`; a million takes some
minutes and about 8 GB under the folder for temporary files (`TMPDIR`).
"""

from __future__ import annotations

import asyncio
import re
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from shared.adapters.embedded.servers import build_urls
from shared.adapters.postgres.compaction.jobs import PostgresJobs
from shared.adapters.postgres.dashboard.read_models_sql import SORTS
from shared.adapters.postgres.turns.turns import PostgresTurns
from tests.bench.dashboard import WARM_UP, House, Read, houses, reads
from tests.bench.ground import run
from tests.bench.rest import rss_mib
from tests.kit.deployment.processes import Process
from tests.kit.free_ports import free_port

ENTRIES = 1_000
SETTLE_SECONDS = 6.0
"""Several looks for unanswered turns, and all that a process does soon after its start."""
USUAL = "-active"
Act = Callable[[], Awaitable[object]]


async def measure(*, sessions: int, rounds: int, processes: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="evb-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o755)
        async with houses(folder, sessions=sessions, entries=ENTRIES) as (few, many, seconds):
            found = await _pages(few, many, rounds)
            for house in (few, many):
                await _all_answered(house)
            found |= await _looks(few, many, rounds * 5)
            found |= await _memory(folder, processes)
    return {**found, "sessions": sessions, "seeding_seconds": seconds}


async def _pages(few: House, many: House, rounds: int) -> dict[str, Any]:
    """First and far page by every order, by turns; the worst counts."""
    pages, known = {}, reads()
    for sort in (order for column in SORTS for order in (column, f"-{column}")):
        first, far = known[f"first_page_by_{sort}"], known[f"far_page_by_{sort}"]
        triples = [
            (await _page(first, few), await _page(first, many), await _page(far, many))
            for _ in range(rounds + WARM_UP)
        ][WARM_UP:]
        pages[sort] = {
            "first_ms": round(statistics.median(near for _, near, _ in triples), 2),
            "far_ms": round(statistics.median(away for _, _, away in triples), 2),
            "far_to_first": round(statistics.median(away / near for _, near, away in triples), 2),
            "many_to_few": round(statistics.median(near / small for small, near, _ in triples), 2),
        }
    return {
        "first_page_ms": max(page["first_ms"] for page in pages.values()),
        "far_page_ms": max(page["far_ms"] for page in pages.values()),
        "far_to_first_ratio": max(page["far_to_first"] for page in pages.values()),
        "far_to_first_ratio_of_the_usual_order": pages[USUAL]["far_to_first"],
        "many_to_few_ratio": max(page["many_to_few"] for page in pages.values()),
        "pages": pages,
    }


async def _all_answered(house: House) -> None:
    async with house.pool.acquire() as connection:
        await connection.execute("SET statement_timeout = 0")
        await connection.execute(
            "UPDATE sessions SET answered_turn = next_turn - 1 WHERE answered_turn < next_turn - 1",
            timeout=600,
        )
        await connection.execute(
            "UPDATE turns SET state = 'answered', ended_at = now() WHERE ended_at IS NULL", timeout=600
        )
        await connection.execute("VACUUM (ANALYZE) sessions, turns", timeout=600)
        await connection.execute("SET statement_timeout = 9000")


async def _looks(few: House, many: House, rounds: int) -> dict[str, Any]:
    """Beside the least that can be asked of the server."""

    def look(house: House) -> Act:
        turns, upkeep = PostgresTurns(house.pool), PostgresJobs(house.pool)

        async def act() -> None:
            found = [*await turns.list_unanswered("web"), *await upkeep.due_jobs()]
            assert found == [], found

        return act

    small, large = look(few), look(many)
    triples = [
        (await _ms(lambda: many.pool.fetchval("SELECT 1")), await _ms(small), await _ms(large))
        for _ in range(rounds + WARM_UP)
    ][WARM_UP:]
    return {
        "sweep_ms": round(statistics.median(ours for _, _, ours in triples), 2),
        "sweep_ms_of_a_thousand": round(statistics.median(less for _, less, _ in triples), 2),
        "select_one_ms": round(statistics.median(least for least, _, _ in triples), 2),
        "sweep_ratio": round(statistics.median(ours / less for _, less, ours in triples), 2),
    }


async def _memory(folder: Path, processes: int) -> dict[str, Any]:
    """Of a web process on each of both, by turns."""
    database, redis = build_urls(folder / "servers")
    sizes: dict[str, list[float]] = {"few": [], "many": []}
    for _ in range(processes):
        for name, found in sizes.items():
            settings = {
                "DATABASE_URL": re.sub(r"/[^/?]+\?", f"/{name}?", database),
                "REDIS_URL": redis,
                "EVERTALK_HTTP_PORT": str(free_port()),
                "EVERTALK_DATA_DIR": str(folder / name),
                "EVERTALK_SECRET_KEY": "for-benches-and-nothing-else-at-all",
            }
            async with Process("web", settings) as web:
                await asyncio.sleep(SETTLE_SECONDS)
                found.append(rss_mib(web.pid) or 0.0)
    small, large = (statistics.median(found) for found in sizes.values())
    return {"idle_sessions_rss_mib": round(max(0.0, large - small), 1), "rss_web_mib_of_both": [small, large]}


async def _page(read: Read, house: House) -> float:
    return await _ms(lambda: read(house))


async def _ms(act: Act) -> float:
    began = time.perf_counter()
    await act()
    return (time.perf_counter() - began) * 1_000


if __name__ == "__main__":
    raise SystemExit(run("million", __doc__, measure, sessions=1_000_000, rounds=11, processes=3))
