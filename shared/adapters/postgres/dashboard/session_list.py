"""SQL of the session list; each order and each filter reads its page through an index."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from shared.adapters.postgres.dashboard import read_models_sql as sql
from shared.adapters.postgres.db.pool import Arguments, Named
from shared.adapters.postgres.db.search_terms import FEW_FOUND, find_pieces, is_short

FEW_PEOPLE = 4000
"""Maximum people found by name from which a search starts; with more, the list is read in order."""
NEAR_ROWS = 1000
"""Rows of the list that a search checks before it looks up people.

It does so for one or two letters, and for frequent names.
"""
_ID_START = re.compile(r"[0-9a-f]{1,8}(-[0-9a-f-]{0,27})?")
_MOST = 2**63 - 1


class BadQuery(ValueError):
    """The filter, order or cursor does not exist; the message is shown to the operator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionQuery:
    """Filter, order and page of the session list; all fields must match, and empty ones match all.

    `sort` is a key of SORTS, with a minus for descending order. `min_pct` is the least percentage of filled
    context. `since` is included, `until` is not.
    """

    search: str = ""
    channel: str = ""
    state: str = ""
    agent: str = ""
    site: str = ""
    min_pct: float | None = None
    since: datetime | None = None
    until: datetime | None = None
    sort: str = "-active"
    cursor: str = ""
    limit: int = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Matches:
    """Ids of people and agents that a search matches; None if they are too many or were not looked up."""

    people: tuple[int, ...] | None = ()
    agents: tuple[int, ...] | None = ()


NOT_LOOKED_UP = Matches(people=None, agents=None)
"""Matches of a search whose people and agents were not looked up."""


_MATCHES = """
SELECT json_build_object(
  'people', (SELECT CASE WHEN {when} AND count(*) <= {few} THEN coalesce(json_agg(id), '[]'::json) END
               FROM (SELECT id FROM contacts WHERE {found} LIMIT {few} + 1) x),
  'agents', (SELECT json_agg(id) FROM agents WHERE strpos(lower(name), lower(:search)) > 0))::text
"""
_SOMEWHERE = """name_pieces(display_name) @> (SELECT pieces FROM look)
  AND strpos(lower(display_name), lower(:search)) > 0"""
"""SQL condition for names that contain the text: an index finds candidates, and each name is then checked."""
_AT_THE_START = """lower(display_name) COLLATE "C" >= lower(:search)
  AND lower(display_name) COLLATE "C" < lower(:search) || U&'\\+10FFFF'
  ORDER BY lower(display_name) COLLATE "C", id"""
"""SQL condition for names that begin with the text, ordered so that the index is used for any number."""


def build_matches_query(search: str, *, only_few: bool = False) -> tuple[str, *tuple[object, ...]]:
    """Return the query of people and agents whose name has the text, with its arguments.

    For one or two letters, a person's name must begin with them. With `only_few` the query looks up no people
    for a text of frequent trigrams, which an index finds slowly.
    """
    if is_short(search):
        return Named(_MATCHES.format(found=_AT_THE_START, when="true", few=FEW_PEOPLE))(search=search)
    when, few = ("(SELECT rare FROM look)", FEW_FOUND) if only_few else ("true", FEW_PEOPLE)
    matches = _MATCHES.format(found=f"{when} AND {_SOMEWHERE}", when=when, few=few)
    look = find_pieces(":search", "contacts_by_pieces")
    return Named(f"WITH look AS MATERIALIZED ({look}) {matches}")(search=search)


def build_matches(found: Mapping[str, Sequence[int] | None]) -> Matches:
    """Return the matches of a search from its row; `people` None means too many people."""
    people = found["people"]
    return Matches(people=None if people is None else tuple(people), agents=tuple(found["agents"] or ()))


def build_near_page(query: SessionQuery, *, limit: int) -> tuple[str, Sequence[object]] | None:
    """Return the SQL of a page that searches only the next NEAR_ROWS rows of the list, and its arguments.

    Returns None without a search, and for an order by state, agent or person. Raises BadQuery.
    """
    if not query.search or check_query(query) in ("state", "agent", "person"):
        return None
    return build_session_page(query, NOT_LOOKED_UP, limit=limit)


