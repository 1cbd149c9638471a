"""Updates of `session_list`, a copy of sessions for sorting, by one worker at a time."""

from __future__ import annotations

from collections.abc import Callable

from shared.adapters.postgres.db.pool import Connection, Named, Pool, store_method

AT_ONCE = 500
"""Maximum changed sessions, and minutes, that one update processes."""
SLOW_SECONDS = 2
"""Seconds after which a turn that is still being answered is shown in the list before its answer ends."""
_ANY = Named(
    """
SELECT EXISTS (SELECT FROM session_list_changes)
    OR EXISTS (SELECT FROM turns t JOIN session_list l ON l.id = t.session_id
                WHERE t.ended_at IS NULL AND t.state = 'claimed'
                  AND t.opened_at < now() - :slow_seconds * interval '1 s' AND l.next_turn <= t.turn_no)
    OR EXISTS (SELECT FROM listed_minutes WHERE NOT is_folded)
""",
    slow_seconds=SLOW_SECONDS,
)
"""Select whether a row of the list may be out of date, or the count of a minute."""
_ALONE = "SELECT pg_try_advisory_xact_lock(hashtext('evertalk.session_list'))"
_TAKE = Named(
    """
WITH taken AS (
  DELETE FROM session_list_changes WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM session_list_changes LIMIT :limit)) RETURNING session_id
)
SELECT session_id FROM taken
UNION ALL (
SELECT t.session_id FROM turns t JOIN session_list l ON l.id = t.session_id
 WHERE t.ended_at IS NULL AND t.state = 'claimed' AND t.opened_at < now() - :slow_seconds * interval '1 s'
   AND l.next_turn <= t.turn_no LIMIT :limit)
""",
    limit=AT_ONCE,
    slow_seconds=SLOW_SECONDS,
)
"""Take sessions that have changed; select them, and those with a turn that is answered for SLOW_SECONDS."""
_UPDATE_ROWS = Named("""
WITH mine AS MATERIALIZED (
  SELECT id FROM session_list WHERE id = ANY (:ids::bigint[]) FOR NO KEY UPDATE SKIP LOCKED
), later AS (
  INSERT INTO session_list_changes
  SELECT id FROM session_list WHERE id = ANY (:ids::bigint[]) AND id NOT IN (SELECT id FROM mine)
)
UPDATE session_list l
   SET contact_id = x.contact_id, agent_id = x.agent_id, next_turn = x.next_turn,
       context_tokens = x.context_tokens, context_limit = x.context_limit, last_active_at = x.last_active_at,
       troubled_at = x.troubled_at, last_channel = x.last_channel, input_tokens = x.input_tokens,
       output_tokens = x.output_tokens, cache_read_tokens = x.cache_read_tokens,
       cache_write_tokens = x.cache_write_tokens, cost_micro = x.cost_micro,
       cost_unknown_calls = x.cost_unknown_calls
  FROM mine CROSS JOIN LATERAL (SELECT * FROM session_list_now n WHERE n.id = mine.id OFFSET 0) x
 WHERE l.id = x.id
   AND (l.contact_id, l.agent_id, l.next_turn, l.context_tokens, l.context_limit, l.last_active_at,
        l.troubled_at, l.last_channel, l.input_tokens, l.output_tokens, l.cache_read_tokens,
        l.cache_write_tokens, l.cost_micro, l.cost_unknown_calls)
       IS DISTINCT FROM
       (x.contact_id, x.agent_id, x.next_turn, x.context_tokens, x.context_limit, x.last_active_at,
        x.troubled_at, x.last_channel, x.input_tokens, x.output_tokens, x.cache_read_tokens,
        x.cache_write_tokens, x.cost_micro, x.cost_unknown_calls)
""")
"""Update rows of the list; the statement sees at least the changes that were taken before.

A row that a rename has locked is updated the next time.
"""

# All changes of a minute are taken at once, so that a decrease is never counted without its increase.
_UNFOLDED = Named(
    """
WITH taken AS (
  DELETE FROM listed_minutes WHERE NOT is_folded AND minute = ANY (ARRAY(
    SELECT minute FROM listed_minutes WHERE NOT is_folded LIMIT :limit))
  RETURNING minute, sessions, nearly_full
)
SELECT minute, sum(sessions)::int AS sessions, sum(nearly_full)::int AS nearly_full
  FROM taken GROUP BY minute
""",
    limit=AT_ONCE,
)
"""Take the changes of at most AT_ONCE minutes; select their sums by minute."""
_FOLD = Named("""
WITH given AS (
  SELECT * FROM unnest(:minutes::timestamptz[], :sessions::int[], :nearly_full::int[])
             AS g(minute, sessions, nearly_full)
), known AS (
  UPDATE listed_minutes m SET sessions = greatest(m.sessions + g.sessions, 0),
         nearly_full = greatest(m.nearly_full + g.nearly_full, 0)
    FROM given g WHERE m.is_folded AND m.minute = g.minute RETURNING m.minute
)
INSERT INTO listed_minutes (minute, sessions, nearly_full, is_folded)
SELECT minute, greatest(sessions, 0), greatest(nearly_full, 0), true FROM given
 WHERE minute NOT IN (SELECT minute FROM known) AND minute > now() - interval '25 hours'
""")
"""Add changes to the counts of their minutes, never below 0; minutes older than a day get no new row."""
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
        if not await self._pool.fetchval(*_ANY()):
            return False
        async with self._pool.acquire() as connection, connection.transaction():
            if not await connection.fetchval(_ALONE):
                return False
            changed = [row["session_id"] for row in await connection.fetch(*_TAKE())]
            self._crash_point("mid_listing")
            await connection.execute(*_UPDATE_ROWS(ids=sorted(set(changed))))
            folded = await _fold_minutes(connection)
        return max(len(changed), folded) >= AT_ONCE


async def _fold_minutes(connection: Connection) -> int:
    """Add waiting changes to `listed_minutes`, the active and nearly full sessions per minute.

    Return the number of minutes.
    """
    rows = await connection.fetch(*_UNFOLDED())
    if rows:
        await connection.execute(
            *_FOLD(
                minutes=[row["minute"] for row in rows],
                sessions=[row["sessions"] for row in rows],
                nearly_full=[row["nearly_full"] for row in rows],
            )
        )
        await connection.execute(_PRUNE_MINUTES)
    return len(rows)
