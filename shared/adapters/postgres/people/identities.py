"""Signed-in people of sites, and codes that bring an anonymous conversation to another browser."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import asyncpg

from shared.adapters.postgres.db.pool import Connection, store_method
from shared.adapters.postgres.people.account_links import PostgresAccountLinks
from shared.adapters.postgres.people.account_links_sql import ONE_AT_A_TIME as ONE_JOIN_AT_A_TIME
from shared.adapters.postgres.people.visitors import VisitorRow, build_visitor, generate_token, hash_token

IDENTIFIED_HOURS = 24
"""How long a token lives that was given for a signature; each new signature gives a new one."""
PATIENT_SECONDS = 30.0
"""Seconds of a running answer after which a sign-in no longer waits for its end."""


class PostgresIdentities:
    """Each method is one transaction; raises StorageUnavailable."""

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record], *, people: PostgresAccountLinks) -> None:
        self._pool = pool
        self._people = people

    @store_method
    async def identify(
        self,
        *,
        site: str,
        place: str,
        name: str,
        timezone: str | None,
        former: str | None,
        contact: Mapping[str, Any] | None = None,
    ) -> tuple[VisitorRow, str] | Literal["busy", "later", "no_site"]:
        """Return the conversation of a signed-in person, the same for every browser, with a new token.

        `former` is the token of this browser and proves that its anonymous conversation is theirs: it
        continues if they have none, and else is kept as an earlier one; one that is linked to another address
        stays there. The former token and all others of its address expire. `busy` passes in a moment; `later`
        may last: a human has the conversation, or an answer waits or takes long.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            await connection.execute(_ONE_AT_A_TIME, f"{site}:{place}")
            theirs = await connection.fetchval(_PLACE_OF, site, place)
            mine = None
            if former is not None:
                mine = await connection.fetchrow(_FORMER, hash_token(former), site)
            elsewhere = mine is not None and mine["address_id"] != theirs
            if (
                mine is not None
                and elsewhere
                and not await self._bring_along(connection, site, place, theirs, mine)
            ):
                later = await connection.fetchval(_TAKES_LONG, [mine["session_id"]], PATIENT_SECONDS, theirs)
                return "later" if later else "busy"
            address = theirs or await connection.fetchval(_PLACE_OF, site, place)
            if address is None:
                address = await connection.fetchval(_NEW_PERSON, site, place, timezone)
            if address is None:
                return "no_site"
            if name:
                await connection.execute(NAME, address, name)
            if contact:
                await connection.execute(CONTACT, address, dict(contact))
            if mine is not None:
                await connection.execute(_REVOKE, hash_token(former or ""))
            token = generate_token()
            row = await connection.fetchrow(_LET_IN, hash_token(token), site, address, IDENTIFIED_HOURS)
        assert row is not None
        return build_visitor(row), token

    async def _bring_along(
        self, connection: Connection, site: str, chat: str, theirs: int | None, mine: Any
    ) -> bool:
        """False when it cannot be now, because an answer is being written."""
        if mine["identified"]:
            return True
        # Before the row of the session, as everybody who joins does: else two could wait for each other.
        await connection.execute(ONE_JOIN_AT_A_TIME)
        place = mine["address_id"], mine["session_id"]
        if await connection.fetchval(_IS_SHARED, *place):
            # A browser proves nothing about the other place, which may be somebody else's Telegram: there the
            # conversation goes on, and whoever signs in may link it with a code from there.
            await connection.execute(_LEAVE_REMINDERS, *place)
            await connection.execute(_LEAVE_PLACE, *place, site, chat, False)
        elif theirs is not None and await connection.fetchval(
            _HAS_WORDS, mine["session_id"], mine["address_id"]
        ):
            if not await self._people.join_places(connection, kept=theirs, joined=mine["address_id"]):
                return False
            await connection.execute(_BRING_OTHERS, chat, mine["address_id"])
        else:
            await connection.execute(_LEAVE_PLACE, *place, site, chat, theirs is None)
            await connection.execute(_BRING_OTHERS, chat, mine["address_id"])
        await connection.execute(_CLOSE_PLACE, mine["address_id"])
        return True

    @store_method
    async def issue_code(self, address_id: int, code_hash: bytes) -> bool:
        """In place of the former one; False where people are signed in."""
        done = await self._pool.fetchval(_ISSUE_CODE, address_id, code_hash)
        return done is not None

    @store_method
    async def recover(self, site: str, code_hash: bytes) -> tuple[VisitorRow, str] | None:
        """Return a new token for one more browser; the others stay valid, and so does the code."""
        token = generate_token()
        row = await self._pool.fetchrow(_RECOVER, code_hash, site, hash_token(token))
        return None if row is None else (build_visitor(row), token)


