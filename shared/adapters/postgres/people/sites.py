"""The rows of widget sites and their sealed secrets: changed by compare-and-set, each change in the audit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import asyncpg

from shared.adapters.encryption import Sealed
from shared.adapters.postgres.db.pool import store_method
from shared.adapters.postgres.people.operator_auth import append_audit
from shared.config.sites import ROW_FIELDS

_BY = "cli"


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteShown:
    """A site as its operator sees it."""

    name: str
    agent: str
    audience: str
    origins: tuple[str, ...]
    config: Mapping[str, Any]
    version: int
    visitors: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretShown:
    """Never the secret itself."""

    id: str
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedOrigin:
    origin: str
    refused: int
    """How often."""
    last_at: datetime


class PostgresSites:
    """Each method is one transaction; raises StorageUnavailable."""

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record]) -> None:
        self._pool = pool

    @store_method
    async def all(self) -> list[SiteShown]:
        return [_shown(row) for row in await self._pool.fetch(f"{_SITES} ORDER BY w.name")]

    @store_method
    async def find(self, name: str) -> SiteShown | None:
        row = await self._pool.fetchrow(f"{_SITES} WHERE w.name = $1", name)
        return None if row is None else _shown(row)

    @store_method
    async def add(self, site: SiteShown, *, by: str = _BY) -> bool:
        """False when there is one of that name."""
        async with self._pool.acquire() as connection, connection.transaction():
            agent_id = await connection.fetchval(
                _NEW, site.name, site.agent, site.audience, list(site.origins), dict(site.config)
            )
            if agent_id is not None:
                await append_audit(
                    connection, actor=by, action="site.made", about=site.name, detail={"agent": agent_id}
                )
        return agent_id is not None

    @store_method
    async def change(self, site: SiteShown, *, by: str = _BY) -> int | None:
        """The new version; None when somebody else changed the row since `site.version`."""
        async with self._pool.acquire() as connection, connection.transaction():
            row = await connection.fetchrow(
                _CHANGED, site.name, site.agent, site.audience, list(site.origins), dict(site.config),
                site.version,
            )  # fmt: skip
            if row is None:
                return None
            await append_audit(
                connection, actor=by, action="site.changed", about=site.name,
                detail={"agent": row["agent_id"], "version": row["version"]},
            )  # fmt: skip
        version: int = row["version"]
        return version

    @store_method
    async def give(self, name: str, agent: str) -> bool:
        """New conversations of a site go to an agent; False when there is no such site."""
        async with self._pool.acquire() as connection, connection.transaction():
            agent_id = await connection.fetchval(_GIVEN, name, agent)
            if agent_id is not None:
                await append_audit(
                    connection, actor=_BY, action="site.changed", about=name, detail={"agent": agent_id}
                )
        return agent_id is not None

    @store_method
    async def refused(self, name: str) -> list[RefusedOrigin]:
        """Pages that asked for the chat and may not have it, the latest first."""
        rows = await self._pool.fetch(
            "SELECT origin, refused, last_at FROM refused_origins WHERE site = $1 ORDER BY last_at DESC", name
        )
        return [RefusedOrigin(**row) for row in rows]

    @store_method
    async def allow(self, name: str, origin: str, *, by: str) -> None:
        """One more origin of a site; what is allowed already stays so."""
        async with self._pool.acquire() as connection, connection.transaction():
            version = await connection.fetchval(
                """UPDATE sites SET allowed_origins = allowed_origins || $2::text, version = version + 1
                    WHERE name = $1 AND NOT allowed_origins @> ARRAY[$2::text] RETURNING version""",
                name, origin,
            )  # fmt: skip
            await connection.execute(
                "DELETE FROM refused_origins WHERE site = $1 AND origin = $2", name, origin
            )
            if version is not None:
                await append_audit(
                    connection, actor=by, action="site.origin_allowed", about=name, detail={"origin": origin}
                )

    @store_method
    async def secrets(self, name: str) -> list[SecretShown]:
        rows = await self._pool.fetch(
            "SELECT secret_id, created_at FROM site_secrets WHERE site = $1 ORDER BY created_at, slot", name
        )
        return [SecretShown(id=row["secret_id"], created_at=row["created_at"]) for row in rows]

    @store_method
    async def add_secret(self, name: str, secret_id: str, sealed: Sealed, *, by: str = _BY) -> bool:
        """False when there are two already."""
        async with self._pool.acquire() as connection, connection.transaction():
            await connection.execute("SELECT FROM sites WHERE name = $1 FOR UPDATE", name)
            slot = await connection.fetchval(_SEALED, name, secret_id, sealed.key_id, sealed.data)
            if slot is not None:
                await _told(connection, "site.secret_added", name, secret_id, by)
        return slot is not None

    @store_method
    async def revoke_secret(self, name: str, secret_id: str, *, by: str = _BY) -> bool:
        """What it signed opens nothing any more; whoever has signed in has to do so again."""
        async with self._pool.acquire() as connection, connection.transaction():
            gone = await connection.fetchval(
                "DELETE FROM site_secrets WHERE site = $1 AND secret_id = $2 RETURNING slot", name, secret_id
            )
            if gone is not None:
                await connection.execute("DELETE FROM visitors WHERE site = $1 AND identified", name)
                await _told(connection, "site.secret_revoked", name, secret_id, by)
        return gone is not None


async def _told(connection: Any, action: str, site: str, secret_id: str, by: str) -> None:
    await append_audit(connection, actor=by, action=action, about=site, detail={"secret": secret_id})


def whole_of(site: SiteShown) -> dict[str, Any]:
    """As it is edited: what the row and its config say, in one object."""
    return {
        "agent": site.agent, "audience": site.audience, "origins": list(site.origins), **site.config,
    }  # fmt: skip


def site_from(name: str, whole: Mapping[str, Any], *, version: int) -> SiteShown:
    """The other way round; `whole` has been checked."""
    config = {key: value for key, value in whole.items() if key not in ROW_FIELDS and value is not None}
    return SiteShown(
        name=name, agent=whole["agent"], audience=whole["audience"], origins=tuple(whole["origins"]),
        config=config, version=version,
    )  # fmt: skip


def secret_about(site: str, secret_id: str) -> str:
    """What a sealed secret is bound to."""
    return f"site-secret:{site}:{secret_id}"


_SITES = """
SELECT w.name, a.name AS agent, w.audience, w.allowed_origins, w.config, w.version,
       (SELECT count(*) FROM addresses d WHERE d.channel = 'web' AND d.account = w.name) AS visitors
  FROM sites w JOIN agents a ON a.id = w.agent_id
