"""What stands before the history stays as it was sent: what is noted or pinned meanwhile stands behind it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from shared.adapters.models.catalog import ModelEntry, build_card
from shared.adapters.models.token_counter import VocabularyCounter
from shared.adapters.models.wire import build_request_body
from shared.adapters.postgres.turns.replays import PostgresReplays
from shared.adapters.postgres.turns.turns import PostgresTurns
from shared.core.context.notes import NewNote, NoteSource
from shared.core.context.prompts import NEWER_NOTES
from shared.core.values.errors import StorageUnavailable
from shared.services.turns.request_replay import rebuild_request
from tests.kit.app_driver import Visit
from tests.kit.fakes.messages_api.harness import RunningFake

CHAT = "claude-sonnet-5-5"
LONG = "Then we talked about the weather, the garden and the long way home along the river. " * 12


@pytest.fixture(autouse=True)
async def every_request_is_accepted(provider: RunningFake) -> AsyncIterator[None]:
    yield
    assert {record["status"] for record in await provider.requests()} == {200}


async def sent(provider: RunningFake, kind: str = "chat") -> dict[str, Any]:
    """The body of the newest request, whatever is marked for the cache."""
    body: dict[str, Any] = [r for r in await provider.requests() if r["kind"] == kind][-1]["body"]
    for block in (*body["system"], *(block for m in body["messages"] for block in m["content"])):
        block.pop("cache_control", None)
    return body


def newest(body: dict[str, Any]) -> str:
    return "\n".join(block.get("text", "") for block in body["messages"][-1]["content"])


def same_prefix(before: dict[str, Any], after: dict[str, Any]) -> None:
    """All of it but the newest message, whose clock and notes are not sent again."""
    stable = before["messages"][:-1]
    assert json.dumps(after["system"]) == json.dumps(before["system"])
    assert json.dumps(after["tools"]) == json.dumps(before["tools"])
    assert json.dumps(after["messages"][: len(stable)]) == json.dumps(stable)


async def whose(guest: Visit) -> NoteSource:
    return await guest.app.stores.notes.load_owner(guest.session_id)


async def note(guest: Visit, text: str, *, importance: int = 5) -> str:
    """As from another conversation of the person; its short id."""
    kept = await guest.app.stores.notes.save(
        NewNote(kind="fact", text=text, importance=importance), await whose(guest)
    )
    assert kept.note is not None
    return kept.note.short_id


async def begun_anew(guest: Visit) -> None:
    """As if the provider's cache had expired."""
    await guest.app.pool.execute("UPDATE audit_rows SET created_at = created_at - interval '301 seconds'")


async def command(guest: Visit, name: str, args: str = "") -> Any:
    return await guest.app.commands.run(session_id=guest.session_id, address_id=None, name=name, args=args)


async def made_again(guest: Visit, turn: int) -> None:
    """The stored request is the one that was sent, byte for byte."""
    stored = await PostgresReplays(guest.app.pool).load_turn(guest.session_id, turn)
    assert stored is not None
    request = rebuild_request(stored, count=VocabularyCounter().count_tokens)
    assert build_request_body(request, build_card(ModelEntry(name=CHAT)), CHAT)["messages"][-1]["content"]


async def test_new_note_follows_newest_message_until_the_cache_expires(
    guest: Visit, provider: RunningFake
) -> None:
    await note(guest, "Bertil is the dog.")
    await guest.ask("Hello.")
    first = await sent(provider)
    assert "- Bertil is the dog. (said 2" in first["system"][-1]["text"]
    assert NEWER_NOTES not in newest(first)
    await note(guest, "Mia is the cat.", importance=9)
    await guest.ask("And now?")
    second = await sent(provider)
    same_prefix(first, second)
    assert f"{NEWER_NOTES}\n- Mia is the cat. (said 2" in newest(second)
    await guest.ask("And then?")
    third = await sent(provider)
    same_prefix(second, third)
    assert "Mia" in newest(third)
    await begun_anew(guest)
    await guest.ask("Good morning.")
    cold = await sent(provider)
    lines = cold["system"][-1]["text"].splitlines()
    assert [line[:7] for line in lines[1:-1]] == ["- Mia i", "- Berti"]
    assert NEWER_NOTES not in newest(cold)


async def test_a_changed_note_stays_and_is_said_to_hold_no_longer(
    guest: Visit, provider: RunningFake
) -> None:
    old = await note(guest, "Anna lives in Graz.")
    await guest.ask("Hello.")
    first = await sent(provider)
    moved = NewNote(kind="fact", text="Anna lives in Linz.")
    await guest.app.stores.notes.change(old, moved, await whose(guest))
    await guest.ask("Where does Anna live?")
    second = await sent(provider)
    same_prefix(first, second)
    told = newest(second).partition(NEWER_NOTES)[2].splitlines()[1:3]
    assert [line[:21] for line in told] == ["- Anna lives in Linz.", "- Anna lives in Graz."]
    assert told[1].endswith(", no longer so)")
    back = NewNote(kind="fact", text="Anna lives in Graz!")
    moved_id = await guest.one("SELECT 'n' || left(public_id::text, 8) FROM notes WHERE text LIKE '%Linz.'")
    await guest.app.stores.notes.change(moved_id, back, await whose(guest))
    await guest.ask("And now?")
    third = await sent(provider)
    same_prefix(second, third)
    assert NEWER_NOTES not in newest(third)


