"""Several web processes, with Redis, without it, and their end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from shared.adapters.redis.announcer import build_channel_prefix
from tests.kit.web.fixtures import Screen, Starter
from web.protocol import wire


async def test_a_screen_at_another_process_sees_the_answer_being_written(starter: Starter) -> None:
    here, there = await starter.start(), await starter.start()
    here.conversation.hold.clear()
    one, welcome = await here.greet()
    two, _ = await there.greet(token=welcome["token"])
    await starter.until_followed(await here.session_id(welcome["session"]), by=2)
    await one.say("Hi")
    assert (await two.until("msg"))["text"] == "Hi"
    while _shown(two) != "Hello there.":
        await two.next()
    assert ("started", 1) in [(frame["state"], frame["turn"]) for frame in two.frames if frame["t"] == "run"]
    late, late_welcome = await there.greet(token=welcome["token"])
    assert late_welcome["state"]["run"]["text"] == "Hello there."
    here.conversation.hold.set()
    assert (await two.until("msg"))["text"] == "Hello there."
    assert (await late.until("msg"))["event_seq"] == 2
    await two.until("run", state="done")
    assert two.numbers == [1, 2]


def _shown(screen: Screen) -> str:
    return "".join(frame["text"] for frame in screen.frames if frame["t"] == "delta")


async def test_run_of_another_process_is_shown_after_its_message(starter: Starter) -> None:
    server = await starter.start(redis=False)
    screen, welcome = await server.greet()
    session_id = await server.session_id(welcome["session"])
    hub, frames = server.process.hub, len(screen.frames)
    number = await server.conversation.store_event(
        session_id, "msg", {"mid": "m1", "role": "person", "turn": 1}
    )
    for frame in (
        {"event_seq": number},
        wire.run(1, "started"),
        {"t": "delta", "turn": 1, "attempt": 1, "off": 0, "text": "Hel"},
        {"t": "delta", "turn": 1, "attempt": 1, "off": 3, "text": "lo."},
        wire.run(1, "tool", tool="recall"),
    ):
        hub._handle_message(session_id, {**frame, "origin": "elsewhere"})
    await screen.until("run", state="tool")
    assert [frame["t"] for frame in screen.frames[frames:]] == ["msg", "run", "delta", "delta", "run"]


async def test_text_that_an_answer_has_made_needless_is_not_shown_behind_it(starter: Starter) -> None:
    server = await starter.start(redis=False)
    screen, welcome = await server.greet()
    session_id = await server.session_id(welcome["session"])
    hub, frames = server.process.hub, len(screen.frames)
    _, head = [
        await server.conversation.store_event(
            session_id, "msg", {"mid": f"m-{role}", "role": role, "turn": 1, "text": "Hello."}
        )
        for role in ("person", "assistant")
    ]
    for frame in (
        {"event_seq": head},
        {"t": "delta", "turn": 1, "attempt": 1, "off": 0, "text": "Hello."},
        wire.run(1, "done"),
    ):
        hub._handle_message(session_id, {**frame, "origin": "elsewhere"})
    await screen.until("run", state="done")
    assert [frame["t"] for frame in screen.frames[frames:]] == ["msg", "msg", "run"]


async def test_without_redis_the_text_arrives_whole_from_postgres(starter: Starter) -> None:
    here, there = await starter.start(redis=False), await starter.start(redis=False)
    one, welcome = await here.greet()
    two, _ = await there.greet(token=welcome["token"])
    await one.say("Hi")
    assert (await two.until("msg", role="assistant"))["text"] == "Hello there."
    assert two.numbers == [1, 2]


async def test_an_event_is_never_seen_before_an_earlier_one(starter: Starter) -> None:
    server = await starter.start(redis=False)
    screen, welcome = await server.greet()
    session_id = await server.session_id(welcome["session"])
    hub, conversation = server.process.hub, server.conversation
    numbers = [
        await conversation.store_event(session_id, "pin", {"mid": f"m{n}", "pinned": True}) for n in range(6)
    ]
    assert numbers == [1, 2, 3, 4, 5, 6]
    # The third and the last come first, one comes twice, the others are never told.
    hub.publish(session_id, 3, "pin", {"mid": "m2", "pinned": True})
    hub.publish(session_id, 6, "pin", {"mid": "m5", "pinned": True})
    hub.publish(session_id, 3, "pin", {"mid": "m2", "pinned": True})
    while screen.numbers[-1:] != [6]:
        await screen.until("pin")
    assert screen.numbers == [1, 2, 3, 4, 5, 6]
    assert [frame["mid"] for frame in screen.frames if frame["t"] == "pin"] == [f"m{n}" for n in range(6)]


async def test_an_announced_event_that_does_not_exist_is_forgotten(starter: Starter) -> None:
    server = await starter.start(redis=False)
    screen, welcome = await server.greet()
    session_id = await server.session_id(welcome["session"])
    server.process.hub.advance_to(session_id, 40)
    await screen.say("Hi")
    await screen.until("msg", event_seq=2)
    assert screen.numbers == [1, 2]


async def test_nonsense_on_a_shared_redis_is_ignored(starter: Starter) -> None:
    server = await starter.start()
    screen, welcome = await server.greet()
    session_id = await server.session_id(welcome["session"])
    from redis.asyncio import Redis

    client = Redis.from_url(starter.redis_url)
    nonsense = (
        b"\xff",
        "[]",
        "{",
        '{"event_seq":"x"}',
        '{"t":"delta"}',
        '{"t":["x"]}',
        '{"t":"delta","turn":"x"}',
        '{"t":"stream","turn":"x"}',
        '{"t":"stream"}',
        '{"t":"wanted"}',
    )
    for text in nonsense:
        await client.publish(f"{build_channel_prefix(client)}{session_id}", text)
    await client.publish(
        f"{build_channel_prefix(client)}{session_id}", '{"t":"compaction.progress","id":"9","percent":40}'
    )
    await client.aclose()
    assert await screen.until("compaction.progress") == {"t": "compaction.progress", "id": "9", "percent": 40}
    await screen.say("Hi")
    await screen.until("msg", event_seq=2)


async def test_the_end_of_a_process_is_said_and_answers_are_finished(starter: Starter) -> None:
    server = await starter.start()
    server.conversation.hold.clear()
    screen, welcome = await server.greet()
    await screen.say("Hi")
    await screen.until("delta")
    closing = asyncio.ensure_future(server.close())
    goodbye = await screen.until("bye")
    assert goodbye["code"] == 1012
    assert 250 <= goodbye["retry_ms"] <= 5_000
    assert await screen.closed() == 1012
    server.conversation.hold.set()
    await closing
    starter.servers.remove(server)
    other = await starter.start()
    _, back = await other.greet(token=welcome["token"], last_seq=1)
    assert [event["text"] for event in back["events"]] == ["Hello there."]


async def test_a_process_that_is_ending_is_not_ready(starter: Starter) -> None:
    server = await starter.start()
    async with server.client.get(f"{server.url}/readyz") as answer:
        assert answer.status == 200
    server.process.start_draining()
    async with server.client.get(f"{server.url}/readyz") as answer:
        assert answer.status == 503
        assert (await answer.json())["status"] == "draining"
    async with server.client.get(f"{server.url}/healthz") as answer:
        assert answer.status == 200
    async with server.client.get(f"{server.url}/ws", headers={"Origin": server.url}) as answer:
        assert answer.status == 503


async def test_process_is_not_ready_while_its_libraries_load(starter: Starter) -> None:
    server = await starter.start()
    server.process.readiness.is_warm = lambda: False
    async with server.client.get(f"{server.url}/readyz") as answer:
        assert answer.status == 503
        assert await answer.json() == {"status": "not ready", "database": "ok"}
    server.process.readiness.is_warm = lambda: True
    async with server.client.get(f"{server.url}/readyz") as answer:
        assert answer.status == 200


@pytest.mark.parametrize("refusal", ["read-only", "disk full", "unreachable"])
async def test_process_whose_beats_are_not_written_is_not_ready(starter: Starter, refusal: Any) -> None:
    server = await starter.start()
    server.process.readiness.write_state = lambda: refusal
    async with server.client.get(f"{server.url}/readyz") as answer:
        assert answer.status == 503
        assert await answer.json() == {"status": "not ready", "database": refusal}
    async with server.client.get(f"{server.url}/healthz") as answer:
        assert answer.status == 200
