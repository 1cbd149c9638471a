"""A question answered again: the newer answer stands for the older, which the log keeps."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from shared.adapters.postgres.turns.events import PostgresEvents
from shared.core.session.turns import Stored
from shared.core.values.errors import LeaseLost
from tests.kit.app_driver import Visit


@pytest.fixture
def model_options() -> dict[str, Any]:
    """Let the built-in demo answer."""
    return {}


async def retried(guest: Visit, cid: str | None = None) -> Any:
    return await guest.app.commands.run(
        session_id=guest.session_id, address_id=guest.address_id, name="retry", cid=cid
    )


async def shown(guest: Visit) -> list[str]:
    """What the next request would show of the conversation."""
    state = await guest.app.stores.jobs.load_state(guest.session_id)
    return [f"{entry.author} {entry.seq}" for entry in state.view.entries]


async def test_the_new_answer_names_the_old_one_and_stands_for_it(guest: Visit) -> None:
    await guest.ask("My cat is called Miso.")
    await guest.ask("What is my cat called?")
    assert (await retried(guest, "c-again")).success
    await guest.answered()
    told = [event for event in guest.heard if isinstance(event, Stored)][-1].payload
    assert (told["replaces"], told["mid"], told["role"]) == ("m4", "m6", "assistant")
    assert await guest.one("SELECT replaces_seq FROM entries WHERE seq = 6") == 4
    assert await shown(guest) == ["person 1", "assistant 2", "person 5", "assistant 6"]
    again = (await PostgresEvents(guest.app.pool).list_newest(guest.session_id))[-1].payload
    assert (again["replaces"], again["mid"]) == ("m4", "m6")
    assert await guest.one("SELECT count(*) FROM events WHERE kind = 'msg'") == 5, "the question is told once"


async def test_it_can_be_answered_again_and_again(guest: Visit) -> None:
    await guest.ask("What is my cat called?")
    for _ in range(3):
        assert (await retried(guest)).success
        await guest.answered()
    assert await shown(guest) == ["person 7", "assistant 8"]
    replaced = await guest.app.pool.fetch(
        "SELECT replaces_seq FROM entries WHERE author = 'assistant' ORDER BY seq"
    )
    assert [row["replaces_seq"] for row in replaced] == [None, 2, 4, 6]


async def test_the_same_wish_sent_twice_is_one(guest: Visit) -> None:
    await guest.ask("Hello")
    assert (await retried(guest, "c-twice")).success
    assert (await retried(guest, "c-twice")).success
    await guest.answered()
    assert (await retried(guest, "c-twice")).success, "it was done, so it is not refused"
    await guest.answered()
    assert await guest.one("SELECT count(*) FROM turns") == 2


async def test_a_wish_during_an_answer_and_one_for_nothing_are_refused_kindly(guest: Visit) -> None:
    early = await retried(guest)
    assert (early.success, early.event_seq) == (False, None)
    assert "Nothing to retry" in early.error
    await guest.say("Hello")
    assert "still answering" in (await retried(guest)).error
    await guest.answered()
    await guest.app.commands.run(session_id=guest.session_id, address_id=guest.address_id, name="new")
    assert "Nothing to retry" in (await retried(guest)).error, "what is no longer in view is not asked again"


async def test_a_process_that_dies_over_it_leaves_one_answer(guest: Visit) -> None:
    await guest.ask("What is my cat called?")
    await retried(guest, "c-again")
    lost = await guest.app.sessions._claim(guest.session_id)
    assert lost is not None
    await guest.app.pool.execute("UPDATE sessions SET leased_by = NULL")
    await guest.answered()
    answered = await guest.app.sessions._agent_loop.answer(
        lost, emit=guest.hear, stop=asyncio.get_running_loop().create_future()
    )
    with pytest.raises(LeaseLost):
        await guest.app.sessions._turns.record_answer(lost, answered.outcome)
    assert await shown(guest) == ["person 3", "assistant 4"]


async def test_one_that_fails_leaves_everything_as_it_was(
    guest: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    await guest.ask("What is my cat called?")
    await retried(guest)

    async def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("out of order")

    with monkeypatch.context() as broke:
        broke.setattr(guest.app.sessions._agent_loop, "answer", broken)
        for _ in range(3):
            await guest.answered()
            await guest.app.pool.execute("UPDATE sessions SET retry_at = NULL")
    assert await guest.one("SELECT state FROM turns WHERE turn_no = 2") == "failed"
    assert await shown(guest) == ["person 1", "assistant 2"]
    assert (await retried(guest)).success
    await guest.answered()
    assert (
        await guest.one(
            "SELECT replaces_seq FROM entries WHERE author = 'assistant' ORDER BY seq DESC LIMIT 1"
        )
        == 2
    )
    assert await shown(guest) == ["person 4", "assistant 5"]


async def test_an_edited_question_is_asked_as_it_reads_now(guest: Visit) -> None:
    said = await guest.say("My cat is called Mizo. What is my cat called?")
    await guest.answered()
    await guest.reword(said.seq, "My cat is called Miso. What is my cat called?")
    await retried(guest)
    await guest.answered()
    assert "Miso" in await guest.one(
        "SELECT blocks::text FROM entries WHERE replaces_seq = 1 ORDER BY seq DESC LIMIT 1"
    )


async def test_a_pinned_answer_stays_in_view(guest: Visit) -> None:
    await guest.ask("Please say something worth keeping.")
    await guest.app.commands.run(
        session_id=guest.session_id, address_id=guest.address_id, name="pin", args="m2"
    )
    await retried(guest)
    await guest.answered()
    assert await shown(guest) == ["assistant 2", "person 3", "assistant 4"]
