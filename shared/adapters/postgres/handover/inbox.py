"""Store of what only operators see: private notes, canned replies, macros, labels and ratings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg

from shared.adapters.postgres.db.pool import Named, PoolStore, store_method
from shared.adapters.postgres.people.identities import CONTACT
from shared.core.identity.handover import ChangedMeanwhile
from shared.core.identity.macros import Macro


@dataclass(frozen=True, slots=True, kw_only=True)
class CannedReply:
    """Text that operators send often, with its version and the operator who changed it last.

    `version` begins with 1 and rises with each change.
    """

    name: str
    body: str
    version: int
    changed_by: str
    changed_at: datetime


class PostgresInbox(PoolStore):
    """Store of the operators' inbox; each method is one statement and raises StorageUnavailable."""

    @store_method
    async def find_assignees(self) -> tuple[str, ...]:
        """Return the login names of all operators who may write to people, ordered by name."""
        rows = await self._pool.fetch("SELECT name FROM operators o WHERE may_write(o) ORDER BY lower(name)")
        return tuple(row["name"] for row in rows)

    @store_method
    async def list_labels(self) -> tuple[str, ...]:
        """Return at most 100 labels of open and the last 1,000 resolved hand-overs, most used first."""
        return tuple(row["label"] for row in await self._pool.fetch(_KNOWN_LABELS))

    @store_method
    async def add_note(self, session: UUID, *, operator_id: int, cid: str, body: str) -> UUID | None:
        """Store a private note and return its id; None if the conversation or the operator does not exist.

        If the `cid` is already stored in the conversation, nothing changes and that note's id is returned.
        """
        found: UUID | None = await self._pool.fetchval(
            *_ADD_NOTE(
                session_id=session,
                operator_id=operator_id,
                cid=cid,
                body=body,
            )
        )
        return found

    @store_method
    async def delete_note(self, session: UUID, note: UUID, *, operator_id: int, any_ones: bool) -> bool:
        """Delete a note and return whether it was deleted.

        Without `any_ones`, only the operator's own notes can be deleted.
        """
        return (
            await self._pool.fetchval(
                *_DELETE_NOTE(
                    session_id=session,
                    note_id=note,
                    operator_id=operator_id,
                    any_ones=any_ones,
                )
            )
            is not None
        )

    @store_method
    async def find_contact(self, session: UUID) -> Mapping[str, Any] | None:
        """Return facts about the visitor and their `timezone`; None if the conversation does not exist.

        The facts are those that the page of the newest turn's address reported, with `language` as chosen
        there.
        """
        row = await self._pool.fetchrow(*_CONTACT(session_id=session))
        return None if row is None else {**row["contact"], "timezone": row["timezone"]}

    @store_method
    async def record_contact(self, address_id: int, said: Mapping[str, str]) -> None:
        """Add or replace facts of an address that the visitor's page reports; facts with other names stay."""
        await self._pool.execute(*CONTACT(address_id=address_id, contact=dict(said)))

    @store_method
    async def record_rating(self, session_id: int, handover_id: int, rating: int) -> int | None:
        """Store a rating of 1 to 5 for a resolved hand-over, unless it has one; return the stored rating.

        Returns None if there is no such hand-over, or it is neither resolved nor rated.
        """
        found: int | None = await self._pool.fetchval(
            *_RATE(
                session_id=session_id,
                handover_id=handover_id,
                rating=rating,
            )
        )
        return found

    @store_method
    async def list_canned(self) -> tuple[CannedReply, ...]:
        """Return at most 500 canned replies, ordered by name."""
        rows = await self._pool.fetch("SELECT * FROM canned_replies ORDER BY name LIMIT 500")
        return tuple(CannedReply(**dict(row)) for row in rows)

    @store_method
    async def save_canned(self, name: str, body: str, *, version: int, by: str) -> CannedReply:
        """Save a canned reply and return it with its next version.

        `version` is the one that the operator read, 0 for a new reply. Raises ChangedMeanwhile if another
        version is stored.
        """
        row = await self._pool.fetchrow(*_SAVE_CANNED(name=name, body=body, version=version, by=by))
        if row is None:
            raise ChangedMeanwhile(
                advice="Somebody else has just changed this canned reply. Look at it first."
            )
        return CannedReply(**dict(row))

    @store_method
    async def list_macros(self) -> tuple[Macro, ...]:
        """Return at most 500 macros, ordered by name."""
        rows = await self._pool.fetch("SELECT * FROM macros ORDER BY name LIMIT 500")
        return tuple(_build_macro(row) for row in rows)

    @store_method
    async def find_macro(self, name: str) -> Macro | None:
        """Return the macro with this name; None if there is none."""
        row = await self._pool.fetchrow(*_FIND_MACRO(name=name))
        return None if row is None else _build_macro(row)

    @store_method
    async def save_macro(
        self, name: str, *, labels: Sequence[str], assignee: str, reply: str, resolve: bool, version: int,
        by: str,
    ) -> Macro:  # fmt: skip
        """Save a macro and return it with its next version.

        `version` is the one that the operator read, 0 for a new macro. Raises ChangedMeanwhile if another
        version is stored.
        """
        row = await self._pool.fetchrow(
            *_SAVE_MACRO(
                name=name, labels=list(labels), assignee=assignee, reply=reply, resolve=resolve,
                version=version, by=by,
            )
        )  # fmt: skip
        if row is None:
            raise ChangedMeanwhile(advice="Somebody else has just changed this macro. Look at it first.")
        return _build_macro(row)

    @store_method
    async def delete_macro(self, name: str) -> None:
        """Delete the macro with this name; no effect if there is none."""
        await self._pool.execute(*_DELETE_MACRO(name=name))

    @store_method
    async def find_open(self, session_id: int) -> tuple[int, tuple[str, ...]] | None:
        """Return version and labels of the open hand-over; None if the assistant has the conversation."""
        row = await self._pool.fetchrow(*_FIND_OPEN(session_id=session_id))
        return None if row is None else (row["version"], tuple(row["labels"]))

    @store_method
    async def has_reply(self, session_id: int, cid: str) -> bool:
        """Return whether an operator's reply with this `cid` is stored."""
        return bool(await self._pool.fetchval(*_HAS_REPLY(session_id=session_id, key=f"operator:{cid}")))

    @store_method
    async def find_variables(self, session_id: int) -> Mapping[str, str]:
        """Return the person's `name` and the `site`'s title, "" if unknown; empty without a session."""
        row = await self._pool.fetchrow(*_FIND_VARIABLES(session_id=session_id))
        return {} if row is None else {"name": row["name"], "site": row["site"]}

    @store_method
    async def delete_canned(self, name: str) -> None:
        """Delete the canned reply with this name; no effect if there is none."""
        await self._pool.execute(*_DELETE_CANNED(name=name))


