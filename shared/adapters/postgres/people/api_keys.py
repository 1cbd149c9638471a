"""Keys of programs: made once, found by hash, revoked; each change stands in the audit."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import asyncpg

from shared.adapters.postgres.db.pool import store_method
from shared.adapters.postgres.people.operator_auth import append_audit, digest_of
from shared.core.identity.api_keys import TOKEN_MARK, Scope

PREFIX_CHARS = len(TOKEN_MARK) + 6
_TOKEN_BYTES = 32
_BY = "cli"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    id: int
    name: str
    prefix: str
    """The first characters, by which a person knows it again; the rest is nowhere."""
    scopes: tuple[Scope, ...]
    site: str | None
    agent_id: int | None
    agent: str | None
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    """By the hour."""
    revoked_at: datetime | None

    @property
    def actor(self) -> str:
        """As the audit names it."""
        return f"key:{self.id}"


class UnknownLimit(ValueError):
    """There is no such site or agent."""


class PostgresApiKeys:
    """Each method is one transaction; raises StorageUnavailable."""

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record]) -> None:
        self._pool = pool

    @store_method
    async def create(
        self,
        name: str,
        scopes: tuple[Scope, ...],
        *,
        days: int | None = None,
        site: str | None = None,
        agent: str | None = None,
    ) -> str | None:
        """The token, which cannot be read again; None when the name is taken. Raises UnknownLimit."""
        token = TOKEN_MARK + secrets.token_urlsafe(_TOKEN_BYTES)
        async with self._pool.acquire() as connection, connection.transaction():
            agent_id = await _limits(connection, site=site, agent=agent)
            key_id = await connection.fetchval(
                """INSERT INTO api_keys (name, prefix, token_hash, scopes, site, agent_id, expires_at)
                   VALUES ($1, $2, $3, $4, $5, $6, now() + make_interval(days => $7))
                   ON CONFLICT (name) WHERE revoked_at IS NULL DO NOTHING RETURNING id""",
                name, token[:PREFIX_CHARS], digest_of(token), list(scopes), site, agent_id, days,
            )  # fmt: skip
            if key_id is None:
                return None
            detail = {"scopes": list(scopes)}
            await append_audit(connection, actor=_BY, action="key.made", about=f"key:{key_id}", detail=detail)
        return token

    @store_method
    async def all(self) -> list[ApiKey]:
        rows = await self._pool.fetch(f"{_KEYS} ORDER BY k.revoked_at IS NOT NULL, k.name, k.id")
        return [_key(row) for row in rows]

    @store_method
    async def revoke(self, name_or_prefix: str) -> bool:
        """From this moment on it opens nothing; False when no living key is called so."""
        async with self._pool.acquire() as connection, connection.transaction():
            key_ids = await connection.fetch(
                """UPDATE api_keys SET revoked_at = now()
                    WHERE revoked_at IS NULL AND $1 IN (name, prefix) RETURNING id""",
                name_or_prefix,
            )
            for row in key_ids:
                await append_audit(connection, actor=_BY, action="key.revoked", about=f"key:{row['id']}")
        return bool(key_ids)

    @store_method
    async def find(self, token: str) -> ApiKey | None:
        """Whose token this is, while it lives; found by hash, so that the time it takes tells nothing."""
        digest = digest_of(token)
        row = await self._pool.fetchrow(
            f"""WITH used AS (
                  UPDATE api_keys SET last_used_at = date_trunc('hour', now())
                   WHERE token_hash = $1 AND {_LIVES}
                     AND (last_used_at IS NULL OR last_used_at < date_trunc('hour', now()))
                )
                {_KEYS} WHERE k.token_hash = $1 AND {_LIVES}""",
            digest,
        )
        if row is None or not secrets.compare_digest(row["token_hash"], digest):
            return None
        return _key(row)

    @store_method
    async def record(self, key: ApiKey, action: str, *, about: str, detail: Mapping[str, Any]) -> None:
        """What a key did; ids and numbers only."""
        async with self._pool.acquire() as connection, connection.transaction():
            await append_audit(connection, actor=key.actor, action=action, about=about, detail=detail)


_LIVES = "revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now())"
_KEYS = """
SELECT k.*, a.name AS agent FROM api_keys k LEFT JOIN agents a ON a.id = k.agent_id
"""


async def _limits(connection: Any, *, site: str | None, agent: str | None) -> int | None:
    if site is not None and not await connection.fetchval(
        "SELECT EXISTS (SELECT FROM sites WHERE name = $1)", site
    ):
        raise UnknownLimit(f"There is no site {site}; ./evertalk site list shows which there are.")
    if agent is None:
        return None
    agent_id: int | None = await connection.fetchval("SELECT id FROM agents WHERE name = $1", agent)
    if agent_id is None:
        raise UnknownLimit(f"There is no agent {agent}; ./evertalk agent list shows which there are.")
    return agent_id


def _key(row: asyncpg.Record) -> ApiKey:
    return ApiKey(
        id=row["id"],
        name=row["name"],
        prefix=row["prefix"],
        scopes=tuple(row["scopes"]),
        site=row["site"],
        agent_id=row["agent_id"],
        agent=row["agent"],
        created_at=row["created_at"],
        expires_at=row["expires_at"],
        last_used_at=row["last_used_at"],
        revoked_at=row["revoked_at"],
    )