def build_session_page(
    query: SessionQuery, matches: Matches = Matches(), *, limit: int
) -> tuple[str, Sequence[object]]:
    """Return the SQL statement of one page of at most `limit` rows, and its arguments. Raises BadQuery.

    The limit is a literal in the SQL: for a parameter the planner would assume a tenth of all rows.
    """
    column = check_query(query)
    edge = _edge(query.cursor, query.sort) if query.cursor else None
    put, falling = Arguments(), query.sort.startswith("-")
    meant = [_render_search(query.search, matches, put)] if query.search else []
    if matches is NOT_LOOKED_UP:
        near = _render_by_column(
            column, _render_filters(query, put), edge, put, falling=falling, limit=NEAR_ROWS
        )
        page = _render_rows(near, meant, falling=falling, limit=limit)
        return put.render(sql.SESSIONS.format(page=page, state=_render_state(column, query.state)))
    wanted = [*meant, *_render_filters(query, put)]
    if column == "state":
        page = _render_by_state(wanted, query.state, edge, falling=falling, limit=limit)
    elif column == "agent":
        page = _render_by_agent(wanted, edge, put, falling=falling, limit=limit)
    elif column == "person":
        page = _render_by_person(wanted, edge, put, falling=falling, limit=limit)
    else:
        page = _render_by_column(column, wanted, edge, put, falling=falling, limit=limit)
        if sql.SORTS[column].listed:
            page = _render_rows(page, [], falling=falling, limit=limit)
    return put.render(sql.SESSIONS.format(page=page, state=_render_state(column, query.state)))


def build_session_count(query: SessionQuery, matches: Matches) -> tuple[str, Sequence[object]]:
    """Return the SQL statement that selects all matching sessions without an order, and its arguments.

    Raises BadQuery for an unknown state.
    """
    put = Arguments()
    meant = [_render_search(query.search, matches, put)] if query.search else []
    wanted = [*meant, *_render_filters(replace(query, sort="-active"), put)]
    return put.render(f"SELECT FROM session_list s WHERE {_all(wanted)}")


def _render_state(column: str, only: str) -> str:
    """Return the SQL expression for a row's state; `only` is the state in the filter, or ""."""
    if column == "state":
        return "s.key"
    return f"'{only}'" if only else sql.STATE


def check_query(query: SessionQuery) -> str:
    """Return the name of the column in `query.sort`. Raises BadQuery for an unknown column or state."""
    column = query.sort.removeprefix("-")
    if column not in sql.SORTS:
        raise BadQuery(f"sort is one of {', '.join(sql.SORTS)}, with a minus for the largest first")
    if query.state and query.state not in sql.STATES:
        raise BadQuery(f"state is one of {', '.join(sql.STATES)}")
    return column


def _render_filters(query: SessionQuery, put: Arguments) -> list[str]:
    wanted = []
    if query.channel:
        wanted.append(f"s.last_channel = {put.add(query.channel)}")
    if query.state:
        listed = sql.SORTS[check_query(query)].listed
        wanted.append((sql.LISTED_IN_STATE if listed else sql.IN_STATE)[query.state])
    if query.agent:
        wanted.append(f"s.agent_id = (SELECT id FROM agents WHERE name = {put.add(query.agent)})")
    if query.site:
        wanted.append(
            f"""s.id IN (SELECT x.session_id FROM addresses x
                          WHERE x.channel = 'web' AND x.account = {put.add(query.site)})"""
        )
    among = []
    if query.min_pct is not None:
        among.append(_full(query.min_pct, put))
    if query.since is not None:
        among.append(f"s.last_active_at >= {put.add(query.since)}")
    if query.until is not None:
        among.append(f"s.last_active_at < {put.add(query.until)}")
    if among and not sql.SORTS[check_query(query)].listed:
        # Values that each turn changes have their indexes in the list.
        among = [f"s.id IN (SELECT s.id FROM session_list s WHERE {_all(among)})"]
    return [*wanted, *among]


def _full(share: float, put: Arguments) -> str:
    """Return the SQL condition for contexts filled to at least `share` percent.

    The marks that the page offers have indexes, which are used only for a literal in the SQL.
    """
    key = sql.SORTS["context"].key
    at_least = [f"{key} >= {mark}" for mark in sql.FULL_MARKS if mark <= share][-1:]
    return _all([f"{key} >= {put.add(share)}::float8", "s.context_limit > 0", *at_least])


