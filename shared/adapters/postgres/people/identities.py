"""Store of signed-in people of sites, and of codes that open a conversation in another browser."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import asyncpg

from shared.adapters.postgres.db.pool import Connection, Named, PoolStore, store_method
from shared.adapters.postgres.people.account_links import PostgresAccountLinks
from shared.adapters.postgres.people.account_links_sql import ONE_AT_A_TIME as ONE_JOIN_AT_A_TIME
from shared.adapters.postgres.people.visitors import VisitorRow, build_visitor, generate_token, hash_token

IDENTIFIED_HOURS = 24
"""Hours for which a token is valid that was issued for a site's signature.

Each signature gives a new token.
"""
PATIENT_SECONDS = 30.0
"""Seconds of a running answer after which a sign-in no longer waits for its end."""


class PostgresIdentities(PoolStore):
    """Store of visitors' identities; each method is one transaction and raises StorageUnavailable."""

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record], *, people: PostgresAccountLinks) -> None:
        super().__init__(pool)
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

        `place` is the person's chat id on the site. `former` is this browser's token, None without one, and
        proves that its anonymous conversation is the person's: it continues if they have none, else it is
        archived; one that is linked to another address stays there. The former token and all others of its
        address expire. `name` and `contact` are stored unless empty; `timezone` only for a new person.

        Returns "busy" if that passes in a moment; "later" if it may last, since an operator has the
        conversation, or an answer waits or takes over PATIENT_SECONDS; "no_site" if the site is unknown.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            await connection.execute(*_ONE_AT_A_TIME(place=f"{site}:{place}"))
            theirs = await connection.fetchval(*_PLACE_OF(site=site, chat=place))
            mine = None
            if former is not None:
                mine = await connection.fetchrow(*_FORMER(token_hash=hash_token(former), site=site))
            elsewhere = mine is not None and mine["address_id"] != theirs
            if (
                mine is not None
                and elsewhere
                and not await self._bring_along(connection, site, place, theirs, mine)
            ):
                later = await connection.fetchval(
                    *_TAKES_LONG(
                        session_ids=[mine["session_id"]],
                        seconds=PATIENT_SECONDS,
                        address_id=theirs,
                    )
                )
                return "later" if later else "busy"
            address = theirs or await connection.fetchval(*_PLACE_OF(site=site, chat=place))
            if address is None:
                address = await connection.fetchval(*_NEW_PERSON(site=site, chat=place, timezone=timezone))
            if address is None:
                return "no_site"
            if name:
                await connection.execute(*NAME(address_id=address, name=name))
            if contact:
                await connection.execute(*CONTACT(address_id=address, contact=dict(contact)))
            if mine is not None:
                await connection.execute(*_REVOKE(token_hash=hash_token(former or "")))
            token = generate_token()
            row = await connection.fetchrow(
                *_LET_IN(
                    token_hash=hash_token(token),
                    site=site,
                    address_id=address,
                    hours=IDENTIFIED_HOURS,
                )
            )
        assert row is not None
        return build_visitor(row), token

    async def _bring_along(
        self, connection: Connection, site: str, chat: str, theirs: int | None, mine: Any
    ) -> bool:
        """Join a browser's anonymous conversation to the signed-in person; return False if that must wait.

        It waits while an answer is being written or an operator has the conversation.
        """
        if mine["identified"]:
            return True
        # Taken before the lock on the session's row, as in all joins, to avoid a deadlock.
        await connection.execute(ONE_JOIN_AT_A_TIME)
        place = {"address_id": mine["address_id"], "session_id": mine["session_id"]}
        if await connection.fetchval(*_IS_SHARED(**place)):
            # A browser proves nothing about the other address, which may be another person's Telegram chat:
            # the conversation stays there, and the person who signs in may link it with a code from there.
            await connection.execute(*_LEAVE_REMINDERS(**place))
            await connection.execute(*_LEAVE_PLACE(**place, site=site, chat=chat, moves=False))
        elif theirs is not None and await connection.fetchval(
            *_HAS_WORDS(session_id=mine["session_id"], address_id=mine["address_id"])
        ):
            if not await self._people.join_places(connection, kept=theirs, joined=mine["address_id"]):
                return False
            await connection.execute(*_BRING_OTHERS(chat=chat, address_id=mine["address_id"]))
        else:
            leave = _LEAVE_PLACE(**place, site=site, chat=chat, moves=theirs is None)
            await connection.execute(*leave)
            await connection.execute(*_BRING_OTHERS(chat=chat, address_id=mine["address_id"]))
        await connection.execute(*_CLOSE_PLACE(address_id=mine["address_id"]))
        return True

    @store_method
    async def issue_code(self, address_id: int, code_hash: bytes) -> bool:
        """Store the hash of a recovery code for a visitor's main address, in place of the former code.

        It is valid for a year. Returns False, without effect, if people sign in at this site's address.
        """
        done = await self._pool.fetchval(*_ISSUE_CODE(address_id=address_id, code_hash=code_hash))
        return done is not None

    @store_method
    async def recover(self, site: str, code_hash: bytes) -> tuple[VisitorRow, str] | None:
        """Return the visitor of a recovery code with a new token, valid for a year.

        Returns None if the code is unknown or expired. Tokens of other browsers stay valid, and so does the
        code.
        """
        token = generate_token()
        row = await self._pool.fetchrow(
            *_RECOVER(
                code_hash=code_hash,
                site=site,
                token_hash=hash_token(token),
            )
        )
        return None if row is None else (build_visitor(row), token)


