"""Makes every kind of REST caller, with and without access."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import asyncpg

from shared.adapters.postgres.people.api_key_admin import ApiKeyAdmin
from shared.adapters.postgres.people.operator_auth import hash_secret
from shared.adapters.postgres.people.visitors import PostgresVisitors, VisitorRow, generate_token
from shared.adapters.postgres.turns.uploads import PostgresUploads
from shared.core.identity.api_keys import SCOPES, Scope
from shared.core.values.files import Document
from tests.kit.web.fixtures import Server

ROLES = ("viewer", "operator", "admin")


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def make_key(
    pool: asyncpg.Pool[asyncpg.Record], *scopes: Scope, name: str = "", **limits: Any
) -> dict[str, str]:
    token = await ApiKeyAdmin(pool).create(name or generate_token()[:20], scopes, by="test", **limits)
    assert token is not None
    return bearer(token)


GONE = {
    "logged out by age": "UPDATE operator_sessions SET expires_at = now() WHERE token_hash = $1",
    "logged out by idleness": """UPDATE operator_sessions SET seen_at = now() - interval '31 minutes'
                                  WHERE token_hash = $1""",
    "revoked login": "DELETE FROM operator_sessions WHERE token_hash = $1",
    "locked admin": """UPDATE operators SET disabled_at = now() FROM operator_sessions s
                        WHERE s.operator_id = operators.id AND s.token_hash = $1""",
}
"""SQL that ends an admin's access, by the name of the way in which it ends."""


async def make_operator(
    pool: asyncpg.Pool[asyncpg.Record], role: str, *, name: str = "", then: str = ""
) -> dict[str, str]:
    """Create an operator with this role, and return the headers of a logged-in browser.

    `then` names an entry of `GONE` that ends the access at once.
    """
    token = generate_token()
    await pool.execute(
        """WITH o AS (INSERT INTO operators (name, role) VALUES ($3, $1) RETURNING id)
           INSERT INTO operator_sessions (token_hash, operator_id, expires_at)
           SELECT $2, id, now() + interval '1 hour' FROM o""",
        role,
        hash_secret(token),
        name or role,
    )
    if then:
        await pool.execute(then, hash_secret(token))
    return {"Cookie": f"evertalk_operator={token}", "Sec-Fetch-Site": "same-origin"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    """Headers by kind of caller, and the visitor whose conversation the requests are about."""

    visitor: VisitorRow
    summary: str
    file: str
    person: str
    note: str
    """Public id of a note of the visitor."""
    headers: Mapping[str, Mapping[str, str]]


async def make_visitor(pool: asyncpg.Pool[asyncpg.Record], site: str = "default") -> tuple[VisitorRow, str]:
    token = generate_token()
    row = await PostgresVisitors(pool).create(token, site=site)
    assert row is not None
    return row, token


async def crowd(server: Server) -> Crowd:
    pool = server.services.pool
    visitor, token = await make_visitor(pool)
    _, foreign = await make_visitor(pool)
    summary = await pool.fetchval(
        """INSERT INTO compactions (session_id, kind, from_turn, through_turn, from_seq, through_seq, trigger,
                              active)
           VALUES ($1, 'summary', 1, 1, 1, 2, 'manual', false) RETURNING public_id""",
        visitor.session_id,
    )
    file = await PostgresUploads(pool).keep(
        visitor.session_id, b"words", Document(name="a.txt", text="words"), name="a.txt", most_per_day=10_000
    )
    headers: dict[str, Mapping[str, str]] = {
        "nobody": {},
        "visitor": bearer(token),
        "foreign visitor": bearer(foreign),
        "forged key": bearer("evk_" + "A" * 43),
        "revoked key": await make_key(pool, *SCOPES, name="revoked"),
        "expired key": await make_key(pool, *SCOPES, name="expired", days=1),
        **{role: await make_operator(pool, role) for role in ROLES},
        **{kind: await make_operator(pool, "admin", name=kind, then=then) for kind, then in GONE.items()},
        **{f"key {scope}": await make_key(pool, scope, name=scope.replace(":", ".")) for scope in SCOPES},
    }
    assert await ApiKeyAdmin(pool).revoke("revoked", by="test")
    await pool.execute("UPDATE api_keys SET expires_at = now() - interval '1 s' WHERE name = 'expired'")
    person = await pool.fetchval(
        "SELECT p.public_id FROM sessions s JOIN contacts p ON p.id = s.contact_id WHERE s.id = $1",
        visitor.session_id,
    )
    note = await pool.fetchval(
        """INSERT INTO notes (contact_id, scope, kind, text, hash)
           SELECT contact_id, 'default', 'fact', 'Has a boat.', '\\x01' FROM sessions WHERE id = $1
           RETURNING public_id""",
        visitor.session_id,
    )
    return Crowd(
        visitor=visitor, summary=str(summary), file=file.id, person=str(person), note=str(note),
        headers=headers,
    )  # fmt: skip
