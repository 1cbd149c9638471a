"""Queries of people for the dashboard: the list, identities and conversations, progress of erasures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from shared.adapters.postgres.dashboard.read_models import BadQuery, read_cursor, write_cursor
from shared.adapters.postgres.dashboard.session_list import FEW_PEOPLE, is_moment
from shared.adapters.postgres.db.page_read import count_rows, page_size, read_page
from shared.adapters.postgres.db.pool import Arguments, Named, PoolStore
from shared.adapters.postgres.db.search_terms import FEW_FOUND, is_short
from shared.adapters.postgres.privacy.erasure_map import STEPS

_ORDER = "people"
KINDS = ("person", "group")
"""Kinds of people by which they can be filtered."""
NEAR = 1000
"""Maximum conversations that the first step of a search examines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeopleQuery:
    """Filter and page of the list of people, last active first; an empty string filters nothing."""

    search: str = ""
    channel: str = ""
    kind: str = ""
    cursor: str = ""
    limit: int = 50


class PeopleInsights(PoolStore):
    """Read-only queries of people; linked people are listed as one. They raise StorageUnavailable."""

    async def load_people(self, query: PeopleQuery) -> dict[str, Any]:
        """Return a page `{people: […], next}`, last active first, with the cursor of the next page, or None.

        Raises BadQuery for an unknown kind or an invalid cursor.
        """
        limit = page_size(query.limit)
        where, arguments = _build_filter(query)
        near, _ = _build_filter(query, is_near=True)
        rows: list[dict[str, Any]] = []
        for way in _find_ways(query.search):
            statement = _PEOPLE.format(page=way.page, is_whole=way.is_whole).format(
                where=where, near=near, limit=limit + 1,
                few_found=FEW_FOUND, few_people=FEW_PEOPLE, near_rows=NEAR,
            )  # fmt: skip
            sql, values = arguments.render(statement)
            found = await read_page(self._pool, sql, *values)
            rows = found["rows"]
            if found["whole"] or len(rows) > limit:
                break
        last = rows[limit - 1] if len(rows) > limit else None
        people = [{name: row[name] for name in row if name not in ("key", "row")} for row in rows[:limit]]
        return {"people": people, "next": last and write_cursor(_ORDER, last["key"], last["row"])}

    async def count_people(self, query: PeopleQuery) -> dict[str, Any] | None:
        """Return the number of matching people as `{count, more}`.

        Returns None if counting takes too long. Raises BadQuery.
        """
        where, arguments = _build_filter(query)
        statement, values = arguments.render(_COUNTED.format(where=where))
        return await count_rows(self._pool, statement, *values)

    async def load_person(self, public_id: UUID) -> dict[str, Any] | None:
        """Return facts, identities and conversations of a person and of the people linked to them.

        At most 200 identities and 200 conversations, last active first. Returns None if the person is
        unknown.
        """
        found: dict[str, Any] | None = await read_page(self._pool, *_PERSON(public_id=public_id))
        return found

    async def load_erasure(self, public_id: UUID) -> dict[str, Any] | None:
        """Return the progress of the newest erasure of all of a person's data; None if there was none.

        `step` of `steps` counts finished tables.
        """
        found: dict[str, Any] | None = await read_page(self._pool, *_ERASURE(public_id=public_id))
        return None if found is None else {**found, "steps": len(STEPS)}


_STARTS = """(starts_with(lower(r.display_name), lower(:search::text))
             OR starts_with(r.public_id::text, lower(:search::text)))"""
_SAYS = """(strpos(lower(r.display_name), lower(:search::text)) > 0
           OR starts_with(r.public_id::text, lower(:search::text))
           OR EXISTS (SELECT FROM addresses a
                       WHERE a.contact_id = ANY (r.ids) AND a.channel <> 'web'
                         AND (strpos(lower(a.title), lower(:search::text)) > 0
                              OR strpos(a.chat, :search::text) > 0)))"""
_SAYS_NEAR = """(strpos(lower(r.display_name), lower(:search::text)) > 0
           OR starts_with(r.public_id::text, lower(:search::text))
           OR CASE WHEN (SELECT rare_place FROM look) THEN r.id IN (SELECT id FROM placed)
                   ELSE EXISTS (SELECT FROM addresses a
                                 WHERE a.contact_id = ANY (ARRAY(
                                         SELECT r.id
                                         UNION ALL SELECT id FROM contacts WHERE merged_into = r.id))
                                   AND a.channel <> 'web'
                                   AND (strpos(lower(a.title), lower(:search::text)) > 0
                                        OR strpos(a.chat, :search::text) > 0)) END)"""
