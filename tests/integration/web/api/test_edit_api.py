"""REST for an edited question: made once, never a stranger's, and the former version stays readable."""

from __future__ import annotations

import asyncio

import pytest

from tests.kit.web.callers import bearer, make_key, make_visitor
from tests.kit.web.fixtures import Server
from tests.kit.web.rest_calls import call, opened


async def test_api_edits_the_last_message_and_reads_the_former_version(
    server: Server,
) -> None:
    key = await make_key(server.services.pool, "messages:write", "sessions:read")
    of = await opened(server, key)
    status, said = await call(
        server, "POST", f"/sessions/{of}/messages?wait=20", key, json={"text": "Good morning"}
    )
    assert (status, said["mid"]) == (200, "m1")
    path = f"/sessions/{of}/messages/m1/edit"
    status, told = await call(server, "POST", path, key, json={"text": "Good evening", "cid": "e1"})
    assert (status, told["mid"], told["turn"]) == (202, "m3", 2)
    status, again = await call(
        server, "POST", path, {**key, "Idempotency-Key": "e1"}, json={"text": "Good evening"}
    )
    assert (status, again["mid"], again["dup"]) == (202, "m3", True)
    async with asyncio.timeout(20):
        while True:
            _, page = await call(server, "GET", f"/sessions/{of}/messages", key)
            if len(page["messages"]) == 2:
                break
            await asyncio.sleep(0.05)
    assert [one["mid"] for one in page["messages"]] == ["m3", "m4"]
    _, history = await call(server, "GET", f"/sessions/{of}/history", key)
    assert [one["mid"] for one in history["events"]] == ["m3", "m4"]
    _, found = await call(server, "GET", f"/sessions/{of}/search?q=morning", key)
    assert found["hits"] == []
    status, former = await call(server, "GET", f"/sessions/{of}/messages/m3/former", key)
    assert status == 200
    [version] = former["versions"]
    assert (version["mid"], version["text"]) == ("m1", "Good morning")
    assert [one["text"] for one in version["answers"]] == ["Hello there."]
    status, told = await call(server, "POST", path, key, json={"text": "Good night"})
    assert (status, told["code"]) == (409, "edit_changed")
    assert told["details"]["advice"]


@pytest.mark.control("S08")
async def test_a_stranger_neither_edits_nor_reads_what_was_said_before(server: Server) -> None:
    row, token = await make_visitor(server.services.pool)
    own, of = bearer(token), f"/sessions/{row.session_public_id}/messages"
    status, _ = await call(server, "POST", f"{of}?wait=20", own, json={"text": "Good morning"})
    assert status == 200
    _, foreign = await make_visitor(server.services.pool)
    other, path = bearer(foreign), f"{of}/m1"
    for method, rest, sent in (("POST", "/edit", {"json": {"text": "x"}}), ("GET", "/former", {})):
        status, told = await call(server, method, path + rest, other, **sent)
        assert (status, told["code"]) == (404, "unknown_session"), rest
    for mid in ("m2", "m99", "n1", "1"):
        status, _ = await call(server, "POST", f"{of}/{mid}/edit", own, json={"text": "x"})
        assert status == 404, mid
        status, _ = await call(server, "GET", f"{of}/{mid}/former", own)
        assert status == 404, mid
    status, told = await call(server, "POST", path + "/edit", own, json={"text": " "})
    assert (status, told["code"]) == (400, "empty_message")
    status, told = await call(server, "POST", path + "/edit", own, json={"text": "x" * 100_001})
    assert (status, told["code"]) == (413, "message_too_long")