def _render_search(search: str, matches: Matches, put: Arguments) -> str:
    ways, exact = [], _exactly(search, matches, put)
    if matches.people is None or is_short(search):
        ways += [way.format(s="s") for way in exact]
    elif exact:
        each = " UNION ALL ".join(f"SELECT x.id FROM sessions x WHERE {way.format(s='x')}" for way in exact)
        ways.append(f"s.id = ANY (ARRAY({each}))")
    if matches.people is None:
        how = "starts_with" if is_short(search) else "0 < strpos"
        ways.append(f"{how}(s.person, (SELECT lower({put.add(search)})))")
    if matches.agents is None:
        ways.append(
            f"s.agent_id IN (SELECT id FROM agents WHERE strpos(lower(name), lower({put.add(search)})) > 0)"
        )
    elif matches.agents:
        ways.append(f"s.agent_id = ANY ({put.add(list(matches.agents))}::bigint[])")
    return f"({' OR '.join(ways)})" if ways else "false"


def _exactly(search: str, matches: Matches, put: Arguments) -> list[str]:
    """Return SQL conditions for the people found, and for session ids that begin with the text.

    Matching sessions are collected first; otherwise the planner may read the list to its end.
    """
    exact = []
    if matches.people:
        exact.append(f"{{s}}.contact_id = ANY ((SELECT {put.add(list(matches.people))}::bigint[])::bigint[])")
    if _ID_START.fullmatch(start := search.lower()):
        bare = start.replace("-", "")
        least, most = (f"(SELECT {put.add(bare.ljust(32, end)[:32])}::text::uuid)" for end in "0f")
        exact.append(f"{{s}}.public_id BETWEEN {least} AND {most}")
    return exact


Edge = tuple[str, int]
"""Sort key and row id of the last row of a page."""


def _render_by_column(
    column: str, wanted: list[str], edge: Edge | None, put: Arguments, *, falling: bool, limit: int
) -> str:
    order = sql.SORTS[column]
    if edge is not None:
        sign = "<" if falling else ">"
        place = f"({put.add(edge[0])}::text::{order.kind}, {put.add(edge[1])}::bigint)"
        wanted = [*wanted, f"({order.key}, {order.tie}) {sign} {place}"]
    direction = "DESC" if falling else "ASC"
    if order.listed:
        return f"""SELECT s.*, {order.key} AS key FROM session_list s WHERE {_all(wanted)}
          ORDER BY {order.key} {direction}, {order.tie} {direction} LIMIT {limit}"""
    joined = "JOIN session_totals t ON t.session_id = s.id" if order.tie.startswith("t.") else ""
    return f"""SELECT s.*, {order.key} AS key
      FROM sessions s {joined} WHERE {_all(wanted)}
      ORDER BY {order.key} {direction}, {order.tie} {direction} LIMIT {limit}"""


def _render_rows(rows: str, meant: Sequence[str], *, falling: bool, limit: int) -> str:
    """Return SQL for the full rows of at most `limit` sessions, sorted by the key of `rows`.

    `rows` is SQL for candidates of the list, and `meant` has the conditions of the search. The sessions are
    chosen by columns of the list alone, and only then read in full.
    """
    direction = "DESC" if falling else "ASC"
    return f"""SELECT s.*, x.key FROM (
        SELECT s.id, s.key FROM ({rows}) s WHERE {_all(meant)}
         ORDER BY s.key {direction}, s.id {direction} LIMIT {limit}) x
      CROSS JOIN LATERAL (SELECT * FROM sessions y WHERE y.id = x.id OFFSET 0) s
      ORDER BY x.key {direction}, x.id {direction}"""


def _render_by_person(
    wanted: list[str], edge: Edge | None, put: Arguments, *, falling: bool, limit: int
) -> str:
    """Return SQL for a page sorted by the person's name, and among equal names by the person's id.

    Thousands of people may have no name; the index also covers their ids.
    """
    key = sql.SORTS["person"].key
    if edge is not None:
        # Through a subselect the planner finds a generic plan as good as one for this value, and keeps it.
        name, row = f"(SELECT {put.add(edge[0])}::text)", f"{put.add(edge[1])}::bigint"
        person = f"coalesce((SELECT contact_id FROM sessions WHERE id = {row}), 0)"
        sign = "<" if falling else ">"
        wanted = [
            *wanted,
            f"({key}, p.id) {sign}= ({name}, {person})",
            f"({key}, p.id, s.id) {sign} ({name}, {person}, {row})",
        ]
    direction = "DESC" if falling else "ASC"
    return f"""SELECT s.*, {key} AS key FROM contacts p JOIN sessions s ON s.contact_id = p.id
      WHERE {_all(wanted)} ORDER BY {key} {direction}, p.id {direction}, s.id {direction} LIMIT {limit}"""


