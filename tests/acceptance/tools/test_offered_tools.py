"""Which tools stand in a request: those that can be of use, in a list that seldom changes."""

from __future__ import annotations

from typing import Any

from shared.adapters.models.token_counter import VocabularyCounter
from shared.core.session.turns import JobOrder
from tests.kit.app_driver import Visit
from tests.kit.fakes.messages_api.harness import RunningFake

ON_NOTES = {"search_memory", "update_memory", "forget_memory"}


async def bodies(provider: RunningFake, kind: str) -> list[dict[str, Any]]:
    return [record["body"] for record in await provider.requests() if record["kind"] == kind]


def offered(body: dict[str, Any]) -> set[str]:
    return {tool["name"] for tool in body["tools"]}


async def test_the_first_note_brings_the_tools_that_work_on_notes(
    guest: Visit, provider: RunningFake
) -> None:
    await guest.ask("Hello.")
    await guest.ask("Remember that my boat is called Ada.")
    await guest.ask("Where were we?")
    first, saving, saved, after = await bodies(provider, "chat")
    assert not offered(first) & ON_NOTES
    assert "look_at_picture" not in offered(first)
    assert saving["tools"] == saved["tools"] == first["tools"], "a list never changes within a turn"
    assert offered(after) == offered(first) | ON_NOTES
    assert await guest.one("SELECT count(*) FROM notes") == 1
    assert {record["status"] for record in await provider.requests()} == {200}


async def test_a_flush_offers_what_the_last_turn_has_offered(guest: Visit, provider: RunningFake) -> None:
    await guest.ask("Hello. I keep 14 bees in Turku.")
    await guest.ask("Remember that my boat is called Ada.")
    pressed = JobOrder(kind="flush", key="now", trigger="pressure", payload={"threshold": "pressure"})
    await guest.app.commands._store.request_job(guest.session_id, pressed)
    await guest.run_due_jobs()
    chats, flushes = await bodies(provider, "chat"), await bodies(provider, "flush")
    assert flushes
    assert all(flush["tools"] == chats[-1]["tools"] for flush in flushes)
    assert not offered(flushes[0]) & ON_NOTES
    assert "update_memory" not in flushes[0]["messages"][-1]["content"][-1]["text"]


async def test_the_first_request_of_a_conversation_holds_little_of_ours(
    guest: Visit, provider: RunningFake
) -> None:
    await guest.ask("Hello.")
    (body,) = await bodies(provider, "chat")
    count = VocabularyCounter().count_tokens
    told = [f"{tool['name']} {tool['description']} {tool['input_schema']}" for tool in body["tools"]]
    ours = sum(map(count, [part["text"] for part in body["system"]] + told))
    assert ours <= 1_040, "spaces between the parts of a schema count here"
