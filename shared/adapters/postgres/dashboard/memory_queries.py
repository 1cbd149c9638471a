"""Queries of notes for the dashboard, with their sources and people."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from shared.adapters.postgres.dashboard.read_models import BadQuery, read_cursor, write_cursor
from shared.adapters.postgres.db.page_read import SECONDS, count_rows, page_size, read_page
from shared.adapters.postgres.db.pool import Arguments, Named, PoolStore, store_method
from shared.adapters.postgres.db.search_terms import FEW_FOUND, is_short
from shared.core.context.memory import NOTE_KINDS
from shared.core.context.notes import NoteSource

STATES = ("kept", "replaced", "put_away")
"""States of notes by which they can be filtered; `put_away` means archived."""
AUTHORITIES = ("person", "assistant", "tool", "operator")
"""Sources of notes by which they can be filtered."""
_ORDER = "notes"
NEAR = 1000
"""Newest notes that a search reads before it uses an index; a common word fills its page from them."""
NEAR_NOTES = 10_000
"""Maximum notes that one page of a search for one or two letters reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteQuery:
    """Filter and page of the list of notes, newest first; empty fields match all."""

    search: str = ""
    person: UUID | None = None
    kind: str = ""
    state: str = ""
    authority: str = ""
    cursor: str = ""
    limit: int = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundNote:
    """Note as operators see it.

    `source` is the conversation in which a change of the note is announced, `person` the public id of its
    person, and `shown` its fields in the API.
    """

    short_id: str
    source: NoteSource
    person: UUID
    shown: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionFound:
    """Version of a note; `changed_by` is the operator who wrote it, None if it was another author."""

    public_id: UUID
    changed_by: str | None


class MemoryInsights(PoolStore):
    """Read-only queries of notes for the dashboard. They raise StorageUnavailable."""

    async def load_notes(self, query: NoteQuery) -> dict[str, Any]:
        """Return a page of notes as `{notes, person, next}`, newest first; erased notes are left out.

        `person` is the person of the filter, or None. `next` is the cursor of the next page, or None; a
        search for one or two letters may have one after a short page. Raises BadQuery.
        """
        limit = page_size(query.limit)
        statement, arguments = _page(query, limit + 1)
        found = await read_page(self._pool, statement, *arguments)
        rows, seen_until = found["notes"], found.pop("edge")
        following = None
        if len(rows) > limit:
            following = write_cursor(_ORDER, "", rows[limit - 1]["row"])
        elif is_short(query.search) and seen_until:
            following = write_cursor(_ORDER, "", seen_until + 1)
        found["notes"] = [_without_row(row) for row in rows[:limit]]
        return {**found, "next": following}

    async def count_notes(self, query: NoteQuery) -> dict[str, Any] | None:
        """Return the number of matching notes as `{count, more}`; None if counting takes too long."""
        where, arguments = _build_filter(replace(query, cursor=""))
        statement, values = arguments.render(_COUNTED.format(where=where))
        return await count_rows(self._pool, statement, *values)

    @store_method
    async def find_note(self, public_id: UUID) -> FoundNote | None:
        """Return a note by its public id; None if it is unknown or erased."""
        return await self._one(*_NOTE(public_id=public_id, note_id=None, contact_id=None))

    @store_method
    async def find_note_by_row(self, whose: NoteSource, note_id: int) -> FoundNote | None:
        """Return a note by its row id; None if it is unknown, erased or of another person."""
        return await self._one(*_NOTE(public_id=None, note_id=note_id, contact_id=whose.contact_id))

    @store_method
    async def find_note_source(self, person: UUID, agent: str = "") -> NoteSource | None:
        """Return the conversation to which an operator's new note about a person belongs.

        It is the newest one with `agent`; if that is empty, the newest one with any agent.
        Returns None if the person has no such conversation.
        """
        row = await self._pool.fetchrow(*_KNOWN_TO(person=person, agent=agent), timeout=SECONDS)
        if row is None:
            return None
        return NoteSource(
            session_id=row["session_id"], contact_id=row["root"], scope=row["scope"], by_operator=True
        )

    @store_method
    async def find_versions(self, note_ids: Sequence[int]) -> Mapping[int, VersionFound]:
        """Return by row id the public id of each note, and the operator who wrote it.

        Unknown and erased notes are missing.
        """
        rows = await self._pool.fetch(*_VERSIONS(note_ids=list(note_ids)), timeout=SECONDS)
        return {
            row["id"]: VersionFound(public_id=row["public_id"], changed_by=row["changed_by"]) for row in rows
        }

    async def _one(self, statement: str, *arguments: object) -> FoundNote | None:
        row = await self._pool.fetchrow(statement, *arguments, timeout=SECONDS)
        if row is None:
            return None
        shown = _without_row(json.loads(row["shown"]))
        source = NoteSource(
            session_id=row["session_id"], contact_id=row["root"], scope=row["scope"], by_operator=True
        )
        return FoundNote(short_id=shown["short_id"], source=source, person=row["person"], shown=shown)

    @store_method
    async def was_archived_by_operator(self, public_id: UUID) -> bool:
        """Return whether an operator, and not the person, archived the note.

        Returns False if it is not archived or unknown.
        """
        found: bool = await self._pool.fetchval(
            *_BY_OPERATOR(
                public_id=public_id,
                audited=f"note:{public_id}",
            ),
            timeout=SECONDS,
        )
        return found


