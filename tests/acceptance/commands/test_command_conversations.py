"""Commands as both channels call them: on real data, in the person's language, told to every screen."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from shared.services.commands.command_service import CommandResult
from tests.kit.app_driver import Visit, visit

FILLER = "We walked along the river and talked of this and that. " * 40


@pytest.fixture
def model_options() -> dict[str, Any]:
    """Let the built-in demo answer."""
    return {}


@pytest.fixture
def app_options() -> dict[str, Any]:
    return {"context_window": 12_000, "max_output": 1_000, "keep_turns": 2}


async def run(guest: Visit, name: str, args: str = "", **more: Any) -> CommandResult:
    return await guest.app.commands.run(
        session_id=guest.session_id, address_id=guest.address_id, name=name, args=args, **more
    )


async def compact(guest: Visit, args: str = "", **more: Any) -> CommandResult:
    """As with a worker beside it."""
    asked = asyncio.ensure_future(run(guest, "compact", args, **more))
    while not asked.done():
        await guest.run_due_jobs()
        await asyncio.sleep(0.01)
    return asked.result()


async def test_pins_are_made_listed_and_let_go(guest: Visit) -> None:
    said = await guest.say("The door code is 4711.")
    await guest.answered()
    assert (await run(guest, "pins")).result.startswith("Nothing is pinned")
    assert not (await run(guest, "unpin")).success
    made = await run(guest, "pin", said.mid)
    assert made.success
    assert "“The door code is 4711.”" in made.result
    assert (await run(guest, "pin")).success
    again = await run(guest, "pin", said.mid)
    assert again.result == "This is pinned already."
    listed = await run(guest, "pins")
    assert "1. “The door code is 4711.”" in listed.result
    several = await run(guest, "unpin")
    assert not several.success
    assert "2. " in several.result
    assert (await run(guest, "unpin", "2")).success
    assert (await run(guest, "unpin")).result == "No longer pinned: “The door code is 4711.”"


async def test_pin_event_reaches_every_screen_without_a_gap(guest: Visit) -> None:
    said = await guest.say("The door code is 4711.")
    await guest.answered()
    await run(guest, "pin", said.mid)
    await run(guest, "unpin", said.mid)
    rows = await guest.app.pool.fetch(
        "SELECT event_seq, payload FROM events WHERE session_id = $1 AND kind = 'pin' ORDER BY event_seq",
        guest.session_id,
    )
    assert [row["payload"] for row in rows] == [
        {"mid": said.mid, "pinned": True},
        {"mid": said.mid, "pinned": False},
    ]
    numbers = await guest.one("SELECT array_agg(event_seq ORDER BY event_seq) FROM events")
    assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize("args", ["the blue one", "m0", "m", "12", "m" + "9" * 30, "'; DROP TABLE pins"])
async def test_words_that_name_no_message_pin_nothing(guest: Visit, args: str) -> None:
    await guest.ask("Hello")
    refused = await run(guest, "pin", args)
    assert not refused.success
    assert refused.error == refused.result
    assert await guest.one("SELECT count(*) FROM pins") == 0


async def test_message_of_another_session_cannot_be_pinned(guest: Visit) -> None:
    other = await visit(guest.app)
    for number in range(4):
        await guest.ask(f"Number {number}")
    assert not (await run(other, "pin", "m7")).success
    assert not (await run(other, "pin")).success


async def test_usage_is_what_the_ledger_says(guest: Visit) -> None:
    for number in range(3):
        await guest.ask(f"Number {number}. {FILLER}")
    told = (await run(guest, "usage")).result
    sent, written = await guest.app.pool.fetchrow(
        """SELECT sum(input_tokens + cache_read_tokens + cache_write_tokens)::bigint,
                  sum(output_tokens)::bigint FROM usage WHERE session_id = $1""",
        guest.session_id,
    )  # type: ignore[misc]
    assert f"Sent: {sent:,} tokens" in told
    assert f"Written: {written:,} tokens" in told
    assert "Turns: 3, summaries: 0" in told


async def test_usage_before_the_first_word_is_nothing(guest: Visit) -> None:
    told = (await run(guest, "usage")).result
    assert "Turns: 0" in told
    assert "Cost: $0.00" in told


async def test_the_context_counts_pins_and_summaries(guest: Visit) -> None:
    assert "empty" in (await run(guest, "context")).result
    for number in range(5):
        await guest.ask(f"Number {number}. {FILLER}")
    await run(guest, "pin")
    assert (await compact(guest, "--force")).success
    hidden = await guest.one("SELECT base_turn FROM sessions")
    told = (await run(guest, "context")).result
    assert f"{hidden} older turns are summarised" in told
    assert "Pinned: 1" in told
    assert "Summary" in told


async def test_compact_says_what_it_did_or_why_not(guest: Visit) -> None:
    await guest.ask("Hello")
    nothing = await compact(guest)
    assert nothing.success
    assert nothing.result.startswith("Nothing to summarise: there are only the newest messages")
    for number in range(5):
        await guest.ask(f"Number {number}. {FILLER}")
    done = await compact(guest, "the river --force")
    assert done.success
    assert "`/undo`" in done.result
    assert await guest.one("SELECT focus FROM compactions ORDER BY id DESC LIMIT 1") == "the river"
    assert (await run(guest, "undo")).result.startswith("The older messages are back")
    assert (await run(guest, "restore")).result.startswith("The summary is in use again")


@pytest.mark.parametrize("args", ["--frce", "x" * 400])
async def test_compact_refuses_what_it_cannot_use_and_asks_for_nothing(guest: Visit, args: str) -> None:
    assert not (await run(guest, "compact", args)).success
    assert await guest.one("SELECT count(*) FROM jobs") == 0


@pytest.mark.parametrize("asked", ["compact", "/compact", "Compact"])
async def test_help_explains_one_command(guest: Visit, asked: str) -> None:
    told = await run(guest, "help", asked)
    assert told.success
    for words in ("`/compact [focus] [--force]`", "`--force`", "`<focus>`", "Example: `/compact "):
        assert words in told.result
    assert "/undo" not in told.result
    named = await run(guest, "help", "compcat")
    assert not named.success
    assert named.result == "Unknown command /compcat. Did you mean /compact? /help shows them all."
    hidden = await run(guest, "help", "memory", audience="public")
    assert not hidden.success


async def test_a_german_person_is_answered_in_german(guest: Visit) -> None:
    await guest.ask("Hallo")
    german = {"language": "de-AT"}
    assert "**Kontext**" in (await run(guest, "context", **german)).result
    assert "Gesendet" in (await run(guest, "usage", **german)).result
    assert (await run(guest, "undo", **german)).result == "Es wurde noch nichts zusammengefasst."
    assert (await compact(guest, **german)).result.startswith("Nichts zusammenzufassen")
    assert "Angeheftete Nachrichten zeigen" in (await run(guest, "help", **german)).result
    assert (await run(guest, "new", **german)).result.startswith("Wir fangen neu an")
    assert (await run(guest, "new", **german)).result == "Das ist schon ein neues Gespräch."


async def test_an_agent_decides_how_much_of_its_view_pins_may_take(guest: Visit) -> None:
    await guest.ask("The door code is 4711.")
    config = {"context": {"pins_share": 0.001}}
    await guest.app.pool.execute("UPDATE agents SET config = $1", config)
    refused = await run(guest, "pin")
    assert not refused.success
    assert "too long" in refused.result
    await guest.app.pool.execute("UPDATE agents SET config = '{}'")
    assert (await run(guest, "pin")).success
