"""People as operators find them: who there is, and through which conversation they are reached."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from shared.adapters.postgres.db.pool import Named, PoolStore, store_method
from shared.adapters.postgres.people.account_links_sql import ONE_AT_A_TIME
from shared.adapters.postgres.people.operator_auth import append_audit

LISTED_AT_MOST = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonRow:
    public_id: UUID
    kind: str
    name: str
    places: Sequence[str]
    conversations: int
    messages: int
    last_active_at: datetime


class PostgresPeopleDirectory(PoolStore):
    """Raises StorageUnavailable."""

    @store_method
    async def find(self, search: str = "") -> list[PersonRow]:
        """The last active ones first; `search` is a part of a name, a place or an id."""
        rows = await self._pool.fetch(*_FIND(pattern=f"%{_literal(search)}%", limit=LISTED_AT_MOST))
        return [PersonRow(**dict(row)) for row in rows]

    @store_method
    async def find_session(self, public_id: UUID) -> int | None:
        """Any conversation of this person: through it all of them are reached."""
        session_id: int | None = await self._pool.fetchval(*_SESSION(public_id=public_id))
        return session_id

    @store_method
    async def set_legal_hold(self, public_id: UUID, *, on: bool, by: str) -> bool | None:
        """Place or lift a legal hold; False if nothing changed, None for an unknown person."""
        async with self._pool.acquire() as connection, connection.transaction():
            # An erasure begins under the same lock: it is either before this, or refused.
            await connection.execute(ONE_AT_A_TIME)
            person = await connection.fetchval(*_PERSON(public_id=public_id))
            if person is None:
                return None
            change = _HOLD(person=person, by=by) if on else _RELEASE(person=person)
            changed = await connection.fetch(*change)
            if changed:
                action = "person.hold" if on else "person.release"
                await append_audit(connection, actor=by, action=action, about=str(public_id))
        return bool(changed)

    @store_method
    async def record_audit(self, action: str, *, about: str) -> None:
        async with self._pool.acquire() as connection, connection.transaction():
            await append_audit(connection, actor="command line", action=action, about=about)


def _literal(search: str) -> str:
    """Signs that LIKE would read otherwise stand for themselves."""
    return search.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


_FIND = Named("""
-- An erased conversation counts from its next turn on. A person of whom nothing is left is not listed.
SELECT p.public_id, p.kind, p.display_name AS name, x.places, x.conversations, x.messages,
       coalesce(x.last_active_at, p.created_at) AS last_active_at
  FROM contacts p
 CROSS JOIN LATERAL (
       SELECT count(*) FILTER (WHERE s.next_turn - 1 > s.erased_turn OR s.erased_turn = 0) AS conversations,
              coalesce(sum(CASE WHEN s.erased_turn = 0 THEN s.next_seq - 1
                                WHEN s.next_turn - 1 > s.erased_turn THEN (
                                  SELECT count(*) FROM turn_entries te
                                   WHERE te.session_id = s.id AND te.turn_no > s.erased_turn)
                           END), 0)::bigint AS messages,
              coalesce(bool_and(s.erased_turn > 0 AND s.next_turn - 1 = s.erased_turn), false) AS erased,
              max(s.last_active_at) AS last_active_at,
              ARRAY (SELECT DISTINCT
                            concat_ws(' ', a.channel, CASE a.channel WHEN 'telegram' THEN a.chat END)
                       FROM addresses a
                      WHERE a.contact_id IN (SELECT contact_family(p.id)) ORDER BY 1) AS places
         FROM sessions s WHERE s.contact_id IN (SELECT contact_family(p.id))) x
 WHERE p.merged_into IS NULL
   AND NOT (x.erased AND p.display_name = '' AND NOT EXISTS (
             SELECT FROM notes n
              WHERE n.contact_id IN (SELECT contact_family(p.id)) AND n.forgotten_at IS NULL))
   AND (p.display_name ILIKE :pattern OR p.public_id::text ILIKE :pattern
        OR array_to_string(x.places, ' ') ILIKE :pattern
        OR EXISTS (SELECT FROM addresses a
                    WHERE a.contact_id IN (SELECT contact_family(p.id)) AND a.title ILIKE :pattern))
 ORDER BY last_active_at DESC LIMIT :limit
""")
"""People whose name, id or place holds the words, newest first; whom nothing is left of is not listed."""
_SESSION = Named("""
SELECT s.id FROM contacts o JOIN contacts p ON p.id = coalesce(o.merged_into, o.id)
  JOIN sessions s ON s.contact_id IN (SELECT contact_family(p.id))
 WHERE o.public_id = :public_id ORDER BY (s.contact_id = p.id) DESC, s.id DESC LIMIT 1
""")

_PERSON = Named("SELECT coalesce(merged_into, id) FROM contacts WHERE public_id = :public_id")
_HOLD = Named("""
UPDATE contacts SET on_hold_since = now(), on_hold_by = :by
 WHERE id = :person AND NOT EXISTS (SELECT FROM contacts f WHERE f.id IN (SELECT contact_family(:person))
                                  AND f.on_hold_since IS NOT NULL)
RETURNING id
""")
_RELEASE = Named("""
UPDATE contacts SET on_hold_since = NULL, on_hold_by = NULL
 WHERE id IN (SELECT contact_family(:person)) AND on_hold_since IS NOT NULL RETURNING id
""")
"""Release of a hold, also of people joined since."""