def _render_by_agent(
    wanted: list[str], edge: Edge | None, put: Arguments, *, falling: bool, limit: int
) -> str:
    """Return SQL for a page sorted by agent: up to `limit` sessions of each agent, then the first of them."""
    if edge is not None:
        name, row = f"{put.add(edge[0])}::text", f"{put.add(edge[1])}::bigint"
        sign, begin, end = ("<", _MOST, 0) if falling else (">", 0, _MOST)
        start = f"CASE WHEN a.name = {name} THEN {row} WHEN a.name {sign} {name} THEN {begin} ELSE {end} END"
        wanted = [*wanted, f"s.id {sign} {start}"]
    direction = "DESC" if falling else "ASC"
    return f"""SELECT g.*, a.name AS key FROM agents a CROSS JOIN LATERAL (
        SELECT s.* FROM sessions s WHERE s.agent_id = a.id AND {_all(wanted)}
         ORDER BY s.id {direction} LIMIT {limit}) g
      ORDER BY a.name {direction}, g.id {direction} LIMIT {limit}"""


def _render_by_state(wanted: list[str], only: str, edge: Edge | None, *, falling: bool, limit: int) -> str:
    """Return SQL for a page sorted by state; each state is read by its own index until the page is full.

    `only` is the state in the filter, or "". Raises BadQuery if the cursor fits no state.
    """
    direction, sign = ("DESC", "<") if falling else ("ASC", ">")
    pages = []
    for state in sorted(sql.STATES, reverse=falling):
        if (only and state != only) or (edge and (state > edge[0] if falling else state < edge[0])):
            continue
        after = [f"s.id {sign} {int(edge[1])}"] if edge and state == edge[0] else []
        pages.append(
            f"""(SELECT s.*, '{state}'::text AS key FROM sessions s
                  WHERE {_all([sql.IN_STATE[state], *wanted, *after])}
                  ORDER BY s.id {direction} LIMIT {limit})"""
        )
    if not pages:
        raise BadQuery("the cursor belongs to another order")
    return f"""SELECT * FROM (SELECT * FROM ({" UNION ALL ".join(pages)}) y LIMIT {limit}) x
      ORDER BY key {direction}, id {direction}"""


def _all(wanted: Sequence[str]) -> str:
    return " AND ".join(wanted) or "true"


def write_cursor(sort: str, key: str, row: int) -> str:
    """Return the cursor of the page after the row with this sort key and row id; URL-safe."""
    return base64.urlsafe_b64encode(json.dumps([sort, key, row]).encode()).decode().rstrip("=")


def read_cursor(cursor: str, sort: str) -> Edge:
    """Return the sort key and the row id after which the next page begins.

    Raises BadQuery if the cursor is damaged or was made for another order.
    """
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        made_for, key, row = json.loads(base64.urlsafe_b64decode(padded.encode()))
        json.dumps(key, ensure_ascii=False).encode()
    except (ValueError, binascii.Error, TypeError, RecursionError):
        raise BadQuery("the cursor cannot be read") from None
    if made_for != sort or not isinstance(key, str) or type(row) is not int:
        raise BadQuery("the cursor belongs to another order")
    if not 0 <= row <= _MOST or "\x00" in key:
        raise BadQuery("the cursor was changed")
    return key, row


def is_moment(key: str) -> bool:
    """Return whether a cursor's key is a time as PostgreSQL writes it.

    Any other key was forged.
    """
    try:
        datetime.fromisoformat(key)
    except ValueError:
        return False
    return key.isascii()


def _edge(cursor: str, sort: str) -> Edge:
    """Return the sort key and the row id of a cursor, with a key that fits the column. Raises BadQuery."""
    key, row = read_cursor(cursor, sort)
    order = sql.SORTS.get(sort.removeprefix("-"))
    if sort.removeprefix("-") == "state" and key not in sql.STATES:
        raise BadQuery("the cursor was changed")
    if order is None or not order.holds(key):
        raise BadQuery("the cursor was changed")
    return key, row
