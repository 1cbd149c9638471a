"""Opinions, what was read, and the whole text of a torn answer."""

from __future__ import annotations

import pytest

from tests.kit.web.event_stream_client import open_stream, post
from tests.kit.web.fixtures import Frame, Screen, Server, Starter


async def _answered(server: Server) -> tuple[Screen, Frame]:
    screen, welcome = await server.greet()
    await screen.say("Hi")
    await screen.until("ctx")
    return screen, welcome


def _opinion(cid: str = "f1", **values: object) -> Frame:
    return {"t": "feedback", "cid": cid, "mid": "m2", "value": 1} | values


async def test_an_opinion_is_echoed_to_all_tabs_and_stays_in_the_history(server: Server) -> None:
    screen, welcome = await _answered(server)
    tab, _ = await server.greet(token=welcome["token"])
    await screen.send(_opinion(text="Very kind"))
    assert await screen.until("ack") == {"t": "ack", "cid": "f1", "mid": "m2"}
    for shown in (screen, tab):
        event = await shown.until("feedback")
        assert (event["mid"], event["value"], event["turn"], event["event_seq"]) == ("m2", 1, 1, 3)
        assert "text" not in event
    _, back = await server.greet(token=welcome["token"])
    assert [one.get("feedback") for one in back["events"] if one["t"] == "msg"] == [None, 1]
    rows = await server.services.pool.fetch("SELECT opinion, words, source FROM feedback")
    assert [tuple(row) for row in rows] == [("good", "Very kind", "web")]


async def test_a_repeated_opinion_changes_nothing(server: Server) -> None:
    screen, _ = await _answered(server)
    await screen.send(_opinion("f1"))
    await screen.until("feedback")
    await screen.send(_opinion("f2", value=-1))
    await screen.until("feedback", value=-1)
    await screen.send(_opinion("f1"))
    assert (await screen.until("ack", cid="f1", dup=True))["mid"] == "m2"
    await screen.send(_opinion("f3", value=-1))
    await screen.until("ack", cid="f3")
    assert await server.services.pool.fetchval("SELECT opinion FROM feedback") == "bad"
    assert await server.services.pool.fetchval("SELECT max(event_seq) FROM events") == 4
    await screen.send(_opinion("f4", value=0))
    await screen.until("feedback", value=0)
    assert await server.services.pool.fetchval("SELECT opinion FROM feedback") is None


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (_opinion(mid="m99"), "unknown_message"),
        (_opinion(mid="m1"), "unknown_message"),
        (_opinion(mid="t1"), "unknown_message"),
        (_opinion(mid="../m2"), "bad_frame"),
        (_opinion(value=2), "bad_frame"),
        (_opinion(value=True), "bad_frame"),
        (_opinion(value=1.5), "bad_frame"),
        (_opinion(text=7), "bad_frame"),
        (_opinion(text="x" * 2_001), "message_too_long"),
        (_opinion(text="a\u0000b"), "unreadable_message"),
        ({"t": "resync", "mid": "t9"}, "unknown_message"),
        ({"t": "resync", "mid": "m2"}, "bad_frame"),
        ({"t": "read", "seq": -1}, "bad_frame"),
        ({"t": "read", "seq": "1"}, "bad_frame"),
    ],
)
async def test_what_does_not_exist_cannot_be_judged(server: Server, frame: Frame, code: str) -> None:
    screen, _ = await _answered(server)
    await screen.send(frame)
    error = await screen.until("error")
    assert error["code"] == code
    assert error.get("cid") == frame.get("cid")
    assert await server.services.pool.fetchval("SELECT count(*) FROM feedback") == 0


async def test_answer_of_another_person_cannot_be_rated(server: Server) -> None:
    _, welcome = await _answered(server)
    other, _ = await server.greet()
    await other.send(_opinion())
    assert (await other.until("error"))["code"] == "unknown_message"
    assert await server.services.pool.fetchval("SELECT count(*) FROM feedback") == 0
    assert welcome["head"] == 0


