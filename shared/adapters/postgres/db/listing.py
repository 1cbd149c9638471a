"""Updates of `session_list`, a copy of sessions for sorting, by one worker at a time."""

from __future__ import annotations

from collections.abc import Callable

from shared.adapters.postgres.db.pool import Connection, Pool, store_method

AT_ONCE = 500
"""Maximum changed sessions, and minutes, that one update processes."""
SLOW_SECONDS = 2
"""Seconds after which a turn that is still being answered is shown in the list before its answer ends."""
_OF_SESSION = (
    "contact_id", "agent_id", "next_turn", "context_tokens", "context_limit", "last_active_at", "troubled_at",
    "last_channel",
)  # fmt: skip
_OF_TOTALS = (
    "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "cost_micro",
    "cost_unknown_calls",
)  # fmt: skip
COLUMNS = (*_OF_SESSION, *_OF_TOTALS)
"""Columns of `session_list` that are copied from `sessions` and `session_totals`."""
TRUTH = f"""SELECT s.id, {", ".join(f"s.{name}" for name in _OF_SESSION)},
       {", ".join(f"coalesce(t.{name}, 0) AS {name}" for name in _OF_TOTALS)}
  FROM sessions s LEFT JOIN session_totals t ON t.session_id = s.id"""
"""Select id and current values of COLUMNS of each session; a session without totals has 0."""
LIST_ALL = f"""
INSERT INTO session_list (id, public_id, person, {", ".join(COLUMNS)})
SELECT x.id, s.public_id, s.person, {", ".join(f"x.{name}" for name in COLUMNS)}
  FROM ({TRUTH}) x JOIN sessions s ON s.id = x.id ORDER BY x.id
"""
"""Insert all sessions into the list, for bulk loads that fire no triggers."""


def render_difference(one: str, other: str) -> str:
    """Return the SQL condition that the aliases `one` and `other` differ in one of COLUMNS.

    NULL equals NULL.
    """
    return (
        f"({', '.join(f'{one}.{name}' for name in COLUMNS)}) "
        f"IS DISTINCT FROM ({', '.join(f'{other}.{name}' for name in COLUMNS)})"
    )


_BEHIND = f"""SELECT t.session_id FROM turns t JOIN session_list l ON l.id = t.session_id
 WHERE t.ended_at IS NULL AND t.state = 'claimed' AND t.opened_at < now() - interval '{SLOW_SECONDS} s'
   AND l.next_turn <= t.turn_no LIMIT {AT_ONCE}"""
_ANY = f"""SELECT EXISTS (SELECT FROM session_list_changes) OR EXISTS ({_BEHIND})
    OR EXISTS (SELECT FROM listed_minutes WHERE NOT is_folded)"""
_ALONE = "SELECT pg_try_advisory_xact_lock(hashtext('evertalk.session_list'))"
_TAKE = f"""WITH taken AS (
  DELETE FROM session_list_changes WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM session_list_changes LIMIT {AT_ONCE})) RETURNING session_id
) SELECT session_id FROM taken UNION ALL ({_BEHIND})"""
_TELL = f"""
WITH mine AS MATERIALIZED (
  SELECT id FROM session_list WHERE id = ANY ($1::bigint[]) FOR NO KEY UPDATE SKIP LOCKED
), later AS (
  INSERT INTO session_list_changes
  SELECT id FROM session_list WHERE id = ANY ($1::bigint[]) AND id NOT IN (SELECT id FROM mine)
)
UPDATE session_list l SET ({", ".join(COLUMNS)}) = ROW({", ".join(f"x.{name}" for name in COLUMNS)})
  FROM mine CROSS JOIN LATERAL ({TRUTH} WHERE s.id = mine.id OFFSET 0) x
 WHERE l.id = x.id AND {render_difference("l", "x")}
"""
"""Update rows of the list; the statement sees at least the changes that were taken before.

A row that a rename has locked is updated the next time.
"""

# All changes of a minute are taken at once, so that a decrease is never counted without its increase.
_UNFOLDED = f"""
WITH taken AS (
  DELETE FROM listed_minutes WHERE NOT is_folded AND minute = ANY (ARRAY(
    SELECT minute FROM listed_minutes WHERE NOT is_folded LIMIT {AT_ONCE}))
  RETURNING minute, sessions, nearly_full
)
SELECT minute, sum(sessions)::int AS sessions, sum(nearly_full)::int AS nearly_full
  FROM taken GROUP BY minute
"""
_FOLD = """
WITH given AS (
  SELECT * FROM unnest($1::timestamptz[], $2::int[], $3::int[]) AS g(minute, sessions, nearly_full)
), known AS (
  UPDATE listed_minutes m SET sessions = greatest(m.sessions + g.sessions, 0),
         nearly_full = greatest(m.nearly_full + g.nearly_full, 0)
    FROM given g WHERE m.is_folded AND m.minute = g.minute RETURNING m.minute
)
INSERT INTO listed_minutes (minute, sessions, nearly_full, is_folded)
SELECT minute, greatest(sessions, 0), greatest(nearly_full, 0), true FROM given
 WHERE minute NOT IN (SELECT minute FROM known) AND minute > now() - interval '25 hours'
"""
_PRUNE_MINUTES = "DELETE FROM listed_minutes WHERE is_folded AND minute < now() - interval '25 hours'"


class PostgresSessionList:
    """Store that updates the session list. It raises StorageUnavailable."""

    def __init__(self, pool: Pool, *, crash_point: Callable[[str], None] = lambda _: None) -> None:
        self._pool = pool
        self._crash_point = crash_point

    @store_method
    async def catch_up(self) -> bool:
        """Apply at most AT_ONCE changes to the list in one transaction; return whether there may be more.

        Changes are sessions whose row in the list is out of date, and counts of active sessions per minute.
        Returns False if there are none, or if another process is applying them. A process that dies leaves
        the changes for the next.
        """
        if not await self._pool.fetchval(_ANY):
            return False
        async with self._pool.acquire() as connection, connection.transaction():
            if not await connection.fetchval(_ALONE):
                return False
            changed = [row["session_id"] for row in await connection.fetch(_TAKE)]
            self._crash_point("mid_listing")
            await connection.execute(_TELL, sorted(set(changed)))
            folded = await _fold_minutes(connection)
        return max(len(changed), folded) >= AT_ONCE


async def _fold_minutes(connection: Connection) -> int:
    """Add waiting changes to `listed_minutes`, the active and nearly full sessions per minute.

    Return the number of minutes.
    """
    rows = await connection.fetch(_UNFOLDED)
    if rows:
        columns = ([row[name] for row in rows] for name in ("minute", "sessions", "nearly_full"))
        await connection.execute(_FOLD, *columns)
        await connection.execute(_PRUNE_MINUTES)
    return len(rows)
