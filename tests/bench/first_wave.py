"""How much of a first wave waits for money: `python -m tests.bench.first_wave [--json] [--people N] …`.

Web processes rest, with their heartbeats alone; then all people write at once. Meanwhile the database reports
which of its busy sessions wait for a lock.
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

_LOOK_SECONDS = 0.002
_PATIENCE_SECONDS = 60.0
_SAMPLE = """
SELECT count(*) AS busy, count(*) FILTER (WHERE wait_event_type = 'Lock') AS waiting
  FROM pg_stat_activity
 WHERE datname = current_database() AND state = 'active' AND pid <> pg_backend_pid()
"""
"""Each person here has a session: two turns change no row in common but the shared ones of money."""
_ANSWERED = "SELECT count(*) FROM turns WHERE state = 'answered'"
_AT_SHARED_ROW = "SELECT count(*) FROM reservations WHERE 'total' = ANY (scopes)"


async def measure(
    *, people: int, rest: float, waves: int = 3, processes: int = 2, warm: bool = True
) -> dict[str, Any]:
    """Return the share of samples that wait, over all waves; with `warm`, people talk before the rest."""
    async with ground() as (servers, folder):
        environment = environment_of(servers, folder)
        started = [
            await asyncio.create_subprocess_exec(
                sys.executable, "-m", "tests.bench.first_wave", "--people", str(people // processes),
                "--waves", str(waves), "--within", str(folder), *(("--warm",) if warm else ()),
                env={**environment, "PATH": "/usr/bin:/bin"},
            )
            for _ in range(processes)
        ]  # fmt: skip
        connection = await asyncpg.connect(servers.database_url)
        try:
            seen: Counter[str] = Counter()
            seconds = []
            for wave in range(waves):
                async with asyncio.timeout(_PATIENCE_SECONDS):
                    while len(list(folder.glob(f"ready-{wave}-*"))) < processes:
                        await asyncio.sleep(0.1)
                await asyncio.sleep(rest)
                seconds.append(await _sample_wave(connection, folder / f"go-{wave}", people, seen))
            at_shared_row = await connection.fetchval(_AT_SHARED_ROW)
        finally:
            await connection.close()
            codes = [await one.wait() for one in started]
        assert codes == [0] * processes, codes
        return {
            "people": people,
            "web_processes": processes,
            "rest_seconds": rest,
            "waves": waves,
            "samples": seen["busy"],
            "lock_waits_percent": round(100 * seen["waiting"] / max(1, seen["busy"]), 2),
            "turns_at_shared_row": at_shared_row,
            "wave_ms": round(1000 * sum(seconds) / waves),
        }


async def _sample_wave(
    connection: asyncpg.Connection[asyncpg.Record], signal: Path, people: int, seen: Counter[str]
) -> float:
    """Let the people write, sample until each has an answer, and return the seconds that took."""
    before, began = await connection.fetchval(_ANSWERED), time.monotonic()
    signal.touch()
    async with asyncio.timeout(_PATIENCE_SECONDS):
        while await connection.fetchval(_ANSWERED) - before < people:
            for _ in range(10):
                row = await connection.fetchrow(_SAMPLE)
                assert row is not None
                seen.update(dict(row))
                await asyncio.sleep(_LOOK_SECONDS)
    return time.monotonic() - began


async def _talk(folder: Path, people: int, waves: int, *, warm: bool) -> None:
    """Run one web process with its share of the people."""
    app = await app_with_instant_model(load_settings(data_dir=folder, **CAPS), answer=ANSWER)
    process = build_web_process(app, model=ModelInfo(name="bench", offline=False))
    process.hub.start()
    crowd = [WholeTurns(app, process.hub) for _ in range(people)]

    async def beat() -> None:
        while True:
            await app.sessions.check_leases()
            await asyncio.sleep(1)

    beating = asyncio.ensure_future(beat())
    try:
        for one in crowd:
            await one.begin()
            if warm:
                await one.turn(QUESTION)
        await app.sessions.load_prices()  # as a process does after its start
        for wave in range(waves):
            (folder / f"ready-{wave}-{app.worker_id}").touch()
            async with asyncio.timeout(10 * _PATIENCE_SECONDS):
                while not (folder / f"go-{wave}").exists():
                    await asyncio.sleep(0.002)
            await asyncio.gather(*(one.turn(QUESTION) for one in crowd))
    finally:
        beating.cancel()
        await asyncio.wait([beating])
        await process.tasks.drain(2.0)
        await app.close()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.first_wave", description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--people", type=int, default=60, help="in all processes together")
    parser.add_argument("--rest", type=float, default=30.0, help="seconds of rest before each wave")
    parser.add_argument("--waves", type=int, default=3)
    parser.add_argument("--cold", action="store_true", help="nobody has talked before the first wave")
    parser.add_argument("--warm", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--within", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    keep_quiet()
    if given.within is not None:
        asyncio.run(_talk(given.within, given.people, given.waves, warm=given.warm))
        return 0
    found = asyncio.run(measure(people=given.people, rest=given.rest, waves=given.waves, warm=not given.cold))
    lines = (f"{name:<24} {value}" for name, value in found.items())
    print(json.dumps(found) if given.json else "\n".join(lines))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
