"""Store of the compaction hook's messages: one before and one after each job that writes a summary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shared.adapters.postgres.db.pool import Named, PoolStore, Record, build_value, store_method
from shared.core.compaction.hooks import HOOK_EXPIRES_HOURS, MOST_HOOK_TRIES, HookMessage
from shared.core.ops.alerts import NotSent, Outcome, Sent, wait_seconds
from shared.core.session.session_state import JobClaim

LEASE_SECONDS = 60.0
"""Seconds after which a claimed message may be claimed again, unless its outcome was stored."""

# A summary is skipped at most once in a cycle. An attempt after a crash finds the message of the first
# attempt; a job that an operator retries after its end is announced again.
_BEGIN = Named("""
WITH open AS (
  SELECT * FROM compaction_hooks WHERE job_id = :job_id AND awaits_end
), made AS (
  INSERT INTO compaction_hooks (session_id, job_id, cycle, phase, detail, awaits_end, attempts, due_at, round)
  SELECT :session_id, :job_id, :cycle, 'before',
         jsonb_set(:detail::jsonb, '{may_skip}', to_jsonb(
           (:detail::jsonb ->> 'may_skip')::boolean AND NOT EXISTS (
             SELECT FROM compaction_hooks o
              WHERE o.session_id = :session_id AND o.cycle = :cycle AND o.skip))),
         true, (:seconds::float8 > 0)::int, now() + make_interval(secs => :seconds::float8),
         1 + (SELECT coalesce(max(o.round), 0) FROM compaction_hooks o WHERE o.job_id = :job_id)
   WHERE NOT EXISTS (SELECT FROM open) RETURNING *
)
SELECT h.id, h.send_key::text AS send_key, h.phase, h.job_id, h.detail, h.created_at, h.state, h.skip,
       h.attempts, (SELECT s.public_id::text FROM sessions s WHERE s.id = h.session_id) AS session
  FROM (SELECT * FROM open UNION ALL SELECT * FROM made) h
""")
"""Return the job's open message, or insert one.

In each cycle at most one message may ask to skip the summary.
"""

# The message after a job is stored however the job ended, and has the same form at every attempt.
_ADD_ENDS = """
WITH ended AS (
  UPDATE compaction_hooks b SET awaits_end = false
    FROM (SELECT o.id FROM compaction_hooks o LEFT JOIN jobs j ON j.id = o.job_id
           WHERE o.awaits_end AND (j.id IS NULL OR j.state IN ('done', 'dead'))
           ORDER BY o.id LIMIT 200 FOR UPDATE OF o SKIP LOCKED) found
   WHERE b.id = found.id RETURNING b.*
)
INSERT INTO compaction_hooks (session_id, job_id, cycle, phase, round, compaction_id, detail)
SELECT e.session_id, e.job_id, e.cycle, 'after', e.round, l.id, jsonb_build_object(
         'agent', e.detail -> 'agent', 'trigger', e.detail -> 'trigger',
         'outcome', CASE WHEN l.id IS NOT NULL THEN 'done' WHEN e.skip THEN 'skipped'
                         WHEN j.state = 'done' THEN 'nothing' ELSE 'failed' END,
         'reason', CASE WHEN l.id IS NULL THEN left(j.outcome ->> 'nothing', 40) END,
         'kind', l.kind, 'summary', l.public_id, 'model', l.model, 'turns', l.through_turn - l.from_turn + 1,
         'tokens_before', l.tokens_before, 'tokens_after', l.tokens_after)
  FROM ended e LEFT JOIN jobs j ON j.id = e.job_id
  LEFT JOIN LATERAL (SELECT * FROM compactions x WHERE x.session_id = e.session_id AND x.job_id = e.job_id
                      ORDER BY x.id DESC LIMIT 1) l ON true
ON CONFLICT (job_id, phase, round) DO NOTHING
"""
"""Insert the message after each announced job that has ended."""

_CLAIM = Named(
    """
WITH due AS (
  SELECT id FROM compaction_hooks WHERE state = 'due' AND due_at <= now() ORDER BY due_at, id LIMIT :most
     FOR UPDATE SKIP LOCKED
), h AS (
  UPDATE compaction_hooks c
     SET attempts = c.attempts + 1, due_at = now() + make_interval(secs => :lease_seconds)
    FROM due WHERE c.id = due.id RETURNING c.*
)
SELECT h.id, h.send_key::text AS send_key, h.phase, h.job_id, h.detail, h.created_at, h.state, h.skip,
       h.attempts, (SELECT s.public_id::text FROM sessions s WHERE s.id = h.session_id) AS session,
       CASE WHEN :with_summary THEN (SELECT l.summary_text FROM compactions l
                                 WHERE l.id = h.compaction_id) END AS summary
  FROM h ORDER BY h.id