def _page(query: NoteQuery, limit: int) -> tuple[str, Sequence[object]]:
    """Return the statement and arguments of a page of notes.

    Rare trigrams are found by the index. Other searches read the newest notes first, and use the index if
    they do not fill a page. One or two letters have no trigram: such a page reads `NEAR_NOTES` notes, and the
    next continues.
    """
    where, arguments = _build_filter(query)
    found, edge = _NEWEST, "0"
    if query.search:
        found, edge = _NEAREST if is_short(query.search) else _FOUND, "(SELECT id FROM edge)"
        arguments.values["before"] = read_cursor(query.cursor, _ORDER)[1] if query.cursor else 2**62
    near = NEAR_NOTES if is_short(query.search) else NEAR
    statement = _NOTES.format(
        found=found.format(where=where, limit=limit, near=near, few_found=FEW_FOUND), edge=edge
    )
    return arguments.render(statement)


def _build_filter(query: NoteQuery) -> tuple[str, Arguments]:
    """Return the condition for a note `n` with its arguments. Raises BadQuery."""
    _refuse_unknown("kind", query.kind, NOTE_KINDS)
    _refuse_unknown("state", query.state, STATES)
    _refuse_unknown("authority", query.authority, AUTHORITIES)
    arguments = Arguments(person=query.person)
    wanted = ["n.text <> ''"]
    if query.person is not None:
        wanted.append(_OF_PERSON)
    if query.kind:
        wanted.append(arguments.bind("n.kind = :kind", kind=query.kind))
    if query.state:
        wanted.append(arguments.bind("note_state(n) = :state", state=query.state))
    if query.authority:
        wanted.append(arguments.bind("n.authority = :authority", authority=query.authority))
    if query.cursor:
        before = read_cursor(query.cursor, _ORDER)[1]
        wanted.append(arguments.bind("n.id < :before::bigint", before=before))
    if query.search:
        wanted.append(arguments.bind(_SAYS, search=query.search))
    return " AND ".join(wanted), arguments


def _refuse_unknown(name: str, value: str, known: tuple[str, ...]) -> None:
    if value and value not in known:
        raise BadQuery(f"{name} is one of {', '.join(known)}")


def _without_row(row: dict[str, Any]) -> dict[str, Any]:
    """Return the note with an etag; a note is never changed, only replaced or archived."""
    shown = {name: value for name, value in row.items() if name != "row"}
    return {**shown, "etag": f'"{shown["short_id"]}.{shown["state"]}"'}


_OF_PERSON = """n.contact_id IN (SELECT contact_family(coalesce(o.merged_into, o.id)) FROM contacts o
                                WHERE o.public_id = :person)"""
_SAYS = """(strpos(lower(n.text), lower(:search::text)) > 0
           OR strpos(lower(n.subject), lower(:search::text)) > 0
           OR starts_with(n.public_id::text, lower(:search::text)))"""
