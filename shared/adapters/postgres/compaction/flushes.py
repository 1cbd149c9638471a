"""Queries of flushes: unread turns, and the tools and size of a session's last request.

`PostgresJobs` stores the begin and the end of a flush.
"""

from __future__ import annotations

import json

from shared.adapters.postgres.compaction import jobs_sql as sql
from shared.adapters.postgres.db.pool import Named, PoolStore, store_method
from shared.adapters.postgres.turns.view_state import load_hidden
from shared.core.compaction.jobs import LATE
from shared.core.session.session_state import HiddenTurns
from shared.ports import ToolSpec

_COMPACTION_OF_TURN = Named("""
SELECT * FROM compactions
 WHERE session_id = :session_id AND active AND from_turn <= :turn AND through_turn >= :turn
""")

_SIZE_AFTER = Named("""
SELECT c.context_tokens FROM sessions s
  JOIN turn_context_audit c ON c.session_id = s.id AND c.turn_id = :turn AND c.model_alias = s.measured_by
 WHERE s.id = :session_id AND c.base_turn = s.base_turn AND c.head IS NOT DISTINCT FROM s.head
   AND c.reported_input_tokens IS NOT NULL
   AND NOT EXISTS (SELECT FROM prune_decisions d WHERE d.session_id = :session_id AND d.turn_no > :turn)
 ORDER BY c.id DESC LIMIT 1
""")
_LAST_TOOLS = Named("""
SELECT p.body FROM turn_context_audit a
 CROSS JOIN LATERAL jsonb_array_elements_text(a.part_hashes) WITH ORDINALITY h(hash, place)
  JOIN prompt_parts p ON p.sha256 = decode(h.hash, 'hex')
 WHERE a.session_id = :session_id AND a.turn_id =
   (SELECT max(turn_id) FROM turn_context_audit WHERE session_id = :session_id)
   AND p.body LIKE '[{%'
 ORDER BY a.id DESC, h.place DESC LIMIT 1
""")
"""Tools of the newest request of a session, as JSON; no row without a request or without tools."""

_DEAD_REST = "1 hour"
"""Interval before a failed late flush is repeated; each attempt costs a call."""

_ASK_FOR_OWED = Named(
    """
INSERT INTO jobs (kind, session_id, key, trigger, payload)
SELECT 'flush', s.id, 'flush:' || s.id || ':' || :late, :late, jsonb_build_object('threshold', :late)
  FROM sessions s
 WHERE s.flushed_turn < s.base_turn AND NOT EXISTS (
       SELECT FROM jobs j WHERE j.session_id = s.id AND j.state IN ('due', 'running') AND j.kind = 'flush')
   AND NOT EXISTS (
       SELECT FROM jobs j WHERE j.session_id = s.id AND j.trigger = :late AND j.state = 'dead'
          AND j.ended_at > now() - interval :dead_rest)
 ORDER BY s.id LIMIT :limit
ON CONFLICT (key) WHERE state IN ('due', 'running') DO NOTHING RETURNING id
""",
    late=LATE,
    dead_rest=_DEAD_REST,
)
"""Insert a flush job for sessions with hidden turns that no flush has read.

Inserts none within _DEAD_REST after a failed flush.
"""


class PostgresFlushes(PoolStore):
    """Queries of a flush about its session; only `request_owed_flushes` writes.

    Each method raises StorageUnavailable.
    """

    @store_method
    async def find_unflushed(self, session_id: int) -> HiddenTurns | None:
        """Return the range of turns of the first compaction that hid turns before a flush had read them.

        Returns None if there is none, or if the session does not exist. Changes nothing.
        """
        async with self._pool.acquire() as connection, connection.transaction(isolation="repeatable_read"):
            row = await connection.fetchrow(*sql.STATE(session_id=session_id))
            if row is None or row["flushed_turn"] >= row["base_turn"]:
                return None
            compaction = await connection.fetchrow(
                *_COMPACTION_OF_TURN(
                    session_id=session_id,
                    turn=row["flushed_turn"] + 1,
                )
            )
            return None if compaction is None else await load_hidden(connection, row, compaction)

    @store_method
    async def seconds_since_flush(self, session_id: int) -> float | None:
        """Return the seconds since the session's last successful flush ended; None if there was none.

        Successful is also a flush that found nothing to save.
        """
        seconds: float | None = await self._pool.fetchval(
            *_SECONDS_SINCE(session_id=session_id),
        )
        return seconds

    @store_method
    async def load_last_tools(self, session_id: int) -> tuple[ToolSpec, ...] | None:
        """Return the tools of the newest turn's last request, as they were stored with it.

        Returns None if that turn had no request, or a request without tools.
        """
        body: str | None = await self._pool.fetchval(*_LAST_TOOLS(session_id=session_id))
        if body is None:
            return None
        return tuple(
            ToolSpec(
                name=tool["name"],
                description=tool["description"],
                input_schema=tool["input_schema"],
                provider=tool.get("provider"),
            )
            for tool in json.loads(body)
        )

    @store_method
    async def find_size_after(self, session_id: int, turn: int) -> int | None:
        """Return the measured tokens of the context after a turn, counted by the session's model.

        Returns None if that model reported no count for the turn, if the view has changed since, or if
        results were pruned after the turn.
        """
        size: int | None = await self._pool.fetchval(*_SIZE_AFTER(session_id=session_id, turn=turn))
        return size

    @store_method
    async def request_owed_flushes(self, *, limit: int = 50) -> list[int]:
        """Insert flush jobs for at most `limit` sessions with hidden turns that no flush has read.

        A session with a waiting flush gets none, nor one whose last such job failed within an hour. Returns
        the new jobs' ids.
        """
        return [row["id"] for row in await self._pool.fetch(*_ASK_FOR_OWED(limit=limit))]


_SECONDS_SINCE = Named("""
SELECT extract(epoch FROM now() - max(ended_at))::float8 FROM flushes
 WHERE session_id = :session_id AND outcome IN ('saved', 'nothing')
""")
