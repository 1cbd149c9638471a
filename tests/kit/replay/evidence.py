"""Reads from Postgres what became of a played conversation, to compare with what the screen showed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shared.adapters.postgres.db.pool import open_pool

if TYPE_CHECKING:
    import asyncpg

JOBS_SECONDS = 300.0
SQL_SECONDS = 30.0

_SESSION = "SELECT id FROM sessions WHERE public_id = $1::uuid"

_JOBS_LEFT = """
SELECT count(*) FROM jobs WHERE (state = 'running' OR state = 'due' AND due_at <= now())
   AND session_id IN (SELECT id FROM sessions WHERE public_id = ANY ($1::uuid[]))
"""

_MESSAGES = """
SELECT e.cid, e.seq, te.turn_no, t.state, t.ended_at IS NOT NULL AS ended,
       (SELECT count(*) FROM events v
         WHERE v.session_id = e.session_id AND v.turn_no = te.turn_no AND v.kind = 'msg'
           AND NOT v.payload ? 'waiting'
           AND NOT EXISTS (SELECT FROM entries p WHERE p.session_id = v.session_id AND p.seq = v.seq
                              AND p.author = 'person')) AS finals
  FROM entries e JOIN turn_entries te USING (session_id, seq)
  JOIN turns t ON t.session_id = e.session_id AND t.turn_no = te.turn_no
 WHERE e.session_id = $1 AND e.author = 'person' ORDER BY e.seq
"""

_ORDER = """
SELECT (SELECT coalesce(max(event_seq), 0) - count(*) FROM events WHERE session_id = $1) AS holes,
       (SELECT count(*) FROM (
          SELECT turn_no < lag(turn_no) OVER (ORDER BY seq) AS wrong
            FROM turn_entries JOIN entries USING (session_id, seq)
           WHERE session_id = $1 AND author = 'person') x WHERE wrong) AS messages,
       (SELECT count(*) FROM (
          SELECT v.turn_no < lag(v.turn_no) OVER (ORDER BY v.event_seq) AS wrong
            FROM events v JOIN entries e USING (session_id, seq)
           WHERE v.session_id = $1 AND v.kind = 'msg' AND e.author = 'assistant') x WHERE wrong) AS answers
"""

# A request comes before the commit of a compaction if the view that it was built from lacks that compaction.
# Times cannot tell this, since a transaction carries the time at which it began.
_CONTEXT = """
WITH a AS (
  SELECT c.*, coalesce(c.reported_input_tokens, c.estimated_input_tokens_after_prune) AS tokens,
         greatest(c.reported_input_tokens, c.estimated_input_tokens_after_prune) AS most_tokens, t.claimed_at
    FROM turn_context_audit c JOIN turns t ON t.session_id = c.session_id AND t.turn_no = c.turn_id
   WHERE c.session_id = $1
), top AS (SELECT max(input_budget) AS most, max(hard_limit) AS hard FROM a)
SELECT coalesce(max(tokens), 0) AS max_context, coalesce(max(input_budget), 0) AS most,
       coalesce(max(hard_limit), 0) AS hard,
       count(*) FILTER (WHERE most_tokens > hard_limit) + (
         SELECT count(*) FROM usage u, top
          WHERE u.session_id = $1 AND u.purpose IN ('chat', 'flush')
            AND u.input_tokens + u.cache_read_tokens + u.cache_write_tokens > top.hard
            AND NOT EXISTS (SELECT FROM a x WHERE x.turn_id = u.turn_no AND x.most_tokens > x.hard_limit)
       ) AS over_hard,
       count(*) FILTER (WHERE tokens > input_budget) AS over_limit,
       count(*) FILTER (WHERE tokens > input_budget AND NOT EXISTS (
         SELECT FROM jobs j LEFT JOIN compactions l ON l.job_id = j.id
          WHERE j.session_id = $1 AND j.kind = 'compact' AND j.created_at <= a.created_at
            AND CASE WHEN l.id IS NULL THEN coalesce(j.ended_at, 'infinity') >= a.claimed_at
                     ELSE l.from_turn = a.base_turn + 1 END)) AS over_limit_outside
  FROM a
