"""Whatever is asked by whomever, the answer is strict, tells nothing of us and nothing of others."""

from __future__ import annotations

import json
from typing import Any

import asyncpg
import pytest
import structlog
from aiohttp import ClientResponse

from tests.integration.web.api.route_requests import request_of
from tests.kit.web.callers import bearer, crowd, make_key, make_visitor
from tests.kit.web.fixtures import Server, Starter
from tests.kit.web.table import ROWS

INSIDE = "postgresql://evertalk:the-secret-inside@db/evertalk"
CANARY = "ada-bird-singing-in-the-canyon"
STRICT = ("default-src 'none'", "script-src 'self'", "base-uri 'none'", "require-trusted-types-for 'script'")


def _paths(server: Server) -> list[tuple[str, str]]:
    """Every method and address that the running application serves, and some that it does not."""
    served = {
        (route.method, route.resource.canonical)
        for route in server.runner.app.router.routes()
        if route.resource is not None
    }
    strange = {
        ("GET", "/nothing"),
        ("POST", "/nothing"),
        ("PUT", "/chat"),
        ("DELETE", "/dashboard"),
        ("PATCH", "/ws"),
    }
    return sorted(served | strange)


def _filled(path: str) -> str:
    path = path.replace("{path}", "widget/main.js").replace("{digest}", "abc").replace("{name}", "help")
    return path.replace("{id}", "x").replace("{operator}", "x").replace("{login}", "x")


def _complaints(answer: ClientResponse) -> list[str]:
    policy = answer.headers.get("Content-Security-Policy", "")
    wrong = [part for part in STRICT if part not in policy]
    if "'unsafe" in policy or " * " in f" {policy} ".replace(";", " ") or "frame-ancestors" not in policy:
        wrong.append(policy)
    if "Server" in answer.headers and answer.headers["Server"] != "Evertalk":
        wrong.append(answer.headers["Server"])
    wanted = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}
    return wrong + [name for name, value in wanted.items() if answer.headers.get(name) != value]


@pytest.mark.control("S17", "S46")
async def test_every_address_answers_with_strict_headers(server: Server) -> None:
    people = await crowd(server)
    wrong: list[Any] = []
    for method, canonical in _paths(server):
        for kind in ("nobody", "visitor", "admin"):
            headers = dict(people.headers[kind])
            async with server.client.request(
                method, server.url + _filled(canonical), headers=headers, allow_redirects=False
            ) as answer:
                found = _complaints(answer)
                if answer.status >= 500 or found:
                    wrong.append((method, canonical, kind, answer.status, found))
                if answer.content_type != "text/event-stream" and "Traceback" in await answer.text():
                    wrong.append((method, canonical, kind, "a trace"))
    assert wrong == []


def _dropped(*_: object) -> Any:
    raise structlog.DropEvent


