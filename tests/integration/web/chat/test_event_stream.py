"""The talk over an event stream and requests: the same promises as on a WebSocket."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from tests.kit.web.event_stream_client import URL, open_stream, post, ticket
from tests.kit.web.fixtures import Server, Starter, hello
from web.chat import event_stream_chat as module
from web.chat.event_stream_chat import STILL_HERE, encode_event
from web.server.rate_limits import LOCAL


async def test_a_message_is_acknowledged_and_answered_over_a_stream(server: Server) -> None:
    screen, welcome = await open_stream(server)
    assert (welcome["head"], welcome["events"]) == (0, [])
    answer = await screen.say("Hello?")
    assert answer["frames"] == [{"t": "ack", "cid": "c1", "mid": "m1", "event_seq": 1}]
    reply = await screen.until("msg", role="assistant")
    assert (reply["text"], reply["event_seq"]) == ("Hello there.", 2)
    deltas = [frame["text"] for frame in screen.frames if frame["t"] == "delta"]
    assert "Hello there.".startswith("".join(deltas))
    assert screen.ids == [0, 1, 2]


async def test_headers_keep_proxies_and_caches_out_of_the_stream(server: Server) -> None:
    screen, _ = await open_stream(server)
    headers = screen.response.headers
    assert headers["Content-Type"].startswith("text/event-stream")
    assert headers["Cache-Control"] == "no-store"
    assert headers["X-Accel-Buffering"] == "no"
    assert headers["X-Content-Type-Options"] == "nosniff"


async def test_a_repeated_cid_gets_the_same_mid_on_either_wire(server: Server) -> None:
    screen, _ = await open_stream(server)
    first = (await screen.say("Once", cid="c7"))["frames"][0]
    again = (await screen.say("Once", cid="c7"))["frames"][0]
    assert (again["mid"], again["event_seq"], again["dup"]) == (first["mid"], first["event_seq"], True)
    await screen.until("ctx")
    socket, welcome = await server.greet(token=screen.token)
    assert [one["text"] for one in welcome["events"]] == ["Once", "Hello there."]
    await socket.say("Once", cid="c7")
    assert (await socket.until("ack"))["mid"] == first["mid"]


async def test_an_id_used_before_swallows_no_other_message_on_a_stream(server: Server) -> None:
    screen, _ = await open_stream(server)
    assert (await screen.say("One", cid="c1"))["frames"][0]["t"] == "ack"
    refused = (await screen.say("Two", cid="c1"))["frames"][0]
    assert (refused["t"], refused["cid"], refused["code"]) == ("error", "c1", "cid_used")
    assert (await screen.say("One", cid="c1"))["frames"][0]["dup"] is True
    assert (await screen.say("Two", cid="c2"))["frames"][0]["t"] == "ack"


async def test_a_stream_resumes_after_its_last_event_id(server: Server) -> None:
    screen, _ = await open_stream(server)
    await screen.say("One", cid="c1")
    await screen.until("ctx")
    screen.response.close()
    await post(server, screen.token, {"t": "msg", "cid": "c2", "text": "Two"})
    back, welcome = await open_stream(server, token=screen.token, last_event_id=screen.ids[-1])
    assert welcome["resumed"] is True
    numbers = [one["event_seq"] for one in welcome["events"]] + back.numbers
    while numbers[-1] < 4:
        numbers.append((await back.until("msg"))["event_seq"])
    assert numbers == [3, 4]


async def test_a_ticket_opens_one_stream_in_any_process_and_no_second(starter: Starter) -> None:
    one, two = await starter.start(), await starter.start(redis=False)
    given = await ticket(one)
    params = {"ticket": given["ticket"]}
    async with two.client.get(f"{two.url}{URL}", params=params) as first:
        assert first.status == 200
        for server in (one, two):
            async with server.client.get(f"{server.url}{URL}", params=params) as second:
                assert second.status == 401
                assert (await second.json())["code"] == "spent_ticket"


async def test_two_browsers_with_one_ticket_at_once_get_one_stream(server: Server) -> None:
    params = {"ticket": (await ticket(server))["ticket"]}
    responses = await asyncio.gather(
        *(server.client.get(f"{server.url}{URL}", params=params) for _ in range(4))
    )
    assert sorted(one.status for one in responses) == [200, 401, 401, 401]
    for one in responses:
        one.close()


async def test_a_ticket_is_good_for_thirty_seconds(server: Server) -> None:
    given = await ticket(server)
    assert given["expires_in"] == 30
    await server.services.pool.execute(
        "UPDATE one_time_codes SET expires_at = expires_at - interval '30 seconds' WHERE purpose = 'stream'"
    )
    async with server.client.get(f"{server.url}{URL}", params={"ticket": given["ticket"]}) as response:
        assert response.status == 401


@pytest.mark.control("S05")
async def test_neither_ticket_nor_token_is_stored_as_it_is(server: Server) -> None:
    given = await ticket(server)
    rows = await server.services.pool.fetch("SELECT o::text FROM one_time_codes o")
    assert rows
    assert not any(given["ticket"] in row["o"] or given["token"] in row["o"] for row in rows)


@pytest.mark.control("S05")
@pytest.mark.parametrize("word", ["", "short", "x" * 43, "../../etc", "a" * 200])
async def test_a_forged_ticket_opens_nothing(server: Server, word: str) -> None:
    async with server.client.get(f"{server.url}{URL}", params={"ticket": word}) as response:
        assert response.status == 401


async def test_looking_at_the_address_does_not_use_the_ticket_up(server: Server) -> None:
    params = {"ticket": (await ticket(server))["ticket"]}
    async with server.client.head(f"{server.url}{URL}", params=params) as response:
        assert response.status == 405
    async with server.client.get(f"{server.url}{URL}", params=params) as response:
        assert response.status == 200


async def test_a_stop_and_a_command_work_over_requests(server: Server) -> None:
    screen, _ = await open_stream(server)
    server.conversation.hold.clear()
    await screen.say("Go on for ever")
    await screen.until("delta")
    await screen.send({"t": "stop", "mid": "t1"})
    assert (await screen.until("run", state="done"))["turn"] == 1
    await screen.send({"t": "command", "cid": "k1", "command": "status", "args": ""})
    result = await screen.until("command.result", cid="k1")
    assert result["success"] is True
    seen = [*screen.answers, *screen.frames]
    assert [one["percent"] for one in seen if one["t"] == "command.progress"] == [50]


async def test_a_request_may_reach_another_process_than_the_stream(starter: Starter) -> None:
    one, two = await starter.start(), await starter.start()
    screen, welcome = await open_stream(one, by=two)
    await starter.until_followed(await one.session_id(welcome["session"]), by=1)
    await screen.send({"t": "msg", "cid": "c1", "text": "Over there"}, through=two)
    assert (await screen.until("msg", role="assistant"))["text"] == "Hello there."
    await screen.send({"t": "command", "cid": "k1", "command": "status", "args": ""}, through=two)
    await screen.until("command.result", cid="k1")
    assert screen.numbers == [1, 2, 3]


async def test_a_socket_and_a_stream_of_one_session_show_the_same(starter: Starter) -> None:
    one, two = await starter.start(), await starter.start()
    screen, _ = await open_stream(one)
    socket, _ = await two.greet(token=screen.token)
    for number in range(2):
        await screen.say(f"From the stream {number}", cid=f"s{number}")
        await socket.until("msg", role="assistant")
        await socket.say(f"From the socket {number}", cid=f"w{number}")
        await socket.until("msg", role="assistant")
    while screen.numbers[-1:] != [8]:
        assert await screen.next() is not None
    assert screen.numbers == socket.numbers == list(range(1, 9))


async def test_without_redis_a_stream_still_gets_everything(starter: Starter) -> None:
    one, two = await starter.start(redis=False), await starter.start(redis=False)
    screen, _ = await open_stream(one)
    await screen.send({"t": "msg", "cid": "c1", "text": "Anybody?"}, through=two)
    assert (await screen.until("msg", role="assistant"))["event_seq"] == 2


async def test_a_silent_stream_says_that_it_lives(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COMMENT_SECONDS", 0.05)
    screen, _ = await open_stream(server)
    async with asyncio.timeout(30):
        while b"still here" not in await screen.response.content.readline():
            pass
    assert encode_event(STILL_HERE) == ': still here\ndata: {"t":"pong","n":0}\n\n'


async def test_a_closed_tab_gives_its_place_back_at_once(server: Server) -> None:
    screen, _ = await open_stream(server)
    assert server.process.hub.screens == 1
    screen.response.close()
    async with asyncio.timeout(30):
        while server.process.hub.screens:
            await asyncio.sleep(0.01)


async def test_stream_over_the_limit_is_refused_with_4429(starter: Starter) -> None:
    server = await starter.start(limits=replace(LOCAL, sockets_per_session=2))
    first, _ = await open_stream(server)
    await server.greet(token=first.token)
    given = await ticket(server, token=first.token)
    response = await server.client.get(f"{server.url}{URL}", params={"ticket": given["ticket"]})
    third = replace(first, response=response, frames=[])
    assert (await third.until("error"))["code"] == "too_many_sockets"
    assert await third.closed() == 4429


@pytest.mark.control("S31")
async def test_tickets_for_one_address_are_limited(starter: Starter) -> None:
    server = await starter.start(limits=replace(LOCAL, sockets_per_address=2))
    statuses = [(await ticket(server))["status"] for _ in range(4)]
    assert statuses == [200, 200, 429, 429]


async def test_a_stream_says_goodbye_when_the_server_ends(server: Server) -> None:
    screen, _ = await open_stream(server)
    server.process.start_draining()
    bye = await screen.until("bye")
    assert (bye["code"], bye["reason"]) == (1012, "restart")
    assert bye["retry_ms"] >= 250
    assert await screen.closed() == 1012
    refused = await post(server, screen.token, {"t": "ping", "n": 1})
    assert (refused["status"], refused["code"]) == (503, "restarting")
    assert (await ticket(server))["status"] == 503


@pytest.mark.control("S04")
async def test_foreign_pages_get_neither_ticket_nor_stream(server: Server) -> None:
    origin = {"Origin": "https://evil.example"}
    async with server.client.post(f"{server.url}{URL}", json=hello(), headers=origin) as response:
        assert response.status == 403
        assert "Access-Control-Allow-Origin" not in response.headers
    params = {"ticket": (await ticket(server))["ticket"]}
    async with server.client.get(f"{server.url}{URL}", params=params, headers=origin) as response:
        assert response.status == 403
    token = (await ticket(server))["token"]
    headers = {**origin, "Authorization": f"Bearer {token}"}
    body = {"site": "default", "frames": [{"t": "msg", "cid": "c", "text": "x"}]}
    async with server.client.post(f"{server.url}{URL}/send", json=body, headers=headers) as response:
        assert response.status == 403


async def test_an_allowed_page_may_read_ticket_stream_and_answers(starter: Starter) -> None:
    server = await starter.start(allowed_origins=["https://shop.example"])
    origin = {"Origin": "https://shop.example", "Sec-Fetch-Site": "cross-site"}
    async with server.client.options(f"{server.url}{URL}/send", headers=origin) as response:
        assert response.headers["Access-Control-Allow-Origin"] == "https://shop.example"
    async with server.client.post(f"{server.url}{URL}", json=hello(), headers=origin) as response:
        assert response.headers["Access-Control-Allow-Origin"] == "https://shop.example"
        given = await response.json()
    async with server.client.get(
        f"{server.url}{URL}", params={"ticket": given["ticket"]}, headers=origin
    ) as response:
        assert response.headers["Access-Control-Allow-Origin"] == "https://shop.example"
        assert "Access-Control-Allow-Credentials" not in response.headers
    async with server.client.post(
        f"{server.url}{URL}", json=hello(token="x" * 43), headers=origin
    ) as response:
        assert response.status == 401
        assert response.headers["Access-Control-Allow-Origin"] == "https://shop.example"
        assert (await response.json())["code"] == "unknown_token"


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        ({}, "bad_frame"),
        (7, "bad_frame"),
        ("text", "bad_frame"),
        ({"t": "msg", "text": "no cid"}, "bad_frame"),
        ({"t": "msg", "cid": "c", "text": ""}, "empty_message"),
        ({"t": "msg", "cid": "c", "text": "x" * 100_001}, "message_too_long"),
        ({"t": "msg", "cid": "c", "text": "half \ud800"}, "unreadable_message"),
        (hello(), "bad_frame"),
    ],
)
async def test_a_bad_frame_gets_a_typed_error_and_the_next_one_counts(
    server: Server, frame: object, code: str
) -> None:
    screen, _ = await open_stream(server)
    answer = await post(server, screen.token, frame, {"t": "msg", "cid": "after", "text": "Still here?"})
    assert answer["frames"][0]["code"] == code
    assert answer["frames"][1]["t"] == "ack"


@pytest.mark.parametrize("frames", [None, [], "x", [{"t": "ping", "n": 1}] * 33])
async def test_a_request_carries_one_to_thirty_two_frames(server: Server, frames: object) -> None:
    screen, _ = await open_stream(server)
    headers = {"Authorization": f"Bearer {screen.token}"}
    body = {"site": "default", "frames": frames}
    async with server.client.post(f"{server.url}{URL}/send", json=body, headers=headers) as response:
        assert (response.status, (await response.json())["code"]) == (400, "bad_frame")


@pytest.mark.control("S32")
async def test_oversized_frame_ends_the_stream_as_on_a_socket(server: Server) -> None:
    screen, _ = await open_stream(server)
    answer = await post(server, screen.token, {"t": "msg", "cid": "c", "text": "x" * 700_000})
    assert answer["frames"][0]["code"] == "message_too_long"
    assert answer["close"]["code"] == 1009
    big = await post(server, screen.token, {"t": "msg", "cid": "c", "text": "x" * 1_100_000})
    assert big["status"] == 413


async def test_frames_are_limited_per_session(starter: Starter) -> None:
    server = await starter.start(limits=replace(LOCAL, frames=3))
    screen, _ = await open_stream(server)
    answer = await post(server, screen.token, *({"t": "ping", "n": n} for n in range(5)))
    assert [one["t"] for one in answer["frames"]] == ["pong"] * 3 + ["error"] * 2
    assert answer["frames"][-1]["code"] == "rate_limited"


async def test_only_a_visitor_of_the_site_may_send(server: Server) -> None:
    assert (await post(server, None, {"t": "ping", "n": 1}))["status"] == 401
    assert (await post(server, "x" * 43, {"t": "ping", "n": 1}))["status"] == 401
    screen, _ = await open_stream(server)
    wrong = await post(server, screen.token, {"t": "ping", "n": 1}, site="another")
    assert (wrong["status"], wrong["code"]) == (401, "unknown_token")


async def test_the_cookie_of_our_own_page_speaks_for_its_visitor(server: Server) -> None:
    async with server.client.get(f"{server.url}/chat") as response:
        cookie = response.cookies["evertalk_visitor"].value
    server.client.cookie_jar.clear()
    headers = {"Origin": server.url, "Cookie": f"evertalk_visitor={cookie}"}
    async with server.client.post(f"{server.url}{URL}", json=hello(), headers=headers) as response:
        given = await response.json()
    assert "token" not in given
    body = {"site": "default", "frames": [{"t": "msg", "cid": "c1", "text": "By cookie"}]}
    async with server.client.post(f"{server.url}{URL}/send", json=body, headers=headers) as response:
        assert (await response.json())["frames"][0]["t"] == "ack"
    foreign = headers | {"Origin": "https://evil.example"}
    async with server.client.post(f"{server.url}{URL}/send", json=body, headers=foreign) as response:
        assert response.status == 403
