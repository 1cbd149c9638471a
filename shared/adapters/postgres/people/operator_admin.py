"""Who the operators are: invited, given a role, locked, and logged out; the last admin always stays one."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias
from uuid import UUID

import asyncpg

from shared.adapters.postgres.db.pool import store_method
from shared.adapters.postgres.people.operator_auth import IDLE_MINUTES, append_audit, digest_of, hold_operator
from shared.core.identity.operators import (
    LastAdmin,
    OfTheProvider,
    OperatorExists,
    OperatorLocked,
    Role,
    StaleOperator,
    UnknownOperator,
    check_display_name,
    check_operator_name,
    check_role,
)

Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"
SECONDS = 10.0
INVITATION_HOURS = 24
_TOKEN_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Invitation:
    """`token` logs in once and is never shown again."""

    id: UUID
    name: str
    token: str
    expires_at: datetime


class OperatorAdmin:
    """Every change names who made it, and is in the audit log with it. Raises StorageUnavailable."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    @store_method
    async def all(self) -> list[dict[str, Any]]:
        """Everybody with their open logins, by name."""
        text = await self._pool.fetchval(_ALL, timeout=SECONDS)
        found: list[dict[str, Any]] = json.loads(text)
        return found

    @store_method
    async def logins(self, operator_id: int, token: str = "") -> list[dict[str, Any]]:
        """One's own open logins, the newest first; the one of `token` is marked."""
        text = await self._pool.fetchval(_OWN, operator_id, digest_of(token), timeout=SECONDS)
        found: list[dict[str, Any]] = json.loads(text)
        return found

    @store_method
    async def show_as(self, operator_id: int, name: str, *, by: str) -> None:
        """The name that people see of an operator, from their next word on; raises BadOperator."""
        shown = check_display_name(name)
        async with self._pool.acquire(timeout=SECONDS) as connection, connection.transaction():
            await connection.execute(
                "UPDATE operators SET display_name = $2 WHERE id = $1", operator_id, shown
            )
            await append_audit(connection, actor=by, action="operator.display_name", about=by)

    @store_method
    async def invite(self, name: str, role: str, *, by: str) -> Invitation:
        """Raises BadOperator, OperatorExists."""
        name, wanted = check_operator_name(name), check_role(role)
        async with self._pool.acquire(timeout=SECONDS) as connection, connection.transaction():
            await _one_at_a_time(connection)
            if await connection.fetchval("SELECT 1 FROM operators WHERE lower(name) = lower($1)", name):
                raise OperatorExists(name)
            row = await connection.fetchrow(
                "INSERT INTO operators (name, role) VALUES ($1, $2) RETURNING *", name, wanted
            )
            assert row is not None
            await append_audit(
                connection, actor=by, action="operator.invited", about=_about(row), detail={"role": wanted}
            )
            return await _link(connection, row)

    @store_method
    async def link(self, operator: UUID, *, by: str) -> Invitation:
        """For somebody who forgot the password; raises UnknownOperator, OfTheProvider, OperatorLocked."""
        async with self._pool.acquire(timeout=SECONDS) as connection, connection.transaction():
            row = await _found(connection, operator)
            if row["issuer"] is not None:
                raise OfTheProvider
            if row["disabled_at"] is not None:
                raise OperatorLocked
            await hold_operator(connection, row["id"])
            await append_audit(connection, actor=by, action="login_link.made", about=_about(row))
            return await _link(connection, row)

    @store_method
    async def change(
        self,
        operator: UUID,
        *,
        by: str,
        version: int | None = None,
        role: str | None = None,
        locked: bool | None = None,
    ) -> dict[str, Any]:
        """The operator afterwards. Without a version nothing is stale.

        Raises UnknownOperator, StaleOperator, LastAdmin, OfTheProvider, BadOperator.
        """
        wanted = None if role is None else check_role(role)
        async with self._pool.acquire(timeout=SECONDS) as connection, connection.transaction():
            await _one_at_a_time(connection)
            row = await _found(connection, operator)
            if version is not None and version != row["version"]:
                raise StaleOperator(current=_shown(row))
            changes = _changes(row, role=wanted, locked=locked)
            if not changes:
                return _shown(row)
            if wanted is not None and "role" in changes and row["issuer"] is not None:
                raise OfTheProvider
            await _keep_an_admin(connection, row, changes)
            now = await connection.fetchrow(
                """UPDATE operators SET role = $2, version = version + 1,
                          disabled_at = CASE WHEN $3 THEN coalesce(disabled_at, now()) END
                    WHERE id = $1 RETURNING *""",
                row["id"],
                changes.get("role", row["role"]),
                changes.get("locked", row["disabled_at"] is not None),
            )
            assert now is not None
            await _after_change(connection, now, changes, by=by)
            return _shown(now)

    @store_method
    async def end_login(self, operator: UUID, login: UUID, *, by: str) -> bool:
        """False when there is no such login any more."""
        async with self._pool.acquire(timeout=SECONDS) as connection, connection.transaction():
            row = await _found(connection, operator)
            return await _end(connection, row, by=by, login=login) > 0

    @store_method
    async def end_logins(self, operator: UUID, *, by: str) -> int:
        async with self._pool.acquire(timeout=SECONDS) as connection, connection.transaction():
            return await _end(connection, await _found(connection, operator), by=by)

    @store_method
    async def end_own(self, operator_id: int, *, keep: str, login: UUID | None = None) -> int:
        """One of one's own logins, or all but the one of the token `keep`."""
        async with self._pool.acquire(timeout=SECONDS) as connection, connection.transaction():
            row = await connection.fetchrow("SELECT * FROM operators WHERE id = $1", operator_id)
            assert row is not None
            return await _end(connection, row, by=row["name"], login=login, keep=keep)

    @store_method
    async def named(self, name: str) -> UUID:
        """Raises UnknownOperator."""
        found = await self._pool.fetchval(
            "SELECT public_id FROM operators WHERE lower(name) = lower($1) ORDER BY name = $1 DESC LIMIT 1",
            name,
            timeout=SECONDS,
        )
        if found is None:
            raise UnknownOperator(advice=f"No operator is called {name}; ./evertalk operator list shows all.")
        return UUID(str(found))

    @store_method
    async def with_password(self, operator: UUID) -> int:
        """The internal id of who may have one; raises UnknownOperator, OfTheProvider."""
        async with self._pool.acquire(timeout=SECONDS) as connection:
            row = await _found(connection, operator)
        if row["issuer"] is not None:
            raise OfTheProvider
        return int(row["id"])

    @store_method
    async def of_provider(self, *, issuer: str, subject: str, name: str, role: Role) -> int | None:
        """Makes or updates who an identity provider vouches for; None when they are locked here.

        A name that somebody else has is never theirs: it gets the provider's name behind it, or a number.
        """
        async with self._pool.acquire(timeout=SECONDS) as connection, connection.transaction():
            await _one_at_a_time(connection)
            row = await connection.fetchrow(
                "SELECT * FROM operators WHERE issuer = $1 AND subject = $2", issuer, subject
            )
            if row is None:
                row = await connection.fetchrow(
                    """INSERT INTO operators (name, role, issuer, subject) VALUES ($1, $2, $3, $4)
                       RETURNING *""",
                    await _free_name(connection, name),
                    role,
                    issuer,
                    subject,
                )
                assert row is not None
                detail: Mapping[str, Any] = {"role": role, "from": "provider"}
                await append_audit(
                    connection, actor=row["name"], action="operator.made", about=_about(row), detail=detail
                )
            if row["disabled_at"] is not None:
                return None
            if row["role"] != role:
                await connection.execute(
                    "UPDATE operators SET role = $2, version = version + 1 WHERE id = $1", row["id"], role
                )
                await append_audit(
                    connection, actor="identity provider", action="operator.changed", about=_about(row),
                    detail={"role": role},
                )  # fmt: skip
            return int(row["id"])