"""
_NEW = """
INSERT INTO sites (name, agent_id, audience, allowed_origins, config)
SELECT $1, a.id, $3, $4::text[], $5 FROM agents a WHERE a.name = $2
ON CONFLICT (name) DO NOTHING RETURNING agent_id
"""
_CHANGED = """
UPDATE sites w SET agent_id = coalesce((SELECT id FROM agents WHERE name = $2), w.agent_id),
       audience = $3, allowed_origins = $4::text[], config = $5, version = w.version + 1
 WHERE w.name = $1 AND w.version = $6 RETURNING agent_id, version
"""
_GIVEN = """
UPDATE sites w SET agent_id = a.id, version = w.version + 1 FROM agents a
 WHERE w.name = $1 AND a.name = $2 RETURNING w.agent_id
"""
_SEALED = """
INSERT INTO site_secrets (site, slot, secret_id, key_id, sealed)
SELECT w.name, free.slot, $2, $3, $4 FROM sites w, (VALUES (1), (2)) free(slot)
 WHERE w.name = $1 AND NOT EXISTS (SELECT FROM site_secrets s WHERE s.site = w.name AND s.slot = free.slot)
 ORDER BY free.slot LIMIT 1 RETURNING slot
"""


def _shown(row: asyncpg.Record) -> SiteShown:
    return SiteShown(
        name=row["name"], agent=row["agent"], audience=row["audience"],
        origins=tuple(row["allowed_origins"]), config=row["config"], version=row["version"],
        visitors=row["visitors"],
    )  # fmt: skip
