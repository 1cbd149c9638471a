"""Store of widget sites' visitors: a browser's token opens the conversations of one address."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg

from shared.adapters.encryption import Sealed
from shared.adapters.postgres.db.pool import Named, PoolStore, build_value, store_method
from shared.core.session.turns import title_of
from shared.core.values.messages import blocks_from_json, text_without_files

TOKEN_BYTES = 32
"""Random bytes of a visitor's token."""
YEARS = 1
"""Years for which a token is valid after its last use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteRow:
    """Widget site: its audience, allowed origins, settings and secrets."""

    name: str
    audience: str
    allowed_origins: tuple[str, ...]
    config: Mapping[str, Any]
    secrets: Mapping[str, Sealed]
    """Secrets by id, with which the site signs its people's identities."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VisitorRow:
    """Visitor who holds a token, and the conversation that it opens."""

    site: str
    audience: str
    contact_id: int
    address_id: int
    session_id: int
    session_public_id: UUID
    identified: bool = False
    """Whether the site has signed the visitor in."""
    place: str = ""
    """Chat id of the visitor's address; for signed-in people it contains their id on the site."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationRow:
    """Conversation in a visitor's list."""

    session_public_id: UUID
    address_id: int
    title: str
    named: bool
    """Whether the person chose the title.

    Otherwise it is that of the summary or made of the first message.
    """
    last_active_at: datetime
    moment: int
    """`last_active_at` in microseconds since 1970, for the cursor of the next page."""
    unread: bool


def generate_token() -> str:
    """Return a new random token with 256 bits, as URL-safe text; nothing is stored.

    Callers store only its hash.
    """
    return secrets.token_urlsafe(TOKEN_BYTES)


