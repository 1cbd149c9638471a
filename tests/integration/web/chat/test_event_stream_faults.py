"""What breaks around an event stream: slow readers, Redis, Postgres, the process itself."""

from __future__ import annotations

import asyncio

import pytest
from redis.asyncio import Redis

from tests.kit.web.event_stream_client import open_stream, post
from tests.kit.web.fixtures import Server, Starter
from web.server import send_queue


@pytest.mark.control("S34")
async def test_unread_stream_is_cut_off_and_resumes_without_loss(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(send_queue, "SEND_SECONDS", 1.0)
    sleeper, _ = await open_stream(server)
    reader, welcome = await server.greet(token=sleeper.token)
    session_id = await server.session_id(welcome["session"])
    connection = sleeper.response.connection
    assert connection is not None
    assert isinstance(connection.transport, asyncio.Transport)
    connection.transport.pause_reading()
    text = "x" * 60_000
    for number in range(1, 400):
        await server.conversation.store_event(session_id, "msg", {"text": text})
        event = {"mid": f"n{number}", "role": "notice", "text": text}
        server.process.hub.publish(session_id, number, "msg", event)
        await reader.until("msg", event_seq=number)
        if server.process.hub.screens == 1:
            break
    async with asyncio.timeout(60):
        while server.process.hub.screens > 1:
            await asyncio.sleep(0.01)
    monkeypatch.undo()
    back, again = await open_stream(server, token=sleeper.token, last_event_id=1)
    assert again["resumed"] is True
    assert [one["event_seq"] for one in again["events"]] == list(range(2, again["head"] + 1))
    assert back.numbers == []


async def test_a_redis_that_vanishes_in_an_answer_costs_no_text(starter: Starter) -> None:
    here, there = await starter.start(), await starter.start()
    here.conversation.hold.clear()
    screen, welcome = await here.greet()
    stream, _ = await open_stream(there, token=welcome["token"])
    await screen.say("Hi")
    await screen.until("delta")
    client = Redis.from_url(starter.redis_url)
    try:
        await client.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
        await client.flushall()
    finally:
        await client.aclose()
    here.conversation.hold.set()
    assert (await stream.until("msg", role="assistant"))["text"] == "Hello there."
    assert stream.numbers == [1, 2]


async def test_when_postgres_cuts_its_connections_the_stream_goes_on(server: Server) -> None:
    stream, _ = await open_stream(server)
    await stream.say("Before", cid="c1")
    await stream.until("ctx")
    await server.services.pool.execute(
        """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
            WHERE datname = current_database() AND pid <> pg_backend_pid()"""
    )
    for _ in range(50):
        answer = await post(server, stream.token, {"t": "msg", "cid": "c2", "text": "After"})
        if [one["t"] for one in answer.get("frames", ())] == ["ack"]:
            break
        assert answer["status"] == 503 or answer["close"]["code"] == 1013
        await asyncio.sleep(0.1)
    while stream.numbers[-1:] != [4]:
        assert await stream.next() is not None
    assert stream.numbers == [1, 2, 3, 4]


async def test_an_ending_process_says_goodbye_on_both_wires_and_finishes_its_answer(starter: Starter) -> None:
    server = await starter.start()
    server.conversation.hold.clear()
    socket, welcome = await server.greet()
    stream, _ = await open_stream(server, token=welcome["token"])
    await stream.say("Hi")
    await stream.until("delta")
    closing = asyncio.ensure_future(server.close())
    for shown in (socket, stream):
        assert (await shown.until("bye"))["code"] == 1012
        assert await shown.closed() == 1012
    server.conversation.hold.set()
    await closing
    starter.servers.remove(server)
    other = await starter.start()
    _, back = await open_stream(other, token=welcome["token"], last_seq=1)
    assert [one["text"] for one in back["events"]] == ["Hello there."]