CONTACT = Named("""
UPDATE addresses SET contact = contact || :contact::jsonb WHERE id = :address_id AND NOT contact @> :contact
""")
"""Add or replace facts of an address; no write if all are stored already."""
_BRING_OTHERS = Named("""
UPDATE addresses u SET chat = :chat
 WHERE u.id IN (
       SELECT o.id FROM addresses m
         JOIN addresses o ON o.channel = m.channel AND o.account = m.account AND o.chat = m.chat
          AND o.id <> m.id AND m.id = :address_id AND o.thread <> '')
""")
"""Move the visitor's other conversations to another chat."""
_ONE_AT_A_TIME = Named("SELECT pg_advisory_xact_lock(hashtextextended('evertalk.signed-in:' || :place, 0))")
"""Lock for one person of a site, so that two browsers that sign in at once get one conversation."""
_PLACE_OF = Named("""
SELECT id FROM addresses WHERE channel = 'web' AND account = :site AND chat = :chat AND thread = ''
""")
_FORMER = Named("""
SELECT v.address_id, v.identified, a.session_id FROM visitors v JOIN addresses a ON a.id = v.address_id
 WHERE v.token_hash = :token_hash AND v.site = :site AND v.expires_at > now()
""")
_HAS_WORDS = Named("""
SELECT next_turn > 1 OR EXISTS (
         SELECT FROM addresses m
           JOIN addresses o ON o.channel = m.channel AND o.account = m.account AND o.chat = m.chat
            AND o.id <> m.id AND m.id = :address_id
           JOIN sessions x ON x.id = o.session_id AND x.next_turn > 1)
  FROM sessions
 WHERE id = :session_id FOR NO KEY UPDATE
""")
"""Select whether the visitor has messages in any conversation.

It locks the session, so that a new message comes before or after.
"""
_TAKES_LONG = Named("""
SELECT coalesce(bool_or(s.held_after IS NOT NULL OR s.retry_at > now()
                        OR t.opened_at < now() - make_interval(secs => :seconds)), false)
  FROM sessions s LEFT JOIN turns t ON t.session_id = s.id AND t.turn_no = s.answered_turn + 1
 WHERE s.id = ANY (:session_ids::bigint[]) OR s.id = (SELECT session_id FROM addresses WHERE id = :address_id)
""")
"""Select whether more than an answer about to end prevents joining two sessions."""

_IS_SHARED = Named("""
SELECT EXISTS (SELECT FROM addresses WHERE session_id = :session_id AND id <> :address_id)
""")
"""Select whether other addresses lead to the session too."""
_LEAVE_REMINDERS = Named("""
UPDATE reminders r SET address_id = o.id
  FROM (SELECT id FROM addresses WHERE session_id = :session_id AND id <> :address_id
    ORDER BY channel = 'web', id DESC LIMIT 1) o
 WHERE r.address_id = :address_id AND r.turn_no IS NULL
""")
"""Move waiting reminders from an abandoned address to another one of the session."""

