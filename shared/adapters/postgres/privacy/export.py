"""Store that reads a person's data for an export: conversations, notes, and messages page by page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import asyncpg

from shared.adapters.postgres.db.pool import Connection, Named, PoolStore, store_method
from shared.adapters.postgres.privacy.erasure_sql import FAMILY
from shared.core.privacy.export import ExportedSession, ExportHead, message_of, summary_of
from shared.core.values.errors import UnknownSession

PAGE = 1_000
"""Maximum messages of one page."""
_NOBODYS = ("id", "session_id", "contact_id", "address_id", "leased_by", "epoch", "hash")
"""Columns that rows of reminders are exported without."""


class PostgresExport(PoolStore):
    """Read-only queries of exports. They raise StorageUnavailable and UnknownSession."""

    @store_method
    async def count_messages(self, session_id: int) -> int:
        """Return the number of messages in all conversations of the session's person.

        Tool results and erased turns do not count.
        """
        number: int = await self._pool.fetchval(*_SAID(session_id=session_id))
        return number

    @store_method
    async def load_head(self, session_id: int, *, alone: bool = False) -> ExportHead:
        """Return all data of the session's person but the messages, from one moment.

        `alone` limits conversations, notes and other rows to this session. Raises UnknownSession.
        """
        only = session_id if alone else None
        async with self._pool.acquire() as connection, connection.transaction(isolation="repeatable_read"):
            contacts = [row["id"] for row in await connection.fetch(*FAMILY(session_id=session_id))]
            person = await connection.fetchrow(*_PERSON(session_id=session_id))
            if person is None:
                raise UnknownSession(f"session {session_id}")
            sessions = await connection.fetch(*_SESSIONS(contacts=contacts, only=only))
            reminders = await _reminders(connection, contacts, only)
            return ExportHead(
                person=dict(person),
                sessions=[await _session(connection, row) for row in sessions],
                notes=[dict(row) for row in await connection.fetch(*_NOTES(contacts=contacts, only=only))],
                more={
                    **({"reminders": reminders} if reminders else {}),
                    "notifications": [
                        dict(row) for row in await connection.fetch(*_PUSH(contacts=contacts, only=only))
                    ],
                    "feedback": [
                        dict(row) for row in await connection.fetch(*_FEEDBACK(contacts=contacts, only=only))
                    ],
                },
            )

    @store_method
    async def load_page(self, session: ExportedSession, *, after_seq: int) -> list[dict[str, Any]]:
        """Return at most PAGE messages of a conversation with numbers above `after_seq`, in their order.

        Messages that came after the export began are left out; empty at the end.
        """
        rows = await self._pool.fetch(
            *_PAGE(session_id=session.id, after_seq=after_seq, last_seq=session.last_seq, limit=PAGE)
        )
        return [message_of(dict(row)) for row in rows]


async def _session(connection: Connection, row: asyncpg.Record) -> ExportedSession:
    id_ = row["id"]
    places = [dict(place) for place in await connection.fetch(*_PLACES(session_id=id_))]
    facts: dict[str, Any] = {
        "agent": row["agent"],
        "title": row["title"] or "",
        "goal": row["goal"],
        "mode": row["mode"],
        "places": places,
    }
    usage = await connection.fetchrow(*_USAGE(session_id=id_))
    if usage is not None:
        facts["usage"] = {name: value for name, value in dict(usage).items() if name != "session_id"}
    return ExportedSession(
        id=id_,
        public_id=str(row["public_id"]),
        created_at=row["created_at"],
        last_seq=row["next_seq"] - 1,
        facts=facts,
        summaries=[summary_of(dict(link)) for link in await connection.fetch(*_SUMMARIES(session_id=id_))],
        pins=[pin["seq"] for pin in await connection.fetch(*_PINS(session_id=id_))],
        attachments=[dict(file) for file in await connection.fetch(*_FILES(session_id=id_))],
    )


async def _reminders(
    connection: Connection, contacts: list[int], only: int | None
) -> list[Mapping[str, Any]]:
    rows = await connection.fetch(*_REMINDERS(contacts=contacts, only=only))
    return [{name: value for name, value in row["row"].items() if name not in _NOBODYS} for row in rows]


_SAID = Named("""
WITH p AS MATERIALIZED (
  SELECT f AS id FROM sessions s JOIN contacts p ON p.id = s.contact_id
   CROSS JOIN contact_family(coalesce(p.merged_into, p.id)) AS f WHERE s.id = :session_id ORDER BY 1
)
SELECT count(*) FROM sessions s JOIN turn_entries te ON te.session_id = s.id AND te.turn_no > s.erased_turn
  JOIN entries e ON e.session_id = te.session_id AND e.seq = te.seq
 WHERE s.contact_id IN (SELECT id FROM p) AND e.author <> 'tool'