"""Condition that a person near in the list matches a search.

People of a rare address are found before, so that addresses of few people are read.
"""


def _build_filter(query: PeopleQuery, *, is_near: bool = False) -> tuple[str, Arguments]:
    """Return the condition for a person `r` with the family's `ids`, and its arguments. Raises BadQuery.

    With `is_near` the condition is that of a person near in the list, which reads fewer addresses.
    """
    if query.kind and query.kind not in KINDS:
        raise BadQuery(f"kind is one of {', '.join(KINDS)}")
    edge, row = ("infinity", 0) if not query.cursor else read_cursor(query.cursor, _ORDER)
    if query.cursor and not is_moment(edge):
        raise BadQuery("the cursor was changed")
    arguments = Arguments(edge=edge, row=row, search=query.search)
    wanted = ["true"]
    if query.kind:
        wanted.append(arguments.bind("r.kind = :kind", kind=query.kind))
    if query.channel:
        on_channel = """EXISTS (SELECT FROM addresses a
                                 WHERE a.contact_id = ANY (r.ids) AND a.channel = :channel)"""
        wanted.append(arguments.bind(on_channel, channel=query.channel))
    if is_short(query.search):
        wanted.append(_STARTS)
    elif query.search:
        wanted.append(_SAYS_NEAR if is_near else _SAYS)
    return " AND ".join(wanted), arguments


_COUNTED = """
SELECT FROM (SELECT p.*, f.ids FROM contacts p CROSS JOIN LATERAL family_ids(p.id) f) r
 WHERE r.merged_into IS NULL AND EXISTS (SELECT FROM sessions x WHERE x.contact_id = ANY (r.ids))
   AND num_nulls(:edge::text, :row::bigint, :search::text) = 0 AND {where}"""
_PEOPLE = """
WITH {page}
SELECT json_build_object('whole', {is_whole}, 'rows', coalesce((
  SELECT json_agg(json_build_object('key', page.key::text, 'row', page.row,
    'id', r.public_id, 'name', nullif(r.display_name, ''), 'kind', r.kind, 'anonymous', r.anonymous,
    'since', r.created_at,
    'sessions', u.sessions, 'turns', u.turns, 'last_active_at', u.last_active_at,
    'tokens', CASE WHEN u.counted > 0 THEN u.tokens END, 'output_tokens', u.output_tokens,
    'cache_read_tokens', u.cache_read_tokens,
    'cost_micro', CASE WHEN u.counted > 0 AND NOT (u.cost_unknown_calls > 0 AND u.cost_micro = 0)
                       THEN u.cost_micro END,
    'cost_unknown_calls', u.cost_unknown_calls,
    'channels', ARRAY(SELECT DISTINCT a.channel FROM addresses a WHERE a.contact_id = ANY (f.ids) ORDER BY 1),
    'notes', (SELECT count(*) FROM notes n WHERE n.contact_id = ANY (f.ids)
                 AND n.superseded_by IS NULL AND n.forgotten_at IS NULL))
    ORDER BY page.key DESC, page.row DESC)
    FROM page JOIN contacts r ON r.id = page.id
   CROSS JOIN LATERAL family_ids(r.id) f CROSS JOIN LATERAL family_sums(f.ids) u), '[]'::json))::text
"""
"""Template of a page of people by their newest conversation, as JSON; a way is put into its slots."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    """Way to find a page of people, at the same cost for each page.

    `page` has the parts of the statement `_PEOPLE` that find people, and `is_whole` is the SQL condition that
    no other way would find more. Slots are the conditions `where` and `near` of a filter, and limits.
    """

    page: str
    is_whole: str = "true"


_ALL = _Way(
    page="""
