"""An edited message: requests, search, recall, notes and summaries have its new wording."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from shared.adapters.postgres.memory.recall_index import PostgresRecallIndex
from shared.adapters.postgres.turns.pins import PostgresPins
from tests.acceptance.sent_requests import again, sorted_keys
from tests.acceptance.turns.repeated_answers import run, says, sent, talk
from tests.kit.app_driver import Visit
from tests.kit.fakes.messages_api.harness import RunningFake

OLD, NEW, NEWEST = "12th", "13th", "14th"
FLIGHT = "My flight leaves on the {}."


@pytest.fixture
def app_options() -> dict[str, Any]:
    return {"handover": "on", "context_window": 12_000, "max_output": 1_000, "keep_turns": 2}


async def tell_flight(guest: Visit, provider: RunningFake) -> int:
    await says(provider, "Have a good trip.")
    told = await guest.say(FLIGHT.format(OLD))
    await guest.answered()
    return told.seq


async def edit_twice(guest: Visit, seq: int) -> list[str]:
    return [await guest.reword(seq, FLIGHT.format(day)) for day in (NEW, NEWEST)]


async def expect_newest(provider: RunningFake) -> None:
    body = await sent(provider)
    assert NEWEST in body
    assert OLD not in body
    assert NEW not in body


async def index(guest: Visit) -> str:
    indexer = PostgresRecallIndex(guest.app.pool)
    while await indexer.index_session(guest.session_id):
        pass
    return str(await guest.one("SELECT string_agg(text, '|') FROM passages"))


async def search(guest: Visit, words: str) -> list[str]:
    page = await guest.app.stores.message_search.search(guest.session_id, words, limit=20)
    return [hit.mid for hit in page.hits]


async def test_ten_later_requests_hold_the_newest_wording(guest: Visit, provider: RunningFake) -> None:
    seq = await tell_flight(guest, provider)
    assert await edit_twice(guest, seq) == ["last", "last"]
    for number in range(10):
        await guest.ask(f"Question number {number}?")
        await expect_newest(provider)
    assert await search(guest, OLD) == []
    assert await search(guest, NEW) == []
    assert len(await search(guest, NEWEST)) == 1


async def test_edit_of_older_message_changes_search_and_export(guest: Visit, provider: RunningFake) -> None:
    seq = await tell_flight(guest, provider)
    await guest.ask("How are you?")
    assert await edit_twice(guest, seq) == ["old", "old"]
    await guest.ask("Thank you.")
    await expect_newest(provider)
    assert len(await search(guest, NEWEST)) == 1
    exported = await guest.app.exporter.export(guest.session_id, "json")
    [talked] = json.loads(exported)["conversations"]
    texts = [one["text"] for one in talked["messages"] if "flight" in one["text"]]
    assert sorted(texts) == [FLIGHT.format(day) for day in (OLD, NEW, NEWEST)]
    newest = await guest.one("SELECT max(seq) FROM entries WHERE blocks::text LIKE '%14th%'")
    former = await guest.app.stores.history.list_versions(guest.session_id, newest)
    assert former is not None
    assert [one["text"] for one in former] == [FLIGHT.format(OLD), FLIGHT.format(NEW)]


async def test_screen_shows_edited_message_in_its_place(guest: Visit, provider: RunningFake) -> None:
    seq = await tell_flight(guest, provider)
    await guest.ask("How are you?")
    await edit_twice(guest, seq)
    shown = [one.payload.get("text") for one in await guest.app.stores.events.list_newest(guest.session_id)]
    assert shown[0] == FLIGHT.format(NEWEST)
    assert len(shown) == 4


async def test_edit_after_summary_is_sent_until_the_next(guest: Visit, provider: RunningFake) -> None:
    seq = await tell_flight(guest, provider)
    await talk(guest, 6)
    assert (await run(guest, "compact", "--force")).success
    assert await guest.one("SELECT base_turn FROM sessions") >= 1
    await index(guest)
    await edit_twice(guest, seq)
    assert NEWEST in await index(guest)
    assert OLD not in await index(guest)
    await guest.ask("And now?")
    body = await sent(provider)
    assert "<edited_messages>" in body
    assert FLIGHT.format(NEWEST) in body
    assert NEW not in body
    turn = await guest.one("SELECT answered_turn FROM sessions")
    assert sorted_keys(await again(guest, turn)) == sorted_keys(body)
    await talk(guest, 6)
    assert (await run(guest, "compact", "--force")).success
    asked = [json.dumps(one["body"]) for one in await provider.requests() if one["kind"] == "summary"]
    assert FLIGHT.format(NEWEST) in asked[-1]
    await guest.ask("And then?")
    assert "<edited_messages>" not in await sent(provider)


async def test_edit_after_undone_summary_is_read_in_its_place(guest: Visit, provider: RunningFake) -> None:
    seq = await tell_flight(guest, provider)
    await talk(guest, 6)
    assert (await run(guest, "compact", "--force")).success
    await edit_twice(guest, seq)
    assert (await run(guest, "undo")).success
    await guest.ask("And now?")
    await expect_newest(provider)
    assert "<edited_messages>" not in await sent(provider)


async def test_notes_follow_the_edit(guest: Visit, provider: RunningFake) -> None:
    seq = await tell_flight(guest, provider)
    await guest.one(
        """INSERT INTO notes (contact_id, scope, kind, text, hash, authority, session_id, from_turn,
                              through_turn)
           SELECT s.contact_id, a.name, 'fact', 'Their flight leaves on the 12th.', sha256('x'), 'person',
                  s.id, 1, 1
             FROM sessions s JOIN agents a ON a.id = s.agent_id WHERE s.id = $1""",
        guest.session_id,
    )
    await edit_twice(guest, seq)
    live = "SELECT string_agg(text, '|') FROM notes WHERE superseded_by IS NULL AND forgotten_at IS NULL"
    assert await guest.one(live) == "Their flight leaves on the 14th."
    assert await guest.reword(seq, FLIGHT.format(NEW)) == "last"
    assert await guest.one(live) == "Their flight leaves on the 13th."


async def test_pin_and_repeated_question_follow_the_edit(guest: Visit, provider: RunningFake) -> None:
    seq = await tell_flight(guest, provider)
    assert await PostgresPins(guest.app.pool).pin(guest.session_id, seq, most_tokens=400) == "pinned"
    await says(provider, "A good trip indeed.")
    assert (await run(guest, "retry")).success
    await guest.answered()
    await edit_twice(guest, seq)
    await guest.ask("Well?")
    await expect_newest(provider)
    [pinned] = await PostgresPins(guest.app.pool).list_pins(guest.session_id)
    assert pinned.text == FLIGHT.format(NEWEST)


async def test_same_wording_and_repeated_edit_change_nothing(guest: Visit, provider: RunningFake) -> None:
    seq = await tell_flight(guest, provider)
    assert await guest.reword(seq, FLIGHT.format(OLD)) == "same"
    for _ in range(2):
        assert await guest.reword(seq, FLIGHT.format(NEW), key="tg:1:2") == "last"
    assert await guest.one("SELECT count(*) FROM entries WHERE replaces_seq IS NOT NULL") == 1


@pytest.mark.parametrize("kind", ["summary", "flush"])
async def test_silent_call_restarts_when_its_message_is_edited(
    guest: Visit, provider: RunningFake, kind: str
) -> None:
    seq = await tell_flight(guest, provider)
    await talk(guest, 6)
    await provider.script([{"match": {"kind": kind}, "times": 1, "action": {"latency": 2.0}}])
    compacting = asyncio.ensure_future(run(guest, "compact", "--force"))
    async with asyncio.timeout(60):
        while not [one for one in await provider.requests() if one["kind"] == kind]:
            await asyncio.sleep(0.02)
    await edit_twice(guest, seq)
    assert (await compacting).success
    asked = [json.dumps(one["body"]) for one in await provider.requests() if one["kind"] == kind]
    assert len(asked) > 1
    assert NEWEST in asked[-1]
    assert OLD not in asked[-1]
    assert OLD not in str(await guest.one("SELECT string_agg(summary_text, '|') FROM compactions"))
    live = "SELECT string_agg(text, '|') FROM notes WHERE superseded_by IS NULL AND forgotten_at IS NULL"
    assert OLD not in str(await guest.one(live))
    await guest.ask("And now?")
    body = await sent(provider)
    assert OLD not in body
    assert NEW not in body
