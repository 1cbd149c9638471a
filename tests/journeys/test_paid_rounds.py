"""The rounds of tools that a turn has committed are paid for, whatever becomes of the turn."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from shared.core.messages import Text, ToolResult, ToolUse
from shared.core.turns import Caps, Claim, Outcome, Spending
from tests.fakes.messages_api.harness import RunningFake
from tests.journeys.house import Visit
from tests.journeys.test_flush import guests

NOTE = {"name": "save_memory", "input": {"kind": "fact", "text": "The dog is called Bertil."}}
ROUND = {"match": {"kind": "chat"}, "times": 1, "action": {"tool_use": [NOTE]}}
BUSY = {"match": {"kind": "chat"}, "times": -1, "action": {"status": 429, "retry_after": 0}}
CAPS = Caps(total=100_000_000, person=None, visitor=None, session=None)
OPEN = "SELECT count(*) FROM reservations WHERE state = 'held'"
SPENT = "SELECT coalesce(sum(spent_micro), 0)::bigint FROM spend_days WHERE scope = 'total'"
LEDGER = "SELECT coalesce(sum(cost_micro), 0)::bigint FROM usage"


@pytest.fixture
async def guest(database_url: str, redis_url: str, provider: RunningFake) -> AsyncIterator[Visit]:
    """Whose invariants are checked at the end: a day's spending is the sum of its reservations."""
    async for visitor in guests(database_url, redis_url, provider):
        yield visitor


def cost(micro: int) -> tuple[Spending, ...]:
    return (
        Spending(
            model="a-model", input_tokens=10, output_tokens=5, cache_read_tokens=0, cache_write_tokens=0,
            known=True, cost_micro=micro,
        ),
    )  # fmt: skip


async def claimed(guest: Visit) -> Claim:
    claim = await guest.app.turns.claim(
        guest.session_id, channel="web", worker_id=guest.app.worker_id, caps=CAPS,
        micro_per_input_token=1.0, micro_output=1.0,
    )  # fmt: skip
    assert claim is not None
    assert claim.reservation_id is not None
    return claim


async def a_round(guest: Visit, claim: Claim, micro: int) -> None:
    turns, call = guest.app.turns, ToolUse(id=f"call_{micro}", name="save_memory", input={})
    await turns.record_tool_calls(claim, blocks=[call], tokens=1, calls=[call], spent=cost(micro))
    result = ToolResult(tool_use_id=call.id, text="Saved.")
    await turns.record_tool_results(claim, blocks=[result], tokens=1, outcomes={call.id: "done"})


async def put_back(guest: Visit, claim: Claim) -> None:
    await guest.app.turns.postpone(claim, seconds=0.0, fault=False, notice=None)
    assert claim.reservation_id is not None
    await guest.app.turns.release_reservation(claim.reservation_id)


async def end(guest: Visit, claim: Claim, *, spent: tuple[Spending, ...], settled: int) -> None:
    outcome = Outcome(
        state="answered" if spent else "failed", blocks=(Text(text="So it is."),) if spent else None,
        tokens=1, screen={"text": "So it is."}, spent=spent, settled_micro=settled,
    )  # fmt: skip
    await guest.app.turns.record_answer(claim, outcome)


async def test_a_turn_that_is_put_back_has_paid_for_its_rounds_and_its_answer_pays_once(
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
    await guest.app.turns.release_reservation(lost.reservation_id)
    assert await guest.one(SPENT) == await guest.one(LEDGER) == 324


async def test_the_sweep_charges_what_a_dead_process_used_and_nothing_of_its_successor(guest: Visit) -> None:
    await guest.say("My dog is called Bertil.")
    await a_round(guest, await claimed(guest), 300)
    await guest.app.pool.execute("UPDATE sessions SET leased_by = NULL")
    await guest.app.pool.execute("UPDATE reservations SET created_at = now() - interval '21 minutes'")
    other = await claimed(guest)
    await end(guest, other, spent=cost(24), settled=24)
    assert await guest.app.upkeep.sweep_reservations() == 1
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
