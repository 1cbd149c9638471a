"""What only the whole can show: signing in, files, and humans, over whatever carries the talk."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.web.api.sent_files import picture, send
from tests.integration.web.auth.signed_people import signed, with_people
from tests.kit.web.callers import bearer, make_key, make_operator, make_visitor
from tests.kit.web.event_stream_client import URL, open_stream, post, ticket
from tests.kit.web.fixtures import Server, Starter


async def call(server: Server, method: str, path: str, headers: Any, **sent: Any) -> tuple[int, Any]:
    async with server.client.request(method, f"{server.url}/api/v1{path}", headers=headers, **sent) as answer:
        kind = answer.content_type
        return answer.status, await answer.json() if kind == "application/json" else await answer.read()


async def test_sign_in_over_stream_ends_it_and_reopens_as_person(starter: Starter) -> None:
    server = await with_people(starter)
    screen, before = await open_stream(server)
    await screen.say("My parcel?")
    await screen.until("msg", role="assistant")
    answer = await screen.send({"t": "identify", "identity": signed()})
    assert answer["close"] == {"code": 1012, "reason": "signed again"}
    assert await screen.closed() == 1012, "whoever shares the old token sees no more"
    back, after = await open_stream(server, token=screen.token, identity=signed())
    assert (after["session"], bool(after["identified"])) == (before["session"], True)
    assert back.token not in (None, screen.token)
    assert (await post(server, screen.token, {"t": "ping", "n": 1}))["status"] == 401


async def test_signing_out_over_a_stream_leaves_nothing_of_the_person(starter: Starter) -> None:
    server = await with_people(starter)
    screen, mine = await open_stream(server, identity=signed())
    answer = await screen.send({"t": "identify", "identity": None})
    assert answer["close"]["code"] == 1012
    told = await ticket(server, token=screen.token)
    assert (told["status"], told["code"]) == (401, "unknown_token")
    _, anonymous = await open_stream(server)
    assert anonymous["session"] != mine["session"]
    assert "identified" not in anonymous


async def test_a_bad_signature_over_a_stream_is_said_and_ends_the_talk(starter: Starter) -> None:
    server = await with_people(starter)
    screen, _ = await open_stream(server)
    answer = await screen.send({"t": "identify", "identity": "x.y.z"})
    assert answer["frames"][0]["code"] == "identity_invalid"
    assert answer["close"]["code"] == 4401
    assert (await ticket(server, identity="x.y.z"))["code"] == "identity_invalid"


async def test_sign_in_over_stream_is_refused_while_answer_is_written(starter: Starter) -> None:
    server = await with_people(starter)
    first, _ = await open_stream(server, identity=signed())
    await first.say("The long one")
    await first.until("msg", role="assistant")
    server.conversation.hold.clear()
    screen, _ = await open_stream(server)
    await screen.say("Just a moment", cid="slow")
    await screen.until("delta")
    told = await ticket(server, token=screen.token, identity=signed())
    assert (told["status"], told["code"]) == (409, "busy")


async def test_files_go_with_a_message_over_a_stream(server: Server) -> None:
    screen, _ = await open_stream(server)
    assert screen.token is not None
    _, file = await send(server, screen.token, picture(), name="a.png")
    answer = await screen.send({"t": "msg", "cid": "c1", "text": "", "attachments": [file["id"]]})
    assert answer["frames"][0]["t"] == "ack"
    assert (await screen.until("msg", role="person"))["attachments"] == [file]
    other, _ = await open_stream(server)
    wrong = {"t": "msg", "cid": "x", "text": "", "attachments": [file["id"]]}
    theirs = await post(server, other.token, wrong)
    assert theirs["frames"][0]["code"] == "unknown_file"


async def test_where_signing_in_is_required_every_way_in_says_so(starter: Starter) -> None:
    server = await with_people(starter)
    screen, welcome = await open_stream(server)
    assert screen.token is not None
    given = await ticket(server, token=screen.token)
    await server.services.pool.execute("""UPDATE sites SET config = '{"verified": "required"}'""")
    server.process.visitors.forget_sites()
    assert (await ticket(server))["code"] == "identity_required"
    assert (await ticket(server, token=screen.token))["code"] == "identity_required"
    async with server.client.get(f"{server.url}{URL}", params={"ticket": given["ticket"]}) as answer:
        assert (answer.status, (await answer.json())["code"]) == (401, "identity_required")
    assert (await post(server, screen.token, {"t": "ping", "n": 1}))["code"] == "identity_required"
    assert (await send(server, screen.token, b"x"))[1]["code"] == "identity_required"
    mine, session = bearer(screen.token), welcome["session"]
    messages = f"/sessions/{session}/messages"
    for method, path, body in (
        ("POST", messages, {"text": "Hi"}),
        ("GET", messages, None),
        ("POST", "/commands/status", {"session_id": session}),
        ("POST", "/recovery-code", None),
    ):
        status, told = await call(server, method, path, mine, json=body)
        assert (status, told["code"]) == (401, "identity_required"), path
    theirs, signed_in = await open_stream(server, identity=signed())
    headers = bearer(str(theirs.token))
    path = f"/sessions/{signed_in['session']}/messages"
    assert (await call(server, "POST", path, headers, json={"text": "Hi"}))[0] == 202


async def test_while_a_human_has_the_conversation_a_stream_carries_both_their_words(starter: Starter) -> None:
    server = await starter.start(handover="on")
    server.conversation.list_unanswered = nobody  # type: ignore[method-assign]
    screen, welcome = await open_stream(server)
    operator = await make_operator(server.services.pool, "operator")
    session = f"/sessions/{welcome['session']}"
    await screen.say("A refund, please", cid="c1")
    await screen.until("msg", role="assistant")
    assert (await call(server, "POST", f"{session}/handover", operator, json={"action": "take"}))[0] == 200
    assert (await screen.until("handover"))["state"] == "human"
    reply = {"cid": "r1", "text": "I am on it."}
    status, told = await call(server, "POST", f"{session}/replies", operator, json=reply)
    assert status == 200
    said = await screen.until("msg", role="operator")
    assert (said["text"], said["mid"]) == ("I am on it.", told["mid"])
    again = await call(server, "POST", f"{session}/replies", operator, json=reply)
    assert (again[1]["mid"], again[1]["dup"]) == (told["mid"], True)
    key = await make_key(server.services.pool, "sessions:read", "messages:write", "commands:run")
    shown = (await call(server, "GET", f"{session}/messages", key))[1]["messages"]
    assert shown[-1]["role"] == "operator"
    assert (await call(server, "POST", f"{session}/replies", key, json=reply))[1]["code"] == "not_for_keys"
    assert (await call(server, "GET", "/handovers", key))[1]["code"] == "not_for_keys"


async def nobody(channel: str, *, accounts: object = None) -> list[int]:
    return []


async def test_human_command_is_hidden_and_refused_where_disabled(starter: Starter) -> None:
    for setting, config, there in (
        ("on", {}, True),
        ("on", {"handover": False}, False),
        ("off", {}, False),
    ):
        server = await starter.start(handover=setting)
        await server.services.pool.execute("UPDATE sites SET config = $1", config)
        screen, welcome = await open_stream(server)
        assert ("human" in {one["name"] for one in welcome["commands"]}) is there
        answer = await screen.send({"t": "command", "cid": "k", "command": "human", "args": ""})
        assert [one["code"] for one in answer["frames"]] == ([] if there else ["unknown_command"])
        key = await make_key(server.services.pool, "commands:run")
        for headers in (key, bearer(str(screen.token))):
            body = {"session_id": welcome["session"]}
            status, _ = await call(server, "POST", "/commands/human", headers, json=body)
            assert status == (200 if there else 404)


async def test_a_key_sends_a_file_with_a_message_and_gets_it_back(server: Server) -> None:
    row, token = await make_visitor(server.services.pool)
    key = await make_key(server.services.pool, "messages:write", "sessions:read")
    session = str(row.session_public_id)
    status, file = await call(
        server, "POST", f"/uploads?session_id={session}", {**key, "X-File-Name": "a.txt"}, data=b"words"
    )
    assert (status, file["name"]) == (200, "a.txt")
    body = {"cid": "c1", "attachments": [file["id"]]}
    path = f"/sessions/{session}/messages"
    assert (await call(server, "POST", path, key, json=body))[0] == 202
    assert (await call(server, "POST", path, key, json=body))[1]["dup"] is True
    shown = (await call(server, "GET", path, key))[1]["messages"]
    assert shown[0]["attachments"] == [file]
    place = f"/attachments/{file['id']}"
    assert (await call(server, "GET", f"{place}?session_id={session}", key)) == (200, b"words")
    assert (await call(server, "GET", place, bearer(token))) == (200, b"words")
    other, _ = await make_visitor(server.services.pool)
    assert (await call(server, "GET", f"{place}?session_id={other.session_public_id}", key))[0] == 404
    wrong = {"attachments": [file["id"]]}
    foreign = await call(server, "POST", f"/sessions/{other.session_public_id}/messages", key, json=wrong)
    assert foreign[1]["code"] == "unknown_file"


@pytest.mark.parametrize("files", ["x", ["x"], ["0" * 32] * 9, [7]])
async def test_ids_that_are_none_are_refused_in_rest_too(server: Server, files: Any) -> None:
    row, token = await make_visitor(server.services.pool)
    path = f"/sessions/{row.session_public_id}/messages"
    status, told = await call(server, "POST", path, bearer(token), json={"attachments": files, "text": "x"})
    assert (status, told["code"]) == (400, "bad_field")


async def test_browser_of_two_sites_is_visitor_of_the_asking_page(server: Server) -> None:
    pool = server.services.pool
    await pool.execute("INSERT INTO sites (name, agent_id) SELECT 'shop', agent_id FROM sites")
    server.process.visitors.forget_sites()
    (ours, first), (shops, second) = await make_visitor(pool), await make_visitor(pool, "shop")
    cookies = f"evertalk_visitor={first}; evertalk_visitor_shop={second}"
    headers = {"Cookie": cookies, "Origin": server.url}
    for site, row in (("default", ours), ("shop", shops)):
        named = {**headers, "X-Evertalk-Site": site}
        sent = {**named, "X-File-Name": "a.txt"}
        _, file = await call(server, "POST", "/uploads", sent, data=site.encode())
        owner = await pool.fetchval(
            "SELECT session_id FROM attachments WHERE public_id = $1::uuid", file["id"]
        )
        assert owner == row.session_id
        path = f"/sessions/{row.session_public_id}/messages"
        assert (await call(server, "POST", path, named, json={"text": "Hi"}))[0] == 202
    assert (await call(server, "GET", "/archived", headers))[0] == 401, "it does not say as whose"
    one = {"Cookie": f"evertalk_visitor_shop={second}"}
    assert (await call(server, "GET", "/archived", one))[0] == 200
    assert (await call(server, "GET", "/archived", {**one, "X-Evertalk-Site": "../x"}))[0] == 401