async def _one_at_a_time(connection: Any) -> None:
    """Two admins who demote each other must not both succeed."""
    await connection.execute("LOCK TABLE operators IN SHARE ROW EXCLUSIVE MODE", timeout=SECONDS)


async def _found(connection: Any, operator: UUID) -> asyncpg.Record:
    row: asyncpg.Record | None = await connection.fetchrow(
        "SELECT * FROM operators WHERE public_id = $1", operator, timeout=SECONDS
    )
    if row is None:
        raise UnknownOperator
    return row


def _changes(row: asyncpg.Record, *, role: Role | None, locked: bool | None) -> dict[str, Any]:
    wanted = {"role": role, "locked": locked}
    stands = {"role": row["role"], "locked": row["disabled_at"] is not None}
    return {name: value for name, value in wanted.items() if value is not None and value != stands[name]}


async def _keep_an_admin(connection: Any, row: asyncpg.Record, changes: Mapping[str, Any]) -> None:
    goes = changes.get("locked") or changes.get("role", "admin") != "admin"
    if row["role"] != "admin" or row["disabled_at"] is not None or not goes:
        return
    others = await connection.fetchval(
        "SELECT count(*) FROM operators WHERE role = 'admin' AND disabled_at IS NULL AND id <> $1", row["id"]
    )
    if not others:
        raise LastAdmin


