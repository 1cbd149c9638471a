"""Queries of people for the dashboard: the list, identities and conversations, progress of erasures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from shared.adapters.postgres.dashboard.read_models import BadQuery, read_cursor, write_cursor
from shared.adapters.postgres.dashboard.session_list import FEW_PEOPLE, is_moment
from shared.adapters.postgres.db.page_read import count_rows, page_size, read_page
from shared.adapters.postgres.db.pool import Arguments, Named, PoolStore
from shared.adapters.postgres.db.search_terms import FEW_FOUND, LEAST, MOST, find_pieces, is_short
from shared.adapters.postgres.db.session_title import TITLE
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
        ways: tuple[str, ...] = (_ALL,)
        rows: list[dict[str, Any]] = []
        if query.search:
            ways = (_NEAR, _FOUND_SHORT) if is_short(query.search) else (_RARE, _FOUND)
        for way in ways:
            statement = way.format(where=where, near=where.replace(_SAYS, _SAYS_NEAR), limit=limit + 1)
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


def _build_filter(query: PeopleQuery) -> tuple[str, Arguments]:
    if query.kind and query.kind not in KINDS:
        raise BadQuery(f"kind is one of {', '.join(KINDS)}")
    edge, row = ("infinity", 0) if not query.cursor else read_cursor(query.cursor, _ORDER)
    if query.cursor and not is_moment(edge):
        raise BadQuery("the cursor was changed")
    arguments = Arguments(edge=edge, row=row, search=query.search)
    wanted = ["true"]
    if query.kind:
        wanted.append(f"r.kind = {arguments.add(query.kind)}")
    if query.channel:
        wanted.append(
            f"EXISTS (SELECT FROM addresses a WHERE {_THEIRS} AND a.channel = {arguments.add(query.channel)})"
        )
    if query.search:
        wanted.append(_STARTS if is_short(query.search) else _SAYS)
    return " AND ".join(wanted), arguments


_IDS = "ARRAY(SELECT r.id UNION ALL SELECT id FROM contacts WHERE merged_into = r.id)"
_FAMILY = f"CROSS JOIN LATERAL (SELECT {_IDS} AS ids OFFSET 0) f"
"""Ids of the person `r` and of the people joined to them, as `contact_family` returns them.

An array uses an index where a sub-select would read every row; a function call per row costs more than it
finds.
"""
_THEIRS = "a.contact_id = ANY (f.ids)"
_STARTS = """(starts_with(lower(r.display_name), lower(:search::text))
           OR starts_with(r.public_id::text, lower(:search::text)))"""
_PLACE_SAYS = """a.channel <> 'web'
                 AND (strpos(lower(a.title), lower(:search::text)) > 0
                      OR strpos(a.chat, :search::text) > 0)"""
_SAYS = f"""(strpos(lower(r.display_name), lower(:search::text)) > 0
           OR starts_with(r.public_id::text, lower(:search::text)) OR EXISTS (
              SELECT FROM addresses a WHERE {_THEIRS} AND {_PLACE_SAYS}))"""
_SAYS_NEAR = f"""(strpos(lower(r.display_name), lower(:search::text)) > 0
           OR starts_with(r.public_id::text, lower(:search::text))
           OR CASE WHEN (SELECT rare_place FROM look) THEN r.id IN (SELECT id FROM placed) ELSE EXISTS (
              SELECT FROM addresses a WHERE a.contact_id = ANY ({_IDS}) AND {_PLACE_SAYS}) END)"""
"""Condition that a person near in the list matches a search.