class PostgresVisitors(PoolStore):
    """Store of visitors; each method but `note_refused` is one transaction. Raises StorageUnavailable."""

    @store_method
    async def load_sites(self) -> dict[str, SiteRow]:
        """Return all widget sites by name."""
        rows = await self._pool.fetch(_SITES)
        return {row["name"]: _site(row) for row in rows}

    @store_method
    async def find(self, token: str, *, network: str | None = None) -> VisitorRow | None:
        """Return the visitor of a token; None if it is unknown or expired.

        A visit extends the token of an anonymous visitor by YEARS, at most once a minute. `network` is a hash
        of the client's network, to which spending is attributed; None stores none.
        """
        row = await self._pool.fetchrow(*_FIND(token_hash=hash_token(token), network=network))
        return None if row is None else build_visitor(row)

    @store_method
    async def find_conversation(self, address_id: int, session: UUID | None = None) -> VisitorRow | None:
        """Return a conversation of the visitor at this address, in the form of `find`; None if there is none.

        `session` names it; None means the last active one.
        """
        row = await self._pool.fetchrow(*_CONVERSATION(address_id=address_id, session=session))
        return None if row is None else build_visitor(row)

    @store_method
    async def list_conversations(
        self, address_id: int, *, moment: int | None, row: int | None, limit: int
    ) -> list[ConversationRow]:
        """Return at most `limit` conversations with messages, and the current one, last active first.

        `moment` and `row` are `moment` and `address_id` of the last one on the page before, None for the
        first page.
        """
        rows = await self._pool.fetch(
            *_CONVERSATIONS(
                address_id=address_id,
                moment=moment,
                row=row,
                limit=limit,
            )
        )
        return [
            ConversationRow(
                session_public_id=one["public_id"], address_id=one["address_id"],
                title=(
                    one["title"] or one["summary_title"]
                    or title_of(text_without_files(blocks_from_json(one["blocks"] or ())))
                ),
                named=bool(one["title"]), last_active_at=one["last_active_at"], moment=one["moment"],
                unread=one["unread"],
            )
            for one in rows
        ]  # fmt: skip

    @store_method
    async def begin_conversation(self, address_id: int) -> UUID:
        """Create a conversation with the site's agent at a new address of the visitor; return its public id.

        A conversation of the visitor without any event is returned instead. Two calls at once return the same
        one.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            await connection.execute(*_ONE_BEGINS(address_id=address_id))
            found: UUID = await connection.fetchval(
                *_EMPTY(
                    address_id=address_id,
                )
            ) or await connection.fetchval(*_BEGIN(address_id=address_id, thread=secrets.token_hex(8)))
            return found

    @store_method
    async def name_conversation(self, address_id: int, title: str) -> None:
        """Store the title that the person chose for the conversation of an address; "" removes it."""
        await self._pool.execute(*_NAME_CONVERSATION(address_id=address_id, title=title))

    @store_method
    async def revoke(self, token: str) -> None:
        """Delete a visitor's token, so that it opens nothing; no effect if it is unknown."""
        await self._pool.execute(*_REVOKE(token_hash=hash_token(token)))

    @store_method
    async def note_refused(self, site: str, origin: str) -> None:
        """Count an origin that a site refused; the REFUSED_KEPT latest of each site are kept."""
        await self._pool.execute(*_REFUSED(site=site, origin=origin))
        await self._pool.execute(*_FORGOTTEN(site=site, kept=REFUSED_KEPT))

    @store_method
    async def find_ended(
        self, token_hashes: Iterable[bytes], key_ids: Iterable[int]
    ) -> tuple[frozenset[bytes], frozenset[int]]:
        """Return those of these visitors' token hashes, and of these API key ids, that are not valid now.

        Unknown, expired, deleted and revoked ones are not valid.
        """
        rows = await self._pool.fetch(*_ENDED(token_hashes=list(token_hashes), key_ids=list(key_ids)))
        return (
            frozenset(row["token_hash"] for row in rows if row["token_hash"] is not None),
            frozenset(row["key_id"] for row in rows if row["key_id"] is not None),
        )

    @store_method
    async def create(
        self, token: str, *, site: str, timezone: str | None = None, network: str | None = None
    ) -> VisitorRow | None:
        """Create an anonymous visitor with session and address, opened by `token` for YEARS.

        A token that is valid already creates nothing: its visitor is returned, even one of another site. So
        two tabs that send the same new token get the same visitor. `timezone` is an IANA name and `network`
        a hash of the client's network, None if unknown. Otherwise returns None if there is no such site.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            await connection.execute(
                *_LOCK_TOKEN(token_hash=hash_token(token).hex()),
            )
            known = await connection.fetchrow(*_KNOWN(token_hash=hash_token(token)))
            row = known or await connection.fetchrow(
                *_CREATE(
                    token_hash=hash_token(token),
                    site=site,
                    timezone=timezone,
                    network=network,
                )
            )
        return None if row is None else build_visitor(row)


_SITES = """
SELECT w.name, w.audience, w.allowed_origins, w.config,
       coalesce((SELECT jsonb_object_agg(c.secret_id, jsonb_build_array(c.key_id, encode(c.sealed, 'hex')))
                   FROM site_secrets c WHERE c.site = w.name), '{}') AS secrets
  FROM sites w
"""
_KNOWN = Named("""
SELECT v.site, w.audience, a.contact_id, a.id AS address_id, a.session_id, s.public_id, v.identified,
       a.chat AS place
  FROM visitors v JOIN addresses a ON a.id = v.address_id
  JOIN sessions s ON s.id = a.session_id JOIN sites w ON w.name = v.site
 WHERE v.token_hash = :token_hash AND v.expires_at > now()
""")
_FIND = Named(
    """
WITH seen AS (
  UPDATE visitors SET last_seen_at = now(), expires_at = now() + make_interval(years => :years)
   WHERE token_hash = :token_hash AND expires_at > now() AND NOT identified
     AND last_seen_at < now() - interval '1 minute'
  RETURNING address_id
), comes AS (
  UPDATE contacts p SET network = :network::text, network_at = now()
    FROM seen JOIN addresses x ON x.id = seen.address_id
   WHERE p.id = x.contact_id AND p.anonymous AND :network::text IS NOT NULL
)
SELECT v.site, w.audience, a.contact_id, a.id AS address_id, a.session_id, s.public_id, v.identified,
       a.chat AS place
  FROM visitors v JOIN addresses a ON a.id = v.address_id
  JOIN sessions s ON s.id = a.session_id JOIN sites w ON w.name = v.site
 WHERE v.token_hash = :token_hash AND v.expires_at > now()
