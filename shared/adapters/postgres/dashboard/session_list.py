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
from shared.adapters.postgres.db.search_terms import FEW_FOUND, is_short

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


_BEGINNING = Named(
    """
SELECT json_build_object(
  'people', (SELECT CASE WHEN count(*) <= :few_people THEN coalesce(json_agg(id), '[]'::json) END
               FROM (SELECT id FROM contacts
                      WHERE lower(display_name) COLLATE "C" >= lower(:search)
                        AND lower(display_name) COLLATE "C" < lower(:search) || U&'\\+10FFFF'
                      ORDER BY lower(display_name) COLLATE "C", id LIMIT :few_people + 1) x),
  'agents', (SELECT json_agg(id) FROM agents WHERE strpos(lower(name), lower(:search)) > 0))::text
""",
    few_people=FEW_PEOPLE,
)
"""People whose name begins with a text, and agents whose name contains it, as JSON.

People are NULL if they are too many. The order makes the planner use the index for any number of people.
"""
_CONTAINING = Named(
    """
WITH look AS MATERIALIZED (SELECT * FROM search_pieces(:search, 'contacts_by_pieces'))
SELECT json_build_object(
  'people', (SELECT CASE WHEN count(*) <= :few_people THEN coalesce(json_agg(id), '[]'::json) END
               FROM (SELECT id FROM contacts
                      WHERE name_pieces(display_name) @> (SELECT pieces FROM look)
                        AND strpos(lower(display_name), lower(:search)) > 0 LIMIT :few_people + 1) x),
  'agents', (SELECT json_agg(id) FROM agents WHERE strpos(lower(name), lower(:search)) > 0))::text
""",
    few_people=FEW_PEOPLE,
)
"""People and agents whose name contains a text, as JSON; people are NULL if they are too many.

An index finds candidates, and each name is then checked.
"""
_CONTAINING_IF_RARE = Named(
    """
WITH look AS MATERIALIZED (SELECT * FROM search_pieces(:search, 'contacts_by_pieces'))
SELECT json_build_object(
  'people', (SELECT CASE WHEN (SELECT rare FROM look) AND count(*) <= :few_found
                         THEN coalesce(json_agg(id), '[]'::json) END
               FROM (SELECT id FROM contacts
                      WHERE (SELECT rare FROM look) AND name_pieces(display_name) @> (SELECT pieces FROM look)
                        AND strpos(lower(display_name), lower(:search)) > 0 LIMIT :few_found + 1) x),
  'agents', (SELECT json_agg(id) FROM agents WHERE strpos(lower(name), lower(:search)) > 0))::text
""",
    few_found=FEW_FOUND,
)
"""The same, but people are also NULL, and not looked up, if the text has frequent trigrams only."""


def build_matches_query(search: str, *, only_few: bool = False) -> tuple[str, *tuple[object, ...]]:
    """Return the query of people and agents whose name has the text, with its arguments.

    For one or two letters, a person's name must begin with them. With `only_few` the query looks up no people
    for a text of frequent trigrams, which an index finds slowly.
    """
    if is_short(search):
        return _BEGINNING(search=search)
    return (_CONTAINING_IF_RARE if only_few else _CONTAINING)(search=search)


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
    arguments, falling = Arguments(), query.sort.startswith("-")
    direction, sign = ("DESC", "<") if falling else ("ASC", ">")
    edge = _edge(query.cursor, query.sort) if query.cursor else None
    found = [_render_search(query.search, matches, arguments)] if query.search else []
    wanted = _render_filters(query, arguments)
    if column == "state":
        page = _render_states([*found, *wanted], query.state, edge, falling=falling, limit=limit)
        return arguments.render(sql.SESSIONS.format(page=page, state="s.key"))
    wanted += _render_edge(column, edge, arguments, sign=sign)
    if matches is NOT_LOOKED_UP:
        rows = _PAGES[column].format(where=_all(wanted), direction=direction, limit=NEAR_ROWS)
        page = _ROWS.format(rows=rows, where=_all(found), direction=direction, limit=limit)
    else:
        page = _PAGES[column].format(where=_all([*found, *wanted]), direction=direction, limit=limit)
        if sql.SORTS[column].listed:
            page = _ROWS.format(rows=page, where="true", direction=direction, limit=limit)
    state = f"'{query.state}'" if query.state else "live.state"
    return arguments.render(sql.SESSIONS.format(page=page, state=state))


