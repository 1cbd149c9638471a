"""How many blocks of the database a page of the dashboard touches: what does not depend on a busy machine."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import asyncpg

from shared.adapters.postgres.dashboard.read_models import Insights
from tests.bench.dashboard import House, Read

Pool = asyncpg.Pool
PLANS = ("force_custom_plan", "force_generic_plan")
"""Made for these very words, and kept for any: Postgres may take either."""


@dataclass(slots=True)
class Heard:
    """A pool that remembers what it was asked."""

    pool: Pool
    asked: list[tuple[str, Sequence[object]]] = field(default_factory=list)

    async def fetchval(self, statement: str, *given: object, timeout: float | None = None) -> Any:
        self.asked.append((statement, given))
        return await self.pool.fetchval(statement, *given, timeout=timeout)


async def statements_of(read: Read, house: House) -> list[tuple[str, Sequence[object]]]:
    """Of a process that has been running for a while: the first reading is not counted."""
    heard = Heard(house.pool)
    pool = cast("Pool", heard)
    listening = replace(house, pool=pool, insights=Insights(pool))
    await read(listening)
    heard.asked.clear()
    await read(listening)
    return heard.asked


async def blocks_of(read: Read, house: House, *, plan: str) -> int:
    """Blocks that all statements of the page touch together."""
    asked, touched = await statements_of(read, house), 0
    async with house.pool.acquire() as connection:
        for statement, given in asked:
            words = [await connection.fetchval("SELECT quote_nullable($1::text)", _text(x)) for x in given]
            await connection.execute(f"SET plan_cache_mode = {plan}; PREPARE page AS {statement}")
            executed = f"EXECUTE page({', '.join(words)})" if words else "EXECUTE page"
            told = await connection.fetchval(
                f"EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) {executed}"
            )
            await connection.execute("DEALLOCATE page; RESET plan_cache_mode")
            top = json.loads(told)[0]["Plan"]
            touched += top["Shared Hit Blocks"] + top["Shared Read Blocks"]
    return touched


def _text(given: object) -> str | None:
    if isinstance(given, list):
        return "{" + ",".join(str(one) for one in given) + "}"
    return None if given is None else str(given)
