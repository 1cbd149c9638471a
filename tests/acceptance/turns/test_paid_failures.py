"""Calls of a turn that fails, or cannot be stored, are in the ledger once and count under the caps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from shared.core.session.policy import NoRoom
from shared.core.session.turns import RunEnded
from shared.core.values.errors import EvertalkError, StorageUnavailable
from shared.services.turns.agent_loop import AgentLoop
from shared.services.turns.session_service import SessionService
from tests.acceptance.long_talks import WINDOW
from tests.acceptance.turns.paid_calls import LEDGER, OPEN, ROUND, SPENT
from tests.kit.app_driver import Visit
from tests.kit.fakes.messages_api.harness import RunningFake

BROKEN = {"match": {"kind": "chat"}, "times": -1, "action": {"stream_error": 2, "text": "It is " * 99}}
CALLS = "SELECT count(*) FROM usage WHERE status = 'done'"


@pytest.fixture
def app_options() -> dict[str, Any]:
    return {"context_window": WINDOW, "max_output": 1_000}


def fail_once(monkeypatch: pytest.MonkeyPatch, guest: Visit, method: str, *, stores: bool = False) -> None:
    """Lose the connection at the first call of the turn store's method; with `stores`, after its commit."""
    store = type(guest.app.stores.turns)
    whole = getattr(store, method)
    failed: list[str] = []

    async def failing(*given: Any, **named: Any) -> Any:
        if failed:
            return await whole(*given, **named)
        failed.append(method)
        if stores:
            await whole(*given, **named)
        raise StorageUnavailable("the connection was lost")

    monkeypatch.setattr(store, method, failing)


async def assert_paid_once(guest: Visit, calls: int) -> None:
    assert await guest.one(CALLS) == calls
    assert await guest.one(SPENT) == await guest.one(LEDGER) > 0
    assert await guest.one(OPEN) == 0


async def assert_answer_is_paid_at_second_attempt(guest: Visit) -> None:
    """Ask; the first attempt pays one call and ends unanswered, the second pays another and answers."""
    await guest.ask("My dog is called Bertil.")
    assert await guest.one("SELECT answered_turn FROM sessions") == 0
    await assert_paid_once(guest, 1)
    await guest.app.pool.execute("UPDATE sessions SET retry_at = now()")
    await guest.answered()
    assert await guest.one("SELECT answered_turn FROM sessions") == 1
    await assert_paid_once(guest, 2)


async def test_answer_that_could_not_be_stored_is_paid_for(
    guest: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_once(monkeypatch, guest, "record_answer")
    await assert_answer_is_paid_at_second_attempt(guest)


async def test_answer_whose_commit_was_not_confirmed_is_paid_once(
    guest: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_once(monkeypatch, guest, "record_answer", stores=True)
    await guest.ask("My dog is called Bertil.")
    assert await guest.one("SELECT answered_turn FROM sessions") == 1
    await assert_paid_once(guest, 1)


@pytest.mark.parametrize("stores", [False, True], ids=["not stored", "stored"])
async def test_tool_calls_whose_commit_failed_are_paid_once(
    guest: Visit, provider: RunningFake, monkeypatch: pytest.MonkeyPatch, stores: bool
) -> None:
    await provider.script([ROUND])
    fail_once(monkeypatch, guest, "record_tool_calls", stores=stores)
    await assert_answer_is_paid_at_second_attempt(guest)


async def test_failed_calls_that_could_not_be_booked_are_booked_with_the_turn(
    guest: Visit, provider: RunningFake, monkeypatch: pytest.MonkeyPatch
) -> None:
    await provider.script([BROKEN])
    fail_once(monkeypatch, guest, "record_waste")
    await guest.ask("What is the dog called?")
    assert await guest.one("SELECT count(*) FROM usage WHERE status = 'aborted'") > 0
    await assert_paid_once(guest, 0)


async def test_lost_calls_of_a_turn_that_stops_processes_are_booked(guest: Visit) -> None:
    await guest.say("My dog is called Bertil.")
    for _ in range(2):
        claim = await guest.app.stores.turns.claim(
            guest.session_id, channel="web", worker_id=guest.app.worker_id, caps=guest.app.sessions._caps,
            micro_per_input_token=1.0, micro_output=1.0,
        )  # fmt: skip
        assert claim is not None
        assert claim.reservation_id is not None
        await guest.app.stores.turns.mark_may_be_sent(claim.reservation_id)
        await guest.app.pool.execute("UPDATE sessions SET leased_by = NULL")
    await guest.app.pool.execute("UPDATE turns SET process_faults = 2")
    held = await guest.one("SELECT sum(amount_micro)::bigint FROM reservations")
    await guest.answered()
    assert await guest.one("SELECT state FROM turns") == "failed"
    assert await guest.one("SELECT count(*) FROM usage WHERE status = 'aborted' AND NOT known") == 2
    assert await guest.one(SPENT) == held
    assert await guest.one(OPEN) == 0


@pytest.mark.parametrize("error", [StorageUnavailable("gone"), NoRoom("too small")], ids=lambda one: one.code)
async def test_due_job_is_announced_although_the_gauge_cannot_be_measured(
    guest: Visit, monkeypatch: pytest.MonkeyPatch, error: EvertalkError
) -> None:
    store = type(guest.app.stores.turns)
    whole, rung = store.record_answer, []

    async def moved(*given: Any) -> Any:
        return replace(await whole(*given), view_moved=True)

    async def fail(*_: object) -> None:
        raise error

    async def ring(_: object, job: object) -> None:
        rung.append(job)

    monkeypatch.setattr(store, "record_answer", moved)
    monkeypatch.setattr(AgentLoop, "measure_context", fail)
    monkeypatch.setattr(SessionService, "_ring", ring)
    assert await guest.ask("My dog is called Bertil.")
    assert [event.state for event in guest.heard if isinstance(event, RunEnded)] == ["answered"]
    assert len(rung) == 1