def build_session_count(query: SessionQuery, matches: Matches) -> tuple[str, Sequence[object]]:
    """Return the SQL statement that selects all matching sessions without an order, and its arguments.

    Raises BadQuery for an unknown state.
    """
    arguments = Arguments()
    found = [_render_search(query.search, matches, arguments)] if query.search else []
    wanted = _render_filters(replace(query, sort="-active"), arguments)
    return arguments.render(_COUNTED.format(where=_all([*found, *wanted])))


def check_query(query: SessionQuery) -> str:
    """Return the name of the column in `query.sort`. Raises BadQuery for an unknown column or state."""
    column = query.sort.removeprefix("-")
    if column not in sql.SORTS:
        raise BadQuery(f"sort is one of {', '.join(sql.SORTS)}, with a minus for the largest first")
    if query.state and query.state not in sql.STATES:
        raise BadQuery(f"state is one of {', '.join(sql.STATES)}")
    return column


_COUNTED = "SELECT FROM session_list s WHERE {where}"
_LISTED = """
SELECT s.*, {key} AS key FROM session_list s WHERE {{where}}
 ORDER BY {key} {{direction}}, s.id {{direction}} LIMIT {{limit}}"""
_PAGES = {
    **{name: _LISTED.format(key=order.key) for name, order in sql.SORTS.items() if order.listed},
    "channel": """
SELECT s.*, s.last_channel AS key
  FROM sessions s
 CROSS JOIN LATERAL session_state(s.id, s.answered_turn, s.next_turn, s.leased_by, s.troubled_at) live
 WHERE {where} ORDER BY s.last_channel {direction}, s.id {direction} LIMIT {limit}""",
    "compactions": """
SELECT s.*, t.compaction_count AS key
  FROM sessions s JOIN session_totals t ON t.session_id = s.id
 CROSS JOIN LATERAL session_state(s.id, s.answered_turn, s.next_turn, s.leased_by, s.troubled_at) live
 WHERE {where} ORDER BY t.compaction_count {direction}, t.session_id {direction} LIMIT {limit}""",
    "person": """
SELECT s.*, lower(p.display_name) COLLATE "C" AS key
  FROM contacts p JOIN sessions s ON s.contact_id = p.id
 CROSS JOIN LATERAL session_state(s.id, s.answered_turn, s.next_turn, s.leased_by, s.troubled_at) live
 WHERE {where}
 ORDER BY lower(p.display_name) COLLATE "C" {direction}, p.id {direction}, s.id {direction} LIMIT {limit}""",
    "agent": """
SELECT g.*, a.name AS key FROM agents a CROSS JOIN LATERAL (
   SELECT s.* FROM sessions s
    CROSS JOIN LATERAL session_state(s.id, s.answered_turn, s.next_turn, s.leased_by, s.troubled_at) live
    WHERE s.agent_id = a.id AND {where} ORDER BY s.id {direction} LIMIT {limit}) g
 ORDER BY a.name {direction}, g.id {direction} LIMIT {limit}""",
}
"""Templates of a page by column; their slots are the condition `where`, the `direction` and the `limit`.

By person, equal names are sorted by the person's id, since thousands of people may have no name; the index
also covers their ids. By agent, up to `limit` sessions of each agent are read, and the first are selected.
"""
_OF_STATE = """
(SELECT s.*, '{state}'::text AS key
   FROM sessions s
  CROSS JOIN LATERAL session_state(s.id, s.answered_turn, s.next_turn, s.leased_by, s.troubled_at) live
  WHERE {where} ORDER BY s.id {direction} LIMIT {limit})"""
