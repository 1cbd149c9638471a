"""The rounds of tools that a turn has committed are paid for, whatever becomes of the turn."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import asyncpg
import pytest

from shared.adapters.postgres.operations.invariants import check_invariants
from shared.core.session.turns import Caps, Claim, Delta, JobOrder, Outcome, Spending
from shared.core.values.errors import LeaseLost
from shared.core.values.messages import Text, ToolResult, ToolUse
from tests.acceptance.long_talks import WINDOW, talk
from tests.acceptance.turns.paid_calls import LEDGER, OPEN, ROUND, SPENT
from tests.kit.app_driver import Visit, running_app, settings_for, visit
from tests.kit.fakes.messages_api.harness import RunningFake
from tests.kit.midday import MIDDAY

BUSY = {"match": {"kind": "chat"}, "times": -1, "action": {"status": 429, "retry_after": 0}}
CAPS = Caps(total=100_000_000, person=None, visitor=None, session=None, timezone=MIDDAY)


@pytest.fixture
def app_options() -> dict[str, Any]:
    return {"context_window": WINDOW, "max_output": 1_000}


def cost(micro: int) -> tuple[Spending, ...]:
    return (
        Spending(
            model="a-model", input_tokens=10, output_tokens=5, cache_read_tokens=0, cache_write_tokens=0,
            known=True, cost_micro=micro,
        ),
    )  # fmt: skip


async def claimed(guest: Visit, *, price: float = 1.0) -> Claim:
    claim = await guest.app.stores.turns.claim(
        guest.session_id, channel="web", worker_id=guest.app.worker_id, caps=CAPS,
        micro_per_input_token=price, micro_output=1.0,
    )  # fmt: skip
    assert claim is not None
    assert claim.reservation_id is not None
    return claim


async def a_round(guest: Visit, claim: Claim, micro: int) -> None:
    turns, call = guest.app.stores.turns, ToolUse(id=f"call_{micro}", name="save_memory", input={})
    await turns.record_tool_calls(claim, blocks=[call], tokens=1, calls=[call], spent=cost(micro))
    result = ToolResult(tool_use_id=call.id, text="Saved.")
    await turns.record_tool_results(claim, blocks=[result], tokens=1, outcomes={call.id: "done"})


async def put_back(guest: Visit, claim: Claim) -> None:
    await guest.app.stores.turns.postpone(claim, seconds=0.0, fault=False, notice=None)
    assert claim.reservation_id is not None
    await guest.app.stores.turns.release_reservation(claim.reservation_id)


async def end(guest: Visit, claim: Claim, *, spent: tuple[Spending, ...], settled: int) -> None:
    outcome = Outcome(
        state="answered" if spent else "failed", blocks=(Text(text="So it is."),) if spent else None,
        tokens=1, screen={"text": "So it is."}, spent=spent, settled_micro=settled,
    )  # fmt: skip
    await guest.app.stores.turns.record_answer(claim, outcome)


async def test_released_turn_pays_its_rounds_and_its_answer_pays_once(
    guest: Visit, provider: RunningFake
) -> None:
    await provider.script([ROUND, BUSY])
    await guest.ask("My dog is called Bertil.")
    assert await guest.one("SELECT answered_turn FROM sessions") == 0
    first = await guest.one(LEDGER)
    assert first > 0
    assert await guest.one(SPENT) == first
    assert await guest.one(OPEN) == 0
    await provider.reset()
    await guest.app.pool.execute("UPDATE sessions SET retry_at = now()")
    await guest.answered()
    assert await guest.one("SELECT answered_turn FROM sessions") == 1
    assert await guest.one(LEDGER) > first
    assert await guest.one(SPENT) == await guest.one(LEDGER)


async def test_what_the_next_attempt_spends_is_not_charged_to_the_one_before(guest: Visit) -> None:
    """A process that was thought dead comes back when another has answered its turn."""
    await guest.say("My dog is called Bertil.")
    lost = await claimed(guest)
    await a_round(guest, lost, 300)
    await guest.app.pool.execute("UPDATE sessions SET leased_by = NULL")
    other = await claimed(guest)
    await a_round(guest, other, 20)
    await end(guest, other, spent=cost(4), settled=24)
    assert lost.reservation_id is not None
    await guest.app.stores.turns.release_reservation(lost.reservation_id)
    assert await guest.one(SPENT) == await guest.one(LEDGER) == 324


async def test_sweep_charges_dead_process_and_not_its_successor(guest: Visit) -> None:
    await guest.say("My dog is called Bertil.")
    await a_round(guest, await claimed(guest), 300)
    await guest.app.pool.execute("UPDATE sessions SET leased_by = NULL")
    await guest.app.pool.execute("UPDATE reservations SET created_at = now() - interval '21 minutes'")
    other = await claimed(guest)
    await end(guest, other, spent=cost(24), settled=24)
    assert await guest.app.stores.jobs.sweep_reservations() == 1
    assert await guest.one(SPENT) == await guest.one(LEDGER) == 324


async def test_a_turn_that_is_given_up_has_paid_for_its_rounds_once(guest: Visit) -> None:
    await guest.say("My dog is called Bertil.")
    first = await claimed(guest)
    await a_round(guest, first, 300)
    await put_back(guest, first)
    assert await guest.one(SPENT) == 300
    second = await claimed(guest)
    await a_round(guest, second, 20)
    await end(guest, second, spent=(), settled=0)
    assert await guest.one(SPENT) == await guest.one(LEDGER) == 320
    assert await guest.one(OPEN) == 0


LOST = "SELECT count(*) FROM usage WHERE status = 'aborted' AND NOT known AND cost_micro IS NULL"


async def dies(guest: Visit, claim: Claim) -> int:
    """End its process in a call, as far as the lease tells, and return what it had set aside."""
    if claim.reservation_id is not None:
        await guest.app.stores.turns.mark_may_be_sent(claim.reservation_id)
    await guest.app.pool.execute("UPDATE sessions SET leased_by = NULL")
    return claim.reserved_micro


async def test_dead_attempt_is_booked_and_counts_fully_against_caps(guest: Visit) -> None:
    await guest.say("My dog is called Bertil.")
    held = await dies(guest, await claimed(guest))
    first = await claimed(guest)
    await a_round(guest, first, 300)
    held += await dies(guest, first)
    await guest.answered()
    assert await guest.one(LOST) == 2
    assert await guest.one("SELECT min(input_tokens) FROM usage WHERE status = 'aborted'") > 0
    assert await guest.one("SELECT cost_unknown_calls FROM session_totals") == 2
    # The rounds of an attempt are part of what it had set aside.
    assert await guest.one(SPENT) == await guest.one(LEDGER) - 300 + held
    assert await guest.one(OPEN) == 0
    await guest.app.stores.turns.release_reservation(first.reservation_id or 0)
    assert await guest.one(SPENT) == await guest.one(LEDGER) - 300 + held
    await guest.ask("And what is it called?")
    assert await guest.one(LOST) == 2


async def test_a_turn_that_was_put_back_has_lost_nothing(guest: Visit, provider: RunningFake) -> None:
    await provider.script([BUSY])
    await guest.ask("My dog is called Bertil.")
    second = await claimed_later(guest)
    assert not second.after_death
    await put_back(guest, second)
    await provider.reset()
    await guest.answered()
    assert await guest.one("SELECT attempt FROM turns") == 3
    assert await guest.one(LOST) == 0
    assert await guest.one(SPENT) == await guest.one(LEDGER)


async def claimed_later(guest: Visit) -> Claim:
    await guest.app.pool.execute("UPDATE sessions SET retry_at = NULL")
    return await claimed(guest)


@pytest.mark.control("S28")
async def test_turn_whose_processes_keep_dying_stays_within_its_cap(guest: Visit) -> None:
    """Forty-eight dollars are set aside for each attempt, and a day has a hundred."""
    await guest.say("My dog is called Bertil.")
    held = sum([await dies(guest, await claimed(guest, price=8_000.0)) for _ in range(2)])
    assert held > 95_000_000
    await guest.app.pool.execute("UPDATE reservations SET created_at = now() - interval '21 minutes'")
    assert await guest.app.stores.jobs.sweep_reservations() == 0, "the next attempt books what they used"
    third = await guest.app.stores.turns.claim(
        guest.session_id, channel="web", worker_id=guest.app.worker_id, caps=CAPS,
        micro_per_input_token=8_000.0, micro_output=1.0,
    )  # fmt: skip
    assert third is not None
    assert third.refused_scope == "total"
    await guest.app.pool.execute("UPDATE sessions SET leased_by = NULL")
    await set_aside(guest, 100_000_000 - held)
    words = await guest.answered()
    assert "after midnight" in words
    assert await guest.one("SELECT error_code FROM turns") == "cap_reached"
    assert await guest.one("SELECT refused_scope FROM turns") == "total"
    assert await guest.one(LOST) == 2
    assert await guest.one(SPENT) == 100_000_000
    assert await guest.one(OPEN) == 0


async def set_aside(guest: Visit, micro: int) -> None:
    id_ = await guest.app.stores.turns.reserve(guest.session_id, micro, caps=CAPS)
    assert id_ is not None
    await guest.app.stores.turns.release_reservation(id_, spent_micro=micro)


@pytest.mark.control("S28")
async def test_repeated_attempt_that_sent_nothing_costs_nothing(guest: Visit) -> None:
    await guest.say("My dog is called Bertil.")
    first = await claimed(guest)
    await dies(guest, first)
    for _ in range(3):
        await claimed(guest)
        await guest.app.pool.execute("UPDATE sessions SET leased_by = NULL")
    await guest.answered()
    assert await guest.one(LOST) == 1
    assert await guest.one(SPENT) == first.reserved_micro + await guest.one(LEDGER)
    assert await guest.one(OPEN) == 0


async def test_a_process_that_has_lost_its_turn_books_nothing_for_others(guest: Visit) -> None:
    await guest.say("My dog is called Bertil.")
    lost = await claimed(guest)
    await dies(guest, lost)
    other = await claimed(guest)
    assert (lost.after_death, other.after_death) == (False, True)
    with pytest.raises(LeaseLost):
        await guest.app.stores.turns.record_lost(lost, model="a-model", input_tokens=1)
    assert await guest.one(OPEN) == 2
    assert await guest.app.stores.turns.record_lost(other, model="a-model", input_tokens=1) == 1
    assert await guest.app.stores.turns.record_lost(other, model="a-model", input_tokens=1) == 0
    await end(guest, other, spent=cost(4), settled=4)
    assert await guest.one(SPENT) == lost.reserved_micro + 4


async def test_subagent_keeps_reservation_as_long_as_its_turn_is_leased(guest: Visit) -> None:
    await guest.say("My dog is called Bertil.")
    claim = await claimed(guest)
    assert await guest.app.stores.turns.reserve(guest.session_id, 700, caps=CAPS) is not None
    await guest.app.pool.execute(
        """WITH s AS (UPDATE sessions SET leased_at = leased_at - interval '6 minutes')
           UPDATE reservations SET created_at = now() - interval '5 minutes' WHERE turn_no IS NULL"""
    )
    assert await guest.app.stores.jobs.sweep_reservations() == 0, "its turn is being answered"
    await dies(guest, claim)
    assert await guest.app.stores.jobs.sweep_reservations() == 1, "five minutes later, not twenty"
    await guest.answered()


async def test_what_a_helper_had_set_aside_when_it_died_counts_whole(guest: Visit) -> None:
    assert await guest.app.stores.turns.reserve(guest.session_id, 700, caps=CAPS) is not None
    await guest.app.pool.execute("UPDATE reservations SET created_at = now() - interval '21 minutes'")
    assert await guest.app.stores.jobs.sweep_reservations() == 1
    assert await guest.one(SPENT) == 700


async def test_aborted_call_is_in_the_ledger_without_a_cap(database_url: str, redis_url: str) -> None:
    """The model of the demo has no price, so that nothing is ever set aside for it."""
    async with running_app(settings_for(database_url, redis_url)) as app:
        guest = await visit(app)
        await guest.say("Hello")
        lost = await app.stores.turns.claim(
            guest.session_id, channel="web", worker_id=app.worker_id, caps=CAPS, micro_per_input_token=0.0,
            micro_output=0.0,
        )  # fmt: skip
        assert lost is not None
        assert lost.reservation_id is None
        await dies(guest, lost)
        await guest.answered()
        await guest.ask("And now?")
        assert await guest.one(LOST) == 1
        connection = await asyncpg.connect(database_url, timeout=60)
        try:
            assert await check_invariants(connection) == []
        finally:
            await connection.close(timeout=30)


SLOW = {
    "match": {"kind": "chat"},
    "times": 1,
    "action": {"text": "It is called Bertil. " * 40, "pace_ms": 300},
}
BROKEN_OFF = "SELECT count(*) FROM usage WHERE status = 'aborted' AND NOT known AND cost_micro > 0"


async def cut_off(guest: Visit) -> None:
    """As by SIGTERM, in the middle of the answer."""
    answering = asyncio.ensure_future(guest.app.sessions.answer(guest.session_id, guest.hear))
    while not any(isinstance(event, Delta) for event in guest.heard):
        await asyncio.sleep(0.01)
    answering.cancel()
    with suppress(asyncio.CancelledError):
        await answering


async def test_call_aborted_by_process_end_is_booked_once(guest: Visit, provider: RunningFake) -> None:
    await provider.script([ROUND, SLOW])
    await guest.say("My dog is called Bertil.")
    await cut_off(guest)
    assert await guest.one(BROKEN_OFF) == 1
    assert await guest.one("SELECT min(output_tokens) FROM usage WHERE status = 'aborted'") > 0
    assert await guest.one("SELECT state FROM turns") == "claimed"
    assert await guest.one("SELECT leased_by FROM sessions") is None
    assert await guest.one(OPEN) == 0
    assert await guest.one(SPENT) == await guest.one(LEDGER) > 0
    await guest.answered()
    assert await guest.one("SELECT state FROM turns") == "answered"
    assert (await guest.one(BROKEN_OFF), await guest.one(LOST)) == (1, 0)
    assert await guest.one(SPENT) == await guest.one(LEDGER)


async def test_process_that_lost_its_turn_books_nothing_next_to_successor(
    guest: Visit, provider: RunningFake
) -> None:
    """The successor has booked the attempt as one that died."""
    await provider.script([SLOW])
    await guest.say("My dog is called Bertil.")
    answering = asyncio.ensure_future(guest.app.sessions.answer(guest.session_id, guest.hear))
    while not any(isinstance(event, Delta) for event in guest.heard):
        await asyncio.sleep(0.01)
    await guest.app.pool.execute("UPDATE sessions SET leased_by = NULL")
    other = await claimed(guest)
    assert await guest.app.stores.turns.record_lost(other, model="a-model", input_tokens=1) == 1
    answering.cancel()
    with suppress(asyncio.CancelledError):
        await answering
    assert (await guest.one(BROKEN_OFF), await guest.one(LOST)) == (0, 1)
    await end(guest, other, spent=cost(4), settled=4)
    assert await guest.one(OPEN) == 0


@pytest.mark.parametrize(("kind", "purpose"), [("flush", "flush"), ("summary", "compact")])
async def test_job_call_aborted_by_process_end_is_booked_once(
    guest: Visit, provider: RunningFake, kind: str, purpose: str
) -> None:
    await talk(guest, 8)
    await provider.script([{"match": {"kind": kind}, "times": 1, "action": {"latency": 30.0}}])
    order = JobOrder(kind="compact", key="by hand", trigger="manual", payload={"force": True})
    job_id = await guest.app.stores.jobs.request_job(guest.session_id, order)
    assert job_id is not None
    running = asyncio.ensure_future(guest.app.job_runner.run(job_id))
    async with asyncio.timeout(20):
        while not any(record["kind"] == kind for record in await provider.requests()):
            await asyncio.sleep(0.02)
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    broken_off = f"{BROKEN_OFF} AND purpose = '{purpose}'"
    assert await guest.one("SELECT state FROM jobs WHERE key = 'by hand'") == "due"
    assert await guest.one(broken_off) == 1
    assert await guest.one(OPEN) == 0
    assert await guest.one(SPENT) == await guest.one(LEDGER)
    await guest.app.job_runner.run(job_id)
    assert await guest.one("SELECT state FROM jobs WHERE key = 'by hand'") == "done"
    assert await guest.one(broken_off) == 1
    assert await guest.one(SPENT) == await guest.one(LEDGER)
