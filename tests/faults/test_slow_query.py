"""A slow query from beside holds what all wait for: waits end in a kind refusal, and nothing stays locked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import aiohttp
import pytest

from tests.faults.provided import LONG, provided_by
from tests.kit.deployment.breakable_servers import Case
from tests.kit.deployment.inner_faults import CONSTANTS
from tests.kit.deployment.person import PATIENCE_SECONDS, Person
from tests.kit.fakes.messages_api.harness import RunningFake

CONNECTIONS = 10
"""Of one process, at most."""
HEART = 1
"""A connection of its own, by which a process says that it lives however long others wait."""
PEOPLE = CONNECTIONS + 4
HASTE = (
    "shared.adapters.postgres.db.pool.ACQUIRE_SECONDS=1,shared.adapters.postgres.db.pool.STATEMENT_SECONDS=8"
)
SLOW_SECONDS = 900
"""Longer than the test may take: nobody waits for its end."""


@pytest.mark.row("F31")
async def test_turns_behind_slow_query_are_notified_and_nothing_stays_locked(
    case: Case, fake: RunningFake
) -> None:
    """More people than connections; each statement of theirs waits for a table that a sleeper holds."""
    async with case.web(**provided_by(fake), **{CONSTANTS: HASTE}) as web, AsyncExitStack() as stack:
        people = [Person(case.port, name=f"slow{number}") for number in range(PEOPLE)]
        for person in people:
            await stack.enter_async_context(person)
        await asyncio.gather(*(person.ask("Are you there?") for person in people))
        thinking, *others = people
        await _thinks(fake, thinking)
        async with _slow_query(case):
            said = [asyncio.create_task(person.say("Said into a jam.")) for person in others]
            await case.until(_EXHAUSTED)
            status, told = await _opens_a_session(case)
            assert (status, told["code"]) == (503, "storage_unavailable")
            assert told["details"]["advice"]
            await asyncio.gather(*said)
            await asyncio.gather(*(person.until(_told(person), "a word about the jam") for person in others))
            assert all(person.errors[-1]["advice"] for person in others)
            assert [len(person.acks) for person in others] == [1] * len(others)
            # Who thinks meanwhile holds nothing, and whose statements wait have nothing open behind them.
            assert await case.rows(_IDLE_IN_TRANSACTION) == []
        await asyncio.gather(*(person.answered() for person in people))
        assert web.exits == []
        assert await case.value(_OURS) <= CONNECTIONS + HEART
        assert "deadlock" not in web.words()
        await case.promises_hold(*people)


_OURS = """SELECT count(*) FROM pg_stat_activity WHERE application_name = 'evertalk'
             AND datname = current_database()"""
_EXHAUSTED = f"SELECT ({_OURS} AND wait_event_type = 'Lock') >= {CONNECTIONS}"
_IDLE_IN_TRANSACTION = """
SELECT query FROM pg_stat_activity
 WHERE application_name = 'evertalk' AND datname = current_database() AND state LIKE 'idle in transaction%'
   AND state_change < clock_timestamp() - interval '1 second'
"""


async def _thinks(fake: RunningFake, person: Person) -> None:
    """The model has begun, and takes its time."""
    slowly = {"text": LONG, "pace_ms": 400}
    await fake.script([{"match": {"kind": "chat"}, "times": 1, "action": slowly}])
    await person.say("Please tell me something long.")
    await person.until(lambda: bool(person.deltas) and person.deltas[-1]["turn"] == 2, "its first words")


@asynccontextmanager
async def _slow_query(case: Case) -> AsyncIterator[None]:
    connection = await case.connect()
    try:
        await connection.execute(
            "BEGIN; LOCK TABLE entries IN ACCESS EXCLUSIVE MODE", timeout=PATIENCE_SECONDS
        )
        sleeping = asyncio.create_task(connection.execute(f"SELECT pg_sleep({SLOW_SECONDS})"))
        try:
            yield
            assert not sleeping.done()
        finally:
            sleeping.cancel()
            await asyncio.wait([sleeping])
    finally:
        await connection.close(timeout=PATIENCE_SECONDS)


async def _opens_a_session(case: Case) -> tuple[int, dict[str, Any]]:
    here = f"http://127.0.0.1:{case.port}"
    hello = {"t": "hello", "v": 1, "site": "default", "last_seq": 0}
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20), headers={"Origin": here}) as browser,
        browser.post(f"{here}/api/v1/stream", json=hello) as response,
    ):
        return response.status, await response.json()


def _told(person: Person) -> Callable[[], bool]:
    return lambda: bool(person.errors) and person.errors[-1]["code"] == "storage_unavailable"
