"""A message goes on after its answer has begun: the answer is broken off, paid for, and begins anew."""

from __future__ import annotations

import asyncio

from shared.adapters.postgres.turns.edits import PostgresEdits
from shared.core.session.turns import Delta
from tests.kit.app_driver import Visit
from tests.kit.fakes.messages_api.harness import RunningFake

SLOW = {
    "match": {"kind": "chat"},
    "times": 1,
    "action": {"text": "Too early. " * 100, "pace_ms": 400},
}
QUICK = {"match": {"kind": "chat"}, "times": -1, "action": {"text": "All of it."}}


async def _begun(guest: Visit, provider: RunningFake) -> asyncio.Task[str]:
    await provider.script([SLOW, QUICK])
    await guest.say("Here is the first half,")
    answering = asyncio.create_task(guest.answered())
    async with asyncio.timeout(30):
        while not any(isinstance(event, Delta) for event in guest.heard):
            await asyncio.sleep(0.02)
    return answering


async def test_answer_interrupted_by_late_message_part_is_paid_and_repeated(
    guest: Visit, provider: RunningFake
) -> None:
    answering = await _begun(guest, provider)
    assert await guest.app.sessions.hold_for_rest(guest.session_id, turn=1)
    await answering
    assert await guest.one("SELECT leased_by IS NULL AND retry_at > now() + interval '10 s' FROM sessions")
    assert await guest.one("SELECT count(*) FROM usage WHERE purpose = 'chat'") == 1
    assert await guest.one("SELECT count(*) FROM reservations WHERE state = 'held'") == 0
    assert await PostgresEdits(guest.app.pool).wake(guest.session_id)
    assert await guest.answered() == "All of it."
    assert await guest.one("SELECT state FROM turns") == "answered"


async def test_what_is_answered_or_was_stopped_waits_for_nothing(guest: Visit, provider: RunningFake) -> None:
    answering = await _begun(guest, provider)
    holding = asyncio.create_task(guest.app.sessions.hold_for_rest(guest.session_id, turn=1))
    await guest.app.sessions.stop(guest.session_id)
    await asyncio.gather(answering, holding)
    if not holding.result():
        assert await guest.one("SELECT state FROM turns") == "stopped"
    await PostgresEdits(guest.app.pool).wake(guest.session_id)
    await guest.answered()
    assert not await guest.app.sessions.hold_for_rest(guest.session_id, turn=1)
    assert await guest.one("SELECT retry_at IS NULL OR retry_at <= now() FROM sessions")


async def test_a_turn_behind_another_is_not_broken_off(guest: Visit, provider: RunningFake) -> None:
    answering = await _begun(guest, provider)
    await guest.say("Something else.")
    assert not await guest.app.sessions.hold_for_rest(guest.session_id, turn=1)
    assert not answering.done()
    await guest.app.sessions.stop(guest.session_id)
    await answering
