"""Store by which programs with a key reach conversations, by public id or by their own person ids."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import asyncpg

from shared.adapters.postgres.db.pool import Named, PoolStore, build_value, store_method

EXTERNAL = "x:"
"""Prefix of a program's person id in an address's chat id; visitors of a browser have a random id there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiSession:
    """Conversation, with the web address from which its person writes.

    `site` is "" without a web address; `created` says that this call created the conversation.
    """

    session_id: int
    public_id: UUID
    contact_id: int
    address_id: int | None
    """Web address's id; None if the conversation is reached from other channels only."""
    site: str
    audience: str
    created: bool = False


class PostgresApiSessions(PoolStore):
    """Store of conversations for programs; each method is one transaction and raises StorageUnavailable."""

    @store_method
    async def find(
        self, public_id: UUID, *, site: str | None = None, agent_id: int | None = None
    ) -> ApiSession | None:
        """Return the conversation with this public id; None if there is none within the limits.

        `site` and `agent_id` are the limits of the API key, None without a limit.
        """
        row = await self._pool.fetchrow(*_REACH(public_id=public_id, site=site, agent_id=agent_id))
        return None if row is None else _build_session(row)

    @store_method
    async def open(
        self,
        external_id: str,
        *,
        site: str,
        agent: str | None = None,
        agent_id: int | None = None,
        name: str = "",
    ) -> ApiSession | None:
        """Return the conversation of the person `external_id` of a program, created at the first call.

        A new one gets `agent`, else the only agent of the key, else the site's; `name` is the person's
        display name. `agent_id` is the only agent that the caller may reach, None without a limit. Returns
        None if site or agent is unknown, or if the conversation has another agent than that.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            await connection.execute(
                *_LOCK_PERSON(site=site, external_id=external_id),
            )
            known = await connection.fetchrow(*_KNOWN(site=site, chat=EXTERNAL + external_id))
            row = known or await connection.fetchrow(
                *_OPEN(site=site, chat=EXTERNAL + external_id, agent=agent, agent_id=agent_id, name=name)
            )
            if row is None or (agent_id is not None and row["agent_id"] != agent_id):
                return None
        return _build_session(row, created=known is None)

    @store_method
    async def find_answer(self, session_id: int, turn: int, *, after: int) -> int | None:
        """Return the number of the first event after `after` that ended a turn; None if there is none."""
        number: int | None = await self._pool.fetchval(
            *_ANSWER(session_id=session_id, turn=turn, after=after),
        )
        return number

    @store_method
    async def find_command_result(self, session_id: int, cid: str) -> Mapping[str, Any] | None:
        """Return the stored result of the command with this id, with `event_seq`.

        Returns None if the newest 2,000 events have none.
        """
        row = await self._pool.fetchrow(
            *_COMMAND_RESULT(session_id=session_id, cid=cid),
        )
        return None if row is None else {**row["payload"], "event_seq": row["event_seq"]}


_REACH = Named("""
SELECT s.id, s.public_id, s.contact_id, s.agent_id, a.id AS address_id, coalesce(w.name, '') AS site,
       coalesce(w.audience, 'personal') AS audience
  FROM sessions s
  LEFT JOIN LATERAL (
       SELECT id, account FROM addresses WHERE session_id = s.id AND channel = 'web'
          AND (:site::text IS NULL OR account = :site) ORDER BY id LIMIT 1) a ON true
  LEFT JOIN sites w ON w.name = a.account
 WHERE s.public_id = :public_id AND (:site::text IS NULL OR a.id IS NOT NULL)
   AND (:agent_id::bigint IS NULL OR s.agent_id = :agent_id)
""")
"""Select a session within a key's limits of site and agent."""
_KNOWN = Named("""
SELECT s.id, s.public_id, s.contact_id, s.agent_id, a.id AS address_id, w.name AS site, w.audience
  FROM addresses a JOIN sessions s ON s.id = a.session_id JOIN sites w ON w.name = a.account
 WHERE a.channel = 'web' AND a.account = :site AND a.chat = :chat AND a.thread = ''
""")
_OPEN = Named("""
-- Whom a program brings is as anonymous to us as a browser's visitor: the same limits, the same tools.
WITH w AS (
  SELECT w.name, w.audience, g.id AS agent_id FROM sites w
    JOIN agents g ON CASE WHEN :agent::text IS NOT NULL THEN g.name = :agent
       ELSE g.id = coalesce(:agent_id, w.agent_id) END
   WHERE w.name = :site AND (:agent_id::bigint IS NULL OR g.id = :agent_id)
), p AS (
  INSERT INTO contacts (anonymous, display_name) SELECT true, :name FROM w RETURNING id
), s AS (
  INSERT INTO sessions (contact_id, agent_id) SELECT p.id, w.agent_id FROM p, w RETURNING id, public_id
), t AS (
  INSERT INTO session_totals (session_id) SELECT id FROM s
), a AS (
  INSERT INTO addresses (channel, account, chat, contact_id, session_id)
  SELECT 'web', w.name, :chat, p.id, s.id FROM w, p, s RETURNING id
)
SELECT s.id, s.public_id, p.id AS contact_id, w.agent_id, a.id AS address_id, w.name AS site, w.audience
  FROM w, p, s, a
""")
"""Insert a program's person with session and address in one commit.

No row for an agent outside of the limit.
"""


def _build_session(row: asyncpg.Record, *, created: bool = False) -> ApiSession:
    return build_value(ApiSession, row, session_id=row["id"], created=created)


_LOCK_PERSON = Named("""
SELECT pg_advisory_xact_lock(hashtextextended('evertalk.external' || :site || ' ' || :external_id, 0))
""")
_ANSWER = Named("""
SELECT v.event_seq FROM events v
  LEFT JOIN entries e ON e.session_id = v.session_id AND e.seq = v.seq
 WHERE v.session_id = :session_id AND v.event_seq > :after AND v.turn_no = :turn AND v.kind = 'msg'
   AND (e.author IN ('assistant', 'operator')
        OR v.seq IS NULL AND v.payload ->> 'waiting' IS DISTINCT FROM 'true')
 ORDER BY v.event_seq LIMIT 1
""")
_COMMAND_RESULT = Named("""
SELECT v.event_seq, v.payload FROM events v JOIN sessions s ON s.id = v.session_id
 WHERE v.session_id = :session_id AND v.event_seq >= s.next_event_seq - 2000
   AND v.kind = 'command.result' AND v.payload ->> 'cid' = :cid
 ORDER BY v.event_seq DESC LIMIT 1
""")