"""

_UPKEEP = """
SELECT (SELECT count(*) FROM flushes WHERE session_id = $1 AND outcome IN ('saved', 'nothing')) AS flushes,
       (SELECT count(*) FROM flushes WHERE session_id = $1 AND outcome NOT IN ('saved', 'nothing'))
         AS flushes_failed,
       (SELECT count(*) FROM compactions WHERE session_id = $1
           AND kind IN ('summary', 'digest')) AS compactions,
       (SELECT count(*) FROM compactions WHERE session_id = $1 AND kind = 'digest') AS digests,
       (SELECT count(*) FROM notes WHERE session_id = $1) AS notes,
       (SELECT count(*) FROM jobs WHERE session_id = $1) AS jobs,
       (SELECT count(*) FROM jobs WHERE session_id = $1 AND state = 'dead') AS jobs_dead,
       (SELECT count(*) FROM turns WHERE session_id = $1) AS turns,
       t.cost_micro, t.cost_unknown_calls
  FROM session_totals t WHERE t.session_id = $1
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageEvidence:
    """A person's message as Postgres has it."""

    cid: str
    turn: int
    ended: bool
    finals: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    messages: tuple[MessageEvidence, ...]
    misplaced: int
    """Number of missing event numbers, and of messages and answers stored before an earlier one."""
    max_context: int
    limit: int
    hard: int
    over_hard: int
    over_limit: int
    over_limit_outside: int
    flushes: int
    flushes_failed: int
    compactions: int
    digests: int
    notes: int
    turns: int
    jobs: int
    jobs_dead: int
    cost_micro: int
    unknown_calls: int


class DatabaseProbe:
    """Reads a database after the conversations are over, without changing it."""

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record]) -> None:
        self._pool = pool

    @classmethod
    async def connect(cls, database_url: str) -> DatabaseProbe:
        return cls(await open_pool(database_url, size=2))

    async def close(self) -> None:
        async with asyncio.timeout(10):
            await self._pool.close()

    async def wait_for_jobs(self, sessions: Sequence[str]) -> int:
        """Wait until no job of these sessions is due or running, at most `JOBS_SECONDS`.

        Return the number left.
        """
        until = asyncio.get_running_loop().time() + JOBS_SECONDS
        while True:
            left = int(await self._pool.fetchval(_JOBS_LEFT, sessions, timeout=SQL_SECONDS))
            if not left or asyncio.get_running_loop().time() > until:
                return left
            await asyncio.sleep(0.2)

    async def collect(self, session: str) -> Evidence | None:
        """Return the evidence on a session; None if this database has no such session."""
        id_ = await self._pool.fetchval(_SESSION, session, timeout=SQL_SECONDS)
        if id_ is None:
            return None
        rows = await self._pool.fetch(_MESSAGES, id_, timeout=SQL_SECONDS)
        order, context, upkeep = [await self._row(sql, id_) for sql in (_ORDER, _CONTEXT, _UPKEEP)]
        return Evidence(
            messages=tuple(
                MessageEvidence(cid=row["cid"], turn=row["turn_no"], ended=row["ended"], finals=row["finals"])
                for row in rows
            ),
            misplaced=sum(order.values()),
            max_context=context["max_context"],
            limit=context["most"],
            hard=context["hard"],
            over_hard=context["over_hard"],
            over_limit=context["over_limit"],
            over_limit_outside=context["over_limit_outside"],
            unknown_calls=upkeep["cost_unknown_calls"],
            **{name: value for name, value in upkeep.items() if name != "cost_unknown_calls"},
        )

    async def _row(self, sql: str, session_id: int) -> Mapping[str, Any]:
        row = await self._pool.fetchrow(sql, session_id, timeout=SQL_SECONDS)
        return dict(row) if row is not None else {}