async def _after_change(connection: Any, row: asyncpg.Record, changes: Mapping[str, Any], *, by: str) -> None:
    """A locked operator is out at once; an unlocked one need not wait for failed tries to be forgotten."""
    if changes.get("locked") is True:
        await connection.execute("DELETE FROM operator_sessions WHERE operator_id = $1", row["id"])
        await connection.execute("DELETE FROM login_links WHERE operator_id = $1", row["id"])
        await connection.execute("DELETE FROM operator_steps WHERE operator_id = $1", row["id"])
        await connection.execute("DELETE FROM login_places WHERE operator_id = $1", row["id"])
    if changes.get("locked") is False:
        await connection.execute("DELETE FROM login_tries WHERE operator_id = $1", row["id"])
    action = {True: "operator.locked", False: "operator.unlocked"}.get(changes.get("locked", ""))
    if action is not None:
        await append_audit(connection, actor=by, action=action, about=_about(row))
    if "role" in changes:
        detail = {"role": changes["role"]}
        await append_audit(connection, actor=by, action="operator.changed", about=_about(row), detail=detail)


async def _end(
    connection: Any, row: asyncpg.Record, *, by: str, login: UUID | None = None, keep: str = ""
) -> int:
    ended = await connection.fetch(
        """DELETE FROM operator_sessions WHERE operator_id = $1 AND token_hash <> $2
              AND ($3::uuid IS NULL OR public_id = $3) RETURNING public_id""",
        row["id"],
        digest_of(keep),
        login,
    )
    if ended:
        detail = {"logins": len(ended)}
        await append_audit(connection, actor=by, action="login.revoked", about=_about(row), detail=detail)
    return len(ended)


async def _link(connection: Any, row: asyncpg.Record) -> Invitation:
    """The newest link is the only one."""
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    await connection.execute("DELETE FROM login_links WHERE operator_id = $1 AND used_at IS NULL", row["id"])
    expires_at = await connection.fetchval(
        f"""INSERT INTO login_links (token_hash, operator_id, expires_at)
            VALUES ($1, $2, now() + interval '{INVITATION_HOURS} hours') RETURNING expires_at""",
        digest_of(token),
        row["id"],
    )
    return Invitation(id=row["public_id"], name=row["name"], token=token, expires_at=expires_at)


async def _free_name(connection: Any, name: str) -> str:
    taken = {
        row["name"]
        for row in await connection.fetch(
            "SELECT lower(name) AS name FROM operators WHERE starts_with(lower(name), lower($1))", name
        )
    }
    number, free = 1, name
    while free.lower() in taken:
        number += 1
        free = f"{name} {number}"
    return free


def _about(row: asyncpg.Record) -> str:
    return f"operator:{row['public_id']}"


def _shown(row: asyncpg.Record) -> dict[str, Any]:
    return {
        "id": str(row["public_id"]),
        "name": row["name"],
        "role": row["role"],
        "locked": row["disabled_at"] is not None,
        "version": row["version"],
    }


_OPEN = f"s.expires_at > now() AND s.seen_at > now() - interval '{IDLE_MINUTES} minutes'"
_LOGIN = """jsonb_build_object('id', s.public_id, 'at', s.created_at, 'seen_at', s.seen_at,
              'expires_at', s.expires_at, 'how', s.how, 'source', s.source, 'browser', s.browser"""
_ALL = f"""
SELECT coalesce(jsonb_agg(jsonb_build_object(
         'id', o.public_id, 'name', o.name, 'role', o.role, 'version', o.version,
         'locked', o.disabled_at IS NOT NULL, 'locked_at', o.disabled_at,
         'has_password', o.password_hash IS NOT NULL,
         'has_second_factor', EXISTS (SELECT FROM operator_factors f
                                       WHERE f.operator_id = o.id AND f.confirmed_at IS NOT NULL),
         'by_provider', o.issuer IS NOT NULL, 'created_at', o.created_at, 'last_login_at', o.last_login_at,
         'link_until', (SELECT max(l.expires_at) FROM login_links l
                         WHERE l.operator_id = o.id AND l.used_at IS NULL AND l.expires_at > now()),
         'refused_until', (SELECT max(t.refused_until) FROM login_tries t
                            WHERE t.operator_id = o.id AND t.refused_until > now()),
         'logins', coalesce((SELECT jsonb_agg({_LOGIN}) ORDER BY s.created_at DESC, s.public_id)
                               FROM operator_sessions s WHERE s.operator_id = o.id AND {_OPEN}), '[]')
       ) ORDER BY o.disabled_at IS NOT NULL, lower(o.name)), '[]')::text
  FROM operators o
"""
_OWN = f"""
SELECT coalesce(jsonb_agg({_LOGIN}, 'this', s.token_hash = $2)
                ORDER BY s.token_hash = $2 DESC, s.created_at DESC, s.public_id), '[]')::text
  FROM operator_sessions s WHERE s.operator_id = $1 AND {_OPEN}
"""
