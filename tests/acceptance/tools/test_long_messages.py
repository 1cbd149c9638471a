"""A pasted log on its whole way: stored once and whole, sent in part, read on by the tool, exported whole."""

from __future__ import annotations

import json
from typing import Any

import pytest

from shared.adapters.postgres.turns.pins import PostgresPins
from shared.core.session.artifacts import LONG_CHARS
from shared.core.values.errors import MessageTooLong
from shared.services.turns.session_service import MESSAGE_CHARS
from tests.kit.app_driver import Visit, visit
from tests.kit.fakes.messages_api.harness import RunningFake

SECRET = "The code word of chapter seven is MERIDIAN."
LINES = [f"Line {number} of the report says nothing of interest to anybody." for number in range(1, 1_500)]
REPORT = "\n".join([*LINES[:800], SECRET, *LINES[800:]])


async def chats(provider: RunningFake) -> list[dict[str, Any]]:
    return [one["body"] for one in await provider.requests() if one["kind"] == "chat"]


async def test_a_long_message_is_stored_whole_and_sent_in_part(guest: Visit, provider: RunningFake) -> None:
    assert LONG_CHARS < len(REPORT) <= MESSAGE_CHARS
    await guest.ask(REPORT)
    await guest.ask("Thank you.")
    first, second = await chats(provider)
    sent = json.dumps(first, ensure_ascii=False)
    assert f"[Shown in part: {len(REPORT):,} characters of message #1." in sent
    assert SECRET not in sent
    assert LINES[0] in sent
    assert LINES[-1] in sent
    kept = [block.get("text") for block in first["messages"][0]["content"]][:-1]
    assert [block.get("text") for block in second["messages"][0]["content"]] == kept
    assert await guest.one("SELECT words FROM entry_rows WHERE seq = 1") == REPORT
    assert await guest.one("SELECT tokens FROM entry_rows WHERE seq = 1") < 4_000
    assert await guest.one("SELECT count(*) FROM artifacts") == 0
    assert {one["status"] for one in await provider.requests()} == {200}


async def test_the_model_reads_on_where_it_wants_to(guest: Visit, provider: RunningFake) -> None:
    await guest.ask(REPORT)
    asked = {"name": "recall", "input": {"artifact": "msg_1", "query": "code word"}}
    await provider.script([{"times": 1, "action": {"tool_use": [asked]}}])
    await guest.ask("What is the code word?")
    result = json.dumps((await chats(provider))[-1]["messages"][-1])
    assert f"msg_1, characters {REPORT.index('code word') - 300:,} to " in result
    assert SECRET in result


async def test_long_message_of_another_conversation_cannot_be_read(
    guest: Visit, provider: RunningFake
) -> None:
    await guest.ask(REPORT)
    other = await visit(guest.app)
    asked = {"name": "recall", "input": {"artifact": "msg_1"}}
    await other.ask("Hello")
    await provider.script(
        [{"times": 1, "action": {"tool_use": [{**asked, "input": {"artifact": "msg_99"}}]}}]
    )
    await other.ask("What does it say?")
    assert "This conversation has no artifact msg_99." in json.dumps((await chats(provider))[-1])
    await provider.script([{"times": 1, "action": {"tool_use": [asked]}}])
    await other.ask("And the first?")
    assert "msg_1, characters 0 to 5 of 5." in json.dumps((await chats(provider))[-1])


async def test_a_pinned_message_is_pinned_in_part(guest: Visit, provider: RunningFake) -> None:
    await guest.ask(REPORT)
    pins = PostgresPins(guest.app.pool)
    assert await pins.pin(guest.session_id, 1, most_tokens=10_000) == "pinned"
    await guest.ask("Hello again")
    sent = json.dumps((await chats(provider))[-1], ensure_ascii=False)
    assert "of message #1." in sent
    assert SECRET not in sent


async def test_what_is_longer_still_is_refused(guest: Visit) -> None:
    with pytest.raises(MessageTooLong):
        await guest.ask("x" * (MESSAGE_CHARS + 1))
    assert await guest.one("SELECT count(*) FROM entry_rows") == 0