""",
    lease_seconds=LEASE_SECONDS,
)
"""Claim due messages for one process; one without outcome is due again after LEASE_SECONDS."""

_END = Named("""
UPDATE compaction_hooks SET state = :state, error = :code, skip = :skip, ended_at = now()
 WHERE id = :id AND state = 'due'
""")
_AGAIN = Named(
    """
UPDATE compaction_hooks
   SET error = :code, due_at = now() + make_interval(secs => :seconds),
       state = CASE WHEN created_at < now() - make_interval(hours => :expires_hours) THEN 'failed'
                    ELSE 'due' END,
       ended_at = CASE WHEN created_at < now() - make_interval(hours => :expires_hours) THEN now() END
 WHERE id = :id AND state = 'due'
""",
    expires_hours=HOOK_EXPIRES_HOURS,
)
"""Make a message due again that did not arrive; one older than `expires_hours` has failed."""

_TROUBLES = """
SELECT error, count(*) AS number FROM compaction_hooks
 WHERE error <> '' AND created_at > now() - interval '1 day' GROUP BY error ORDER BY number DESC, error
"""


class PostgresCompactionHooks(PoolStore):
    """Store of hook messages; each method is one transaction and raises StorageUnavailable."""

    @store_method
    async def begin(
        self, job: JobClaim, *, cycle: int, detail: Mapping[str, Any], wait_seconds: float
    ) -> HookMessage:
        """Store the message that announces a summary, and return it; the caller sends it.

        A repeated attempt at the job gets the stored message. With `wait_seconds` 0 the caller does not send:
        a worker does at once. Else a worker sends it only if no outcome is stored within these seconds. The
        message may ask to skip the summary at most once per cycle.
        """
        row = await self._pool.fetchrow(
            *_BEGIN(
                session_id=job.session_id, job_id=job.id, cycle=cycle, detail=dict(detail),
                seconds=wait_seconds,
            )
        )  # fmt: skip
        assert row is not None
        return _build(row)

    @store_method
    async def record_outcome(self, message: HookMessage, outcome: Outcome, *, skip: bool) -> None:
        """Store the outcome of an attempt; no effect if the message has ended.

        A message that surely did not arrive is due again after a growing delay, up to MOST_HOOK_TRIES
        attempts and HOOK_EXPIRES_HOURS. Any other failure ends it. `skip` says that the receiver asked to
        skip the summary.
        """
        if isinstance(outcome, NotSent) and message.attempts < MOST_HOOK_TRIES:
            seconds = max(wait_seconds(message.attempts), min(outcome.retry_after or 0.0, 3_600.0))
            await self._pool.execute(*_AGAIN(id=message.id, code=outcome.code, seconds=seconds))
            return
        state, code = ("sent", "") if isinstance(outcome, Sent) else ("failed", outcome.code)
        await self._pool.execute(*_END(id=message.id, state=state, code=code, skip=skip))

    @store_method
    async def add_ends(self) -> int:
        """Insert the message after each announced job that has ended, at most 200; return their number."""
        return int((await self._pool.execute(_ADD_ENDS)).rpartition(" ")[2])

    @store_method
    async def claim(self, *, most: int, with_summary: bool) -> list[HookMessage]:
        """Claim and return at most `most` due messages; no other process gets them for LEASE_SECONDS.

        The caller sends them and calls `record_outcome`. `with_summary` adds the summary's text to messages
        about its end.
        """
        rows = await self._pool.fetch(*_CLAIM(most=most, with_summary=with_summary))
        return [_build(row, summary=row["summary"]) for row in rows]

    @store_method
    async def list_troubles(self) -> list[tuple[str, int]]:
        """Return (error code, number of messages) of the last day's failures, the most frequent first."""
        return [(row["error"], row["number"]) for row in await self._pool.fetch(_TROUBLES)]


def _build(row: Record, *, summary: str | None = None) -> HookMessage:
    return build_value(HookMessage, row, summary=summary)
