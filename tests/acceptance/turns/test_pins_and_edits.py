"""Pins hold through summaries, edits add to the log, and the export has everything that was said."""

from __future__ import annotations

import json
from typing import Any

import asyncpg
import pytest

from shared.adapters.postgres.operations.invariants import check_invariants
from shared.adapters.postgres.turns.edits import PostgresEdits
from shared.adapters.postgres.turns.pins import PostgresPins
from tests.kit.app_driver import Visit

FILLER = "We walked along the river and talked of this and that. " * 40


@pytest.fixture
def model_options() -> dict[str, Any]:
    """Let the built-in demo answer."""
    return {}


@pytest.fixture
def app_options() -> dict[str, Any]:
    return {"context_window": 9_000, "max_output": 1_000}


async def invariants_hold(guest: Visit) -> None:
    connection = await asyncpg.connect(guest.app.settings.database_url.get_secret_value())  # type: ignore[union-attr]
    assert await check_invariants(connection) == []
    await connection.close()


async def test_a_pinned_message_stays_through_summaries_until_it_is_let_go(guest: Visit) -> None:
    pins = PostgresPins(guest.app.pool)
    pinned = await guest.say("The door code is 4711.")
    await guest.answered()
    assert await pins.pin(guest.session_id, pinned.seq, most_tokens=400) == "pinned"
    assert await pins.pin(guest.session_id, pinned.seq, most_tokens=400) == "already"
    for number in range(16):
        await guest.ask(f"Number {number}. {FILLER}")
        await guest.run_due_jobs()
    assert await guest.one("SELECT base_turn FROM sessions") > 1
    assert "4711" in await guest.ask("What is the door code?")
    assert [message.text for message in await pins.list_pins(guest.session_id)] == ["The door code is 4711."]
    assert await pins.unpin(guest.session_id, pinned.seq) == "unpinned"
    assert await pins.unpin(guest.session_id, pinned.seq) == "not_pinned"
    await invariants_hold(guest)


async def test_pins_may_not_fill_the_context(guest: Visit) -> None:
    pins = PostgresPins(guest.app.pool)
    long = await guest.say(FILLER)
    await guest.answered()
    assert await pins.pin(guest.session_id, long.seq, most_tokens=100) == "too_many"
    assert await pins.pin(guest.session_id, 99, most_tokens=100) == "unknown"


async def test_an_edit_before_the_answer_takes_the_place_of_the_message(guest: Visit) -> None:
    said = await guest.say("My cat is called Mizo.")
    await guest.say("She is two years old.")
    for _ in range(2):
        assert await guest.reword(said.seq, "My cat is called Miso.", key="tg:7:9") == "replaced"
    assert await guest.reword(said.seq, "My cat is called Misa.", key="tg:7:10") == "replaced"
    await guest.answered()
    assert await guest.one("SELECT count(*) FROM entries WHERE author = 'person'") == 4
    assert "Misa" in await guest.ask("What is my cat called?")
    await invariants_hold(guest)


async def test_an_edit_after_the_answer_is_kept_and_may_be_answered_again(guest: Visit) -> None:
    edits = PostgresEdits(guest.app.pool)
    first = await guest.say("What is the capital of Peru?")
    await guest.answered()
    second = await guest.say("My train leaves at 9:12.")
    await guest.answered()
    assert await guest.reword(second.seq, "My train leaves at 9:21.", key="tg:7:11") == "last"
    found = await edits.load_newest_text(guest.session_id)
    assert found is not None
    assert found[1] == "My train leaves at 9:21."
    assert await guest.reword(first.seq, "Of Chile?", key="tg:7:12") == "old"
    assert await guest.reword(77, "Of Chile?", key="tg:7:13") == "unknown"
    await invariants_hold(guest)


@pytest.mark.control("S41")
async def test_an_export_has_every_message_summary_and_note(guest: Visit) -> None:
    await guest.ask("Please remember that my dog Bertil is allergic to chicken.")
    for number in range(14):
        await guest.ask(f"Number {number}. {FILLER}")
        await guest.run_due_jobs()
    exported = json.loads(await guest.app.exporter.export(guest.session_id, "json"))
    (talk,) = exported["conversations"]
    persons = [message["text"] for message in talk["messages"] if message["author"] == "person"]
    assert len(persons) == 15
    assert persons[0].startswith("Please remember")
    assert talk["summaries"]
    assert any("Bertil" in note["text"] for note in exported["notes"])
