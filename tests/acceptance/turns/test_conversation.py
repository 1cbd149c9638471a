"""A message's whole way through real Postgres and Redis with the offline model."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from shared.core.session.turns import ContextMeasured, Delta, Inbound, RunEnded, RunStarted, Stored
from shared.core.values.errors import EmptyMessage, MessageTooLong, UnknownSession, UnreadableMessage
from tests.kit.app_driver import Visit, running_app, settings_for, visit


@pytest.fixture
def model_options() -> dict[str, Any]:
    """Let the built-in demo answer."""
    return {}


async def test_a_message_is_stored_then_answered(guest: Visit) -> None:
    accepted = await guest.say("Hello there")
    assert (accepted.mid, accepted.turn, accepted.event_seq, accepted.repeated) == ("m1", 1, 1, False)
    words = await guest.answered()
    assert words
    assert await guest.one("SELECT state FROM turns WHERE session_id = $1", guest.session_id) == "answered"
    assert await guest.one("SELECT count(*) FROM deliveries") == 0, "a page has it with the event"


async def test_deltas_joined_are_the_stored_answer(guest: Visit) -> None:
    await guest.ask("Tell me something")
    deltas = [event for event in guest.heard if isinstance(event, Delta)]
    assert "".join(delta.text for delta in deltas) == guest.last_words
    assert isinstance(guest.heard[0], RunStarted)
    kinds = [type(event) for event in guest.heard]
    assert kinds.index(Stored) < kinds.index(RunEnded)


async def test_a_repeated_cid_is_the_same_message(guest: Visit) -> None:
    first = await guest.say("Once", cid="same")
    again = await guest.say("Once", cid="same")
    assert (again.mid, again.event_seq, again.repeated) == (first.mid, first.event_seq, True)
    assert await guest.one("SELECT count(*) FROM entries") == 1


async def test_the_same_message_twice_at_the_same_moment_is_one(guest: Visit) -> None:
    accepted = await asyncio.gather(*(guest.say("Twice", cid="same") for _ in range(8)))
    assert {item.mid for item in accepted} == {"m1"}
    assert await guest.one("SELECT next_seq FROM sessions WHERE id = $1", guest.session_id) == 2


async def test_messages_during_an_answer_are_collected_into_the_next_turn(guest: Visit) -> None:
    await guest.say("First")
    answering = asyncio.ensure_future(guest.answered())
    while not any(isinstance(event, RunStarted) for event in guest.heard):
        await asyncio.sleep(0.001)
    second, third = await guest.say("Second"), await guest.say("Third")
    await answering
    assert (second.turn, third.turn) == (2, 2)
    assert await guest.one("SELECT count(*) FROM turns WHERE state = 'answered'") == 2


async def test_numbers_have_no_gaps_under_rival_writers(guest: Visit) -> None:
    await asyncio.gather(*(guest.say(f"Message {number}") for number in range(40)))
    await guest.answered()
    seqs = [row["seq"] for row in await guest.app.pool.fetch("SELECT seq FROM entries ORDER BY seq")]
    events = [
        row["event_seq"] for row in await guest.app.pool.fetch("SELECT event_seq FROM events ORDER BY 1")
    ]
    assert seqs == list(range(1, 42))
    assert events == list(range(1, 42))


async def test_two_rivals_answer_a_turn_once(guest: Visit) -> None:
    await guest.say("Who answers?")
    await asyncio.gather(*(guest.answered() for _ in range(5)))
    assert await guest.one("SELECT count(*) FROM entries WHERE author = 'assistant'") == 1


async def test_a_stopped_answer_keeps_what_was_written(guest: Visit) -> None:
    await guest.say("Please tell me a very long story")
    answering = asyncio.ensure_future(guest.answered())
    while not any(isinstance(event, Delta) for event in guest.heard):
        await asyncio.sleep(0.001)
    assert await guest.app.sessions.stop(guest.session_id)
    await answering
    assert await guest.one("SELECT state FROM turns") == "stopped"
    assert (await guest.ask("And now?")) != ""


@pytest.mark.control("S29")
@pytest.mark.parametrize(
    ("text", "error"),
    [("", EmptyMessage), ("  \n", EmptyMessage), ("x" * 100_001, MessageTooLong),
     ("a\x00b", UnreadableMessage), ("\ud800", UnreadableMessage)],
)  # fmt: skip
async def test_what_cannot_be_used_is_refused_with_advice(
    guest: Visit, text: str, error: type[Exception]
) -> None:
    with pytest.raises(error) as refused:
        await guest.say(text)
    assert getattr(refused.value, "advice", "")
    assert await guest.one("SELECT count(*) FROM entries") == 0


async def test_a_message_to_no_session_is_refused(guest: Visit) -> None:
    with pytest.raises(UnknownSession):
        await guest.app.sessions.accept(
            Inbound(session_id=999, address_id=guest.address_id, text="Hi", dedupe_key="web:x")
        )


async def test_what_was_asked_to_be_remembered_is_a_note_and_helps_later(guest: Visit) -> None:
    await guest.ask("Please remember that my cat is called Miso.")
    assert "Miso" in await guest.one("SELECT text FROM notes")
    assert await guest.one("SELECT status FROM turn_steps") == "done"
    assert "Miso" in await guest.ask("What is my cat called?")


@pytest.mark.control("S28")
async def test_an_emptied_spending_cap_refuses_kindly(database_url: str, redis_url: str) -> None:
    settings = settings_for(
        database_url, redis_url, anthropic_api_key="key", anthropic_base_url="http://127.0.0.1:9",
        cap_total_per_day_usd="0.000001",
    )  # fmt: skip
    async with running_app(settings) as app:
        guest = await visit(app)
        words = await guest.ask("Hello")
        assert "spending limit" in words
        assert await guest.one("SELECT state FROM turns") == "refused"
        assert await guest.one("SELECT coalesce(sum(reserved_micro), 0) FROM spend_days") == 0


async def test_help_names_what_can_be_done_here_and_nothing_else(guest: Visit) -> None:
    async def help_in(**where: Any) -> str:
        run = guest.app.commands.run
        return (await run(session_id=guest.session_id, address_id=None, name="help", **where)).result

    mine, public = await help_in(), await help_in(audience="public")
    assert "`/compact [focus] [--force]`" in mine
    assert "/retry" in mine
    assert "/retry" not in public
    assert "/stop" in public
    assert "/compact" not in public
    assert "/settings" in await help_in(channel="telegram")


async def test_the_parts_of_the_gauge_sum_up_to_what_is_used(guest: Visit) -> None:
    for text in ("My cat is called Miso.", "What is my cat called?"):
        await guest.ask(text)
        measured = [event for event in guest.heard if isinstance(event, ContextMeasured)][-1]
        assert sum(measured.parts.values()) == measured.used
    gauge = await guest.app.sessions.measure_context(guest.session_id)
    assert gauge is not None
    assert sum(gauge.parts.values()) == gauge.used
