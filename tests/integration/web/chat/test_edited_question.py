"""The last question, edited over the wire: acknowledged once, shown to every tab in place of the former."""

from __future__ import annotations

import asyncio

import pytest

from tests.kit.web.event_stream_client import post
from tests.kit.web.fixtures import Frame, Screen, Server


def _edit(cid: str = "e1", mid: str = "m1", text: str = "Good evening") -> Frame:
    return {"t": "edit", "cid": cid, "mid": mid, "text": text}


async def _answered(server: Server) -> tuple[Screen, Frame]:
    screen, welcome = await server.greet()
    await screen.say("Good morning")
    await screen.until("ctx")
    return screen, welcome


async def test_edit_is_acknowledged_shown_in_all_tabs_and_answered_again(server: Server) -> None:
    screen, welcome = await _answered(server)
    tab, _ = await server.greet(token=welcome["token"])
    server.services.sessions.script = ["It is late."]
    await screen.send(_edit())
    ack = await screen.until("ack")
    assert (ack["cid"], ack["mid"], ack["event_seq"]) == ("e1", "m3", 3)
    for shown in (screen, tab):
        said = await shown.until("msg", role="person", mid="m3")
        assert (said["text"], said["replaces"], said["from_turn"], said["turn"]) == (
            "Good evening", "m1", 1, 2,
        )  # fmt: skip
        answer = await shown.until("msg", role="assistant", turn=2)
        assert answer["text"] == "It is late."
    _, back = await server.greet(token=welcome["token"])
    assert [one["text"] for one in back["events"]] == ["Good evening", "It is late."]
    assert back["head"] == 4
    late, resumed = await server.greet(token=welcome["token"], last_seq=2, session=welcome["session"])
    assert [one["event_seq"] for one in resumed["events"]] == [3, 4], "numbers have no gap for who resumes"
    assert late.close_code is None


async def test_an_edit_that_is_sent_again_is_made_once(server: Server) -> None:
    screen, _ = await _answered(server)
    await screen.send(_edit())
    await screen.until("ctx")
    await screen.send(_edit())
    assert (await screen.until("ack", dup=True))["mid"] == "m3"
    await screen.send(_edit(text="Something else"))
    assert (await screen.until("error", cid="e1"))["code"] == "cid_used"
    assert await server.services.pool.fetchval("SELECT count(*) FROM turns") == 2


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (_edit(mid="m2"), "unknown_message"),
        (_edit(mid="m99"), "unknown_message"),
        (_edit(mid="t1"), "bad_frame"),
        (_edit(mid="../m1"), "bad_frame"),
        (_edit(text=""), "empty_message"),
        (_edit(text=" \n"), "empty_message"),
        (_edit(text="x" * 100_001), "message_too_long"),
        (_edit(text="a\u0000b"), "unreadable_message"),
        ({"t": "edit", "cid": "e1", "mid": "m1"}, "bad_frame"),
        ({"t": "edit", "cid": "e1", "mid": "m1", "text": 7}, "bad_frame"),
    ],
)
async def test_what_cannot_be_edited_is_refused_with_advice(server: Server, frame: Frame, code: str) -> None:
    screen, _ = await _answered(server)
    await screen.send(frame)
    error = await screen.until("error")
    assert (error["code"], error["cid"], bool(error["advice"])) == (code, "e1", True)
    assert await server.services.pool.fetchval("SELECT count(*) FROM turns") == 1


async def test_question_of_another_person_cannot_be_edited(server: Server) -> None:
    await _answered(server)
    other, _ = await server.greet()
    await other.send(_edit())
    assert (await other.until("error"))["code"] == "unknown_message"
    assert await server.services.pool.fetchval("SELECT count(*) FROM entries") == 2


async def test_second_of_two_simultaneous_edits_is_refused(server: Server) -> None:
    screen, welcome = await _answered(server)
    tab, _ = await server.greet(token=welcome["token"])
    server.services.sessions.hold.clear()
    await asyncio.gather(screen.send(_edit("e1", text="One")), tab.send(_edit("e2", text="Two")))
    heard = []
    for one, cid in ((screen, "e1"), (tab, "e2")):
        while (frame := await one.next()) is not None:
            if frame.get("cid") == cid and frame["t"] in ("ack", "error"):
                heard.append(frame.get("code", "ack"))
                break
    assert sorted(heard) == ["ack", "edit_changed"]
    server.services.sessions.hold.set()
    await screen.until("ctx")
    assert await server.services.pool.fetchval("SELECT count(*) FROM turns") == 2


async def test_the_event_stream_carries_an_edit_too(server: Server) -> None:
    screen, welcome = await _answered(server)
    token = welcome["token"]
    answer = await post(server, token, _edit())
    assert (answer["frames"][0]["t"], answer["frames"][0]["mid"]) == ("ack", "m3")
    assert (await screen.until("msg", mid="m3"))["replaces"] == "m1"
    await screen.until("ctx")
