"""Visitors of widget sites: a browser's token opens one address, and nothing else."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from uuid import UUID

import asyncpg

from shared.adapters.postgres.pool import store_method

TOKEN_BYTES = 32
YEARS = 1
"""How long a token lives after it was last seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteRow:
    """Where a widget may live, and for whom."""

    name: str
    audience: str
    allowed_origins: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class VisitorRow:
    """Who a token belongs to, and the conversation it opens."""

    site: str
    audience: str
    party_id: int
    address_id: int
    session_id: int
    session_public_id: UUID


def new_token() -> str:
    """256 random bits; only their hash is ever stored."""
    return secrets.token_urlsafe(TOKEN_BYTES)


class PostgresVisitors:
    """Each method is one transaction; raises StorageUnavailable."""

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record]) -> None:
        self._pool = pool

    @store_method
    async def sites(self) -> dict[str, SiteRow]:
        rows = await self._pool.fetch("SELECT name, audience, allowed_origins FROM sites")
        return {
            row["name"]: SiteRow(
                name=row["name"], audience=row["audience"], allowed_origins=tuple(row["allowed_origins"])
            )
            for row in rows
        }

    @store_method
    async def find(self, token: str) -> VisitorRow | None:
        """Who comes with this token; each visit begins its year anew."""
        row = await self._pool.fetchrow(
            f"""WITH seen AS (
                  UPDATE visitors SET last_seen_at = now(), expires_at = now() + interval '{YEARS} years'
                   WHERE token_hash = $1 AND expires_at > now() AND last_seen_at < now() - interval '1 minute'
                )
                SELECT v.site, w.audience, a.party_id, a.id AS address_id, a.session_id, s.public_id
                  FROM visitors v JOIN addresses a ON a.id = v.address_id
                  JOIN sessions s ON s.id = a.session_id JOIN sites w ON w.name = v.site
                 WHERE v.token_hash = $1 AND v.expires_at > now()""",
            _hash(token),
        )
        return None if row is None else _visitor(row)

    @store_method
    async def create(self, token: str, *, site: str, timezone: str | None = None) -> VisitorRow | None:
        """A person nobody knows yet, with a session and an address; None when there is no such site.

        Two tabs may come with the same new token at once: both get the same visitor.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            await connection.execute(
                "SELECT pg_advisory_xact_lock(hashtextextended('evertalk.visitor' || $1, 0))",
                _hash(token).hex(),
            )
            known = await connection.fetchrow(_KNOWN, _hash(token))
            row = known or await connection.fetchrow(_CREATE, _hash(token), site, timezone)
        return None if row is None else _visitor(row)


_KNOWN = """
SELECT v.site, w.audience, a.party_id, a.id AS address_id, a.session_id, s.public_id
  FROM visitors v JOIN addresses a ON a.id = v.address_id
  JOIN sessions s ON s.id = a.session_id JOIN sites w ON w.name = v.site
 WHERE v.token_hash = $1 AND v.expires_at > now()
"""
_CREATE = f"""
WITH w AS (
  SELECT name, audience, agent_id FROM sites WHERE name = $2
), p AS (
  INSERT INTO parties (anonymous, timezone) SELECT true, $3 FROM w RETURNING id, public_id
), s AS (
  INSERT INTO sessions (party_id, agent_id) SELECT p.id, w.agent_id FROM p, w RETURNING id, public_id
), t AS (
  INSERT INTO session_totals (session_id) SELECT id FROM s
), a AS (
  INSERT INTO addresses (channel, account, chat, party_id, session_id)
  SELECT 'web', w.name, p.public_id::text, p.id, s.id FROM w, p, s RETURNING id
), v AS (
  INSERT INTO visitors (token_hash, site, address_id, expires_at)
  SELECT $1, w.name, a.id, now() + interval '{YEARS} years' FROM w, a
  ON CONFLICT (token_hash) DO UPDATE
     SET site = excluded.site, address_id = excluded.address_id, expires_at = excluded.expires_at
)
SELECT w.name AS site, w.audience, p.id AS party_id, a.id AS address_id, s.id AS session_id, s.public_id
  FROM w, p, s, a
"""


def _visitor(row: asyncpg.Record) -> VisitorRow:
    return VisitorRow(
        site=row["site"],
        audience=row["audience"],
        party_id=row["party_id"],
        address_id=row["address_id"],
        session_id=row["session_id"],
        session_public_id=row["public_id"],
    )


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