async def test_what_one_tab_read_all_tabs_of_the_place_have_read(starter: Starter) -> None:
    here, there = await starter.start(), await starter.start()
    screen, welcome = await _answered(here)
    tab, joined = await there.greet(token=welcome["token"])
    stream, _ = await open_stream(there, token=welcome["token"])
    assert joined["read"] == 0
    await starter.until_followed(await here.session_id(welcome["session"]), by=2)
    await screen.send({"t": "read", "seq": 2})
    for shown in (screen, tab, stream):
        assert await shown.until("read") == {"t": "read", "seq": 2}
    _, back = await there.greet(token=welcome["token"])
    assert back["read"] == 2


async def test_reading_goes_neither_back_nor_beyond_what_was_said(server: Server) -> None:
    screen, welcome = await _answered(server)
    for seq in (1_000, 1):
        await screen.send({"t": "read", "seq": seq})
    await screen.send({"t": "ping", "n": 1})
    await screen.until("pong")
    assert [frame["seq"] for frame in screen.frames if frame["t"] == "read"] == [2]
    _, back = await server.greet(token=welcome["token"])
    assert back["read"] == 2


async def test_a_torn_answer_is_sent_whole_on_request(server: Server) -> None:
    server.conversation.hold.clear()
    screen, _ = await server.greet()
    await screen.say("Hi")
    while _shown(screen) != "Hello there.":
        await screen.next()
    await screen.send({"t": "resync", "mid": "t1"})
    whole = {"t": "stream", "mid": "t1", "turn": 1, "attempt": 1, "text": "Hello there."}
    assert await screen.until("stream") == whole
    server.conversation.hold.set()
    await screen.until("ctx")
    await screen.send({"t": "resync", "mid": "t1"})
    error = await screen.until("error")
    assert (error["code"], error["mid"]) == ("unknown_message", "t1")


def _shown(screen: Screen) -> str:
    return "".join(frame["text"] for frame in screen.frames if frame["t"] == "delta")


async def test_late_screen_gets_the_whole_text_from_the_other_process(starter: Starter) -> None:
    here, there = await starter.start(), await starter.start()
    here.conversation.hold.clear()
    screen, welcome = await here.greet()
    await screen.say("Hi")
    while _shown(screen) != "Hello there.":
        await screen.next()
    late, joined = await there.greet(token=welcome["token"])
    assert "text" not in joined["state"]["run"]
    await starter.until_followed(await here.session_id(welcome["session"]), by=2)
    await late.send({"t": "resync", "mid": "t1"})
    assert (await late.until("stream"))["text"] == "Hello there."
    later, again = await there.greet(token=welcome["token"])
    assert again["state"]["run"]["text"] == "Hello there."
    here.conversation.hold.set()
    assert (await later.until("msg", role="assistant"))["event_seq"] == 2


async def test_everything_twice_from_a_half_open_line_doubles_nothing(server: Server) -> None:
    old, welcome = await server.greet()
    new, _ = await server.greet(token=welcome["token"])
    stream, _ = await open_stream(server, token=welcome["token"])
    frames = [{"t": "msg", "cid": f"c{n}", "text": f"Message {n}"} for n in range(5)]
    for frame in frames:
        await old.send(frame)
        await new.send(frame)
        await post(server, welcome["token"], frame, frame)
    for shown in (old, new, stream):
        while len({one["cid"] for one in shown.frames if one["t"] == "msg" and one["role"] == "person"}) < 5:
            await shown.next()
        assert shown.numbers == sorted(set(shown.numbers))
    said = await server.services.pool.fetchval("SELECT count(*) FROM entries WHERE author = 'person'")
    assert said == 5
    acks = {one["cid"]: one["mid"] for one in [*old.frames, *new.frames] if one["t"] == "ack"}
    again = await post(server, welcome["token"], *frames)
    assert {one["cid"]: one["mid"] for one in again["frames"]} == acks
