"""What the model keeps about a person: saved once, shown in the prefix, changed, found, put away."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from shared.adapters.postgres.invariants import check_invariants
from tests.fakes.messages_api.harness import RunningFake
from tests.journeys.house import Visit, running_app, settings_for, visit


@pytest.fixture
async def guest(database_url: str, redis_url: str, provider: RunningFake) -> AsyncIterator[Visit]:
    await provider.reset()
    settings = settings_for(
        database_url, redis_url, anthropic_api_key="test-key", anthropic_base_url=provider.base_url
    )
    async with running_app(settings) as app:
        yield await visit(app)
    connection = await asyncpg.connect(database_url)
    found = await check_invariants(connection)
    await connection.close()
    assert not found


def calls(*inputs: dict[str, Any], name: str = "save_memory") -> dict[str, Any]:
    return {
        "match": {"kind": "chat"},
        "times": 1,
        "action": {"tool_use": [{"name": name, "input": one} for one in inputs]},
    }


def says(text: str) -> dict[str, Any]:
    return {"match": {"kind": "chat"}, "times": 1, "action": {"text": text}}


async def results(guest: Visit) -> list[dict[str, Any]]:
    """What the tools said in the newest round."""
    blocks: list[dict[str, Any]] = await guest.one(
        "SELECT blocks FROM entries WHERE author = 'tool' AND session_id = $1 ORDER BY seq DESC LIMIT 1",
        guest.session_id,
    )
    return blocks


async def prompted(provider: RunningFake) -> str:
    record = [record for record in await provider.requests() if record["kind"] == "chat"][-1]
    return str(record["body"]["system"])


async def short_id(guest: Visit) -> str:
    return str(await guest.one("SELECT 'n' || left(public_id::text, 8) FROM notes ORDER BY id DESC LIMIT 1"))


async def test_a_saved_note_stands_in_the_cached_prefix_of_the_next_turn(
    guest: Visit, provider: RunningFake
) -> None:
    note = {"text": "The person's dog is called Bertil.", "kind": "fact", "importance": 7}
    await provider.script([calls(note), says("Noted.")])
    assert await guest.ask("My dog is called Bertil.") == "Noted."
    row = await guest.app.pool.fetchrow("SELECT * FROM notes")
    assert row is not None
    assert (row["authority"], row["from_turn"], row["source_seqs"]) == ("person", 1, [1])
    assert (await results(guest))[0]["text"] == f"Saved. [{await short_id(guest)}]"
    event = await guest.app.pool.fetchrow("SELECT * FROM events WHERE kind = 'memory'")
    assert event is not None
    assert event["payload"] == {
        "id": await short_id(guest), "text": note["text"], "kind": "fact", "change": "saved",
    }  # fmt: skip
    await guest.ask("Hello again.")
    assert "- The person's dog is called Bertil." in await prompted(provider)
    first = await prompted(provider)
    await guest.ask("And again.")
    assert await prompted(provider) == first


async def test_the_fourth_note_of_a_message_is_refused(guest: Visit, provider: RunningFake) -> None:
    notes = [{"text": f"Fact about {what}.", "kind": "fact"} for what in ("tea", "trains", "Rome", "chess")]
    await provider.script([calls(*notes), says("Done.")])
    await guest.ask("Remember all of this.")
    assert await guest.one("SELECT count(*) FROM notes") == 3
    refused = [block for block in await results(guest) if block.get("is_error")]
    assert len(refused) == 1
    assert "3 notes were kept for this message" in refused[0]["text"]


async def test_nearly_the_same_words_are_one_note(guest: Visit, provider: RunningFake) -> None:
    text = "Anna likes to drink green tea in the garden in the morning"
    await provider.script([calls({"text": text, "kind": "fact"}), says("Ok.")])
    await guest.ask("Anna likes green tea.")
    await provider.script([calls({"text": f"{text}!", "kind": "fact"}), says("Ok.")])
    await guest.ask("Again.")
    assert (await results(guest))[0]["text"].startswith("This is known already: [n")
    assert await guest.one("SELECT count(*) FROM notes") == 1


async def test_a_note_that_is_too_long_and_one_with_a_secret_get_a_clear_answer(
    guest: Visit, provider: RunningFake
) -> None:
    secret = "The key of the garden house API is sk-ant-abcdefghij0123456789, kept by Anna."
    notes = [
        {"text": "x" * 1_000, "kind": "fact"},
        {"text": secret, "kind": "fact"},
        {"text": "password: hunter2!", "kind": "fact"},
    ]
    await provider.script([calls(*notes), says("Ok.")])
    await guest.ask("Keep this.")
    told = "\n".join(block["text"] for block in await results(guest))
    assert "1,000 characters; 600 is the most" in told
    assert "Saved without the secret: The key of the garden house API is [secret removed]" in told
    assert "such things are never kept" in told
    assert await guest.one("SELECT count(*) FROM notes") == 1
    assert await guest.one("SELECT count(*) FROM notes WHERE text LIKE '%sk-ant%'") == 0


async def test_a_changed_note_takes_the_place_of_the_old_one(guest: Visit, provider: RunningFake) -> None:
    await provider.script([calls({"text": "Anna lives in Graz.", "kind": "fact"}), says("Ok.")])
    await guest.ask("Anna lives in Graz.")
    old = await short_id(guest)
    moved = {"id": old, "text": "Anna lives in Linz since May 2026.", "event_date": "2026-05"}
    await provider.script([calls(moved, name="update_memory"), says("Ok.")])
    await guest.ask("Anna lives in Linz since May 2026.")
    assert (await results(guest))[0]["text"] == f"Changed. [{await short_id(guest)}]"
    await provider.script([calls({"query": "where does Anna live"}, name="search_memory"), says("Linz.")])
    await guest.ask("Where does Anna live?")
    found = (await results(guest))[0]["text"]
    assert "Anna lives in Linz" in found
    assert "about 2026-05" in found
    assert "Graz" not in found
    assert "Graz" not in await prompted(provider)
    await provider.script([calls({"text": "Anna lives in Graz", "kind": "fact"}), says("Ok.")])
    await guest.ask("Anything else?")
    assert "newer words stand for this: [n" in (await results(guest))[0]["text"]


async def test_a_forgotten_note_is_not_saved_again(guest: Visit, provider: RunningFake) -> None:
    text = "The person is afraid of the neighbour's big dog"
    await provider.script([calls({"text": text, "kind": "fact"}), says("Ok.")])
    await guest.ask("I am afraid of the neighbour's big dog.")
    await provider.script([calls({"id": await short_id(guest)}, name="forget_memory"), says("Ok.")])
    await guest.ask("Forget that.")
    assert "30 days" in (await results(guest))[0]["text"]
    for again in (text, f"{text}!"):
        await provider.script([calls({"text": again, "kind": "fact"}), says("Ok.")])
        await guest.ask("Hm.")
        assert "had this forgotten" in (await results(guest))[0]["text"]
    assert await guest.one("SELECT count(*) FROM notes WHERE forgotten_at IS NULL") == 0
    assert "neighbour" not in await prompted(provider)


async def test_an_id_that_names_no_note_of_this_person_is_refused(
    guest: Visit, provider: RunningFake
) -> None:
    other = await visit(guest.app)
    await provider.script([calls({"text": "Otto collects stamps.", "kind": "fact"}), says("Ok.")])
    await other.ask("Otto collects stamps.")
    strange = await short_id(guest)
    for arguments in ({"id": strange}, {"id": "n00000000"}, {"id": "7"}, {}):
        await provider.script([calls(arguments, name="forget_memory"), says("Ok.")])
        await guest.ask("Forget it.")
        assert (await results(guest))[0]["is_error"]
    assert await guest.one("SELECT count(*) FROM notes WHERE forgotten_at IS NULL") == 1
