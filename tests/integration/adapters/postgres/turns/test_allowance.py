"""Slices of the day's money on real Postgres: nothing is lost or spent twice, whoever dies or is too slow."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random

import pytest

from shared.adapters.postgres.operations.invariants import CHECKS
from shared.adapters.postgres.turns import allowance
from shared.adapters.postgres.turns.turns import PostgresTurns
from shared.core.session.turns import Caps, Claim
from shared.core.values.errors import CapReached
from tests.integration.adapters.postgres.turns.capped_claims import ONE_CLAIM, caps, day_of, end, sessions_of
from tests.kit.app_driver import Visit
from tests.kit.night import rest_at_night

USED = "SELECT spent_micro + reserved_micro FROM spend_days WHERE scope = $1"
OPEN = "SELECT count(*) FROM spend_slices WHERE closed_at IS NULL"
STALE = "UPDATE workers SET beat = now() - interval '1 min' WHERE id = $1"
LIVE = "UPDATE workers SET beat = now() WHERE id = $1"
WITH_OTHER_CAPS = (0, 1, 5)
"""Seeds that draw caps of 20, 6 and 80 claims; only the last has room for slices."""
AMPLE = caps(total=10_000 * ONE_CLAIM, visitor=10**12, hour=10_000 * ONE_CLAIM)


@dataclass(slots=True)
class Process:
    """One that begins turns; its clock is moved by hand."""

    guest: Visit
    worker_id: int
    now: float = 1_000.0
    running: list[tuple[Visit, Claim]] = field(default_factory=list)
    turns: PostgresTurns = field(init=False)

    def __post_init__(self) -> None:
        self.turns = PostgresTurns(self.guest.app.pool)
        self.turns._allowance._clock = lambda: self.now

    async def begin(self, one: Visit, limits: Caps) -> Claim:
        claim = await self.turns.claim(
            one.session_id, channel="web", worker_id=self.worker_id, caps=limits, micro_per_input_token=1.0,
            micro_output=0.0,
        )  # fmt: skip
        assert claim is not None
        self.running.append((one, claim))
        return claim

    async def tend(self, limits: Caps, *, seconds: float = 11.0, call_micro: int = 0) -> None:
        self.now += seconds
        await self.turns.renew_allowance(worker_id=self.worker_id, caps=limits, call_micro=call_micro)

    async def end_one(self, micro: int) -> None:
        one, claim = self.running.pop(0)
        await end(one, claim, micro, turns=self.turns)

    async def raise_one(self, micro: int, limits: Caps) -> None:
        claim = self.running[0][1]
        if claim.refused_scope is None and claim.reservation_id is not None:
            with suppress(CapReached):
                await self.turns.raise_reservation(claim.reservation_id, micro, caps=limits)


async def successor_of(process: Process) -> Process:
    """It died with its turns; what they held stays held until somebody takes them."""
    await process.guest.app.stores.workers.stop(process.worker_id)
    return await process_of(process.guest)


async def process_of(guest: Visit) -> Process:
    return Process(guest, await guest.app.stores.workers.register("web"))


@pytest.fixture(autouse=True)
def slices_are_taken(monkeypatch: pytest.MonkeyPatch, on_the_shared_row: None) -> None:
    monkeypatch.setattr(allowance, "LEAST_CALLS", 8)


BOOKS = [check for check in CHECKS if "slice" in check.what or "a day's spending" in check.what]


async def in_order(guest: Visit) -> None:
    for check in BOOKS:
        assert await guest.app.pool.fetch(check.rows) == [], check.what


async def warm(process: Process, one: Visit, limits: Caps) -> None:
    """A first turn asks the shared row; with the next beat there is a slice."""
    await process.begin(one, limits)
    await process.end_one(100)
    await process.tend(limits)


@pytest.mark.control("S28")
async def test_turns_of_a_slice_leave_the_shared_row_alone(guest: Visit) -> None:
    found, process = await sessions_of(guest, 12), await process_of(guest)
    await warm(process, found[0], AMPLE)
    row = "SELECT (xmin::text, reserved_micro, spent_micro)::text FROM spend_days WHERE scope = 'total'"
    before = await guest.one(row)
    for one in found[1:]:
        await process.begin(one, AMPLE)
    for _ in found[1:]:
        await process.end_one(70)
    assert await guest.one(row) == before
    await in_order(guest)
    await process.turns.return_allowance()
    for scope in ("total", "visitors:%"):
        assert await day_of(guest, scope) == (0, 100 + 11 * 70)
    await in_order(guest)


@pytest.mark.control("S28")
async def test_wave_after_a_rest_leaves_the_shared_row_alone(guest: Visit) -> None:
    found, process = await sessions_of(guest, 61), await process_of(guest)
    await warm(process, found[0], AMPLE)
    for _ in range(40):
        await process.tend(AMPLE, seconds=1.0)
    row = "SELECT (xmin::text, reserved_micro, spent_micro)::text FROM spend_days WHERE scope = 'total'"
    before = await guest.one(row)
    await asyncio.gather(*(process.begin(one, AMPLE) for one in found[1:]))
    assert await guest.one(row) == before
    assert await guest.one("SELECT count(*) FROM reservations WHERE slice_id IS NULL") == 1
    await in_order(guest)


@pytest.mark.control("S28")
async def test_first_claim_of_a_process_finds_a_slice(guest: Visit) -> None:
    found, process = await sessions_of(guest, 1), await process_of(guest)
    await process.tend(AMPLE, call_micro=ONE_CLAIM)
    await process.begin(found[0], AMPLE)
    assert await guest.one("SELECT count(*) FROM reservations WHERE slice_id IS NULL") == 0
    await in_order(guest)


async def test_resting_process_writes_nothing_with_its_beats(guest: Visit) -> None:
    found, process = await sessions_of(guest, 1), await process_of(guest)
    await warm(process, found[0], AMPLE)
    for _ in range(15):
        await process.tend(AMPLE, seconds=1.0)
    state = "SELECT string_agg(d::text || d.xmin::text, ' ' ORDER BY scope) FROM spend_days d"
    before, slices = await guest.one(state), await guest.one("SELECT count(*) FROM spend_slices")
    for _ in range(100):
        await process.tend(AMPLE, seconds=1.0)
    assert await guest.one(state) == before
    assert await guest.one("SELECT count(*) FROM spend_slices") == slices


@pytest.mark.control("S28")
async def test_resting_slice_returns_when_others_need_the_money(guest: Visit) -> None:
    found, process = await sessions_of(guest, 2), await process_of(guest)
    limits = caps(total=2_000 * ONE_CLAIM, visitor=10**12)
    await warm(process, found[0], limits)
    for _ in range(15):
        await process.tend(limits, seconds=1.0)
    assert await guest.one(OPEN) == 1
    held = await process.turns.reserve(found[1].session_id, 1_700 * ONE_CLAIM, caps=limits)
    assert held is not None
    await process.tend(limits)
    assert await guest.one(OPEN) == 0
    assert await day_of(guest, "total") == (1_700 * ONE_CLAIM, 100)
    await process.turns.release_reservation(held)
    await process.tend(limits)
    assert await guest.one(OPEN) == 1
    await in_order(guest)


@pytest.mark.control("S28")
async def test_a_turn_outlives_its_slice_and_is_settled_where_all_share(guest: Visit) -> None:
    found, process = await sessions_of(guest, 2), await process_of(guest)
    await warm(process, found[0], AMPLE)
    claim = await process.begin(found[1], AMPLE)
    await process.turns.return_allowance()
    assert await day_of(guest, "total") == (ONE_CLAIM, 100)
    assert claim.reservation_id is not None
    await process.turns.raise_reservation(claim.reservation_id, 2 * ONE_CLAIM, caps=AMPLE)
    assert await day_of(guest, "total") == (2 * ONE_CLAIM, 100)
    await process.end_one(70)
    assert await day_of(guest, "total") == (0, 170)
    await in_order(guest)


@pytest.mark.control("S28")
async def test_spend_slice_of_a_silent_process_is_closed_and_unusable(guest: Visit) -> None:
    found, slow, other = await sessions_of(guest, 3), await process_of(guest), await process_of(guest)
    await warm(slow, found[0], AMPLE)
    await slow.begin(found[1], AMPLE)
    await guest.app.pool.execute(STALE, slow.worker_id)
    await other.tend(AMPLE)
    assert await guest.one(OPEN) == 0
    assert await day_of(guest, "total") == (ONE_CLAIM, 100)
    await guest.app.pool.execute(LIVE, slow.worker_id)
    claim = await slow.begin(found[2], AMPLE)
    assert claim.reservation_id is not None
    assert await day_of(guest, "total") == (2 * ONE_CLAIM, 100)
    await in_order(guest)
    for _ in range(2):
        await slow.end_one(50)
    assert await day_of(guest, "total") == (0, 200)
    await in_order(guest)


async def test_closing_a_slice_waits_for_claims_made_from_it(guest: Visit) -> None:
    found, process = await sessions_of(guest, 2), await process_of(guest)
    await warm(process, found[0], AMPLE)
    async with guest.app.pool.acquire() as connection, connection.transaction():
        await connection.execute("SELECT id FROM sessions WHERE id = $1 FOR UPDATE", found[1].session_id)
        begun = asyncio.ensure_future(process.begin(found[1], AMPLE))
        await guest.until_waiting()
    await asyncio.gather(begun, process.turns.return_allowance())
    assert await day_of(guest, "total") == (ONE_CLAIM, 100)
    await in_order(guest)


@pytest.mark.control("S28")
async def test_calls_near_a_cap_use_the_shared_row(guest: Visit) -> None:
    found, process = await sessions_of(guest, 4), await process_of(guest)
    limits = caps(total=400 * ONE_CLAIM, visitor=10**12)
    await warm(process, found[0], limits)
    claim = await process.begin(found[1], limits)
    assert claim.reservation_id is not None
    granted = await guest.one("SELECT granted_micro FROM spend_slices WHERE closed_at IS NULL")
    await process.turns.raise_reservation(claim.reservation_id, granted + 3 * ONE_CLAIM, caps=limits)
    assert await guest.one("SELECT granted_micro FROM spend_slices") == granted + 3 * ONE_CLAIM
    with pytest.raises(CapReached) as refused:
        await process.turns.raise_reservation(claim.reservation_id, 500 * ONE_CLAIM, caps=limits)
    assert (refused.value.scope, refused.value.shortages[0].held_micro) == ("total", 0)
    await in_order(guest)
    await process.end_one(granted)
    await process.turns.return_allowance()
    small = caps(total=granted + 6 * ONE_CLAIM, visitor=10**12)
    await process.begin(found[2], small)
    await process.tend(small)
    assert await guest.one(OPEN) == 0
    await process.end_one(60)
    await in_order(guest)


@pytest.mark.control("S28")
@pytest.mark.parametrize("seed", rest_at_night(range(6), by_day=WITH_OTHER_CAPS))
async def test_whatever_dies_is_stolen_or_returned_the_money_adds_up(
    guest: Visit, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processes that take, spend, raise, fall silent, come back and end, in every order."""
    monkeypatch.setattr(allowance, "LEAST_CALLS", 1)
    chance = Random(seed)
    cap = chance.choice([6, 20, 80]) * ONE_CLAIM
    limits = caps(total=cap, visitor=10**12, hour=chance.choice([None, cap // 2]))
    found = await sessions_of(guest, 40)
    processes = [await process_of(guest) for _ in range(3)]
    spent = 0
    for _ in range(100):
        process = chance.choice(processes)
        match chance.choice(
            ("begin", "begin", "begin", "end", "end", "raise", "tend", "silent", "back", "die")
        ):
            case "begin" if found:
                await guest.app.pool.execute(LIVE, process.worker_id)
                await process.begin(found.pop(), limits)
            case "end" if process.running:
                refused = process.running[0][1].refused_scope is not None
                spent += (paid := 0 if refused else chance.randint(1, ONE_CLAIM))
                await process.end_one(paid)
            case "raise" if process.running:
                await process.raise_one(chance.randint(1, 5) * ONE_CLAIM, limits)
            case "tend":
                await process.tend(limits, seconds=chance.choice([1.0, 11.0, 70.0]))
            case "silent":
                await guest.app.pool.execute(STALE, process.worker_id)
            case "back":
                await guest.app.pool.execute(LIVE, process.worker_id)
            case "die":
                processes[processes.index(process)] = await successor_of(process)
        assert (await guest.one(USED, "total") or 0) <= cap
        await in_order(guest)
    for process in processes:
        await process.turns.return_allowance()
        await process.turns._allowance.close_lapsed_slices()
    await guest.app.pool.execute("UPDATE workers SET stopped_at = now() WHERE role = 'web'")
    await processes[0].turns._allowance.close_lapsed_slices()
    assert await guest.one(OPEN) == 0
    assert (await day_of(guest, "total"))[1] == spent
    await in_order(guest)