""",
    years=YEARS,
)
"""Select the visitor of a token; renew the token at most once a minute."""
_CONVERSATION = Named("""
SELECT a.account AS site, w.audience, a.contact_id, a.id AS address_id, a.session_id, s.public_id,
       a.chat LIKE 'sub:%' AS identified, a.chat AS place
  FROM (SELECT a.*, s.last_active_at
          FROM addresses mine JOIN sessions home ON home.id = mine.session_id
          JOIN addresses a ON a.channel = 'web' AND a.account = mine.account AND a.chat = mine.chat
           AND a.contact_id IN (SELECT contact_family(home.contact_id))
          JOIN sessions s ON s.id = a.session_id AND s.archived_at IS NULL
         WHERE mine.id = :address_id AND mine.channel = 'web'
           AND (:session::uuid IS NULL OR s.public_id = :session)
         ORDER BY s.last_active_at DESC, a.id DESC LIMIT 1) a
  JOIN sessions s ON s.id = a.session_id JOIN sites w ON w.name = a.account
""")
"""Select one of a visitor's conversations, or the last active one if `session` is NULL.

A visitor's conversations are addresses of one chat with different threads; the thread of the first is "".
"""
_CONVERSATIONS = Named("""
SELECT o.*, (SELECT e.blocks FROM turn_entries te JOIN entries e USING (session_id, seq)
              WHERE te.session_id = o.id AND te.turn_no > o.erased_turn AND coalesce(te.replaced_by, 0) <= 0
                AND e.author = 'person' AND e.blocks <> erased_blocks(e.blocks)
              ORDER BY te.turn_no, te.step LIMIT 1) AS blocks
  FROM (
    SELECT s.id, s.erased_turn, s.public_id, a.id AS address_id, a.title, s.last_active_at,
           (SELECT nullif(l.ledger ->> 'title', '') FROM compactions l WHERE l.id = s.head) AS summary_title,
           (extract(epoch FROM s.last_active_at) * 1000000)::bigint AS moment,
           s.next_event_seq - 1 > a.read_seq AS unread
      FROM addresses mine JOIN sessions home ON home.id = mine.session_id
      JOIN addresses a ON a.channel = 'web' AND a.account = mine.account AND a.chat = mine.chat
       AND a.contact_id IN (SELECT contact_family(home.contact_id))
      JOIN sessions s ON s.id = a.session_id AND s.archived_at IS NULL
     WHERE mine.id = :address_id AND mine.channel = 'web'
       AND (s.next_turn - 1 > s.erased_turn OR a.id = mine.id)) o
 WHERE :moment::bigint IS NULL OR (o.moment, o.address_id) < (:moment, :row)
 ORDER BY o.moment DESC, o.address_id DESC LIMIT :limit