page AS (
  SELECT r.id, s.last_active_at AS key, s.id AS row
    FROM session_list s
   CROSS JOIN LATERAL person_last_active_in(s.id, s.contact_id) r
   WHERE (s.last_active_at, s.id) < (:edge::text::timestamptz, :row::bigint) AND :search::text IS NOT NULL
     AND {where}
   ORDER BY s.last_active_at DESC, s.id DESC LIMIT {limit}
)"""
)
"""All people in the list's order."""
_RARE = _Way(
    page="""
look AS MATERIALIZED (
  SELECT p.pieces AS names, a.pieces AS places, p.rare AND a.rare AS rare, a.rare AS rare_place
    FROM search_pieces(:search::text, 'contacts_by_pieces') p,
         search_pieces(:search::text, 'addresses_by_pieces') a
), placed AS MATERIALIZED (
  SELECT coalesce(p.merged_into, p.id) AS id
    FROM addresses a JOIN contacts p ON p.id = a.contact_id
   WHERE a.channel <> 'web' AND name_pieces(a.title || ' ' || a.chat) @> (SELECT places FROM look)
     AND (strpos(lower(a.title), lower(:search::text)) > 0 OR strpos(a.chat, :search::text) > 0)
     AND (SELECT rare_place FROM look)
), found AS MATERIALIZED (
  SELECT DISTINCT id FROM (
    (SELECT p.id FROM contacts p WHERE name_pieces(p.display_name) @> (SELECT names FROM look)
      LIMIT {few_found} + 1)
    UNION ALL
    SELECT id FROM placed
    UNION ALL
    SELECT p.id FROM contacts p
     WHERE p.public_id BETWEEN (SELECT lowest_id(:search::text)) AND (SELECT highest_id(:search::text))) x
   WHERE (SELECT rare FROM look) LIMIT {few_people} + 1
), page AS (
  (
    SELECT r.id, s.last_active_at AS key, s.id AS row
      FROM (SELECT s.* FROM session_list s
             WHERE (s.last_active_at, s.id) < (:edge::text::timestamptz, :row::bigint)
               AND :search::text IS NOT NULL
               AND NOT ((SELECT rare FROM look) AND (SELECT count(*) FROM found) <= {few_found})
             ORDER BY s.last_active_at DESC, s.id DESC LIMIT {near_rows}) s
     CROSS JOIN LATERAL person_last_active_in(s.id, s.contact_id) r
     WHERE {near}
     ORDER BY s.last_active_at DESC, s.id DESC LIMIT {limit}
  ) UNION ALL (
    SELECT r.id, s.last_active_at AS key, s.id AS row
      FROM found CROSS JOIN LATERAL contact_family(found.id) AS y(id)
      JOIN sessions z ON z.contact_id = y.id JOIN session_list s ON s.id = z.id
     CROSS JOIN LATERAL person_last_active_in(s.id, s.contact_id) r
     WHERE (SELECT count(*) FROM found) <= {few_people}
       AND (s.last_active_at, s.id) < (:edge::text::timestamptz, :row::bigint) AND :search::text IS NOT NULL
       AND (SELECT rare FROM look) AND (SELECT count(*) FROM found) <= {few_found}
       AND {where}
     ORDER BY s.last_active_at DESC, s.id DESC LIMIT {limit}
  )
)""",
    is_whole="(SELECT rare FROM look) AND (SELECT count(*) FROM found) <= {few_found}",
)
"""People of a rare part of a name or address, found by an index; of another text, near ones in the list.

A text is rare if its matches are counted up to the limit `few_found`.
"""
_FOUND = _Way(
    page="""
look AS MATERIALIZED (
  SELECT p.pieces AS names, a.pieces AS places, p.rare AND a.rare AS rare, a.rare AS rare_place
    FROM search_pieces(:search::text, 'contacts_by_pieces') p,
         search_pieces(:search::text, 'addresses_by_pieces') a
), found AS MATERIALIZED (
  SELECT DISTINCT id FROM (
    SELECT p.id FROM contacts p WHERE name_pieces(p.display_name) @> (SELECT names FROM look)
    UNION ALL
    SELECT coalesce(p.merged_into, p.id) AS id
      FROM addresses a JOIN contacts p ON p.id = a.contact_id
     WHERE a.channel <> 'web' AND name_pieces(a.title || ' ' || a.chat) @> (SELECT places FROM look)
    UNION ALL
    SELECT p.id FROM contacts p
     WHERE p.public_id BETWEEN (SELECT lowest_id(:search::text)) AND (SELECT highest_id(:search::text))) x
   LIMIT {few_people} + 1
), page AS (
  (
    SELECT r.id, s.last_active_at AS key, s.id AS row
      FROM found CROSS JOIN LATERAL contact_family(found.id) AS y(id)
      JOIN sessions z ON z.contact_id = y.id JOIN session_list s ON s.id = z.id
     CROSS JOIN LATERAL person_last_active_in(s.id, s.contact_id) r
     WHERE (SELECT count(*) FROM found) <= {few_people}
       AND (s.last_active_at, s.id) < (:edge::text::timestamptz, :row::bigint) AND :search::text IS NOT NULL
       AND {where}
     ORDER BY s.last_active_at DESC, s.id DESC LIMIT {limit}
  ) UNION ALL (
    SELECT r.id, s.last_active_at AS key, s.id AS row
      FROM session_list s
     CROSS JOIN LATERAL person_last_active_in(s.id, s.contact_id) r
     WHERE (s.last_active_at, s.id) < (:edge::text::timestamptz, :row::bigint) AND :search::text IS NOT NULL
       AND (SELECT count(*) FROM found) > {few_people}
       AND {where}
     ORDER BY s.last_active_at DESC, s.id DESC LIMIT {limit}
  )
)"""
)
"""People found by an index of names and addresses, or all in the list's order if the found are too many."""
_NEAR = _Way(
    page="""
page AS (
  SELECT r.id, s.last_active_at AS key, s.id AS row
    FROM (SELECT s.* FROM session_list s
           WHERE (s.last_active_at, s.id) < (:edge::text::timestamptz, :row::bigint)
             AND :search::text IS NOT NULL
           ORDER BY s.last_active_at DESC, s.id DESC LIMIT {near_rows}) s
   CROSS JOIN LATERAL person_last_active_in(s.id, s.contact_id) r
   WHERE {where}
   ORDER BY s.last_active_at DESC, s.id DESC LIMIT {limit}
)""",
    is_whole="false",
)
"""People near in the list."""
_FOUND_SHORT = _Way(
    page="""
found AS MATERIALIZED (
  SELECT DISTINCT id FROM (
    (SELECT p.id FROM contacts p
      WHERE lower(p.display_name) COLLATE "C" >= lower(:search::text)
        AND lower(p.display_name) COLLATE "C" < lower(:search::text) || U&'\\+10FFFF'
      ORDER BY lower(p.display_name) COLLATE "C", p.id LIMIT {few_people} + 1)
    UNION ALL
    SELECT p.id FROM contacts p
     WHERE p.public_id BETWEEN (SELECT lowest_id(:search::text)) AND (SELECT highest_id(:search::text))) x
   LIMIT {few_people} + 1
), page AS (
  (
    SELECT r.id, s.last_active_at AS key, s.id AS row
      FROM found CROSS JOIN LATERAL contact_family(found.id) AS y(id)
      JOIN sessions z ON z.contact_id = y.id JOIN session_list s ON s.id = z.id
     CROSS JOIN LATERAL person_last_active_in(s.id, s.contact_id) r
     WHERE (SELECT count(*) FROM found) <= {few_people}
       AND (s.last_active_at, s.id) < (:edge::text::timestamptz, :row::bigint) AND :search::text IS NOT NULL
       AND {where}
     ORDER BY s.last_active_at DESC, s.id DESC LIMIT {limit}
  ) UNION ALL (
    SELECT r.id, s.last_active_at AS key, s.id AS row
      FROM session_list s
     CROSS JOIN LATERAL person_last_active_in(s.id, s.contact_id) r
     WHERE (s.last_active_at, s.id) < (:edge::text::timestamptz, :row::bigint) AND :search::text IS NOT NULL
       AND (SELECT count(*) FROM found) > {few_people}
       AND {where}
     ORDER BY s.last_active_at DESC, s.id DESC LIMIT {limit}
  )
)"""
)
"""People whose name begins with the text, or all in the list's order if the found are too many."""