CONTACT = "UPDATE addresses SET contact = contact || $2::jsonb WHERE id = $1 AND NOT contact @> $2"
_BESIDE = """
FROM addresses m JOIN addresses o ON o.channel = m.channel AND o.account = m.account AND o.chat = m.chat
 AND o.id <> m.id AND m.id = $2
"""
"""Other conversations of a visitor."""
_BRING_OTHERS = f"UPDATE addresses u SET chat = $1 WHERE u.id IN (SELECT o.id {_BESIDE} AND o.thread <> '')"
_ONE_AT_A_TIME = "SELECT pg_advisory_xact_lock(hashtextextended('evertalk.signed-in:' || $1, 0))"
"""Two browsers that sign in as one new person at once make one conversation."""
_PLACE_OF = "SELECT id FROM addresses WHERE channel = 'web' AND account = $1 AND chat = $2 AND thread = ''"
_FORMER = """
SELECT v.address_id, v.identified, a.session_id FROM visitors v JOIN addresses a ON a.id = v.address_id
 WHERE v.token_hash = $1 AND v.site = $2 AND v.expires_at > now()
"""
_HAS_WORDS = f"""
SELECT next_turn > 1 OR EXISTS (
         SELECT {_BESIDE} JOIN sessions x ON x.id = o.session_id AND x.next_turn > 1) FROM sessions
 WHERE id = $1 FOR NO KEY UPDATE
"""
"""Whether the visitor has messages here or in another conversation; locks the session, so that a message
comes before or after.
"""
_TAKES_LONG = """
SELECT coalesce(bool_or(s.held_after IS NOT NULL OR s.retry_at > now()
                        OR t.opened_at < now() - make_interval(secs => $2)), false)
  FROM sessions s LEFT JOIN turns t ON t.session_id = s.id AND t.turn_no = s.answered_turn + 1
 WHERE s.id = ANY ($1::bigint[]) OR s.id = (SELECT session_id FROM addresses WHERE id = $3)
"""
"""Whether what keeps two conversations apart is more than an answer that is about to end."""

_IS_SHARED = "SELECT EXISTS (SELECT FROM addresses WHERE session_id = $2 AND id <> $1)"
"""Whether the conversation of a place is reached from another one, too."""
_LEAVE_REMINDERS = """
UPDATE reminders r SET address_id = o.id
  FROM (SELECT id FROM addresses WHERE session_id = $2 AND id <> $1
    ORDER BY channel = 'web', id DESC LIMIT 1) o
 WHERE r.address_id = $1 AND r.turn_no IS NULL
"""
"""Move of reminders from an abandoned address to another one."""