""")
"""Count the messages that an export of a person contains."""
_PERSON = Named("""
SELECT p.kind, p.display_name, p.timezone, p.created_at AS since FROM sessions s
  JOIN contacts o ON o.id = s.contact_id JOIN contacts p ON p.id = coalesce(o.merged_into, o.id)
     WHERE s.id = :session_id
""")
_SESSIONS = Named("""
SELECT s.id, s.public_id, s.created_at, s.next_seq, s.goal, s.mode, a.name AS agent,
       (SELECT nullif(l.ledger ->> 'title', '') FROM compactions l WHERE l.id = s.head) AS title
  FROM sessions s JOIN agents a ON a.id = s.agent_id
 WHERE s.contact_id = ANY (:contacts) AND (:only::bigint IS NULL OR s.id = :only) ORDER BY s.id
""")
_PLACES = Named("""
SELECT channel, title, settings, contact, created_at FROM addresses WHERE session_id = :session_id ORDER BY id
""")
_SUMMARIES = Named("""
SELECT kind, from_turn, through_turn, from_seq, through_seq, summary_text, ledger, active, created_at
  FROM compactions
 WHERE session_id = :session_id AND kind IN ('summary', 'digest') AND summary_text <> ''
UNION ALL
SELECT 'summary', y.from_turn, y.through_turn, b.first, b.last, coalesce(y.ledger ->> 'narrative', ''),
       y.ledger, true, y.written_at
  FROM past_summaries y CROSS JOIN LATERAL (
       SELECT min(seq) AS first, max(seq) AS last FROM turn_entries te
        WHERE te.session_id = y.session_id AND te.turn_no BETWEEN y.from_turn AND y.through_turn) b
 WHERE y.session_id = :session_id AND y.ledger <> '{}'
 ORDER BY created_at, from_turn
""")
"""Select summaries of a conversation, and those of an import, oldest first."""
_PINS = Named("SELECT seq FROM pins WHERE session_id = :session_id ORDER BY seq")
_FILES = Named("""
SELECT name, mime, size, encode(sha256, 'hex') AS sha256, description, state, created_at FROM attachments
 WHERE session_id = :session_id ORDER BY id
""")
_NOTES = Named("""
SELECT kind, text, subject, scope, authority, importance, from_turn, through_turn, observed_at, event_date,
       (SELECT s.public_id::text FROM sessions s WHERE s.id = n.session_id) AS conversation
  FROM notes n
 WHERE contact_id = ANY (:contacts) AND (:only::bigint IS NULL OR n.session_id = :only)
   AND superseded_by IS NULL AND forgotten_at IS NULL ORDER BY id
""")
_REMINDERS = Named("""
SELECT to_jsonb(r) AS row FROM reminders r JOIN sessions s ON s.id = r.session_id
 WHERE s.contact_id = ANY (:contacts) AND (:only::bigint IS NULL OR s.id = :only) ORDER BY r.id
""")
_FEEDBACK = Named("""
SELECT s.public_id::text AS conversation, f.turn_no AS turn, f.opinion, f.words, f.at
  FROM feedback f JOIN sessions s ON s.id = f.session_id
 WHERE s.contact_id = ANY (:contacts) AND (:only::bigint IS NULL OR s.id = :only)
   AND f.turn_no > s.erased_turn AND (f.opinion IS NOT NULL OR f.words <> '')
 ORDER BY s.id, f.turn_no
""")
_PUSH = Named("""
SELECT substring(p.endpoint FROM '^https?://([^/]+)') AS service, p.language, p.created_at, p.renewed_at
  FROM push_subscriptions p JOIN visitors v ON v.token_hash = p.visitor_hash
  JOIN addresses a ON a.id = v.address_id
 WHERE a.contact_id = ANY (:contacts) AND (:only::bigint IS NULL OR a.session_id = :only) ORDER BY p.id
""")
_PAGE = Named("""
SELECT e.seq, te.turn_no, e.author, e.blocks, e.replaces_seq, te.replaced_by, e.at
  FROM entries e JOIN sessions s ON s.id = e.session_id LEFT JOIN turn_entries te USING (session_id, seq)
 WHERE e.session_id = :session_id AND e.seq > :after_seq AND e.seq <= :last_seq
   AND (te.turn_no > s.erased_turn OR te.turn_no IS NULL AND e.blocks <> erased_blocks(e.blocks))
 ORDER BY e.seq LIMIT :limit
""")
_USAGE = Named("SELECT * FROM session_totals WHERE session_id = :session_id")
