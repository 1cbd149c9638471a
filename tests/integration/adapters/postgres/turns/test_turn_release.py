"""Letting go of several conversations at once: of those that are this process's own at that moment."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from shared.adapters.postgres.db.workers import PostgresWorkers
from shared.adapters.postgres.turns.turns import PostgresTurns
from shared.core.session.turns import Caps, Claim
from tests.kit.app_driver import Visit, visit

NO_CAPS = Caps(total=None, person=None, visitor=None, session=None)
LOCKED_NOW = "SELECT FROM sessions WHERE id = $1 FOR NO KEY UPDATE NOWAIT"


def turns_of(connection: Any) -> PostgresTurns:
    """That ask over this connection alone."""
    return PostgresTurns(connection)


async def claimed(guest: Visit, *, worker_id: int) -> Claim:
    await guest.say("Hello")
    claim = await guest.app.stores.turns.claim(
        guest.session_id, channel="web", worker_id=worker_id, caps=NO_CAPS, micro_per_input_token=0.0,
        micro_output=0.0,
    )  # fmt: skip
    assert claim is not None
    return claim


async def leases(guest: Visit) -> dict[int, tuple[Any, int]]:
    """By session: who has it, and its epoch."""
    rows = await guest.app.pool.fetch("SELECT id, leased_by, turn_epoch FROM sessions")
    return {row["id"]: (row["leased_by"], row["turn_epoch"]) for row in rows}


async def end(guest: Visit) -> None:
    """Nothing is left that anybody has."""
    await guest.app.pool.execute("UPDATE sessions SET leased_by = NULL, retry_at = now()")
    for session_id in await guest.app.stores.turns.list_unanswered("web"):
        await guest.app.sessions.answer(session_id, guest.hear)


async def test_release_statement_frees_only_own_claims(guest: Visit) -> None:
    mine = guest.app.worker_id
    other = await PostgresWorkers(guest.app.pool).register("web")
    places = [await visit(guest.app) for _ in range(4)]
    claims = [await claimed(one, worker_id=mine) for one in places[:3]]
    foreign = await claimed(places[3], worker_id=other)
    said: list[str] = []
    async with guest.app.pool.acquire() as connection:
        connection.add_query_logger(lambda record: said.append(record.query))
        asked = [guest.session_id, *(one.session_id for one in places), 10**12]
        await turns_of(connection).release_turns(asked, worker_id=mine)
    assert len([statement for statement in said if "UPDATE" in statement]) == 1
    now = await leases(guest)
    assert [now[one.session_id] for one in claims] == [(None, one.epoch + 1) for one in claims]
    assert now[foreign.session_id] == (other, foreign.epoch)
    assert now[guest.session_id] == (None, 0)
    due = await guest.app.stores.turns.list_unanswered("web")
    assert sorted(due) == sorted(one.session_id for one in claims)
    await end(guest)


@pytest.mark.parametrize("taken", [False, True])
async def test_it_waits_for_a_rival_and_looks_at_what_that_has_left(guest: Visit, taken: bool) -> None:
    mine = guest.app.worker_id
    other = await PostgresWorkers(guest.app.pool).register("web")
    places = [await visit(guest.app) for _ in range(2)]
    first, second = [await claimed(one, worker_id=mine) for one in places]
    # Whoever reads the table from its beginning, as among few, meets the second one before the first.
    await guest.app.pool.execute("UPDATE sessions SET goal = 'Find a boat.' WHERE id = $1", first.session_id)
    async with guest.app.pool.acquire() as reading:
        await reading.execute("SET enable_indexscan = off; SET enable_bitmapscan = off")
        async with guest.app.pool.acquire() as rival, rival.transaction():
            await rival.execute(
                """UPDATE sessions SET goal = 'Find a ferry.', leased_by = $2, turn_epoch = turn_epoch + 1
                    WHERE id = $1""",
                first.session_id, other if taken else mine,
            )  # fmt: skip
            letting_go = asyncio.ensure_future(
                turns_of(reading).release_turns([first.session_id, second.session_id], worker_id=mine)
            )
            await guest.until_waiting()
            # Others lock several in the order of their numbers: whatever waits here holds none beyond.
            await rival.execute(LOCKED_NOW, second.session_id)
        await letting_go
    now = await leases(guest)
    assert now[first.session_id] == ((other, first.epoch + 1) if taken else (None, first.epoch + 2))
    assert now[second.session_id] == (None, second.epoch + 1)
    assert await guest.one("SELECT goal FROM sessions WHERE id = $1", first.session_id) == "Find a ferry."
    await end(guest)