""")
"""Select a page of a visitor's conversations after a cursor, last active first."""
_ONE_BEGINS = Named("""
SELECT pg_advisory_xact_lock(hashtextextended('evertalk.conversation:' || account || ' ' || chat, 0))
  FROM addresses WHERE id = :address_id
""")
"""Lock by which two tabs that start a conversation at once get the same one."""
_EMPTY = Named("""
SELECT s.public_id
  FROM addresses mine JOIN sessions home ON home.id = mine.session_id
  JOIN addresses a ON a.channel = 'web' AND a.account = mine.account AND a.chat = mine.chat
   AND a.contact_id IN (SELECT contact_family(home.contact_id))
  JOIN sessions s ON s.id = a.session_id AND s.archived_at IS NULL
 WHERE mine.id = :address_id AND mine.channel = 'web' AND s.next_event_seq = 1
 ORDER BY a.id DESC LIMIT 1
""")
"""Select a visitor's newest conversation without any event; no row if there is none."""
_BEGIN = Named("""
WITH s AS (
  INSERT INTO sessions (contact_id, agent_id)
  SELECT o.contact_id, w.agent_id FROM addresses a JOIN sessions o ON o.id = a.session_id
    JOIN sites w ON w.name = a.account WHERE a.id = :address_id AND a.channel = 'web' RETURNING id, public_id
), t AS (
  INSERT INTO session_totals (session_id) SELECT id FROM s
), a AS (
  INSERT INTO addresses (channel, account, chat, thread, contact_id, session_id)
  SELECT 'web', a.account, a.chat, :thread, a.contact_id, s.id FROM addresses a, s WHERE a.id = :address_id
)
SELECT public_id FROM s
""")
"""Insert a conversation with the person of the given address, at a new address of the same chat."""
_ENDED = Named("""
SELECT t.token_hash, NULL::bigint AS key_id FROM unnest(:token_hashes::bytea[]) AS t(token_hash)
 WHERE NOT EXISTS (SELECT FROM visitors v WHERE v.token_hash = t.token_hash AND v.expires_at > now())
UNION ALL
SELECT NULL, t.id FROM unnest(:key_ids::bigint[]) AS t(id)
 WHERE NOT EXISTS (SELECT FROM api_keys k WHERE k.id = t.id AND k.revoked_at IS NULL
                      AND (k.expires_at IS NULL OR k.expires_at > now()))
""")
_CREATE = Named(
    """
WITH w AS (
  SELECT name, audience, agent_id FROM sites WHERE name = :site
), p AS (
  INSERT INTO contacts (anonymous, timezone, network, network_at)
  SELECT true, :timezone, :network::text, CASE WHEN :network IS NOT NULL THEN now() END FROM w
     RETURNING id, public_id
), s AS (
  INSERT INTO sessions (contact_id, agent_id) SELECT p.id, w.agent_id FROM p, w RETURNING id, public_id
), t AS (
  INSERT INTO session_totals (session_id) SELECT id FROM s
), a AS (
  INSERT INTO addresses (channel, account, chat, contact_id, session_id)
  SELECT 'web', w.name, p.public_id::text, p.id, s.id FROM w, p, s RETURNING id, chat
), v AS (
  INSERT INTO visitors (token_hash, site, address_id, expires_at)
  SELECT :token_hash, w.name, a.id, now() + make_interval(years => :years) FROM w, a
  ON CONFLICT (token_hash) DO UPDATE
     SET site = excluded.site, address_id = excluded.address_id, expires_at = excluded.expires_at,
         identified = false
)
SELECT w.name AS site, w.audience, p.id AS contact_id, a.id AS address_id, s.id AS session_id, s.public_id,
       false AS identified, a.chat AS place
  FROM w, p, s, a
""",
    years=YEARS,
)
"""Insert a visitor with contact, session and address in one commit.

A known token is moved to the new address.
"""


def build_visitor(row: asyncpg.Record) -> VisitorRow:
    """Return the visitor of a row that has all fields, with the session's id as `public_id`."""
    return build_value(VisitorRow, row, session_public_id=row["public_id"])


def _site(row: asyncpg.Record) -> SiteRow:
    sealed = {
        name: Sealed(key_id=key_id, data=bytes.fromhex(data))
        for name, (key_id, data) in row["secrets"].items()
    }
    return SiteRow(
        name=row["name"],
        audience=row["audience"],
        allowed_origins=tuple(row["allowed_origins"]),
        config=row["config"],
        secrets=sealed,
    )


def hash_token(token: str) -> bytes:
    """Return the SHA-256 of a visitor's token, by which it is stored."""
    return hashlib.sha256(token.encode()).digest()


REFUSED_KEPT = 50
"""Maximum refused origins that are kept per site, the latest."""
_REFUSED = Named("""
INSERT INTO refused_origins (site, origin) VALUES (:site, :origin)
ON CONFLICT (site, origin) DO UPDATE SET refused = refused_origins.refused + 1, last_at = now()
""")
_FORGOTTEN = Named("""
DELETE FROM refused_origins WHERE site = :site AND origin IN (
  SELECT origin FROM refused_origins WHERE site = :site ORDER BY last_at DESC OFFSET :kept)
""")
_NAME_CONVERSATION = Named("UPDATE addresses SET title = :title WHERE id = :address_id")
_REVOKE = Named("DELETE FROM visitors WHERE token_hash = :token_hash")
_LOCK_TOKEN = Named("SELECT pg_advisory_xact_lock(hashtextextended('evertalk.visitor' || :token_hash, 0))")