@pytest.mark.control("S46")
async def test_whatever_breaks_inside_nothing_of_it_is_shown(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    people = await crowd(server)
    asked = [(one, *(await request_of(server, one, people))) for one in ROWS]

    def broken(*_: object, **__: object) -> Any:
        raise RuntimeError(f"cannot use {INSIDE}")

    for name in ("fetchval", "fetchrow", "fetch", "execute", "acquire"):
        monkeypatch.setattr(asyncpg.Pool, name, broken)
    wrong: list[Any] = []
    broke = 0
    structlog.configure(processors=[_dropped])
    try:
        for one, path, sent in asked:
            if one.name in ("openStream", "live"):
                continue
            headers = {**sent.pop("headers", {}), **people.headers["admin"]}
            async with server.client.request(
                one.method, server.url + path, headers=headers, **sent
            ) as answer:
                body = await answer.text()
                broke += answer.status == 500
                if (
                    "secret-inside" in body
                    or "RuntimeError" in body
                    or "Traceback" in body
                    or _complaints(answer)
                ):
                    wrong.append((one.name, answer.status, body[:200]))
                if answer.status == 500 and json.loads(body)["request_id"] != answer.headers["X-Request-Id"]:
                    wrong.append((one.name, "no id"))
    finally:
        structlog.reset_defaults()
    assert wrong == []
    assert broke > len(ROWS) / 2, "most need the database"


async def _said_in_private(server: Server) -> Any:
    """A visitor with words of theirs in every place that another could ask for."""
    people = await crowd(server)
    pool, session = server.services.pool, people.visitor.session_id
    screen, _ = await server.greet()
    await screen.socket.close()
    await pool.execute(
        """WITH s AS (SELECT contact_id, agent_id FROM sessions WHERE id = $1),
                n AS (INSERT INTO notes (contact_id, scope, kind, text, session_id, hash)
                      SELECT s.contact_id, a.name, 'fact', $2, $1, sha256('x')
                        FROM s JOIN agents a ON a.id = s.agent_id),
                p AS (UPDATE contacts SET display_name = $2 WHERE id = (SELECT contact_id FROM s)),
                l AS (UPDATE compactions SET summary_text = $2 WHERE session_id = $1)
           INSERT INTO entries (session_id, seq, role, author, blocks, tokens)
           VALUES ($1, 1, 'user', 'person',
                   jsonb_build_array(jsonb_build_object('type', 'text', 'text', $2::text)), 1)""",
        session,
        CANARY,
    )
    await pool.execute("UPDATE attachments SET name = $1", f"{CANARY}.txt")
    return people


async def _heard(server: Server, people: Any, headers: dict[str, str]) -> list[str]:
    found = []
    for one in ROWS:
        path, sent = await request_of(server, one, people)
        given = {**sent.pop("headers", {}), **headers}
        async with server.client.request(one.method, server.url + path, headers=given, **sent) as answer:
            if answer.content_type == "text/event-stream":
                continue
            if CANARY in await answer.text() or CANARY in str(answer.headers):
                found.append(one.name)
    return found


@pytest.mark.control("S07", "S08", "S22")
async def test_by_no_address_does_anybody_read_what_another_said(server: Server) -> None:
    people = await _said_in_private(server)
    pool: asyncpg.Pool[asyncpg.Record] = server.services.pool
    await pool.execute("INSERT INTO agents (name) VALUES ('other')")
    await pool.execute(
        "INSERT INTO sites (name, agent_id) SELECT 'shop', id FROM agents WHERE name = 'other'"
    )
    server.process.visitors.forget_sites()
    _, elsewhere = await make_visitor(pool, "shop")
    scopes: Any = ("sessions:read", "messages:write", "commands:run", "memory:read", "memory:write")
    others = {
        "nobody": {},
        "another visitor": dict(people.headers["foreign visitor"]),
        "a visitor of another site": bearer(elsewhere),
        "a key of another site": await make_key(pool, *scopes, name="shop", site="shop"),
        "a key of another agent": await make_key(pool, *scopes, name="other", agent="other"),
    }
    heard = {kind: await _heard(server, people, headers) for kind, headers in others.items()}
    assert {kind: names for kind, names in heard.items() if names} == {}
    own = await _heard(server, people, dict(people.headers["visitor"]))
    assert "listNotes" in own, "whoever said it reads it"


_THEIRS = """
SELECT c.relname AS table, a.attname AS column FROM pg_class c
  JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
 WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relnamespace = 'public'::regnamespace
   AND (a.attname IN ('session_id', 'contact_id')
        OR (c.relname, a.attname) IN (('sessions', 'id'), ('contacts', 'id')))
 ORDER BY 1, 2
"""


async def _kept_of(server: Server, session: int) -> dict[str, Any]:
    """Every row of one visitor, in every table that says whose its rows are."""
    pool = server.services.pool
    contact = await pool.fetchval("SELECT contact_id FROM sessions WHERE id = $1", session)
    found = {}
    for table, column in await pool.fetch(_THEIRS):
        owner = session if column == "session_id" or table == "sessions" else contact
        statement = f"SELECT x::text AS row FROM {table} x WHERE x.{column} = $1 ORDER BY 1"
        found[f"{table}.{column}"] = [row["row"] for row in await pool.fetch(statement, owner)]
    return found


@pytest.mark.control("S08")
async def test_by_no_address_does_anybody_change_what_another_has(server: Server) -> None:
    people = await _said_in_private(server)
    pool: asyncpg.Pool[asyncpg.Record] = server.services.pool
    await pool.execute("INSERT INTO sites (name, agent_id) SELECT 'shop', id FROM agents LIMIT 1")
    server.process.visitors.forget_sites()
    _, elsewhere = await make_visitor(pool, "shop")
    scopes: Any = ("sessions:read", "messages:write", "commands:run", "memory:read", "memory:write")
    before = await _kept_of(server, people.visitor.session_id)
    assert sum(map(len, before.values())) > 5
    for headers in (
        {},
        dict(people.headers["foreign visitor"]),
        bearer(elsewhere),
        await make_key(pool, *scopes, name="shop", site="shop"),
    ):
        await _heard(server, people, headers)
        after = await _kept_of(server, people.visitor.session_id)
        assert {name: rows for name, rows in after.items() if rows != before[name]} == {}


@pytest.mark.control("S50")
async def test_what_is_anothers_looks_like_what_is_not_there(server: Server) -> None:
    people = await _said_in_private(server)
    foreign = dict(people.headers["foreign visitor"])
    nothing = "00000000-0000-4000-8000-000000000000"
    wrong = []
    for one in ROWS:
        if not one.visitor or one.method != "GET" or "{id}" not in one.path:
            continue
        answers = []
        for known in (True, False):
            path, sent = await request_of(server, one, people)
            if not known:
                path = path.replace(str(people.visitor.session_public_id), nothing).replace(
                    people.summary, nothing
                )
                path = path.replace(people.file, "0" * 32)
            async with server.client.get(server.url + path, headers=foreign, **sent) as answer:
                body = await answer.json()
                body.pop("request_id", None)
                answers.append((answer.status, body))
        if answers[0] != answers[1]:
            wrong.append((one.name, answers))
    assert wrong == []


@pytest.mark.control("S10", "S50")
async def test_an_unknown_name_costs_one_hash_as_a_known_one_does(
    starter: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted, not timed: what takes as long is what does the same."""
    from shared.adapters.postgres.people.operator_auth import Operators, Passwords

    server = await starter.start()
    hashed: list[bool] = []
    before = Passwords._verify

    def counted(self: Passwords, stored: str | None, password: str) -> bool:
        hashed.append(stored is None)
        return before(self, stored, password)

    monkeypatch.setattr(Passwords, "_verify", counted)
    operators = Operators(server.services.pool)
    await server.services.pool.execute("INSERT INTO operators (name) VALUES ('ada')")
    number = await server.services.pool.fetchval("SELECT id FROM operators WHERE name = 'ada'")
    await operators.set_password(number, "correct horse battery", by="test")
    for name in ("ada", "nobody", "ADA ", "\u0000", "x" * 500):
        assert (
            await operators.log_in(name=name.replace("\u0000", ""), password="wrong", source="192.0.2.1")
            is None
        )
    await operators.close()
    assert len(hashed) == 5
