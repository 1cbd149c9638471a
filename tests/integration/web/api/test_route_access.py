"""Who may come to which route: every route with every kind of caller, from the one table."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shared.core.identity.api_keys import SCOPES
from tests.integration.web.api.route_requests import request_of
from tests.kit.web.callers import GONE, ROLES, crowd, make_key
from tests.kit.web.fixtures import Server
from tests.kit.web.table import ROWS
from web.rest.api_key_auth import API
from web.rest.operation import Operation, OperationRouter
from web.routes import scope_of

KINDS = (
    "nobody", "visitor", "foreign visitor", "forged key", "revoked key", "expired key", *ROLES, *GONE,
    *(f"key {scope}" for scope in SCOPES),
)  # fmt: skip
ABOUT_ONE_SESSION = {
    "writeMessage", "listMessages", "listEvents", "searchMessages", "showHistory", "listOriginals",
    "runCommand", "download", "editMessage", "eraseMessage", "listFormer", "showMessage", "speakMessage",
    "nameConversation", "forkConversation", "showAnswerMemory",
}  # fmt: skip


def may(one: Operation, kind: str) -> bool:
    """What the table says."""
    if kind.endswith(" key"):
        return False
    if kind in GONE:
        return one.anyone
    if one.anyone:
        return True
    if kind == "foreign visitor":
        return one.visitor and one.name not in ABOUT_ONE_SESSION
    if kind == "visitor":
        return one.visitor
    if kind in ROLES:
        return one.role is not None and ROLES.index(kind) >= ROLES.index(one.role)
    return one.scope is not None and kind == f"key {one.scope}"


@pytest.mark.control("S07", "S08", "S13")
async def test_every_route_admits_exactly_the_roles_of_its_table(server: Server) -> None:
    people = await crowd(server)
    assert set(people.headers) == set(KINDS)
    wrong = []
    for one in ROWS:
        for kind in KINDS:
            path, sent = await request_of(server, one, people)
            headers = {**sent.pop("headers", {}), **people.headers[kind]}
            async with server.client.request(
                one.method, server.url + path, headers=headers, **sent
            ) as answer:
                told = await answer.json() if answer.content_type == "application/json" else {}
                refused = answer.status in (401, 403) or told.get("code") == "unknown_session"
                assert answer.status < 500, (one.name, kind, told)
                if refused is may(one, kind):
                    wrong.append((one.name, kind, answer.status, told.get("code")))
    assert not wrong


@pytest.mark.control("S12")
@pytest.mark.parametrize("site", ["cross-site", "same-site", "none"])
async def test_no_page_of_others_writes_with_an_admins_cookie(server: Server, site: str) -> None:
    people, pool = await crowd(server), server.services.pool
    before = await pool.fetchval("SELECT count(*) FROM audit")
    let_in = []
    for one in ROWS:
        if one.method == "GET" or one.role is None:
            continue
        path, sent = await request_of(server, one, people)
        headers = {**sent.pop("headers", {}), **people.headers["admin"], "Sec-Fetch-Site": site}
        async with server.client.request(one.method, server.url + path, headers=headers, **sent) as answer:
            told = await answer.json()
            if (answer.status, told["code"]) != (403, "foreign_origin"):
                let_in.append((one.name, answer.status, told["code"]))
    assert not let_in
    assert await pool.fetchval("SELECT count(*) FROM audit") == before


@pytest.mark.control("S14")
async def test_every_write_of_a_key_is_in_the_audit(server: Server) -> None:
    people, pool = await crowd(server), server.services.pool
    for one in ROWS:
        if one.scope is None or one.method == "GET":
            continue
        before = await pool.fetchval("SELECT count(*) FROM audit WHERE actor LIKE 'key:%'")
        path, sent = await request_of(server, one, people)
        headers = {**sent.pop("headers", {}), **people.headers[f"key {one.scope}"]}
        async with server.client.request(one.method, server.url + path, headers=headers, **sent) as answer:
            assert answer.status in (200, 201, 202, 404), await answer.text()
        rows = await pool.fetch("SELECT * FROM audit WHERE actor LIKE 'key:%' ORDER BY id")
        assert len(rows) == before + 1, one.name
        assert rows[-1]["action"].startswith("api.")
        assert rows[-1]["object"].startswith(("session:", "site:"))


@pytest.mark.control("S13")
def test_operation_without_access_rule_cannot_be_registered() -> None:
    with pytest.raises(AssertionError, match="GET /api/v1/secrets must say who may come"):

        @OperationRouter().on("GET /secrets")
        async def list_secrets(call: object) -> None:
            raise NotImplementedError


@pytest.mark.control("S13")
async def test_every_route_is_described_and_every_description_has_a_route(server: Server) -> None:
    routes = {
        (route.method, route.resource.canonical)
        for route in server.runner.app.router.routes()
        if route.resource is not None and route.resource.canonical.startswith("/api/")
        if route.method not in ("HEAD", "OPTIONS")
    }
    assert routes == {(one.method, one.path) for one in ROWS}
    assert len({one.name for one in ROWS}) == len(ROWS)


@pytest.mark.control("S13")
@pytest.mark.parametrize("path", ["/healthz", "/metrics", "/dashboard", "/api/v1/me", "/ws"])
def test_what_is_not_in_the_table_opens_to_no_key(path: str) -> None:
    assert scope_of("GET", path) is None


async def test_a_key_that_asks_too_often_waits(server: Server) -> None:
    app = server.runner.app
    app._state[API] = replace(app[API], requests_per_minute=2)  # the application is frozen by now
    headers = await make_key(server.services.pool, "commands:run")
    statuses = []
    for _ in range(3):
        async with server.client.get(f"{server.url}/api/v1/commands", headers=headers) as answer:
            statuses.append((answer.status, "Retry-After" in answer.headers))
    assert statuses == [(200, False), (200, False), (429, True)]