People of a rare address are found before, so that addresses of few people are read.
"""
_COUNTED = f"""
SELECT FROM contacts r {_FAMILY}
 WHERE r.merged_into IS NULL AND EXISTS (SELECT FROM sessions x WHERE x.contact_id = ANY (f.ids))
   AND num_nulls(:edge::text, :row::bigint, :search::text) = 0 AND {{where}}"""
_NAMED = """'id', r.public_id, 'name', nullif(r.display_name, ''), 'kind', r.kind, 'anonymous', r.anonymous,
  'since', r.created_at"""
_SUMS = """
 CROSS JOIN LATERAL (
   SELECT count(*) AS sessions, coalesce(sum(greatest(x.next_turn - 1, 0)), 0)::bigint AS turns,
          max(x.last_active_at) AS last_active_at, coalesce(sum(t.cost_micro), 0)::bigint AS cost_micro,
          coalesce(sum(t.cost_unknown_calls), 0)::bigint AS cost_unknown_calls,
          count(t.session_id) AS counted,
          coalesce(sum(t.total_tokens), 0)::bigint AS tokens,
          coalesce(sum(t.output_tokens), 0)::bigint AS output_tokens,
          coalesce(sum(t.cache_read_tokens), 0)::bigint AS cache_read_tokens
     FROM sessions x LEFT JOIN session_totals t ON t.session_id = x.id
    WHERE x.contact_id = ANY (f.ids)) u"""
_FIGURES = f"""
  'sessions', u.sessions, 'turns', u.turns, 'last_active_at', u.last_active_at,
  'tokens', CASE WHEN u.counted > 0 THEN u.tokens END, 'output_tokens', u.output_tokens,
  'cache_read_tokens', u.cache_read_tokens,
  'cost_micro', CASE WHEN u.counted > 0 AND NOT (u.cost_unknown_calls > 0 AND u.cost_micro = 0)
                     THEN u.cost_micro END,
  'cost_unknown_calls', u.cost_unknown_calls,
  'channels', ARRAY(SELECT DISTINCT a.channel FROM addresses a WHERE {_THEIRS} ORDER BY 1),
  'notes', (SELECT count(*) FROM notes n WHERE n.contact_id = ANY (f.ids)
               AND n.superseded_by IS NULL AND n.forgotten_at IS NULL)"""

_PAGE = """
  SELECT r.id, s.last_active_at AS key, s.id AS row
    FROM ({rows}) s JOIN contacts p ON p.id = s.contact_id
    JOIN contacts r ON r.id = coalesce(p.merged_into, p.id)
         {family}
   WHERE coalesce(s.id = (SELECT o.id FROM (SELECT y.id, l.last_active_at FROM sessions y
                                              JOIN session_list l ON l.id = y.id
                                             WHERE y.contact_id = ANY (f.ids) OFFSET 0) o
                           ORDER BY o.last_active_at DESC, o.id DESC LIMIT 1), false)
     AND {{where}}
   ORDER BY s.last_active_at DESC, s.id DESC LIMIT {{limit}}"""
_AFTER = "(x.last_active_at, x.id) < (:edge::text::timestamptz, :row::bigint) AND :search::text IS NOT NULL"
_EVERYBODY = f"SELECT x.* FROM session_list x WHERE {_AFTER}"
_NEXT = f"{_EVERYBODY} AND {{unless}} ORDER BY x.last_active_at DESC, x.id DESC LIMIT {NEAR}"
_THEIR_OWN = f"""SELECT x.* FROM found f CROSS JOIN LATERAL contact_family(f.id) AS y(id)
   JOIN sessions z ON z.contact_id = y.id JOIN session_list x ON x.id = z.id
  WHERE (SELECT count(*) FROM found) <= {FEW_PEOPLE} AND {_AFTER}"""
_TOO_MANY = f"{_EVERYBODY} AND (SELECT count(*) FROM found) > {FEW_PEOPLE}"
_LOOK = f"""
look AS MATERIALIZED (SELECT p.pieces AS names, a.pieces AS places, p.rare AND a.rare AS rare,
        a.rare AS rare_place
   FROM ({find_pieces(":search::text", "contacts_by_pieces")}) p,
        ({find_pieces(":search::text", "addresses_by_pieces")}) a), """
_IS_RARE = "(SELECT rare FROM look)"
_ARE_FEW = f"{_IS_RARE} AND (SELECT count(*) FROM found) <= {FEW_FOUND}"
"""Condition that a search text is rare: its matches are counted up to a limit."""
_FOUND_BY = f"""
found AS MATERIALIZED (SELECT DISTINCT id FROM (
  {{names}}
  UNION ALL SELECT p.id FROM contacts p
   WHERE p.public_id BETWEEN {LEAST} AND {MOST}) x
 WHERE {{when}} LIMIT {FEW_PEOPLE} + 1), """
_OF_PLACES = """SELECT coalesce(p.merged_into, p.id) AS id
    FROM addresses a JOIN contacts p ON p.id = a.contact_id
   WHERE a.channel <> 'web' AND name_pieces(a.title || ' ' || a.chat) @> (SELECT places FROM look)"""
_OF_NAMES = "SELECT p.id FROM contacts p WHERE name_pieces(p.display_name) @> (SELECT names FROM look)"
_PLACED = f"""
placed AS MATERIALIZED ({_OF_PLACES} AND {_PLACE_SAYS} AND (SELECT rare_place FROM look)), """
_BEGINNINGS = f"""(SELECT p.id FROM contacts p WHERE lower(p.display_name) COLLATE "C" >= lower(:search::text)
     AND lower(p.display_name) COLLATE "C" < lower(:search::text) || U&'\\+10FFFF'
   ORDER BY lower(p.display_name) COLLATE "C", p.id LIMIT {FEW_PEOPLE} + 1)"""


def _page(rows: str) -> str:
    return _PAGE.format(rows=rows, family=_FAMILY)


def _people(page: str, *, before: str = "", whole: str = "true") -> str:
    return f"""