_LEAVE_PLACE = Named("""
WITH theirs AS (
  INSERT INTO addresses (channel, account, chat, contact_id, session_id, read_seq)
  SELECT 'web', :site, :chat, a.contact_id, a.session_id, a.read_seq FROM addresses a WHERE a.id = :address_id
     AND :moves
  RETURNING id
), empty AS (
  INSERT INTO sessions (contact_id, agent_id) SELECT contact_id, agent_id FROM sessions WHERE id = :session_id
     RETURNING id
), totals AS (
  INSERT INTO session_totals (session_id) SELECT id FROM empty
), left_place AS (
  UPDATE addresses SET session_id = empty.id, read_seq = 0 FROM empty WHERE addresses.id = :address_id
), reminded AS (
  UPDATE reminders SET address_id = theirs.id FROM theirs WHERE reminders.address_id = :address_id
     AND turn_no IS NULL
)
UPDATE sessions SET left_by = ARRAY (SELECT unnest(coalesce(left_by, '{}')) UNION SELECT :address_id::bigint)
 WHERE id = :session_id
""")
"""Move a conversation to a new address, or if `moves` is false leave it.

The old address gets an empty session. Screens at the old address, perhaps of another person with the same
token, are disconnected and cannot write in the conversation.
"""
_CLOSE_PLACE = Named("""
WITH codes AS (DELETE FROM recovery_codes WHERE address_id = :address_id),
     links AS (DELETE FROM one_time_codes WHERE address_id = :address_id AND used_at IS NULL)
DELETE FROM visitors WHERE address_id = :address_id
""")
_REVOKE = Named("DELETE FROM visitors WHERE token_hash = :token_hash")

_NEW_PERSON = Named("""
WITH w AS (
  SELECT name, agent_id FROM sites WHERE name = :site
), p AS (
  INSERT INTO contacts (anonymous, timezone) SELECT true, :timezone FROM w RETURNING id
), s AS (
  INSERT INTO sessions (contact_id, agent_id) SELECT p.id, w.agent_id FROM p, w RETURNING id
), t AS (
  INSERT INTO session_totals (session_id) SELECT id FROM s
)
INSERT INTO addresses (channel, account, chat, contact_id, session_id)
SELECT 'web', w.name, :chat, p.id, s.id FROM w, p, s RETURNING id
""")
"""Insert an anonymous contact with session and address.

A person signed in by a site is a stranger to the operator.
"""
NAME = Named("""
WITH known AS (
  SELECT p.id FROM addresses a
    JOIN contacts p
      ON p.id = coalesce((SELECT merged_into FROM contacts WHERE id = a.contact_id), a.contact_id)
   WHERE a.id = :address_id AND p.display_name <> :name
), held AS MATERIALIZED (
  SELECT id FROM sessions WHERE contact_id = (SELECT id FROM known) ORDER BY id FOR NO KEY UPDATE
)
UPDATE contacts p SET display_name = :name FROM known WHERE p.id = known.id
   AND (SELECT count(*) FROM held) >= 0
""")
"""Set the display name of the person of an address, if it differs.

Sessions are locked before the contact, as everywhere.
"""
_LET_IN = Named("""
WITH v AS (
  INSERT INTO visitors (token_hash, site, address_id, expires_at, identified)
  VALUES (:token_hash, :site, :address_id, now() + make_interval(hours => :hours), true) RETURNING *
)
SELECT v.site, w.audience, a.contact_id, a.id AS address_id, a.session_id, s.public_id, v.identified,
       a.chat AS place
  FROM v JOIN addresses a ON a.id = v.address_id
  JOIN sessions s ON s.id = a.session_id JOIN sites w ON w.name = v.site
""")
"""Insert a token of a signed-in visitor at their address, and return the visitor."""

_ISSUE_CODE = Named("""
INSERT INTO recovery_codes AS c (address_id, code_hash, expires_at)
SELECT a.id, :code_hash, now() + interval '1 year' FROM addresses m
  JOIN addresses a ON a.channel = m.channel AND a.account = m.account AND a.chat = m.chat AND a.thread = ''
 WHERE m.id = :address_id AND a.chat NOT LIKE 'sub:%'
ON CONFLICT (address_id) DO UPDATE
   SET code_hash = excluded.code_hash, created_at = now(), expires_at = excluded.expires_at
RETURNING address_id
""")
"""Store a recovery code in place of the former one; addresses with sign-in have none."""
_RECOVER = Named("""
WITH c AS (
  SELECT a.id, a.session_id, a.contact_id, a.account, a.chat FROM recovery_codes r
    JOIN addresses a ON a.id = r.address_id
   WHERE r.code_hash = :code_hash AND r.expires_at > now() AND a.channel = 'web' AND a.account = :site
), v AS (
  INSERT INTO visitors (token_hash, site, address_id, expires_at)
  SELECT :token_hash, c.account, c.id, now() + interval '1 year' FROM c RETURNING identified
)
SELECT w.name AS site, w.audience, c.contact_id, c.id AS address_id, c.session_id, s.public_id, v.identified,
       c.chat AS place
  FROM c JOIN v ON true JOIN sessions s ON s.id = c.session_id JOIN sites w ON w.name = c.account
""")
"""Insert a new token for the address of a valid recovery code; no row for an invalid one."""
