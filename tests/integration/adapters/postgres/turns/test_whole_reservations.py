"""A reservation is held in every scope that has a cap, or in none: scopes refuse, rivals race, turns wait."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from shared.adapters.postgres.operations.invariants import CHECKS
from shared.core.session.turns import Claim
from shared.core.values.errors import CapReached
from shared.core.values.money import Prices
from shared.services.turns import spend_tracker
from shared.services.turns.spend_tracker import CallCosts, SpendLimiter
from tests.integration.adapters.postgres.turns.capped_claims import (
    ONE_CLAIM,
    caps,
    claim_of,
    day_of,
    end,
    sessions_of,
)
from tests.kit.app_driver import Visit

pytestmark = [pytest.mark.control("S28"), pytest.mark.usefixtures("on_the_shared_row")]
ROWS = "SELECT count(*) FROM reservations"
AMPLE = 10**12


async def assert_sums_agree(guest: Visit) -> None:
    for check in CHECKS:
        if check.code == "I9":
            assert await guest.app.pool.fetch(check.rows) == [], check.what


@pytest.mark.parametrize("refuses", ["total", "session", "visitor"])
async def test_claim_that_one_scope_refuses_holds_none(guest: Visit, refuses: str) -> None:
    limits = caps(**{"total": AMPLE, "session": AMPLE, "visitor": AMPLE, refuses: ONE_CLAIM - 1})
    await guest.say("Hello")
    claim = await claim_of(guest, limits)
    assert claim.refused_scope is not None
    assert claim.refused_scope.partition(":")[0] == refuses.replace("visitor", "contact")
    assert (claim.reservation_id, await guest.one(ROWS)) == (None, 0)
    assert await day_of(guest, "%") == (0, 0)


async def test_refused_reservation_leaves_no_row(guest: Visit) -> None:
    limits = caps(total=ONE_CLAIM, session=AMPLE, visitor=AMPLE)
    for _ in range(3):
        with pytest.raises(CapReached) as refused:
            await guest.app.stores.turns.reserve(guest.session_id, ONE_CLAIM + 1, caps=limits)
        assert [one.scope for one in refused.value.shortages] == ["total"]
    assert await guest.one(ROWS) == 0
    assert await day_of(guest, "%") == (0, 0)


async def test_claim_holds_none_when_a_rival_takes_the_rest_meanwhile(guest: Visit) -> None:
    """The person's row is changed already when the claim finds that the total has no room any more."""
    limits = caps(total=2 * ONE_CLAIM, session=AMPLE, visitor=AMPLE)
    [other] = await sessions_of(guest, 1)
    assert await guest.app.stores.turns.reserve(other.session_id, 1, caps=limits) is not None
    await guest.say("Hello")
    take = "UPDATE spend_days SET reserved_micro = $1 WHERE scope = 'total'"
    async with guest.app.pool.acquire() as connection, connection.transaction():
        await connection.execute(take, 2 * ONE_CLAIM)
        claiming = asyncio.ensure_future(claim_of(guest, limits))
        await guest.until_waiting()
    claim = await claiming
    assert (claim.refused_scope, claim.reservation_id) == ("total", None)
    assert await day_of(guest, f"session:{guest.session_id}") == (0, 0)
    await guest.app.pool.execute(take, 1)
    await assert_sums_agree(guest)


async def test_refused_raise_changes_no_scope(guest: Visit) -> None:
    limits = caps(total=2 * ONE_CLAIM, session=AMPLE, visitor=AMPLE)
    await guest.say("Hello")
    claim = await claim_of(guest, limits)
    assert claim.reservation_id is not None
    with pytest.raises(CapReached):
        await guest.app.stores.turns.raise_reservation(claim.reservation_id, 3 * ONE_CLAIM, caps=limits)
    assert await day_of(guest, "session:%") == await day_of(guest, "total") == (ONE_CLAIM, 0)


async def test_turn_that_waits_for_more_gives_up_what_its_claim_holds(
    guest: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spend_tracker, "POLL_SECONDS", 0.02)
    limits = caps(total=40 * ONE_CLAIM, session=AMPLE, visitor=AMPLE)
    turns, [other] = guest.app.stores.turns, await sessions_of(guest, 1)
    held = await turns.reserve(other.session_id, 37 * ONE_CLAIM, caps=limits)
    assert held is not None
    await guest.say("Hello")
    costs = CallCosts(claim=await claim_of(guest, limits))
    prices = Prices(input=1.0, output=5.0, cache_read=0.1, cache_write=1.25, dated="a test")
    request = SimpleNamespace(max_output_tokens=4_000, cache_long=False)
    prepared: Any = SimpleNamespace(card=SimpleNamespace(prices=prices), estimate=60_000, request=request)

    async def shrink(_tokens: int) -> None:
        return None

    stop: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    limiter = SpendLimiter(turns, caps=limits)
    waiting = asyncio.ensure_future(limiter.reserve(costs, prepared, stop=stop, shrink=shrink))
    async with asyncio.timeout(60):
        while await day_of(guest, "total") != (37 * ONE_CLAIM, 0):
            await asyncio.sleep(0.02)
    assert await day_of(guest, f"session:{guest.session_id}") == (0, 0)
    assert not waiting.done()
    await turns.release_reservation(held)
    assert await waiting is prepared
    assert (await day_of(guest, f"session:{guest.session_id}"))[0] > 10 * ONE_CLAIM
    assert await guest.one(ROWS) == 2
    await assert_sums_agree(guest)


async def test_turns_that_wait_for_each_other_leave_two_rows_at_most(guest: Visit) -> None:
    """Sixty turns share the money of three, and each asks until it has some."""
    found = await sessions_of(guest, 60)
    limits = caps(total=3 * ONE_CLAIM, session=AMPLE, visitor=AMPLE)
    turns, refusals = guest.app.stores.turns, 0

    async def answer(one: Visit) -> None:
        nonlocal refusals
        claim: Claim = await claim_of(one, limits)
        held = claim.reservation_id
        while claim.refused_scope is not None:
            try:
                held = await turns.reserve(one.session_id, ONE_CLAIM, caps=limits, turn=claim.turn)
                break
            except CapReached:
                refusals += 1
                await asyncio.sleep(0.01)
        assert held is not None
        assert (await day_of(guest, "total"))[0] <= 3 * ONE_CLAIM
        await turns.release_reservation(held, spent_micro=1)

    await asyncio.gather(*(answer(one) for one in found))
    assert refusals > len(found)
    assert await guest.one(ROWS) <= 2 * len(found)
    assert await day_of(guest, "total") == await day_of(guest, "contact:%") == (0, len(found))
    await assert_sums_agree(guest)


async def test_waiting_processes_that_die_cost_no_person_money(guest: Visit) -> None:
    """Of the persons' money nothing is spent that is not in the total."""
    found = await sessions_of(guest, 12)
    limits = caps(total=2 * ONE_CLAIM, session=AMPLE, visitor=AMPLE)
    turns = guest.app.stores.turns
    for _ in range(3):
        await asyncio.gather(*(claim_of(one, limits) for one in found))
        await guest.app.pool.execute("UPDATE sessions SET leased_by = NULL")
    assert (await day_of(guest, "total"))[0] == (await day_of(guest, "contact:%"))[0] <= 2 * ONE_CLAIM
    for one in found:
        claim = await claim_of(one, limits)
        await turns.record_lost(claim, model="a-model", input_tokens=1)
        await end(one, claim, 0)
    persons, total = await day_of(guest, "contact:%"), await day_of(guest, "total")
    assert persons == total
    assert total[1] <= 2 * ONE_CLAIM
    await assert_sums_agree(guest)