_OF_STATES = """
SELECT * FROM (SELECT * FROM ({pages}) y LIMIT {limit}) x ORDER BY key {direction}, id {direction}"""
"""Template of a page sorted by state; `pages` are those of each state, joined by `UNION ALL`."""
_ROWS = """
SELECT s.*, x.key FROM (
         SELECT s.id, s.key FROM ({rows}) s WHERE {where}
          ORDER BY s.key {direction}, s.id {direction} LIMIT {limit}) x
 CROSS JOIN LATERAL (SELECT * FROM sessions y WHERE y.id = x.id OFFSET 0) s
 ORDER BY x.key {direction}, x.id {direction}"""
"""Template of the full rows of at most `limit` sessions, sorted by the key of `rows`.

`rows` are candidates of the list, and `where` is the condition of the search. The sessions are chosen by
columns of the list alone, and only then read in full.
"""
_AMONG = "s.id IN (SELECT s.id FROM session_list s WHERE {where})"
"""Template of the condition that a session's row in the list fulfils the condition `where`."""


def _render_filters(query: SessionQuery, arguments: Arguments) -> list[str]:
    listed = sql.SORTS[check_query(query)].listed
    wanted = []
    if query.channel:
        wanted.append(arguments.bind("s.last_channel = :channel", channel=query.channel))
    if query.state:
        wanted.append((sql.LISTED_IN_STATE if listed else sql.IN_STATE)[query.state])
    if query.agent:
        of_agent = "s.agent_id = (SELECT id FROM agents WHERE name = :agent)"
        wanted.append(arguments.bind(of_agent, agent=query.agent))
    if query.site:
        on_site = """s.id IN (SELECT x.session_id FROM addresses x
                               WHERE x.channel = 'web' AND x.account = :site)"""
        wanted.append(arguments.bind(on_site, site=query.site))
    among = []
    if query.min_pct is not None:
        among.append(arguments.bind(_render_full(query.min_pct), min_pct=query.min_pct))
    if query.since is not None:
        among.append(arguments.bind("s.last_active_at >= :since", since=query.since))
    if query.until is not None:
        among.append(arguments.bind("s.last_active_at < :until", until=query.until))
    if among and not listed:
        # Values that each turn changes have their indexes in the list.
        among = [_AMONG.format(where=_all(among))]
    return [*wanted, *among]


def _render_full(share: float) -> str:
    """Return the SQL condition for contexts filled to at least `:min_pct` percent, which is `share`.

    The marks that the page offers have indexes, which are used only for a literal in the SQL.
    """
    key = sql.SORTS["context"].key
    at_least = [f"{key} >= {mark}" for mark in sql.FULL_MARKS if mark <= share][-1:]
    return _all([f"{key} >= :min_pct::float8", "s.context_limit > 0", *at_least])


_OF_PEOPLE = "s.contact_id = ANY ((SELECT :people::bigint[])::bigint[])"
_BY_ID = "s.public_id BETWEEN (SELECT :least::text::uuid) AND (SELECT :most::text::uuid)"
_OF_PEOPLE_AT_ONCE = """s.id = ANY (ARRAY(
    SELECT x.id FROM sessions x WHERE x.contact_id = ANY ((SELECT :people::bigint[])::bigint[])))"""
_BY_ID_AT_ONCE = """s.id = ANY (ARRAY(
    SELECT x.id FROM sessions x
     WHERE x.public_id BETWEEN (SELECT :least::text::uuid) AND (SELECT :most::text::uuid)))"""
_OF_PEOPLE_OR_BY_ID_AT_ONCE = """s.id = ANY (ARRAY(
    SELECT x.id FROM sessions x WHERE x.contact_id = ANY ((SELECT :people::bigint[])::bigint[])
    UNION ALL
    SELECT x.id FROM sessions x
     WHERE x.public_id BETWEEN (SELECT :least::text::uuid) AND (SELECT :most::text::uuid)))"""
"""Condition for the people found, and for session ids that begin with the text.

Matching sessions are collected first; otherwise the planner may read the list to its end.
"""


