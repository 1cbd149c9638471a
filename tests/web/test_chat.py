"""The WebSocket's main road: hello, message, answer, resume, two screens, two processes."""

from __future__ import annotations

import asyncio

from tests.web.conftest import Server, Starter


async def test_a_new_visitor_gets_a_token_and_an_answer(server: Server) -> None:
    screen, welcome = await server.greet()
    assert welcome["v"] == 1
    assert welcome["resumed"] is False
    assert welcome["head"] == 0
    assert welcome["events"] == []
    assert welcome["limits"] == {"max_chars": 8000}
    assert welcome["model"] == {"name": "scripted", "offline": True}
    assert {"help", "new"} <= {command["name"] for command in welcome["commands"]}
    assert len(welcome["token"]) >= 43
    await screen.say("Hi")
    ack = await screen.until("ack")
    assert (ack["cid"], ack["mid"], ack["event_seq"]) == ("c1", "m1", 1)
    assert "dup" not in ack
    mine = await screen.until("msg")
    assert (mine["role"], mine["text"], mine["cid"], mine["turn"], mine["event_seq"]) == (
        "person",
        "Hi",
        "c1",
        1,
        1,
    )
    assert (await screen.until("run"))["state"] == "started"
    answer = await screen.until("msg")
    assert (answer["role"], answer["text"], answer["event_seq"]) == ("assistant", "Hello there.", 2)
    assert (await screen.until("run"))["state"] == "done"
    assert (await screen.until("ctx"))["used"] == 10
    assert "".join(frame["text"] for frame in screen.frames if frame["t"] == "delta") in (
        "Hello there.",
        "Hello ",
    )