@pytest.mark.parametrize("way", ["put away", "erased", "of the parted person"])
async def test_what_is_forgotten_leaves_the_prefix_at_once(
    guest: Visit, provider: RunningFake, way: str
) -> None:
    secret = await note(guest, "Anna fears the big dog.")
    await note(guest, "Mia is the cat.")
    await guest.ask("Hello.")
    assert "fears" in str((await sent(provider))["system"])
    match way:
        case "put away":
            await guest.app.stores.notes.archive(secret, await whose(guest))
        case "erased":
            ids = [await guest.one("SELECT id FROM notes WHERE text LIKE '%fears%'")]
            assert await guest.app.stores.notes.erase(await whose(guest), ids) == 1
        case _:
            other = await guest.one("INSERT INTO contacts DEFAULT VALUES RETURNING id")
            await guest.app.pool.execute(
                "UPDATE notes SET contact_id = $1, session_id = NULL WHERE text LIKE '%fears%'", other
            )
    await guest.ask("And now?")
    body = await sent(provider)
    assert "fears" not in json.dumps(body)
    assert "Mia" in str(body["system"])


async def test_a_turn_that_was_answered_during_an_erasure_brings_nothing_back(
    guest: Visit, provider: RunningFake
) -> None:
    """It stores what it was shown a little later than the erasure looked for it."""
    await note(guest, "Anna fears the big dog.")
    await guest.ask("Hello.")
    parts = await guest.app.pool.fetch("SELECT * FROM prompt_parts")
    ids = [await guest.one("SELECT id FROM notes")]
    await guest.app.stores.notes.erase(await whose(guest), ids)
    await guest.app.pool.executemany(
        "INSERT INTO prompt_parts (sha256, body) VALUES ($1, $2) ON CONFLICT DO NOTHING",
        [(part["sha256"], part["body"]) for part in parts],
    )
    await guest.ask("And now?")
    assert "fears" not in json.dumps(await sent(provider))


async def test_after_a_fresh_start_the_notes_stand_in_the_prefix(guest: Visit, provider: RunningFake) -> None:
    await guest.ask("Hello.")
    await note(guest, "Mia is the cat.")
    await guest.ask("And now?")
    assert "Mia" not in str((await sent(provider))["system"])
    assert (await command(guest, "new")).success
    await guest.ask("Hello again.")
    body = await sent(provider)
    assert "Mia" in str(body["system"])
    assert NEWER_NOTES not in newest(body)


async def test_a_pin_of_a_hidden_message_stands_behind_the_newest_words(
    guest: Visit, provider: RunningFake
) -> None:
    await guest.ask("The gate code of the garden is on the blue paper.")
    await command(guest, "separator")
    await guest.ask("Hello.")
    await guest.ask("Hello again.")
    first = await sent(provider)
    assert (await command(guest, "pin", "m1")).success
    await guest.ask("Where is the gate code?")
    second = await sent(provider)
    same_prefix(first, second)
    assert "on the blue paper" in newest(second)
    await guest.ask("And now?")
    third = await sent(provider)
    same_prefix(second, third)
    await made_again(guest, 5)
    await begun_anew(guest)
    await guest.ask("Good morning.")
    cold = await sent(provider)
    assert "on the blue paper" in str(cold["messages"][0])
    assert "on the blue paper" not in newest(cold)


async def test_flush_reads_prefix_of_last_turn_and_newer_notes(guest: Visit, provider: RunningFake) -> None:
    await note(guest, "Bertil is the dog.")
    for number in range(8):
        await guest.ask(f"Message {number}. {LONG}")
    await note(guest, "Mia is the cat.")
    await guest.ask("Hello.")
    last = await sent(provider)
    asked_for = asyncio.create_task(command(guest, "compact", "--force"))
    while not asked_for.done():
        await guest.run_due_jobs()
        await asyncio.sleep(0.05)
    assert asked_for.result().success
    flush = await sent(provider, "flush")
    same_prefix(last, flush)
    assert "Mia" in newest(flush)
    record = [one for one in await provider.requests() if one["kind"] == "flush"][-1]
    assert record["usage"]["cache_read_input_tokens"] > 2_000
    await guest.ask("Hello again.")
    assert "Mia" in str((await sent(provider))["system"])


@pytest.mark.parametrize("context", [5_000, 40_000])
async def test_one_saved_note_writes_no_more_than_the_turn_itself(
    guest: Visit, provider: RunningFake, context: int
) -> None:
    """The notes stand before the history: made anew with each note, all of it would be written again."""
    await note(guest, "Bertil is the dog.")
    words = "A walk along the river, a talk about boats and bread, and rain in the afternoon. " * 40
    while (await guest.one("SELECT context_tokens FROM sessions")) < context:
        await guest.ask(f"And {words}")
    await guest.ask("Well?")
    await note(guest, "Mia is the cat.")
    await guest.ask("And now?")
    usage = [one for one in await provider.requests() if one["kind"] == "chat"][-1]["usage"]
    assert usage["cache_creation_input_tokens"] < 150
    assert usage["cache_read_input_tokens"] > 0.9 * context


async def test_turn_is_answered_with_all_notes_when_prefix_is_unreadable(
    guest: Visit, provider: RunningFake, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    async def away(self: PostgresTurns, session_id: int, base_turn: int, head: int | None) -> None:
        asked.append(session_id)
        raise StorageUnavailable("the database is away")

    await guest.ask("Good evening.")
    await note(guest, "Ada keeps eleven hives.")
    monkeypatch.setattr(PostgresTurns, "_load_frozen", away)
    await guest.ask("And now?")
    assert asked == [guest.session_id]
    assert "Ada keeps eleven hives." in json.dumps((await sent(provider))["system"])
    assert await guest.one("SELECT bool_and(state = 'answered') FROM turns")
