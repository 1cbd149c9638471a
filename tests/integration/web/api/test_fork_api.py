"""Forking a conversation by REST: who may, what is told, and what repeats."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from tests.kit.web.callers import bearer
from tests.kit.web.fixtures import Frame, Screen, Server
from tests.kit.web.rest_calls import call


async def talked(server: Server, *texts: str, conversations: str = "many") -> tuple[Screen, Frame]:
    if conversations == "many":
        await server.services.pool.execute(
            'UPDATE sites SET config = config || \'{"conversations": "many"}\''
        )
        server.process.visitors.forget_sites()
    screen, welcome = await server.greet()
    for number, text in enumerate(texts):
        await screen.say(text, f"c{number}")
        await screen.until("ctx")
    return screen, welcome


async def fork(
    server: Server, own: Mapping[str, str], session: str, mid: str, **sent: Any
) -> tuple[int, dict[str, Any]]:
    return await call(server, "POST", f"/sessions/{session}/messages/{mid}/fork", own, **sent)


async def history(server: Server, own: Mapping[str, str], session: str) -> list[Frame]:
    _, page = await call(server, "GET", f"/sessions/{session}/history", own)
    return list(page["events"])


async def test_fork_shows_the_talk_up_to_its_message_and_a_link_back(server: Server) -> None:
    _, welcome = await talked(server, "How far is Bodø?", "And Narvik?")
    own, session = bearer(welcome["token"]), welcome["session"]
    before = await history(server, own, session)
    status, made = await fork(server, own, session, "m2", json={"cid": "f1"})
    assert status == 201
    assert made["title"] == "How far is Bodø? (fork)"
    assert made["draft"] == ""
    shown = await history(server, own, made["session_id"])
    assert [one.get("text") for one in shown] == ["How far is Bodø?", "Hello there.", None]
    assert (shown[2]["t"], shown[2]["from"], shown[2]["mid"]) == ("fork", session, "m2")
    assert await history(server, own, session) == before
    _, listed = await call(server, "GET", "/conversations", own)
    assert {one["session_id"]: one["title"] for one in listed["conversations"]} == {
        session: "How far is Bodø?", made["session_id"]: "How far is Bodø? (fork)",
    }  # fmt: skip
    assert [one["unread"] for one in listed["conversations"] if one["session_id"] == made["session_id"]] == [
        False
    ]


async def test_visitor_goes_on_in_the_fork(server: Server) -> None:
    _, welcome = await talked(server, "How far is Bodø?", "And Narvik?")
    own = bearer(welcome["token"])
    _, made = await fork(server, own, welcome["session"], "m3", json={})
    assert made["draft"] == "And Narvik?"
    screen, there = await server.greet(token=welcome["token"], session=made["session_id"])
    assert there["session"] == made["session_id"]
    await screen.say("And Tromsø?", "c9")
    await screen.until("ctx")
    assert [one.get("text") for one in await history(server, own, made["session_id"])] == [
        "How far is Bodø?", "Hello there.", None, "And Tromsø?", "Hello there.",
    ]  # fmt: skip
    assert len(await history(server, own, welcome["session"])) == 4


async def test_repeated_fork_request_returns_the_same_conversation(server: Server) -> None:
    _, welcome = await talked(server, "How far is Bodø?")
    own, session = bearer(welcome["token"]), welcome["session"]
    told = await asyncio.gather(*(fork(server, own, session, "m2", json={"cid": "same"}) for _ in range(4)))
    assert {status for status, _ in told} == {201}
    assert len({made["session_id"] for _, made in told}) == 1
    _, by_header = await fork(server, {**own, "Idempotency-Key": "same"}, session, "m2", json={})
    assert by_header == told[0][1]
    _, listed = await call(server, "GET", "/conversations", own)
    assert len(listed["conversations"]) == 2


async def test_fork_of_a_fork_is_numbered(server: Server) -> None:
    _, welcome = await talked(server, "How far is Bodø?")
    own = bearer(welcome["token"])
    _, first = await fork(server, own, welcome["session"], "m2", json={})
    _, second = await fork(server, own, first["session_id"], "m2", json={})
    assert second["title"] == "How far is Bodø? (fork 2)"
    shown = await history(server, own, second["session_id"])
    assert [one["t"] for one in shown] == ["msg", "msg", "fork"]
    assert shown[2]["from"] == first["session_id"]


async def test_title_of_a_fork_is_in_the_visitors_language(server: Server) -> None:
    _, welcome = await talked(server, "Wie weit ist Bodø?")
    own = {**bearer(welcome["token"]), "Accept-Language": "de"}
    _, made = await fork(server, own, welcome["session"], "m2", json={})
    assert made["title"] == "Wie weit ist Bodø? (Abzweigung)"


async def test_fork_of_an_unknown_message_is_refused(server: Server) -> None:
    _, welcome = await talked(server, "How far is Bodø?")
    own = bearer(welcome["token"])
    status, told = await fork(server, own, welcome["session"], "m77", json={})
    assert (status, told["code"]) == (404, "unknown_message")
    status, told = await fork(server, own, welcome["session"], "nonsense", json={})
    assert status in (400, 404)


async def test_unfinished_answer_is_not_forked(server: Server) -> None:
    screen, welcome = await talked(server, "How far is Bodø?")
    server.conversation.hold.clear()
    await screen.say("And Narvik?", "c5")
    await screen.until("delta")
    await screen.say("And Tromsø?", "c6")
    await screen.until("ack", cid="c6")
    own = bearer(welcome["token"])
    status, told = await fork(server, own, welcome["session"], "m4", json={})
    assert (status, told["code"]) == (409, "fork_busy")
    server.conversation.hold.set()
    await screen.until("ctx")


async def test_site_with_one_conversation_refuses_forks(server: Server) -> None:
    _, welcome = await talked(server, "How far is Bodø?", conversations="one")
    status, told = await fork(server, bearer(welcome["token"]), welcome["session"], "m2", json={})
    assert (status, told["code"]) == (409, "one_conversation")


async def test_stranger_cannot_fork_a_conversation(server: Server) -> None:
    _, welcome = await talked(server, "How far is Bodø?")
    _, stranger = await server.greet()
    other, _ = await server.greet(token=stranger["token"])
    await other.say("I am somebody else.", "c1")
    await other.until("ctx")
    status, told = await fork(server, bearer(stranger["token"]), welcome["session"], "m2", json={})
    assert (status, told["code"]) == (404, "unknown_session")