def _find_ways(search: str) -> tuple[_Way, ...]:
    """Return the ways to search, of which the next is used if one has not filled the page.

    A rare part of a name is found by the index of names. Any other search examines the next conversations
    first, and finds people by name only if these do not fill the page.
    """
    if not search:
        return (_ALL,)
    return (_NEAR, _FOUND_SHORT) if is_short(search) else (_RARE, _FOUND)


_PERSON = Named("""
SELECT json_build_object(
  'id', r.public_id, 'name', nullif(r.display_name, ''), 'kind', r.kind, 'anonymous', r.anonymous,
  'since', r.created_at,
  'sessions', u.sessions, 'turns', u.turns, 'last_active_at', u.last_active_at,
  'tokens', CASE WHEN u.counted > 0 THEN u.tokens END, 'output_tokens', u.output_tokens,
  'cache_read_tokens', u.cache_read_tokens,
  'cost_micro', CASE WHEN u.counted > 0 AND NOT (u.cost_unknown_calls > 0 AND u.cost_micro = 0)
                     THEN u.cost_micro END,
  'cost_unknown_calls', u.cost_unknown_calls,
  'channels', ARRAY(SELECT DISTINCT a.channel FROM addresses a WHERE a.contact_id = ANY (f.ids) ORDER BY 1),
  'notes', (SELECT count(*) FROM notes n WHERE n.contact_id = ANY (f.ids)
               AND n.superseded_by IS NULL AND n.forgotten_at IS NULL),
  'timezone', r.timezone,
  'joined', (SELECT count(*) FROM contacts j WHERE j.merged_into = r.id),
  'hold', (SELECT json_build_object('since', j.on_hold_since, 'by', j.on_hold_by) FROM contacts j
            WHERE j.id = ANY (f.ids) AND j.on_hold_since IS NOT NULL ORDER BY j.on_hold_since LIMIT 1),
  'put_away', (SELECT count(*) FROM notes n WHERE n.contact_id = ANY (f.ids)
                  AND n.forgotten_at IS NOT NULL AND n.undo_until IS NOT NULL),
  'places', coalesce((SELECT json_agg(json_build_object('channel', a.channel, 'account', a.account,
        'chat', CASE WHEN a.channel = 'telegram' THEN a.chat END, 'title', nullif(a.title, ''),
        'since', a.created_at, 'unreachable_since', a.unreachable_since,
        'session', (SELECT s.public_id FROM sessions s WHERE s.id = a.session_id),
        'browsers', (SELECT count(*) FROM visitors v WHERE v.address_id = a.id AND v.expires_at > now()),
        'signed_in', EXISTS (SELECT FROM visitors v WHERE v.address_id = a.id AND v.identified))
        ORDER BY a.id)
      FROM (SELECT a.* FROM addresses a WHERE a.contact_id = ANY (f.ids) ORDER BY a.id LIMIT 200) a),
       '[]'::json),
  'conversations', coalesce((SELECT json_agg(json_build_object('id', s.public_id, 'agent', g.name,
        'title', named.title,
        'turns', s.next_turn - 1, 'context_tokens', CASE WHEN s.context_limit > 0 THEN s.context_tokens END,
        'context_limit', nullif(s.context_limit, 0),
        'cost_micro', CASE WHEN t.cost_unknown_calls > 0 AND t.cost_micro = 0 THEN NULL ELSE t.cost_micro END,
        'cost_unknown_calls', t.cost_unknown_calls, 'created_at', s.created_at,
        'last_active_at', s.last_active_at) ORDER BY s.last_active_at DESC, s.id DESC)
      FROM (SELECT s.* FROM sessions s WHERE s.contact_id = ANY (f.ids)
             ORDER BY s.last_active_at DESC, s.id DESC LIMIT 200) s
      JOIN agents g ON g.id = s.agent_id LEFT JOIN session_totals t ON t.session_id = s.id
      CROSS JOIN LATERAL session_title(s.id, s.head) named), '[]'::json)
)::text
  FROM contacts o JOIN contacts r ON r.id = coalesce(o.merged_into, o.id)
 CROSS JOIN LATERAL family_ids(r.id) f CROSS JOIN LATERAL family_sums(f.ids) u
 WHERE o.public_id = :public_id
""")
"""Select the page of a person and of the people joined to them: places, conversations and sums."""

_ERASURE = Named("""
SELECT json_build_object('id', e.id, 'state', e.state, 'step', e.step, 'counts', e.counts, 'at', e.at,
                         'finished_at', e.finished_at)::text
  FROM contacts o JOIN contacts r ON r.id = coalesce(o.merged_into, o.id)
  JOIN erasures e ON e.contact_hash = sha256(convert_to('evertalk.erasures:' || r.public_id::text, 'UTF8'))
                 AND e.scope = 'everything'
 WHERE o.public_id = :public_id ORDER BY e.id DESC LIMIT 1
""")
