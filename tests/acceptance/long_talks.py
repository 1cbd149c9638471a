"""Talks that fill a small window, for tests of flushes and compactions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, date, datetime
from typing import Any
from zoneinfo import ZoneInfo

import asyncpg

from shared.adapters.postgres.operations.invariants import check_invariants
from tests.kit.app_driver import Visit, running_app, settings_for, visit
from tests.kit.fakes.messages_api.harness import RunningFake

WINDOW = 9_000
FACTS = (
    "My sister Ingrid lives in Tromsø and works as a glaciologist.",
    "The invoice number of the piano is PX-4471.",
    "We decided to paint the kitchen in ochre on 14 March.",
    "My dog Bertil is allergic to chicken.",
)
FILLER = "Then we talked about the weather, the garden and the long way home along the river. " * 18


async def guests(
    database_url: str, redis_url: str, provider: RunningFake, **overrides: Any
) -> AsyncIterator[Visit]:
    await provider.reset()
    settings = settings_for(
        database_url, redis_url, anthropic_api_key="test-key", anthropic_base_url=provider.base_url,
        **{"context_window": WINDOW, "max_output": 1_000, "cap_total_per_day_usd": "100", **overrides},
    )  # fmt: skip
    async with running_app(settings) as app:
        yield await visit(app)
    connection = await asyncpg.connect(database_url)
    found = await check_invariants(connection)
    await connection.close()
    assert not found


async def talk(guest: Visit, turns: int, *, first: int = 0) -> None:
    for number in range(first, first + turns):
        fact = FACTS[number] if number < len(FACTS) else ""
        await guest.ask(f"{fact} Message {number}. {FILLER}")


async def talk_until(guest: Visit, sql: str) -> None:
    for number in range(40):
        if await guest.one(sql):
            return
        await talk(guest, 1, first=number)
    raise AssertionError(sql)


async def everything_is_due(guest: Visit) -> None:
    await guest.app.pool.execute("UPDATE jobs SET due_at = now() WHERE state = 'due'")


async def live_on_another_day(guest: Visit) -> date:
    """Their clock shows yesterday or tomorrow for the next hours: the day there, where UTC has another."""
    hour = datetime.now(UTC).hour
    zone = ZoneInfo("Etc/GMT+12" if hour < 11 else "Etc/GMT-14")
    await guest.app.pool.execute("UPDATE contacts SET timezone = $1", zone.key)
    return datetime.now(zone).date()


async def talk_with_upkeep(guest: Visit, turns: int, *, upkeep: bool = True) -> None:
    for number in range(turns):
        fact = FACTS[number] if number < len(FACTS) else ""
        await guest.ask(f"{fact} Message {number}. {FILLER}")
        if upkeep:
            await guest.run_due_jobs()
