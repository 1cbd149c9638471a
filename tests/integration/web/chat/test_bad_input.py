"""What browsers, bots and mischief send: each gets a typed answer, and nothing accepted is lost."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest
from aiohttp import WSServerHandshakeError

from shared.core.session.turns import HEAD_CHARS
from shared.core.values.errors import StorageUnavailable
from tests.kit.storage_health import broken_line
from tests.kit.web.fixtures import Server, Starter, hello
from web.chat import socket_chat
from web.protocol.wire import MAX_CHARS
from web.server.rate_limits import LOCAL, ClientLimits

LONG = "x" * 100_001


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        ("{", "bad_frame"),
        ("[]", "bad_frame"),
        ("null", "bad_frame"),
        ("[" * 60_000, "bad_frame"),
        ('{"t": NaN}', "bad_frame"),
        ('{"n": 1' + "0" * 5_000 + "}", "bad_frame"),
        ({"no": "t"}, "bad_frame"),
        ({"t": 7}, "bad_frame"),
        ({"t": "msg", "text": "no cid"}, "bad_frame"),
        ({"t": "msg", "cid": "", "text": "x"}, "bad_frame"),
        ({"t": "msg", "cid": "x" * 65, "text": "x"}, "bad_frame"),
        ({"t": "msg", "cid": ["c"], "text": "x"}, "bad_frame"),
        ({"t": "msg", "cid": "c\u0000", "text": "x"}, "bad_frame"),
        ({"t": "msg", "cid": "c", "text": {"a": 1}}, "bad_frame"),
        ({"t": "msg", "cid": "c", "text": ""}, "empty_message"),
        ({"t": "msg", "cid": "c", "text": " \n\t "}, "empty_message"),
        ({"t": "msg", "cid": "c", "text": LONG}, "message_too_long"),
        ({"t": "msg", "cid": "c", "text": "a\u0000b"}, "unreadable_message"),
        ('{"t":"msg","cid":"c","text":"half \\ud800"}', "unreadable_message"),
        ('{"t":"command","cid":"c","command":"help","args":{"x":"\\ud800"}}', "unreadable_message"),
        ('{"t":"command","cid":"c","command":"help","args":"\\ud800"}', "unreadable_message"),
        ({"t": "command", "cid": "c", "command": "nonsense", "args": ""}, "unknown_command"),
        ({"t": "command", "cid": "c", "command": "HELP; drop", "args": ""}, "bad_frame"),
        ({"t": "command", "cid": "c", "command": "help", "args": [1]}, "bad_frame"),
        ({"t": "pin", "cid": "c", "mid": "m1", "pinned": "yes"}, "bad_frame"),
        ({"t": "pin", "cid": "c", "mid": "../m1", "pinned": True}, "bad_frame"),
        ({"t": "ping", "n": "1"}, "bad_frame"),
        ({"t": "ping", "n": True}, "bad_frame"),
        ({"t": "stop", "mid": 5}, "bad_frame"),
        (hello(), "bad_frame"),
    ],
)
async def test_a_bad_frame_gets_a_typed_error_and_the_talk_goes_on(
    server: Server, frame: str | dict[str, object], code: str
) -> None:
    screen, _ = await server.greet()
    await screen.send(frame)
    error = await screen.until("error")
    assert error["code"] == code
    assert error["message"]
    assert error["advice"]
    if isinstance(frame, dict) and frame.get("cid") == "c":
        assert error["cid"] == "c"
    await screen.say("Still here?", cid="after")
    await screen.until("ack", cid="after")
    assert (await screen.until("msg", role="assistant"))["event_seq"] == 2


async def test_8000_characters_of_any_kind_are_stored_as_they_came(server: Server) -> None:
    screen, welcome = await server.greet()
    text = "é\n😀<b>" * 1_333
    await screen.say(text)
    assert (await screen.until("msg", role="person"))["text"] == text
    await screen.until("ctx")
    _, back = await server.greet(token=welcome["token"])
    assert back["events"][0]["text"] == text


async def test_message_of_100_000_characters_is_stored_whole_and_shortened(
    server: Server,
) -> None:
    screen, welcome = await server.greet()
    text = ('é\n😀<b>"' * 14_286)[:MAX_CHARS]
    await screen.say(text)
    shown = await screen.until("msg", role="person")
    assert (shown["text"], shown["chars"]) == (text[:HEAD_CHARS], MAX_CHARS)
    await screen.until("ctx")
    _, back = await server.greet(token=welcome["token"])
    assert (back["events"][0]["text"], back["events"][0]["chars"]) == (text[:HEAD_CHARS], MAX_CHARS)
    headers = {"Authorization": f"Bearer {welcome['token']}"}
    url = f"{server.url}/api/v1/sessions/{welcome['session']}/messages/{shown['mid']}"
    async with server.client.get(url, headers=headers) as answer:
        whole = await answer.json()
    assert (whole["text"], whole["role"]) == (text, "person")


async def test_a_long_message_that_comes_again_is_the_same_message(server: Server) -> None:
    screen, _ = await server.greet()
    text = "word " * 5_000
    await screen.say(text, cid="long")
    first = await screen.until("ack", cid="long")
    await screen.say(text, cid="long")
    assert (await screen.until("ack", cid="long"))["mid"] == first["mid"]
    await screen.say(text + "!", cid="long")
    assert (await screen.until("error"))["code"] == "cid_used"


async def test_long_messages_use_up_what_short_ones_may(starter: Starter) -> None:
    server = await starter.start(limits=replace(LOCAL, messages=20))
    screen, _ = await server.greet()
    await screen.say("x" * 100_000, cid="one")
    await screen.until("ack", cid="one")
    await screen.say("x" * 100_000, cid="two")
    assert (await screen.until("error"))["code"] == "rate_limited"
    await screen.say("A short one", cid="three")
    await screen.until("ack", cid="three")


async def test_frames_of_a_later_protocol_are_ignored(server: Server) -> None:
    screen, _ = await server.greet()
    await screen.send({"t": "typing", "anything": [1, 2]})
    await screen.send({"t": "ping", "n": 1})
    assert await screen.next() == {"t": "pong", "n": 1}


async def test_a_binary_frame_is_refused(server: Server) -> None:
    screen, _ = await server.greet()
    await screen.socket.send_bytes(b"\x00\x01")
    assert (await screen.until("error"))["code"] == "unreadable_message"
    assert await screen.closed() == 1003


@pytest.mark.control("S32")
async def test_a_frame_over_640_kib_is_refused_with_a_reason(server: Server) -> None:
    screen, _ = await server.greet()
    await screen.say("x" * 660_000)
    assert (await screen.until("error"))["code"] == "message_too_long"
    assert await screen.closed() == 1009


@pytest.mark.control("S32")
async def test_a_huge_frame_is_cut_off(server: Server) -> None:
    screen, _ = await server.greet()
    await screen.say("x" * 2_000_000)
    assert await screen.closed() == 1009


@pytest.mark.parametrize(
    "first",
    [
        "{",
        "nothing",
        json.dumps({"t": "msg", "cid": "c", "text": "too early"}),
        json.dumps(hello(v=2)),
        json.dumps(hello(v="1")),
        json.dumps(hello(site="../etc")),
        json.dumps(hello(last_seq=-1)),
        json.dumps(hello(last_seq=1.5)),
        json.dumps(hello(token=["x"])),
        json.dumps({"t": "hello"}),
    ],
)
async def test_socket_without_hello_is_closed_with_4400(server: Server, first: str) -> None:
    screen = await server.connect()
    await screen.send(first)
    assert (await screen.until("error"))["code"] == "bad_frame"
    assert await screen.closed() == 4400


async def test_a_binary_hello_is_closed_with_4400(server: Server) -> None:
    screen = await server.connect()
    await screen.socket.send_bytes(b"hello")
    assert await screen.closed() == 4400


@pytest.mark.control("S33")
async def test_silence_instead_of_hello_is_closed_with_4408(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket_chat, "HELLO_SECONDS", 0.05)
    screen = await server.connect()
    assert await screen.closed() == 4408


@pytest.mark.control("S05")
@pytest.mark.parametrize("token", ["A" * 43, "short", "with space" * 5, "'; drop table visitors; --xxxxx"])
async def test_an_unknown_token_is_closed_with_4401(server: Server, token: str) -> None:
    screen = await server.connect()
    await screen.send(hello(token=token))
    assert (await screen.until("error"))["code"] == "unknown_token"
    assert await screen.closed() == 4401


async def test_an_unknown_site_is_closed_with_4403(server: Server) -> None:
    screen = await server.connect()
    await screen.send(hello(site="elsewhere"))
    assert (await screen.until("error"))["code"] == "unknown_site"
    assert await screen.closed() == 4403


@pytest.mark.control("S05", "S08")
async def test_a_token_of_one_site_opens_nothing_at_another(server: Server) -> None:
    _, welcome = await server.greet()
    await server.services.pool.execute(
        "INSERT INTO sites (name, agent_id) SELECT 'shop', id FROM agents LIMIT 1"
    )
    server.process.visitors.forget_sites()
    screen = await server.connect()
    await screen.send(hello(site="shop", token=welcome["token"]))
    assert await screen.closed() == 4401


@pytest.mark.control("S04")
@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:1", "garbage", ""])
async def test_a_foreign_origin_is_refused_before_the_upgrade(server: Server, origin: str) -> None:
    with pytest.raises(WSServerHandshakeError) as refused:
        await server.client.ws_connect(f"{server.url}/ws", headers={"Origin": origin})
    assert refused.value.status == 403


@pytest.mark.control("S04")
async def test_a_missing_origin_is_refused(server: Server) -> None:
    with pytest.raises(WSServerHandshakeError) as refused:
        await server.client.ws_connect(f"{server.url}/ws")
    assert refused.value.status == 403


async def test_when_postgres_is_away_the_browser_is_asked_to_send_again(starter: Starter) -> None:
    server = await starter.start()
    screen, welcome = await server.greet()
    server.conversation.failure = StorageUnavailable("gone")
    await screen.say("Hi")
    error = await screen.until("error")
    assert error["code"] == "storage_unavailable"
    assert "sent again by itself" in error["advice"]
    assert "cid" not in error, "a refusal by cid would make the browser send it under a new one"
    assert (await screen.until("bye"))["retry_ms"] > 0
    assert await screen.closed() == 1013
    server.conversation.failure = None
    again, _ = await server.greet(token=welcome["token"])
    await again.say("Hi")
    assert (await again.until("ack"))["event_seq"] == 1


@pytest.mark.control("S29")
async def test_too_many_frames_get_a_time_to_wait(starter: Starter) -> None:
    server = await starter.start(limits=ClientLimits(frames=5, strikes=3))
    screen, _ = await server.greet()
    for number in range(6):
        await screen.send({"t": "ping", "n": number})
    error = await screen.until("error")
    assert error["code"] == "rate_limited"
    assert 0 < error["retry_after"] <= 3
    for number in range(5):
        await screen.send({"t": "ping", "n": number})
    assert await screen.closed() == 4429


@pytest.mark.control("S29")
async def test_too_many_messages_are_refused_but_never_one_that_was_accepted(starter: Starter) -> None:
    server = await starter.start(limits=ClientLimits(messages=2))
    screen, _ = await server.greet()
    for number in range(2):
        await screen.say("Hi", cid=f"c{number}")
        await screen.until("ack", cid=f"c{number}")
    await screen.say("One more", cid="c2")
    error = await screen.until("error")
    assert (error["code"], error["cid"]) == ("rate_limited", "c2")
    assert 0 < error["retry_after"] <= 60
    await screen.say("Hi", cid="c0")
    assert (await screen.until("ack", cid="c0"))["dup"] is True


@pytest.mark.control("S31")
async def test_the_message_limit_holds_for_all_sessions_of_an_address(starter: Starter) -> None:
    server = await starter.start(limits=ClientLimits(messages=2))
    for number in range(2):
        screen, _ = await server.greet()
        await screen.say("Hi", cid=f"c{number}")
        await screen.until("ack")
    screen, _ = await server.greet()
    await screen.say("Hi", cid="c9")
    assert (await screen.until("error"))["code"] == "rate_limited"


@pytest.mark.control("S29")
async def test_a_session_has_five_screens(starter: Starter) -> None:
    server = await starter.start(limits=ClientLimits())
    first, welcome = await server.greet()
    for _ in range(4):
        await server.greet(token=welcome["token"])
    sixth = await server.connect()
    await sixth.send(hello(token=welcome["token"]))
    assert (await sixth.until("error"))["retry_after"] > 0
    assert await sixth.closed() == 4429
    await first.socket.close()
    async with asyncio.timeout(60):
        while server.process.hub.screens > 4:
            await asyncio.sleep(0.01)
    await server.greet(token=welcome["token"])


@pytest.mark.control("S31", "S33")
async def test_an_address_has_a_limited_number_of_screens(starter: Starter) -> None:
    server = await starter.start(limits=ClientLimits(sockets_per_address=3))
    for _ in range(3):
        await server.greet()
    fourth = await server.connect()
    assert (await fourth.until("error"))["code"] == "too_many_sockets"
    assert await fourth.closed() == 4429


async def test_a_persons_own_machine_is_not_limited(server: Server) -> None:
    screen, _ = await server.greet()
    for number in range(60):
        await screen.send({"t": "ping", "n": number})
    await screen.until("pong", n=59)


async def test_unexpected_error_is_no_refusal_until_storage_was_checked(
    starter: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither acknowledged nor refused, and nothing newer of the same line is stored before it."""
    server = await starter.start()
    screen, welcome = await server.greet()

    async def no_answer() -> bool:
        return False

    monkeypatch.setattr(server.services.pool, "can_write", no_answer)
    server.conversation.failure = broken_line()
    await screen.say("One", cid="c1")
    await screen.say("Two", cid="c2")
    assert "cid" not in await screen.until("error", code="storage_unavailable")
    assert await screen.closed() == 1013
    assert not [frame for frame in screen.frames if frame["t"] == "ack"]
    server.conversation.failure = None
    again, _ = await server.greet(token=welcome["token"])
    await again.say("One", cid="c1")
    await again.say("Two", cid="c2")
    assert (await again.until("ack", cid="c1"))["event_seq"] < (await again.until("ack", cid="c2"))[
        "event_seq"
    ]