_LEAVE_PLACE = """
WITH theirs AS (
  INSERT INTO addresses (channel, account, chat, party_id, session_id, read_seq)
  SELECT 'web', $3, $4, a.party_id, a.session_id, a.read_seq FROM addresses a WHERE a.id = $1 AND $5
  RETURNING id
), empty AS (
  INSERT INTO sessions (party_id, agent_id) SELECT party_id, agent_id FROM sessions WHERE id = $2 RETURNING id
), totals AS (
  INSERT INTO session_totals (session_id) SELECT id FROM empty
), left_place AS (
  UPDATE addresses SET session_id = empty.id, read_seq = 0 FROM empty WHERE addresses.id = $1
), reminded AS (
  UPDATE reminders SET address_id = theirs.id FROM theirs WHERE reminders.address_id = $1 AND turn_no IS NULL
)
UPDATE sessions SET left_by = ARRAY (SELECT unnest(coalesce(left_by, '{}')) UNION SELECT $1::bigint)
 WHERE id = $2
"""
"""Move of a conversation to a new address, or of an empty one ($5): screens at the old address, which may be
another person's with the same token, are disconnected and may not write there.
"""
_CLOSE_PLACE = """
WITH codes AS (DELETE FROM recovery_codes WHERE address_id = $1),
     links AS (DELETE FROM one_time_codes WHERE address_id = $1 AND used_at IS NULL)
DELETE FROM visitors WHERE address_id = $1
"""
_REVOKE = "DELETE FROM visitors WHERE token_hash = $1"

_NEW_PERSON = """
WITH w AS (
  SELECT name, agent_id FROM sites WHERE name = $1
), p AS (
  INSERT INTO parties (anonymous, timezone) SELECT true, $3 FROM w RETURNING id
), s AS (
  INSERT INTO sessions (party_id, agent_id) SELECT p.id, w.agent_id FROM p, w RETURNING id
), t AS (
  INSERT INTO session_totals (session_id) SELECT id FROM s
)
INSERT INTO addresses (channel, account, chat, party_id, session_id)
SELECT 'web', w.name, $2, p.id, s.id FROM w, p, s RETURNING id
"""
"""A stranger with a name: whom a site has signed in is shown nothing that is the operator's own."""
NAME = """
WITH known AS (
  SELECT p.id FROM addresses a
    JOIN parties p ON p.id = coalesce((SELECT merged_into FROM parties WHERE id = a.party_id), a.party_id)
   WHERE a.id = $1 AND p.display_name <> $2
), held AS MATERIALIZED (
  SELECT id FROM sessions WHERE party_id = (SELECT id FROM known) ORDER BY id FOR NO KEY UPDATE
)
UPDATE parties p SET display_name = $2 FROM known WHERE p.id = known.id AND (SELECT count(*) FROM held) >= 0
"""
"""The sessions hear of the name, too: they are taken before the person,
  as everybody does who joins or erases."""
_LET_IN = """
WITH v AS (
  INSERT INTO visitors (token_hash, site, address_id, expires_at, identified)
  VALUES ($1, $2, $3, now() + make_interval(hours => $4), true) RETURNING *
)
SELECT v.site, w.audience, a.party_id, a.id AS address_id, a.session_id, s.public_id, v.identified,
       a.chat AS place
  FROM v JOIN addresses a ON a.id = v.address_id
  JOIN sessions s ON s.id = a.session_id JOIN sites w ON w.name = v.site
"""

_ISSUE_CODE = """
INSERT INTO recovery_codes AS c (address_id, code_hash, expires_at)
SELECT a.id, $2, now() + interval '1 year' FROM addresses m
  JOIN addresses a ON a.channel = m.channel AND a.account = m.account AND a.chat = m.chat AND a.thread = ''
 WHERE m.id = $1 AND a.chat NOT LIKE 'sub:%'
ON CONFLICT (address_id) DO UPDATE
   SET code_hash = excluded.code_hash, created_at = now(), expires_at = excluded.expires_at
RETURNING address_id
"""
_RECOVER = """
WITH c AS (
  SELECT a.id, a.session_id, a.party_id, a.account, a.chat FROM recovery_codes r
    JOIN addresses a ON a.id = r.address_id
   WHERE r.code_hash = $1 AND r.expires_at > now() AND a.channel = 'web' AND a.account = $2
), v AS (
  INSERT INTO visitors (token_hash, site, address_id, expires_at)
  SELECT $3, c.account, c.id, now() + interval '1 year' FROM c RETURNING identified
)
SELECT w.name AS site, w.audience, c.party_id, c.id AS address_id, c.session_id, s.public_id, v.identified,
       c.chat AS place
  FROM c JOIN v ON true JOIN sessions s ON s.id = c.session_id JOIN sites w ON w.name = c.account
"""