_KNOWN_LABELS = """
SELECT label FROM (
  SELECT labels FROM handovers WHERE ended_at IS NULL
  UNION ALL (SELECT labels FROM handovers WHERE ended_by = 'resolved' ORDER BY ended_at DESC LIMIT 1000)) h,
  unnest(h.labels) AS label
 GROUP BY label ORDER BY count(*) DESC, label LIMIT 100
"""
_RATE = Named("""
WITH rated AS (
  UPDATE handovers SET rating = :rating, rated_at = now()
   WHERE id = :handover_id AND session_id = :session_id AND ended_by = 'resolved' AND rating IS NULL
     RETURNING rating
)
SELECT rating FROM rated
UNION ALL SELECT rating FROM handovers WHERE id = :handover_id AND session_id = :session_id
   AND rating IS NOT NULL
""")
"""Store a person's rating of a resolved hand-over; the first one stays, and a repeat reads it."""
_CONTACT = Named("""
SELECT p.timezone, coalesce((
         SELECT a.contact || jsonb_strip_nulls(jsonb_build_object('language', coalesce(
                  a.settings ->> 'language', a.settings ->> 'app_language', a.contact ->> 'language')))
           FROM addresses a WHERE a.session_id = s.id
          ORDER BY a.id = (SELECT t.address_id FROM turns t WHERE t.session_id = s.id
                            ORDER BY t.turn_no DESC LIMIT 1) DESC, a.id DESC LIMIT 1), '{}') AS contact
  FROM sessions s JOIN contacts p ON p.id = s.contact_id WHERE s.public_id = :session_id
""")
"""Select the contact facts of the address of the newest turn."""
_ADD_NOTE = Named("""
WITH s AS (SELECT id FROM sessions WHERE public_id = :session_id),
made AS (
  INSERT INTO private_notes (session_id, operator_id, operator_name, cid, body)
  SELECT s.id, o.id, o.name, :cid, :body FROM s JOIN operators o ON o.id = :operator_id
  ON CONFLICT (session_id, cid) DO NOTHING RETURNING public_id
)
SELECT public_id FROM made
UNION ALL SELECT n.public_id FROM private_notes n JOIN s ON s.id = n.session_id WHERE n.cid = :cid
""")
"""Insert a private note, once per client's `cid`."""
_DELETE_NOTE = Named("""
DELETE FROM private_notes n USING sessions s
 WHERE s.public_id = :session_id AND n.session_id = s.id AND n.public_id = :note_id
   AND (:any_ones OR n.operator_id = :operator_id)
RETURNING n.id
""")
_SAVE_CANNED = Named("""
WITH changed AS (
  UPDATE canned_replies SET body = :body, version = version + 1, changed_by = :by, changed_at = now()
   WHERE name = :name AND version = :version RETURNING *
), made AS (
  INSERT INTO canned_replies (name, body, changed_by)
  SELECT :name, :body, :by WHERE :version = 0 ON CONFLICT DO NOTHING RETURNING *
)
SELECT * FROM changed UNION ALL SELECT * FROM made
""")
"""Save a canned reply, changed only if its version is the one that the operator read."""
_DELETE_CANNED = Named("DELETE FROM canned_replies WHERE name = :name")
_FIND_MACRO = Named("SELECT * FROM macros WHERE name = :name")
_DELETE_MACRO = Named("DELETE FROM macros WHERE name = :name")
_FIND_OPEN = Named("""
SELECT version, labels FROM handovers WHERE session_id = :session_id AND ended_at IS NULL""")
_HAS_REPLY = Named("""
SELECT EXISTS (SELECT FROM entries WHERE session_id = :session_id AND dedupe_key = :key)""")
_FIND_VARIABLES = Named("""
SELECT coalesce(p.display_name, '') AS name, coalesce((
         SELECT coalesce(nullif(w.config ->> 'title', ''), w.name) FROM addresses x
           JOIN sites w ON w.name = x.account
          WHERE x.session_id = s.id AND x.channel = 'web' ORDER BY x.id DESC LIMIT 1), '') AS site
  FROM sessions s JOIN contacts p ON p.id = s.contact_id WHERE s.id = :session_id
""")
_SAVE_MACRO = Named("""
WITH changed AS (
  UPDATE macros SET labels = :labels, assignee = :assignee, reply = :reply, resolve = :resolve,
         version = version + 1, changed_by = :by, changed_at = now()
   WHERE name = :name AND version = :version RETURNING *
), made AS (
  INSERT INTO macros (name, labels, assignee, reply, resolve, changed_by)
  SELECT :name, :labels, :assignee, :reply, :resolve, :by WHERE :version = 0
  ON CONFLICT DO NOTHING RETURNING *
)
SELECT * FROM changed UNION ALL SELECT * FROM made
""")
"""Save a macro, changed only if its version is the one that the operator read."""


def _build_macro(row: asyncpg.Record) -> Macro:
    return Macro(**{**dict(row), "labels": tuple(row["labels"])})
