"""Several conversations of one visitor: each has its own stream, all are the visitor's, nobody else's."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from uuid import uuid4

import pytest

from tests.kit.web.callers import bearer
from tests.kit.web.event_stream_client import post
from tests.kit.web.fixtures import Frame, Screen, Server
from tests.kit.web.rest_calls import call


async def many(server: Server) -> None:
    await server.services.pool.execute('UPDATE sites SET config = config || \'{"conversations": "many"}\'')
    server.process.visitors.forget_sites()


async def begun(server: Server, own: Mapping[str, str]) -> str:
    status, told = await call(server, "POST", "/conversations", own)
    assert status == 201, told
    return str(told["session_id"])


async def listed(server: Server, own: Mapping[str, str], query: str = "") -> list[Frame]:
    status, told = await call(server, "GET", f"/conversations{query}", own)
    assert status == 200, told
    return list(told["conversations"])


async def asked(screen: Screen, text: str, cid: str = "c1") -> None:
    await screen.say(text, cid)
    await screen.until("ctx")


async def test_two_tabs_talk_in_two_conversations_at_once(server: Server) -> None:
    await many(server)
    first, welcome = await server.greet()
    assert welcome["site"]["conversations"] == "many"
    await asked(first, "What is the capital of Peru?")
    own = bearer(welcome["token"])
    new = await begun(server, own)
    assert await begun(server, own) == new, "an empty one is given once more"
    second, there = await server.greet(token=welcome["token"], session=new)
    assert (there["session"], there["events"]) == (new, [])
    await asyncio.gather(asked(first, "And of Chile?", "c2"), asked(second, "Tell me of whales.", "c2"))
    said = {
        name: [frame["text"] for frame in screen.frames if frame["t"] == "msg" and frame["role"] == "person"]
        for name, screen in (("first", first), ("second", second))
    }
    assert said == {
        "first": ["What is the capital of Peru?", "And of Chile?"], "second": ["Tell me of whales."],
    }  # fmt: skip
    _, again = await server.greet(token=welcome["token"], session=welcome["session"])
    assert (again["session"], len(again["events"])) == (welcome["session"], 4)
    _, resumed = await server.greet(token=welcome["token"], session=new, last_seq=1)
    assert (resumed["resumed"], [one["event_seq"] for one in resumed["events"]]) == (True, [2])


async def test_the_list_tells_title_time_and_what_is_unread_newest_first(server: Server) -> None:
    await many(server)
    first, welcome = await server.greet()
    own, long = (
        bearer(welcome["token"]),
        "Which of the many towns by the great lakes would you go to in June?",
    )
    await asked(first, long)
    second, there = await server.greet(token=welcome["token"], session=await begun(server, own))
    await asked(second, "Tell me\n of whales.")
    await second.send({"t": "read", "seq": 2})
    await second.until("read")
    shown = await listed(server, own)
    assert [(one["session_id"], one["title"], one["named"], one["unread"]) for one in shown] == [
        (there["session"], "Tell me of whales.", False, False),
        (welcome["session"], "Which of the many towns by the great lakes would you go to…", False, True),
    ]
    assert max(len(one["title"]) for one in shown) <= 60
    _, page = await call(server, "GET", "/conversations?limit=1", own)
    assert [one["session_id"] for one in page["conversations"]] == [there["session"]]
    rest = await listed(server, own, f"?limit=1&before={page['next']}")
    assert [one["session_id"] for one in rest] == [welcome["session"]]
    await asked(first, "Thanks.", "c2")
    assert (await listed(server, own))[0]["session_id"] == welcome["session"]
    _, newest = await server.greet(token=welcome["token"])
    assert newest["session"] == welcome["session"], "whoever comes back is where they spoke last"


async def test_a_conversation_is_named_and_the_name_taken_back(server: Server) -> None:
    await many(server)
    screen, welcome = await server.greet()
    await asked(screen, "Hello")
    own, path = bearer(welcome["token"]), f"/sessions/{welcome['session']}"
    assert (await call(server, "PATCH", path, own, json={"title": "  My \n trip "}))[0] == 200
    [shown] = await listed(server, own)
    assert (shown["title"], shown["named"]) == ("My trip", True)
    assert (await call(server, "PATCH", path, own, json={"title": "x" * 61}))[0] == 400
    assert (await call(server, "PATCH", path, own, json={"title": ""}))[0] == 200
    assert (await listed(server, own))[0]["title"] == "Hello"


async def test_by_rest_and_by_the_event_stream_each_conversation_is_reached(server: Server) -> None:
    await many(server)
    screen, welcome = await server.greet()
    await asked(screen, "Hello")
    token = welcome["token"]
    own = bearer(token)
    new = await begun(server, own)
    status, _ = await call(server, "POST", f"/sessions/{new}/messages?wait=20", own, json={"text": "Whales"})
    assert status == 200
    answer = await post(server, token, {"t": "msg", "cid": "s1", "text": "More of them"}, session=new)
    assert answer["frames"][0]["t"] == "ack"
    async with asyncio.timeout(20):
        while True:
            _, page = await call(server, "GET", f"/sessions/{new}/history", own)
            if len(page["events"]) == 4:
                break
            await asyncio.sleep(0.05)
    _, first = await call(server, "GET", f"/sessions/{welcome['session']}/history", own)
    assert [one["text"] for one in first["events"]] == ["Hello", "Hello there."]


@pytest.mark.control("S08")
async def test_a_stranger_reaches_none_of_them(server: Server) -> None:
    await many(server)
    screen, welcome = await server.greet()
    await asked(screen, "Hello")
    own = bearer(welcome["token"])
    new = await begun(server, own)
    other, theirs = await server.greet()
    await asked(other, "I am somebody else.")
    foreign = bearer(theirs["token"])
    for session in (welcome["session"], new, str(uuid4()), "nonsense"):
        for method, path, sent in (
            ("GET", f"/sessions/{session}/history", {}),
            ("POST", f"/sessions/{session}/messages", {"json": {"text": "x"}}),
            ("PATCH", f"/sessions/{session}", {"json": {"title": "mine"}}),
            ("GET", f"/memory?session_id={session}", {}),
        ):
            status, told = await call(server, method, path, foreign, **sent)
            assert (status, told["code"]) == (404, "unknown_session"), path
        _, back = await server.greet(token=theirs["token"], session=session)
        assert back["session"] == theirs["session"]
    assert [one["session_id"] for one in await listed(server, foreign)] == [theirs["session"]]


async def test_where_everybody_has_one_conversation_no_other_begins(server: Server) -> None:
    screen, welcome = await server.greet()
    await asked(screen, "Hello")
    own = bearer(welcome["token"])
    assert "conversations" not in welcome["site"]
    status, told = await call(server, "POST", "/conversations", own)
    assert (status, told["code"]) == (409, "one_conversation")
    assert [one["session_id"] for one in await listed(server, own)] == [welcome["session"]]


async def test_two_tabs_that_begin_one_at_once_get_the_same(server: Server) -> None:
    await many(server)
    screen, welcome = await server.greet()
    await asked(screen, "Hello")
    own = bearer(welcome["token"])
    assert len(set(await asyncio.gather(*(begun(server, own) for _ in range(4))))) == 1