WITH {before}page AS ({page}
)
SELECT json_build_object('whole', {whole}, 'rows', coalesce((
  SELECT json_agg(json_build_object('key', page.key::text, 'row', page.row, {_NAMED}, {_FIGURES})
                  ORDER BY page.key DESC, page.row DESC)
    FROM page JOIN contacts r ON r.id = page.id {_FAMILY} {_SUMS}), '[]'::json))::text
"""


def _render_found(names: str, *, when: str = "true") -> str:
    return _FOUND_BY.replace("{names}", names).replace("{when}", when).format(word=":search::text")


_BOTH = f"({_page(_THEIR_OWN)}) UNION ALL ({_page(_TOO_MANY)})"
"""Rows found by an index of names, or all rows in order if the found people are too many."""
_ALL = _people(_page(_EVERYBODY))
_RARE = _people(
    f"""({_page(_NEXT.format(unless=f"NOT ({_ARE_FEW})")).replace("{where}", "{near}")})
      UNION ALL ({_page(f"{_THEIR_OWN} AND {_ARE_FEW}")})""",
    before=_LOOK
    + _PLACED
    + _render_found(f"({_OF_NAMES} LIMIT {FEW_FOUND} + 1) UNION ALL SELECT id FROM placed", when=_IS_RARE),
    whole=_ARE_FEW,
)
_FOUND = _people(_BOTH, before=_LOOK + _render_found(f"{_OF_NAMES} UNION ALL {_OF_PLACES}"))
_NEAR = _people(_page(_NEXT.format(unless="true")), whole="false")
_FOUND_SHORT = _people(_BOTH, before=_render_found(_BEGINNINGS))
"""Pages of people by their newest conversation, at the same cost for each page.

A rare part of a name is found by the index of names. Any other search examines the next conversations first,
and finds people by name only if these do not fill the page.
"""

_PERSON = Named(f"""
SELECT json_build_object({_NAMED}, {_FIGURES}, 'timezone', r.timezone,
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
        ORDER BY a.id) FROM (SELECT a.* FROM addresses a WHERE {_THEIRS} ORDER BY a.id LIMIT 200) a),
       '[]'::json),
  'conversations', coalesce((SELECT json_agg(json_build_object('id', s.public_id, 'agent', g.name,
        'title', {TITLE},
        'turns', s.next_turn - 1, 'context_tokens', CASE WHEN s.context_limit > 0 THEN s.context_tokens END,
        'context_limit', nullif(s.context_limit, 0),
        'cost_micro', CASE WHEN t.cost_unknown_calls > 0 AND t.cost_micro = 0 THEN NULL ELSE t.cost_micro END,
        'cost_unknown_calls', t.cost_unknown_calls, 'created_at', s.created_at,
        'last_active_at', s.last_active_at) ORDER BY s.last_active_at DESC, s.id DESC)
      FROM (SELECT s.* FROM sessions s WHERE s.contact_id = ANY (f.ids)
             ORDER BY s.last_active_at DESC, s.id DESC LIMIT 200) s
      JOIN agents g ON g.id = s.agent_id LEFT JOIN session_totals t ON t.session_id = s.id), '[]'::json)
)::text
  FROM contacts o JOIN contacts r ON r.id = coalesce(o.merged_into, o.id) {_FAMILY} {_SUMS}
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
