"""The talk over requests that wait: the same promises as on a WebSocket."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from tests.kit.web.event_stream_client import URL, post, ticket
from tests.kit.web.fixtures import WAIT_SECONDS, Server, Starter
from tests.kit.web.poll_client import PollScreen, open_poll, status_of
from web.server import poll_lines as module
from web.server.rate_limits import LOCAL

MISSING = "SELECT count(*) FROM events WHERE NOT event_seq = ANY ($1::bigint[])"


async def test_message_is_acknowledged_and_answered_over_polls(server: Server) -> None:
    screen, welcome = await open_poll(server)
    assert (welcome["head"], welcome["events"]) == (0, [])
    answer = await screen.say("Hello?")
    assert answer["frames"] == [{"t": "ack", "cid": "c1", "mid": "m1", "event_seq": 1}]
    reply = await screen.until("msg", role="assistant")
    assert (reply["text"], reply["event_seq"]) == ("Hello there.", 2)
    await screen.until("run", state="done")
    assert screen.numbers == [1, 2]


async def test_growing_answer_comes_as_whole_text(server: Server) -> None:
    screen, _ = await open_poll(server)
    server.conversation.hold.clear()
    await screen.say("Go on")
    shown = await screen.until("stream", turn=1)
    assert shown["text"] == "Hello there."
    server.conversation.hold.set()
    await screen.until("msg", role="assistant")
    assert not [frame for frame in screen.frames if frame["t"] == "delta"]


async def test_poll_without_news_is_empty_and_kept_by_no_cache(server: Server) -> None:
    screen, _ = await open_poll(server)
    while await screen.poll(wait=0):
        pass
    async with screen.request(wait=0) as response:
        assert (response.status, await response.read()) == (204, b"")
        assert response.headers["Cache-Control"] == "no-store"
        assert response.headers["X-Content-Type-Options"] == "nosniff"
    await screen.say("Now there is news")
    async with screen.request() as response:
        assert (response.status, response.headers["Cache-Control"]) == (200, "no-store")


async def test_lost_response_is_sent_again(server: Server) -> None:
    screen, _ = await open_poll(server)
    await screen.say("One", cid="c1")
    await screen.until("run", state="done")
    await screen.say("Two", cid="c2")
    async with screen.request() as lost:
        assert (await lost.json())["frames"]
    frames = await screen.poll()
    assert frames[0]["t"] == "welcome"
    assert frames[0]["resumed"] is True
    numbers = [event["event_seq"] for event in frames[0]["events"]] + screen.numbers
    while 4 not in numbers:
        numbers += [one["event_seq"] for one in await screen.poll() if "event_seq" in one]
    assert sorted(set(numbers)) == [1, 2, 3, 4]


async def test_second_request_of_a_line_ends_the_first(server: Server) -> None:
    screen, _ = await open_poll(server)
    while await screen.poll(wait=0):
        pass
    waiting = asyncio.create_task(screen.poll(wait=20))
    await asyncio.sleep(0.1)
    await screen.say("Hello?")
    newer = PollScreen(server=server, token=screen.token, name=screen.name)
    newer.after, newer.batch = screen.after, screen.batch
    brought = [*await newer.poll(wait=20), *await waiting]
    assert [one["event_seq"] for one in brought if one.get("role") == "person"] in ([1], [])
    # A client that comes late, as on a busy machine, is greeted anew, with the events in its welcome.
    async with asyncio.timeout(WAIT_SECONDS):
        while 2 not in [event.get("event_seq") for one in brought for event in one.get("events", [one])]:
            brought += await newer.poll()


async def test_polls_may_reach_several_processes(starter: Starter) -> None:
    one, two = await starter.start(), await starter.start()
    screen, _ = await open_poll(one)
    for number in range(4):
        await screen.say(f"Number {number}", cid=f"c{number}")
    seen: set[int] = set()
    async with asyncio.timeout(60):
        while len(seen) < 5 or await one.services.pool.fetchval(MISSING, list(seen)):
            for server in (one, two):
                frames = await screen.poll(through=server, wait=1)
                seen |= {event["event_seq"] for frame in frames for event in frame.get("events", [frame])
                         if "event_seq" in event}  # fmt: skip


async def test_without_redis_polls_still_get_everything(starter: Starter) -> None:
    one, two = await starter.start(redis=False), await starter.start(redis=False)
    screen, _ = await open_poll(one)
    await screen.say("Anybody?", through=two)
    assert (await screen.until("msg", role="assistant"))["event_seq"] == 2


async def test_draft_of_another_process_ends_with_its_last_reader(starter: Starter) -> None:
    one, two = await starter.start(), await starter.start()
    screen, welcome = await open_poll(one)
    session_id = await one.session_id(welcome["session"])
    await starter.until_followed(session_id, by=1)
    two.conversation.hold.clear()
    await screen.say("Over there", through=two)
    async with asyncio.timeout(30):
        while one.process.hub.draft(session_id) is None:
            await screen.poll(wait=1)
    (line,) = one.process.poll_lines._lines.values()
    await one.process.poll_lines.end(line)
    assert one.process.hub.draft(session_id) is None
    two.conversation.hold.set()


@pytest.mark.control("S05")
async def test_poll_needs_the_visitors_token(server: Server) -> None:
    screen, _ = await open_poll(server)
    for token in (None, "x" * 43):
        stranger = replace(screen, token=token)
        async with stranger.request(wait=0) as response:
            assert response.status == 401


@pytest.mark.control("S07", "S08")
async def test_poll_of_another_visitor_reads_nothing_of_a_line(server: Server) -> None:
    screen, _ = await open_poll(server)
    await screen.say("A secret of mine")
    other = (await ticket(server))["token"]
    stranger = replace(screen, token=other, frames=[], unread=[])
    frames = await stranger.poll(wait=0)
    assert [frame["t"] for frame in frames] == ["welcome"]
    assert frames[0]["events"] == []
    assert (await screen.until("msg", role="person"))["text"] == "A secret of mine"


@pytest.mark.control("S04", "S12")
async def test_poll_from_a_foreign_page_is_refused(server: Server) -> None:
    screen, _ = await open_poll(server)
    query: dict[str, Any] = {"site": "default", "stream": screen.name, "wait": 0}
    headers = {"Origin": "https://evil.example", "Authorization": f"Bearer {screen.token}"}
    async with server.client.get(f"{server.url}{URL}/events", params=query, headers=headers) as response:
        assert await status_of(response) == (403, "foreign_origin")
        assert "Access-Control-Allow-Origin" not in response.headers


async def test_looking_at_the_address_takes_no_frames(server: Server) -> None:
    await open_poll(server)
    async with server.client.head(f"{server.url}{URL}/events", params={"site": "default"}) as response:
        assert response.status == 405


@pytest.mark.parametrize(
    "query",
    [{"wait": 26}, {"wait": -1}, {"after": -1}, {"stream": "../x"}, {"batch": "b" * 41}, {"site": "*"}],
)
async def test_poll_with_a_malformed_field_is_refused(server: Server, query: dict[str, Any]) -> None:
    screen, _ = await open_poll(server)
    async with screen.request(**{"wait": 0, **query}) as response:
        assert response.status == 400


@pytest.mark.control("S29")
async def test_too_many_polls_wait_their_turn(starter: Starter) -> None:
    server = await starter.start(limits=replace(LOCAL, frames=3, frames_seconds=60.0))
    screen, _ = await open_poll(server)
    statuses = []
    for _ in range(4):
        async with screen.request(wait=0) as response:
            statuses.append(response.status)
            if response.status == 200:
                screen.read(await response.json())
    assert statuses[-1] == 429


async def test_line_of_a_closed_tab_makes_room_for_the_next(starter: Starter) -> None:
    server = await starter.start(limits=replace(LOCAL, sockets_per_session=1))
    first, _ = await open_poll(server)
    second, welcome = await open_poll(server, token=first.token)
    assert welcome["t"] == "welcome"
    assert len(server.process.poll_lines) == 1
    await second.say("Still there")
    assert (await second.until("msg", role="assistant"))["text"] == "Hello there."


@pytest.mark.control("S33")
async def test_waiting_lines_over_the_limit_are_refused_with_4429(starter: Starter) -> None:
    server = await starter.start(limits=replace(LOCAL, sockets_per_session=1))
    first, _ = await open_poll(server)
    while await first.poll(wait=0):
        pass
    waiting = asyncio.create_task(first.poll(wait=20))
    await asyncio.sleep(0.2)
    given = await ticket(server, token=first.token)
    second = PollScreen(server=server, token=first.token, name=given["stream"])
    frames = await second.poll(wait=0)
    assert frames[0]["code"] == "too_many_sockets"
    assert second.close is not None
    assert second.close["code"] == 4429
    await post(server, first.token, {"t": "msg", "cid": "c1", "text": "Hello"})
    assert await waiting


@pytest.mark.control("S33")
async def test_process_with_all_lines_taken_says_so(starter: Starter) -> None:
    server = await starter.start()
    server.process.poll_lines._most = 1
    await open_poll(server)
    given = await ticket(server)
    other = PollScreen(server=server, token=given["token"], name=given["stream"])
    async with other.request(wait=0) as response:
        assert await status_of(response) == (503, "busy")
        assert response.headers["Retry-After"] == "5"


async def test_line_without_requests_is_closed_and_gives_its_place_back(starter: Starter) -> None:
    server = await starter.start()
    server.process.poll_lines._kept_seconds = 0.05
    screen, _ = await open_poll(server)
    async with asyncio.timeout(30):
        while len(server.process.poll_lines) or server.process.hub.screens:
            await asyncio.sleep(0.01)
    assert (await screen.poll())[0]["t"] == "welcome"


@pytest.mark.control("S34")
async def test_slow_reader_is_welcomed_again(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WAITING_FRAMES", 2)
    screen, _ = await open_poll(server)
    for number in range(3):
        await screen.say(f"Number {number}", cid=f"c{number}")
    seen: set[int] = set()
    async with asyncio.timeout(60):
        while len(seen) < 4 or await server.services.pool.fetchval(MISSING, list(seen)):
            frames = await screen.poll(wait=1)
            seen |= {event["event_seq"] for frame in frames for event in frame.get("events", [frame])
                     if "event_seq" in event}  # fmt: skip
            if screen.close is not None:
                screen.batch = ""


async def test_waiting_poll_hears_that_the_server_restarts(server: Server) -> None:
    screen, _ = await open_poll(server)
    while await screen.poll(wait=0):
        pass
    waiting = asyncio.create_task(screen.poll(wait=20))
    await asyncio.sleep(0.1)
    server.process.hub.close_all()
    frames = await waiting
    assert [frame["t"] for frame in frames] == ["bye"]
    assert screen.close == {"code": 1012, "reason": "restart"}


async def test_connections_are_counted_by_transport(server: Server) -> None:
    await open_poll(server)
    await server.greet()
    counts = server.process.hub.count_transports()
    assert counts == {"websocket": 1, "event_stream": 0, "long_poll": 1}
