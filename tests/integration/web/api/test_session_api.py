"""REST: commands by name, and the originals behind a summary."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kit.web.callers import make_key
from tests.kit.web.fixtures import Frame, Server, Starter
from tests.kit.web.rest_calls import call


async def _post(server: Server, name: str, body: Any, *, token: str = "") -> tuple[int, Frame]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with server.client.post(
        f"{server.url}/api/v1/commands/{name}", json=body, headers=headers
    ) as answer:
        return answer.status, await answer.json()


async def test_the_commands_are_listed(server: Server) -> None:
    async with server.client.get(f"{server.url}/api/v1/commands") as answer:
        listed = (await answer.json())["commands"]
    assert {"help", "compact", "undo"} <= {command["name"] for command in listed}
    assert all(command["description"] for command in listed)


async def test_a_command_by_rest_reaches_the_screens_too(server: Server) -> None:
    screen, welcome = await server.greet()
    body = {"session_id": welcome["session"], "force": True, "focus": "the budget"}
    status, answer = await _post(server, "compact", body, token=welcome["token"])
    assert status == 200
    assert answer == {"command": "compact", "success": True, "result": "done", "error": None, "event_seq": 1}
    assert server.services.commands.asked == [("compact", "--force the budget")]
    assert (await screen.until("command.result"))["event_seq"] == 1


@pytest.mark.control("S07")
async def test_only_ones_own_session_takes_commands(server: Server) -> None:
    _, mine = await server.greet()
    _, other = await server.greet()
    assert (await _post(server, "help", {"session_id": mine["session"]}))[0] == 401
    status, answer = await _post(server, "help", {"session_id": other["session"]}, token=mine["token"])
    assert (status, answer["code"]) == (404, "unknown_session")
    assert (await _post(server, "help", {}, token=mine["token"]))[0] == 404
    assert (await _post(server, "nope", {"session_id": mine["session"]}, token=mine["token"]))[0] == 404
    assert (await _post(server, "help", {"session_id": mine["session"]}, token="A" * 43))[0] == 401


@pytest.mark.parametrize("body", [[], "x", 7, {"focus": {"a": 1}}, {"focus": "\ud800"}, {"focus": "\u0000"}])
async def test_bad_arguments_are_refused(server: Server, body: Any) -> None:
    _, welcome = await server.greet()
    if isinstance(body, dict):
        body["session_id"] = welcome["session"]
    status, answer = await _post(server, "compact", body, token=welcome["token"])
    assert status == 400
    assert answer["details"]["advice"]


async def test_a_body_must_be_json(server: Server) -> None:
    _, welcome = await server.greet()
    url, headers = f"{server.url}/api/v1/commands/help", {"Authorization": f"Bearer {welcome['token']}"}
    async with server.client.post(url, data="session_id=1", headers=headers) as answer:
        assert (answer.status, (await answer.json())["code"]) == (415, "not_json")
    headers["Content-Type"] = "application/json"
    async with server.client.post(url, data=b"{", headers=headers) as answer:
        assert (answer.status, (await answer.json())["code"]) == (400, "bad_field")


@pytest.mark.control("S07")
async def test_a_summarys_originals_are_for_its_visitor_alone(server: Server) -> None:
    screen, welcome = await server.greet()
    for number in range(2):
        await screen.say(f"Question {number}", cid=f"c{number}")
        await screen.until("ctx")
    _, stranger = await server.greet()
    session_id = await server.session_id(welcome["session"])
    link = await server.services.pool.fetchval(
        """INSERT INTO compactions (session_id, kind, from_turn, through_turn, from_seq, through_seq, trigger)
           VALUES ($1, 'summary', 1, 1, 1, 2, 'manual') RETURNING public_id""",
        session_id,
    )
    url = f"{server.url}/api/v1/compactions/{link}/messages"
    async with server.client.get(url, headers={"Authorization": f"Bearer {welcome['token']}"}) as answer:
        messages = (await answer.json())["messages"]
    assert [(message["mid"], message["role"], message["text"]) for message in messages] == [
        ("m1", "person", "Question 0"),
        ("m2", "assistant", "Hello there."),
    ]
    key = await make_key(server.services.pool, "sessions:read")
    path = f"/compactions/{link}/messages?session_id={welcome['session']}&limit="
    assert (await call(server, "GET", f"{path}1", key))[1]["before"] == "m2"
    assert (await call(server, "GET", f"{path}2", key))[1]["before"] is None
    for headers in ({}, {"Authorization": f"Bearer {stranger['token']}"}):
        async with server.client.get(url, headers=headers) as answer:
            assert answer.status in (401, 404)
            assert "Question" not in await answer.text()


async def test_the_widget_on_an_allowed_page_may_read_with_its_token(starter: Starter) -> None:
    server = await starter.start(allowed_origins=("https://shop.example",))
    url = f"{server.url}/api/v1/commands"
    async with server.client.get(url, headers={"Origin": "https://shop.example"}) as answer:
        assert answer.headers["Access-Control-Allow-Origin"] == "https://shop.example"
        assert "Access-Control-Allow-Credentials" not in answer.headers
    async with server.client.get(url, headers={"Origin": "https://evil.example"}) as answer:
        assert "Access-Control-Allow-Origin" not in answer.headers
    for path in ("/api/v1/commands/help", "/api/v1/compactions/x/messages", "/api/v1/sessions/x/history"):
        asked = {"Origin": "https://shop.example", "Access-Control-Request-Method": "POST"}
        async with server.client.options(server.url + path, headers=asked) as answer:
            assert answer.status == 204
            assert "Authorization" in answer.headers["Access-Control-Allow-Headers"]


@pytest.mark.control("S07")
async def test_archived_conversations_are_for_their_own_visitor(server: Server) -> None:
    url = f"{server.url}/api/v1/archived"
    async with server.client.get(url) as answer:
        assert answer.status == 401
    _, welcome = await server.greet()
    async with server.client.get(url, headers={"Authorization": f"Bearer {welcome['token']}"}) as answer:
        assert (answer.status, await answer.json()) == (200, {"sessions": []})


async def test_a_public_site_has_no_archived_conversations(starter: Starter) -> None:
    server = await starter.start(profile="public")
    _, welcome = await server.greet()
    headers = {"Authorization": f"Bearer {welcome['token']}"}
    async with server.client.get(f"{server.url}/api/v1/archived", headers=headers) as answer:
        assert answer.status == 404
