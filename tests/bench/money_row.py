"""How long turns wait for each other's money: `python -m tests.bench.money_row [--json] [--people N] …`.

Web processes of their own each answer their share of the people as fast as they can; meanwhile the database
is asked again and again which of its sessions that are at work wait for a lock.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import asyncpg

from shared.config.settings import load_settings
from tests.bench.ground import CAPS, environment_of, ground
from tests.bench.quiet import keep_quiet
from tests.bench.turn import ANSWER, QUESTION
from tests.bench.whole import WholeTurns, app_with_instant_model
from web.app import build_web_process
from web.ports import ModelInfo

WARM_SECONDS = 3.0
"""The first turns ask the shared row; slices are there with the next beat."""
_LOOK_SECONDS = 0.005
_SAMPLE = """
SELECT wait_event_type IS NOT DISTINCT FROM 'Lock' AS waits, count(*) AS number FROM pg_stat_activity
 WHERE datname = current_database() AND state = 'active' AND pid <> pg_backend_pid() GROUP BY 1
"""
_ANSWERED = "SELECT count(*) FROM turns WHERE state = 'answered'"


async def measure(*, people: int, seconds: float, processes: int = 2) -> dict[str, Any]:
    async with ground() as (servers, folder):
        environment = environment_of(servers, folder)
        started = [
            await asyncio.create_subprocess_exec(
                sys.executable, "-m", "tests.bench.money_row", "--people", str(people // processes),
                "--seconds", str(seconds), "--within", str(folder),
                env={**environment, "PATH": "/usr/bin:/bin"},
            )
            for _ in range(processes)
        ]  # fmt: skip
        connection = await asyncpg.connect(servers.database_url)
        try:
            found = await _sampled(connection, seconds)
        finally:
            await connection.close()
            codes = [await one.wait() for one in started]
        assert codes == [0] * processes, codes
        return {"people": people, "web_processes": processes, **found}


async def _sampled(connection: asyncpg.Connection[asyncpg.Record], seconds: float) -> dict[str, Any]:
    async with asyncio.timeout(60):
        while not await connection.fetchval(_ANSWERED):
            await asyncio.sleep(0.1)
    await asyncio.sleep(WARM_SECONDS)
    before, began = await connection.fetchval(_ANSWERED), time.monotonic()
    seen: Counter[bool] = Counter()
    while time.monotonic() - began < seconds / 2:
        for row in await connection.fetch(_SAMPLE):
            seen[row["waits"]] += row["number"]
        await asyncio.sleep(_LOOK_SECONDS)
    turns = await connection.fetchval(_ANSWERED) - before
    return {
        "turns_per_second": round(turns / (time.monotonic() - began), 1),
        "samples": seen.total(),
        "lock_waits_percent": round(100 * seen[True] / max(1, seen.total()), 2),
        "slices": await connection.fetchval("SELECT count(*) FROM spend_slices"),
    }


async def _talk(folder: Path, people: int, seconds: float) -> None:
    """One web process with so many people in it."""
    app = await app_with_instant_model(load_settings(data_dir=folder, **CAPS), answer=ANSWER)
    process = build_web_process(app, model=ModelInfo(name="bench", offline=False))
    process.hub.start()
    until = time.monotonic() + seconds + WARM_SECONDS
    crowd = [WholeTurns(app, process.hub) for _ in range(people)]

    async def talks(one: WholeTurns) -> None:
        await one.begin()
        while time.monotonic() < until:
            await one.turn(QUESTION)

    async def beats() -> None:
        while True:
            await app.sessions.check_leases()
            await asyncio.sleep(1)

    beating = asyncio.ensure_future(beats())
    try:
        await asyncio.gather(*(talks(one) for one in crowd))
    finally:
        beating.cancel()
        await asyncio.wait([beating])
        await process.tasks.drain(2.0)
        await app.close()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.money_row", description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--people", type=int, default=60, help="in all processes together")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--within", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    keep_quiet()
    if given.within is not None:
        asyncio.run(_talk(given.within, given.people, given.seconds))
        return 0
    found = asyncio.run(measure(people=given.people, seconds=given.seconds))
    lines = (f"{name:<24} {value}" for name, value in found.items())
    print(json.dumps(found) if given.json else "\n".join(lines))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
