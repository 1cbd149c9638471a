"""How even turns are with many conversations at once: `python -m tests.bench.together [--json]`."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

from redis.asyncio import Redis

from shared.adapters.postgres.db.pool import open_pool
from tests.bench.floor import TABLES, BareTurns
from tests.bench.ground import ground, ratio, run, settings_of, share
from tests.bench.turn import ANSWER, QUESTION, Turns
from tests.bench.whole import WholeTurns, app_with_instant_model
from web.app import build_web_process
from web.ports import ModelInfo


async def measure(*, people: int, turns: int, blocks: int) -> dict[str, Any]:
    async with ground() as (servers, folder), AsyncExitStack() as stack:
        app = await app_with_instant_model(settings_of(servers, folder), answer=ANSWER)
        stack.push_async_callback(app.close)
        process = build_web_process(app, model=ModelInfo(name="bench", offline=False))
        process.hub.start()
        stack.push_async_callback(process.tasks.drain, 2.0)
        pool = await open_pool(servers.database_url, size=people)
        stack.push_async_callback(pool.close)
        redis = Redis.from_url(servers.redis_url)
        stack.push_async_callback(redis.aclose)
        await pool.execute(TABLES)
        bare: list[Turns] = []
        for number in range(people):
            connection = await stack.enter_async_context(pool.acquire())
            bare.append(Apart(connection, redis, answer=ANSWER, first=number * 1_000))
        ours: list[Turns] = [WholeTurns(app, process.hub) for _ in range(people)]
        for warm in (bare, ours):
            await _block(warm, max(3, turns // 4))
        pairs = [(await _block(bare, turns), await _block(ours, turns)) for _ in range(blocks)]
    return _told(pairs)


class Apart(BareTurns):
    """With sessions of its own numbers."""

    def __init__(self, *given: Any, first: int, **more: Any) -> None:
        super().__init__(*given, **more)
        self._session = first


async def _block(people: Sequence[Turns], turns: int) -> list[float]:
    for one in people:
        await one.begin()
    times: list[float] = []

    async def talk(one: Turns) -> None:
        for _ in range(turns):
            began = time.perf_counter()
            await one.turn(QUESTION)
            times.append((time.perf_counter() - began) * 1_000)

    await asyncio.gather(*map(talk, people))
    return times


def _told(pairs: Sequence[tuple[list[float], list[float]]]) -> dict[str, Any]:
    spread = [
        (share(bare, 0.99) / statistics.median(bare), share(ours, 0.99) / statistics.median(ours))
        for bare, ours in pairs
    ]
    middle = [(statistics.median(bare), statistics.median(ours)) for bare, ours in pairs]
    return {
        "p99_to_p50_of_16": round(statistics.median(ours for _, ours in spread), 2),
        "p99_to_p50_of_16_floor": round(statistics.median(bare for bare, _ in spread), 2),
        "p99_to_p50_of_16_all": [round(ours, 2) for _, ours in spread],
        "overhead_ratio_of_16": round(ratio(middle), 2),
        "p50_ms_of_16": round(statistics.median(ours for _, ours in middle), 2),
        "floor_p50_ms_of_16": round(statistics.median(bare for bare, _ in middle), 2),
        "turns_per_block": len(pairs[0][0]),
        "blocks": len(pairs),
    }


if __name__ == "__main__":
    raise SystemExit(run("together", __doc__, measure, people=16, turns=40, blocks=9))
