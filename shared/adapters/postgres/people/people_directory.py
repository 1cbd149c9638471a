"""Directory of people for operators, with the conversation through which each is reached."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from shared.adapters.postgres.db.pool import Named, PoolStore, store_method
from shared.adapters.postgres.people.account_links_sql import ONE_AT_A_TIME
from shared.adapters.postgres.people.operator_auth import append_audit

LISTED_AT_MOST = 200
"""Maximum people of a list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonRow:
    """Person in the list, with numbers of conversations and messages.

    `places` are channels, with the chat id for Telegram. Erased turns are not counted.
    """

    public_id: UUID
    kind: str
    name: str
    places: Sequence[str]
    conversations: int
    messages: int
    last_active_at: datetime


class PostgresPeopleDirectory(PoolStore):
    """Store of the directory. It raises StorageUnavailable."""

    @store_method
    async def find(self, search: str = "") -> list[PersonRow]:
        """Return at most 200 people, last active first; people of whom nothing is left are not listed.

        `search` is a part of a name, a public id, an address or a title, in any case of letters; "" means
        all.
        """
        rows = await self._pool.fetch(*_FIND(pattern=f"%{_literal(search)}%", limit=LISTED_AT_MOST))
        return [PersonRow(**dict(row)) for row in rows]

    @store_method
    async def find_session(self, public_id: UUID) -> int | None:
        """Return the internal id of a conversation of this person, from which all are found.

        Returns None if there is none.
        """
        session_id: int | None = await self._pool.fetchval(*_SESSION(public_id=public_id))
        return session_id

    @store_method
    async def set_legal_hold(self, public_id: UUID, *, on: bool, by: str) -> bool | None:
        """Place a legal hold on a person, or lift it if `on` is False, with an audit entry.

        Lifting includes the people linked to this one. Returns False if nothing changed, None for an unknown
        person.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            # An erasure takes the same lock: it began before this change, or is refused.
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
    async def is_on_hold(self, public_id: UUID) -> bool:
        """Return whether a legal hold is placed on this person or on one linked to them."""
        return bool(await self._pool.fetchval(*_IS_ON_HOLD(public_id=public_id)))

    @store_method
    async def record_audit(self, action: str, *, about: str, by: str) -> None:
        """Append an entry to the audit log; `by` is the operator, `about` the object."""
        async with self._pool.acquire() as connection, connection.transaction():
            await append_audit(connection, actor=by, action=action, about=about)


def _literal(search: str) -> str:
    """Return a search text with LIKE's special characters escaped."""
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
"""Select people whose name, id or address contains the text, last active first.

Erased people are left out.
"""
_SESSION = Named("""
SELECT s.id FROM contacts o JOIN contacts p ON p.id = coalesce(o.merged_into, o.id)
  JOIN sessions s ON s.contact_id IN (SELECT contact_family(p.id))
 WHERE o.public_id = :public_id ORDER BY (s.contact_id = p.id) DESC, s.id DESC LIMIT 1
""")

_PERSON = Named("SELECT coalesce(merged_into, id) FROM contacts WHERE public_id = :public_id")
_IS_ON_HOLD = Named("""
SELECT EXISTS (SELECT FROM contacts o, contacts f
                WHERE o.public_id = :public_id AND f.on_hold_since IS NOT NULL
                  AND f.id IN (SELECT contact_family(coalesce(o.merged_into, o.id))))
""")
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
"""Lift a legal hold, including those of people joined since."""
