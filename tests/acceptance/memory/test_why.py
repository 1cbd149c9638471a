"""`/why` on the running system: messages and notes that the request of an answer held."""

from __future__ import annotations

from typing import Any

import pytest

from shared.bootstrap.build_commands import build_answer_memory
from shared.core.context.memory import note_from
from tests.acceptance.long_talks import WINDOW, talk_with_upkeep
from tests.kit.app_driver import Visit, visit

QUESTION = "What is the invoice number of the piano?"
FACT = "The invoice number of the piano is PX-4471."
NOTHING = "I recalled nothing and had no notes: only this conversation."


@pytest.fixture
def app_options() -> dict[str, Any]:
    return {"context_window": WINDOW, "max_output": 1_000}


async def why(guest: Visit, args: str = "") -> str:
    outcome = await guest.app.commands.run(
        session_id=guest.session_id, address_id=guest.address_id, name="why", args=args
    )
    return outcome.result


async def forget(guest: Visit, number: str) -> bool:
    outcome = await guest.app.commands.run(
        session_id=guest.session_id, address_id=guest.address_id, name="forget", args=number
    )
    return outcome.success


async def save_note(guest: Visit, text: str) -> None:
    notes = guest.app.stores.notes
    await notes.save(note_from({"text": text}), await notes.load_owner(guest.session_id))


async def test_why_names_the_recalled_message_with_its_date(guest: Visit) -> None:
    await talk_with_upkeep(guest, 10)
    await guest.app.pool.execute("DELETE FROM notes")
    await guest.app.pool.execute("UPDATE contacts SET timezone = 'UTC'")
    await guest.ask(QUESTION)
    said_at = await guest.one(
        "SELECT to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI') FROM entries WHERE seq = 3"
    )
    outcome = await guest.app.commands.run(
        session_id=guest.session_id, address_id=guest.address_id, name="why"
    )
    assert f"{said_at}, You: {FACT}" in outcome.result
    assert "(`m3`)" in outcome.result
    assert "I also had the summary of earlier messages." in outcome.result
    assert "is not shown" not in outcome.result
    [number] = [place.number for place in outcome.places if place.seq == 3]
    assert f"{number}. {said_at}" in outcome.result
    assert (
        await guest.one(
            "SELECT count(*) FROM events WHERE payload::text LIKE '%Earlier messages I recalled%'"
        )
        == 0
    )


async def test_why_explains_the_answer_that_is_named(guest: Visit) -> None:
    await talk_with_upkeep(guest, 10)
    await guest.ask(QUESTION)
    answer = await guest.one("SELECT max(seq) FROM entries WHERE author = 'assistant'")
    await guest.ask("Thanks!")
    assert FACT not in await why(guest)
    assert FACT in await why(guest, f"m{answer}")


async def test_why_hides_erased_messages(guest: Visit) -> None:
    await talk_with_upkeep(guest, 10)
    await guest.app.pool.execute("DELETE FROM notes")
    await guest.ask(QUESTION)
    assert FACT in await why(guest)
    await guest.app.erasure.erase_messages(guest.session_id, [3], "person")
    assert "PX-4471" not in await why(guest)


async def test_why_lists_notes_that_forget_takes_by_number(guest: Visit) -> None:
    await save_note(guest, "Plays the trombone on Sundays.")
    await save_note(guest, "Lives in a lighthouse.")
    await guest.ask("Hello")
    shown = await why(guest)
    assert "Plays the trombone" in shown
    assert "2. Lives in a lighthouse" in shown
    assert await forget(guest, "2")
    shown = await why(guest)
    assert "lighthouse" not in shown
    assert "Plays the trombone" in shown


async def test_why_marks_a_replaced_note(guest: Visit) -> None:
    notes = guest.app.stores.notes
    whose = await notes.load_owner(guest.session_id)
    kept = await notes.save(note_from({"text": "Lives in a lighthouse."}), whose)
    assert kept.note is not None
    await guest.ask("Hello")
    await notes.change(kept.note.short_id, note_from({"text": "Lives in a windmill."}), whose)
    shown = await why(guest)
    assert "Lives in a lighthouse" in shown
    assert "out of date" in shown


async def test_why_says_that_only_the_conversation_was_sent(guest: Visit) -> None:
    assert await why(guest) == "There is no answer yet."
    await guest.ask("Hello")
    assert await why(guest) == NOTHING


async def test_why_refuses_unknown_messages_and_other_words(guest: Visit) -> None:
    await guest.ask("Hello")
    assert await why(guest, "m99") == "I do not have this message."
    assert await why(guest, "m" + "9" * 30) == await why(guest, "everything")
    assert "such as m12" in await why(guest, "everything")


async def test_why_never_shows_memory_of_another_person(guest: Visit) -> None:
    await save_note(guest, "Lives in a lighthouse.")
    await talk_with_upkeep(guest, 10)
    await guest.ask(QUESTION)
    answer = await guest.one("SELECT max(seq) FROM entries WHERE author = 'assistant'")
    stranger = await visit(guest.app)
    await stranger.ask("Hello")
    assert await why(stranger) == NOTHING
    assert await why(stranger, f"m{answer}") == "I do not have this message."


async def test_answer_with_memory_is_marked_for_screens(guest: Visit) -> None:
    await guest.ask("Hello")
    marks = "SELECT array_agg(payload ? 'memory' ORDER BY event_seq) FROM events WHERE kind = 'msg'"
    assert await guest.one(marks) == [False, False]
    await save_note(guest, "Lives in a lighthouse.")
    await guest.ask("Hello again")
    assert (await guest.one(marks))[2:] == [False, True]


async def test_note_behind_an_answer_leads_to_its_message(guest: Visit) -> None:
    await talk_with_upkeep(guest, 10)
    await guest.ask(QUESTION)
    reader = build_answer_memory(guest.app.stores, guest.app.settings)
    turn = await guest.one("SELECT answered_turn FROM sessions WHERE id = $1", guest.session_id)
    memory = await reader.read(guest.session_id, turn)
    assert memory is not None
    assert memory.notes
    for note in memory.notes:
        seq = memory.sources[note.id]
        said = await guest.one("SELECT author FROM entries WHERE seq = $1", seq)
        assert said == "person"
