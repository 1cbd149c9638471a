"""Reservations of tokens on real Postgres: processes together stay below the cap."""

from __future__ import annotations

import asyncio
from typing import Any, TypeAlias

import asyncpg
import pytest

from shared.adapters.postgres.compaction.jobs import PostgresJobs
from shared.adapters.postgres.db.pool import open_pool
from shared.adapters.postgres.operations.invariants import check_invariants
from shared.adapters.postgres.turns.allowance import PostgresTokenReservations
from shared.adapters.postgres.turns.spend_sql import TOKEN_CALL_SECONDS

CAP, WEIGHT = 100_000, 5
ROW = "SELECT spent_micro, reserved_micro FROM spend_days WHERE scope = 'tokens'"
AGED = "UPDATE reservations SET created_at = now() - make_interval(secs => $1)"

Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"


async def reserve(
    store: PostgresTokenReservations, input_tokens: int, output_tokens: int
) -> tuple[int, int] | None:
    return await store.reserve_tokens(
        cap=CAP,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        least_output=512,
        weight=WEIGHT,
        free_models=("demo",),
    )


@pytest.fixture
def reservations(pool: Pool) -> PostgresTokenReservations:
    return PostgresTokenReservations(pool, timezone="UTC")


async def totals(pool: Pool) -> tuple[Any, ...]:
    return tuple(await pool.fetchrow(ROW) or ())


async def test_calls_of_four_processes_never_exceed_the_cap(database_url: str, pool: Pool) -> None:
    pools = [await open_pool(database_url, size=4) for _ in range(4)]
    stores = [PostgresTokenReservations(one, timezone="UTC") for one in pools]
    found = await asyncio.gather(*(reserve(stores[number % 4], 1_000, 2_000) for number in range(100)))
    for one in pools:
        await one.close()
    held = [WEIGHT * one[1] + 1_000 for one in found if one is not None]
    assert 0.9 * CAP < sum(held) <= CAP
    assert await totals(pool) == (0, sum(held))
    assert len(held) < 100


async def test_settled_tokens_make_room_for_the_next_call(
    database_url: str, pool: Pool, reservations: PostgresTokenReservations
) -> None:
    first = await reserve(reservations, 50_000, 10_000)
    assert first is not None
    assert first[1] == 10_000
    assert await reserve(reservations, 1_000, 600) is None
    await reservations.settle_tokens(first[0], 60_000)
    await reservations.settle_tokens(first[0], 60_000)
    assert await totals(pool) == (60_000, 0)
    second = await reserve(reservations, 1_000, 100_000)
    assert second is not None
    assert second[1] == 39_000 // WEIGHT
    connection = await asyncpg.connect(database_url)
    found = await check_invariants(connection)
    await connection.close()
    assert not found


async def test_new_day_begins_with_the_ledgers_unreserved_tokens(
    pool: Pool, reservations: PostgresTokenReservations
) -> None:
    for model, cost in (("odd", None), ("priced", 7), ("demo", None)):
        await pool.execute(
            """INSERT INTO usage (session_id, contact_id, purpose, model, input_tokens, output_tokens,
                                  cache_read_tokens, cache_write_tokens, cost_micro)
               VALUES (1, 1, 'chat', $1, 600, 100, 300, 100, $2)""",
            model, cost,
        )  # fmt: skip
    assert await reserve(reservations, 500, 600) is not None
    assert await totals(pool) == (1_000 + WEIGHT * 100, 500 + WEIGHT * 600)


async def test_reservation_of_a_dead_call_counts_in_full(
    pool: Pool, reservations: PostgresTokenReservations
) -> None:
    found = await reserve(reservations, 1_000, 2_000)
    assert found is not None
    jobs = PostgresJobs(pool)
    await pool.execute(AGED, TOKEN_CALL_SECONDS - 60)
    await jobs.sweep_reservations()
    assert await totals(pool) == (0, 11_000), "a long call may be running"
    await pool.execute(AGED, TOKEN_CALL_SECONDS + 1)
    await jobs.sweep_reservations()
    assert await totals(pool) == (11_000, 0)
    await reservations.settle_tokens(found[0], 5)
    assert await totals(pool) == (11_000, 0), "a late end changes nothing"


@pytest.mark.parametrize(
    "change", ["scopes = '{tokens,total}'", "contact_id = 1", "turn_no = 1", "job_id = 1", "slice_id = 1"]
)
async def test_database_refuses_tokens_among_money(
    pool: Pool, reservations: PostgresTokenReservations, change: str
) -> None:
    await reserve(reservations, 1_000, 2_000)
    with pytest.raises(asyncpg.CheckViolationError, match="reserved_tokens_stand_alone"):
        await pool.execute(f"UPDATE reservations SET {change}")