def _render_search(search: str, matches: Matches, arguments: Arguments) -> str:
    """Return the SQL condition that a session's person, agent or id matches the text of a search."""
    ways = _find_exact_ways(search, matches, arguments)
    if matches.people is None:
        named = (
            "starts_with(s.person, (SELECT lower(:search)))"
            if is_short(search)
            else "0 < strpos(s.person, (SELECT lower(:search)))"
        )
        ways.append(arguments.bind(named, search=search))
    if matches.agents is None:
        of_agents = "s.agent_id IN (SELECT id FROM agents WHERE strpos(lower(name), lower(:search)) > 0)"
        ways.append(arguments.bind(of_agents, search=search))
    elif matches.agents:
        ways.append(arguments.bind("s.agent_id = ANY (:agents::bigint[])", agents=list(matches.agents)))
    return f"({' OR '.join(ways)})" if ways else "false"


def _find_exact_ways(search: str, matches: Matches, arguments: Arguments) -> list[str]:
    """Return SQL conditions for the people found, and for session ids that begin with the text."""
    at_once = matches.people is not None and not is_short(search)
    begins_id = _ID_START.fullmatch(start := search.lower()) is not None
    if begins_id:
        bare = start.replace("-", "")
        arguments.values |= {"least": bare.ljust(32, "0")[:32], "most": bare.ljust(32, "f")[:32]}
    if matches.people:
        arguments.values["people"] = list(matches.people)
    if at_once and matches.people and begins_id:
        return [_OF_PEOPLE_OR_BY_ID_AT_ONCE]
    ways = []
    if matches.people:
        ways.append(_OF_PEOPLE_AT_ONCE if at_once else _OF_PEOPLE)
    if begins_id:
        ways.append(_BY_ID_AT_ONCE if at_once else _BY_ID)
    return ways


Edge = tuple[str, int]
"""Sort key and row id of the last row of a page."""
_AFTER_PERSON = """
({key}, p.id) {sign}= (
     (SELECT :edge::text), coalesce((SELECT contact_id FROM sessions WHERE id = :row::bigint), 0))
AND ({key}, p.id, s.id) {sign} (
     (SELECT :edge::text), coalesce((SELECT contact_id FROM sessions WHERE id = :row::bigint), 0),
     :row::bigint)"""
"""Template of the condition that a row follows the one of a cursor in the order by person.

Through a subselect the planner finds a generic plan as good as one for this value, and keeps it.
"""
_AFTER_AGENT = """s.id {sign} CASE WHEN a.name = :edge::text THEN :row::bigint
                      WHEN a.name {sign} :edge::text THEN {begin} ELSE {end} END"""
"""Template of the same condition in the order by agent.

`begin` and `end` are ids that all or none of an agent's sessions follow.
"""


def _render_edge(column: str, edge: Edge | None, arguments: Arguments, *, sign: str) -> list[str]:
    """Return SQL conditions that a row follows the last row of the page before; none without a cursor."""
    if edge is None:
        return []
    order = sql.SORTS[column]
    begin, end = (_MOST, 0) if sign == "<" else (0, _MOST)
    if column == "person":
        after = _AFTER_PERSON.format(key=order.key, sign=sign)
    elif column == "agent":
        after = _AFTER_AGENT.format(sign=sign, begin=begin, end=end)
    else:
        after = f"({order.key}, {order.tie}) {sign} (:edge::text::{order.kind}, :row::bigint)"
    return [arguments.bind(after, edge=edge[0], row=edge[1])]


def _render_states(wanted: list[str], only: str, edge: Edge | None, *, falling: bool, limit: int) -> str:
    """Return SQL for a page sorted by state; each state is read by its own index until the page is full.

    `only` is the state in the filter, or "". Raises BadQuery if the cursor fits no state.
    """
    direction, sign = ("DESC", "<") if falling else ("ASC", ">")
    pages = []
    for state in sorted(sql.STATES, reverse=falling):
        if (only and state != only) or (edge and (state > edge[0] if falling else state < edge[0])):
            continue
        after = [f"s.id {sign} {int(edge[1])}"] if edge and state == edge[0] else []
        where = _all([sql.IN_STATE[state], *wanted, *after])
        pages.append(_OF_STATE.format(state=state, where=where, direction=direction, limit=limit))
    if not pages:
        raise BadQuery("the cursor belongs to another order")
    return _OF_STATES.format(pages=" UNION ALL ".join(pages), direction=direction, limit=limit)


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