_COUNTED = "SELECT FROM notes n WHERE (:person::uuid IS NULL OR true) AND {where}"
_NOTES = """
WITH {found}
SELECT json_build_object(
  'person', (SELECT json_build_object('id', r.public_id, 'name', nullif(r.display_name, ''), 'kind', r.kind,
                    'anonymous', r.anonymous)
               FROM contacts o JOIN contacts r ON r.id = coalesce(o.merged_into, o.id)
              WHERE o.public_id = :person::uuid),
  'notes', coalesce((SELECT json_agg(
     json_build_object('row', n.id, 'id', n.public_id, 'short_id', 'n' || left(n.public_id::text, 8),
       'text', n.text, 'kind', n.kind, 'subject', n.subject,
       'importance', n.importance, 'authority', n.authority,
       'durability', n.durability, 'state', n.state, 'agent', n.scope, 'observed_at', n.observed_at,
       'event_date', n.event_date, 'from_turn', n.from_turn, 'through_turn', n.through_turn,
       'undo_until', n.undo_until, 'expired_at', n.expired_at,
       'session', (SELECT s.public_id FROM sessions s WHERE s.id = n.session_id),
       'flush', (SELECT json_build_object('id', f.id, 'from_turn', f.from_turn,
                        'through_turn', f.through_turn, 'threshold', f.threshold)
                 FROM flushes f WHERE f.id = n.flush_id),
       'superseded_by', (SELECT h.public_id FROM notes h WHERE h.id = n.superseded_by),
       'superseded_reason', nullif(n.superseded_reason, ''),
       'person', json_build_object('id', r.public_id, 'name', nullif(r.display_name, ''), 'kind', r.kind,
                                   'anonymous', r.anonymous))
     ORDER BY n.id DESC)
    FROM found n JOIN contacts p ON p.id = n.contact_id
    JOIN contacts r ON r.id = coalesce(p.merged_into, p.id)), '[]'::json),
  'edge', {edge}
)::text
"""
"""Template of a page of notes as JSON; its slots are the parts that find the notes, and the `edge`.

Notes newer than the edge were read one by one; older ones were found by the index.
"""
_NEWEST = """
found AS (
  SELECT n.*, note_state(n) AS state FROM notes n WHERE {where} ORDER BY n.id DESC LIMIT {limit}
)"""
"""The newest matching notes."""
_NEAREST = """
edge AS MATERIALIZED (
  SELECT coalesce((SELECT id FROM notes WHERE id < :before::bigint
                    ORDER BY id DESC OFFSET {near} LIMIT 1), 0) AS id
), found AS (
  SELECT n.*, note_state(n) AS state FROM notes n WHERE {where} AND n.id > (SELECT id FROM edge)
   ORDER BY n.id DESC LIMIT {limit}
)"""
"""The newest of the next `near` notes that match."""
_FOUND = """
look AS MATERIALIZED (
  SELECT * FROM search_pieces(:search::text, 'notes_by_pieces')
), few AS MATERIALIZED (
  SELECT m.id FROM notes m
   WHERE (SELECT rare FROM look) AND name_pieces(m.text || ' ' || m.subject) @> (SELECT pieces FROM look)
   LIMIT {few_found} + 1
), edge AS MATERIALIZED (
  SELECT CASE WHEN rare AND (SELECT count(*) FROM few) <= {few_found} THEN 4611686018427387904
              ELSE coalesce((SELECT id FROM notes WHERE id < :before::bigint
                              ORDER BY id DESC OFFSET {near} LIMIT 1), 0) END AS id
    FROM look
), found AS (
  SELECT * FROM (
    (SELECT n.*, note_state(n) AS state FROM notes n WHERE {where} AND n.id > (SELECT id FROM edge)
      ORDER BY n.id DESC LIMIT {limit})
    UNION ALL
    (SELECT n.*, note_state(n) AS state
       FROM (SELECT DISTINCT id FROM (
               SELECT id FROM few WHERE (SELECT id FROM edge) = 4611686018427387904
               UNION ALL
               SELECT m.id FROM notes m
                WHERE (SELECT id FROM edge) < 4611686018427387904
                  AND name_pieces(m.text || ' ' || m.subject) @> (SELECT pieces FROM look)
               UNION ALL
               SELECT m.id FROM notes m
                WHERE m.public_id BETWEEN (SELECT lowest_id(:search::text))
                                      AND (SELECT highest_id(:search::text))) x
              ORDER BY id DESC) f
      CROSS JOIN LATERAL (SELECT * FROM notes x WHERE x.id = f.id OFFSET 0) n
      WHERE {where} AND n.id <= (SELECT id FROM edge) ORDER BY f.id DESC LIMIT {limit})) n
   LIMIT {limit}
)"""
"""Matching notes: the newest of the next `near` ones, and older ones by an index.

If the text is rare, all are found by the index, and the edge is above all ids. The rows of found ids are
read as a join; otherwise the planner would read all notes.
"""
_NOTE = Named("""
SELECT json_build_object('row', n.id, 'id', n.public_id, 'short_id', 'n' || left(n.public_id::text, 8),
         'text', n.text, 'kind', n.kind, 'subject', n.subject,
         'importance', n.importance, 'authority', n.authority,
         'durability', n.durability, 'state', note_state(n), 'agent', n.scope, 'observed_at', n.observed_at,
         'event_date', n.event_date, 'from_turn', n.from_turn, 'through_turn', n.through_turn,
         'undo_until', n.undo_until, 'expired_at', n.expired_at,
         'session', (SELECT s.public_id FROM sessions s WHERE s.id = n.session_id),
         'flush', (SELECT json_build_object('id', f.id, 'from_turn', f.from_turn,
                          'through_turn', f.through_turn, 'threshold', f.threshold)
                   FROM flushes f WHERE f.id = n.flush_id),
         'superseded_by', (SELECT h.public_id FROM notes h WHERE h.id = n.superseded_by),
         'superseded_reason', nullif(n.superseded_reason, ''),
         'person', json_build_object('id', r.public_id, 'name', nullif(r.display_name, ''), 'kind', r.kind,
                                     'anonymous', r.anonymous))::text AS shown,
       r.id AS root, r.public_id AS person, n.scope, x.id AS session_id
  FROM notes n JOIN contacts p ON p.id = n.contact_id JOIN contacts r ON r.id = coalesce(p.merged_into, p.id)
 CROSS JOIN LATERAL (
       SELECT s.id FROM sessions s JOIN agents a ON a.id = s.agent_id
        WHERE s.contact_id IN (SELECT contact_family(r.id))
        ORDER BY a.name = n.scope DESC, s.last_active_at DESC, s.id DESC LIMIT 1) x
 WHERE n.text <> '' AND n.id = (
         SELECT o.id FROM notes o WHERE o.public_id = :public_id
         UNION ALL
         SELECT o.id FROM notes o
          WHERE o.id = :note_id AND o.contact_id IN (SELECT contact_family(:contact_id)))
""")
"""Note by its public id, or by its row id if it is of a contact's family; no row if it is erased.

`session_id` is the conversation whose screens are notified of a change: the person's newest one with the
note's agent. Of `public_id` and `note_id` one is NULL.
"""
_KNOWN_TO = Named("""
SELECT s.id AS session_id, r.id AS root, a.name AS scope
  FROM contacts o JOIN contacts r ON r.id = coalesce(o.merged_into, o.id)
  JOIN sessions s ON s.contact_id IN (SELECT contact_family(r.id)) JOIN agents a ON a.id = s.agent_id
 WHERE o.public_id = :person AND (:agent = '' OR a.name = :agent)
 ORDER BY s.archived_at IS NULL DESC, s.last_active_at DESC, s.id DESC LIMIT 1
""")
_VERSIONS = Named("""
SELECT n.id, n.public_id,
       (SELECT a.actor FROM note_changes c JOIN notes o ON o.id = c.old_id
          JOIN audit a ON a.object IN ('note:' || o.public_id::text, 'note:' || n.public_id::text)
           AND a.action = 'note.changed'
           AND a.at BETWEEN c.at - interval '1 minute' AND c.at + interval '1 minute'
         WHERE c.new_id = n.id AND c.cause = 'operator'
         ORDER BY c.at DESC, a.at DESC LIMIT 1) AS changed_by
  FROM notes n WHERE n.id = ANY (:note_ids::bigint[]) AND n.text <> ''
""")
"""Versions of notes with the operator who wrote each, by the audit entry within the same minute."""
_BY_OPERATOR = Named("""
SELECT EXISTS (SELECT FROM notes n JOIN audit a ON a.object = :audited AND a.action = 'note.put_away'
                  AND abs(extract(epoch FROM a.at - n.forgotten_at)) < 60
                WHERE n.public_id = :public_id AND n.forgotten_at IS NOT NULL)
""")
