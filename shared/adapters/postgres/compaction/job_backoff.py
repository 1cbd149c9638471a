"""Store of a session's recent compaction jobs, its checkpoints, and of digests that become summaries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import asyncpg

from shared.adapters.postgres.compaction import jobs_sql as sql
from shared.adapters.postgres.compaction.jobs import (
    context_after,
    insert_compaction,
    move_view,
    spend_on,
    still_mine,
)
from shared.adapters.postgres.db.pool import Named, PoolStore, build_value, store_method
from shared.adapters.postgres.turns.view_state import load_hidden
from shared.core.context.build_context import LeftOut
from shared.core.session.ledger import ledger_from_json, ledger_to_json
from shared.core.session.session import CompactionBackoff
from shared.core.session.session_state import (
    Checkpoint,
    CompactionPace,
    CompactionStored,
    HiddenTurns,
    JobClaim,
    JobEnd,
    NewCompaction,
    SummaryEnd,
)
from shared.core.session.turns import Spending
from shared.core.values.errors import StaleView
from shared.core.verdicts.summaries import unusable_models

_ENDS = Named("""
SELECT trigger, state, faults, outcome, extract(epoch FROM now() - ended_at)::float8 AS age_seconds
  FROM (SELECT * FROM jobs WHERE session_id = :session_id AND kind = 'compact' AND trigger <> 'upgrade'
           AND state IN ('done', 'dead')
         ORDER BY id DESC LIMIT 100) lately
 ORDER BY ended_at DESC, id DESC LIMIT 12
""")
"""Select the session's newest ends of compaction jobs, the last to end first.

A delayed job, such as that of an idle session, may end after jobs with a higher id; 100 ids bound the search.
"""

WRITTEN_LATELY = 200
"""Maximum newest summaries and digests, of all sessions, that are examined for unusable answers."""
_WRITTEN = Named(
    """
SELECT model, coalesce(audit -> 'attempts', '[]') AS attempts, session_id, session_id = :session_id AS is_own,
       extract(epoch FROM now() - created_at)::float8 AS age_seconds
  FROM (SELECT id, model, audit, created_at, session_id FROM compactions
         WHERE kind IN ('summary', 'digest') AND trigger <> 'fork'
         ORDER BY id DESC LIMIT :written_lately) lately
 WHERE created_at > now() - interval '1 day' ORDER BY id DESC
""",
    written_lately=WRITTEN_LATELY,
)
"""Select the last day's newest summaries and digests of all sessions, with their attempts, newest first."""

_ACTIVITY = Named("""
SELECT extract(epoch FROM now() - last_active_at)::float8 AS idle_seconds,
       answered_turn < next_turn - 1 OR open_turn IS NOT NULL AS unanswered
  FROM sessions WHERE id = :session_id
""")

_USAGE = Named("""
SELECT coalesce(
         sum(cost_micro) FILTER (WHERE purpose = 'chat')
         / nullif(count(DISTINCT turn_no) FILTER (WHERE purpose = 'chat'), 0), 0)::float8 AS turn_micro,
       round(avg(output_tokens) FILTER (WHERE purpose = 'compact'))::int AS summary_tokens
  FROM (SELECT turn_no, purpose, cost_micro, output_tokens FROM usage
         WHERE session_id = :session_id AND status = 'done' ORDER BY id DESC LIMIT 200) lately
""")

_SAVE_CHECKPOINT = Named("""
INSERT INTO checkpoints (session_id, parent, from_turn, through_turn, ledger, audit, tokens, model,
                         cost_micro, job_id)
VALUES (:session_id, :parent, :from_turn, :through_turn, :ledger, :audit, :tokens, :model, :cost_micro,
        :job_id)
""")

_LAST_CHECKPOINT = Named("""
SELECT * FROM checkpoints WHERE session_id = :session_id AND parent IS NOT DISTINCT FROM :parent
   AND from_turn = :from_turn
 ORDER BY through_turn DESC, id DESC LIMIT 1
""")

_REPLACE = Named(
    "UPDATE compactions SET active = false WHERE id = :compaction_id AND active RETURNING parent"
)


class PostgresJobBackoff(PoolStore):
    """Store of compaction history; each method that writes is one transaction, reads share no snapshot.

    Each method raises StorageUnavailable.
    """

    @store_method
    async def load_pace(self, session_id: int) -> CompactionPace:
        """Return what decides when the session may compact again.

        These are the ends of its last 12 compaction jobs, summaries of all sessions of the last day, seconds
        since its last activity, whether a message is unanswered, and its usual costs. The session must exist.
        """
        ends = await self._pool.fetch(*_ENDS(session_id=session_id))
        activity = await self._pool.fetchrow(*_ACTIVITY(session_id=session_id))
        assert activity is not None
        written = await self._pool.fetch(*_WRITTEN(session_id=session_id))
        usage = await self._pool.fetchrow(*_USAGE(session_id=session_id))
        assert usage is not None
        return CompactionPace(
            written=tuple(map(_parse_summary_end, written)),
            ends=tuple(JobEnd(**dict(row)) for row in ends),
            idle_seconds=activity["idle_seconds"],
            unanswered=activity["unanswered"],
            turn_micro=usage["turn_micro"],
            summary_tokens=usage["summary_tokens"],
        )

    @store_method
    async def record_backoff(self, job: JobClaim, backoff: CompactionBackoff) -> None:
        """Pause automatic compaction of the job's session until `backoff` no longer holds or its view moves.

        Raises LeaseLost if another worker has the job.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            # The session is locked before the job, as everywhere; a lost claim rolls the update back.
            await connection.execute(
                *_RECORD_BACKOFF(session_id=job.session_id, backoff=asdict(backoff)),
            )
            await still_mine(connection, job)

    @store_method
    async def save_checkpoint(
        self, job: JobClaim, checkpoint: Checkpoint, *, spent: Sequence[Spending], contact_id: int
    ) -> None:
        """Store a checkpoint, a ledger that is written before its compaction, and book its model calls.

        `contact_id` is the person to whom the calls are charged. Raises LeaseLost if another worker has the
        job.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            await still_mine(connection, job)
            await connection.execute(
                *_SAVE_CHECKPOINT(
                    session_id=job.session_id, parent=checkpoint.parent, from_turn=checkpoint.from_turn,
                    through_turn=checkpoint.through_turn, ledger=ledger_to_json(checkpoint.ledger),
                    audit=dict(checkpoint.audit), tokens=checkpoint.tokens, model=checkpoint.model,
                    cost_micro=checkpoint.cost_micro, job_id=job.id,
                ),
            )  # fmt: skip
            await spend_on(connection, job, "compact", spent, contact_id)

    @store_method
    async def find_checkpoint(
        self, session_id: int, *, parent: int | None, from_turn: int
    ) -> Checkpoint | None:
        """Return the checkpoint that reaches furthest for this parent compaction and first turn.

        `parent` None means the beginning of the session. Returns None if there is no checkpoint.
        """
        row = await self._pool.fetchrow(
            *_LAST_CHECKPOINT(
                session_id=session_id,
                parent=parent,
                from_turn=from_turn,
            )
        )
        if row is None:
            return None
        return build_value(Checkpoint, row, ledger=ledger_from_json(row["ledger"]))

    @store_method
    async def find_digest(self, session_id: int, compaction_id: int) -> HiddenTurns | None:
        """Return the turns that a digest hides, as they were before.

        Returns None if the digest is not active, or is no longer the session's head.
        """
        async with self._pool.acquire() as connection, connection.transaction(isolation="repeatable_read"):
            row = await connection.fetchrow(*sql.STATE(session_id=session_id))
            compaction = await connection.fetchrow(*_DIGEST(compaction_id=compaction_id))
            if row is None or compaction is None or row["head"] != compaction_id:
                return None
            return await load_hidden(connection, row, compaction)

    @store_method
    async def replace_digest(
        self,
        job: JobClaim,
        compaction: NewCompaction,
        *,
        seen: HiddenTurns,
        spent: Sequence[Spending],
        left_out: LeftOut | None = None,
    ) -> CompactionStored:
        """Replace a digest by a summary of the same turns with the same parent, in one transaction.

        Also books `spent` and stores an event for the screens. `left_out` computes tokens that the policy
        leaves out of requests; None means none. Raises StaleView if the session's view has changed since
        `seen`, and LeaseLost if another worker has the job.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            session = await connection.fetchrow(*sql.LOCK_SESSION(session_id=job.session_id))
            await still_mine(connection, job)
            moved = session is None or session["view_epoch"] != seen.state.view.view_epoch
            if session is None or moved or session["head"] != seen.compaction_id:
                raise StaleView(f"session {job.session_id}")
            parent = await connection.fetchval(*_REPLACE(compaction_id=seen.compaction_id))
            row = await connection.fetchrow(*insert_compaction(compaction, job, parent))
            assert row is not None
            base = compaction.through_turn
            after = await context_after(
                connection, session, base, compaction.tokens, seen.state.fixed_tokens, left_out,
                talk_ratio=seen.state.talk_ratio,
            )  # fmt: skip
            await connection.execute(*_SET_SIZE(compaction_id=row["id"], after=after))
            await spend_on(connection, job, "compact", spent, seen.state.contact_id)
            await connection.execute(
                *_COUNT_COMPACTION(session_id=job.session_id),
            )
            return await move_view(
                connection, session, base=base, head=row["id"], redo=None, cycles=0, context_tokens=after,
                reserved=seen.state.reserved_tokens, hold=session["hold_compaction"], state="done",
                shown=row["id"], replaces=seen.compaction_id, token_scale=seen.state.learned_scale,
            )  # fmt: skip


def _parse_summary_end(row: asyncpg.Record) -> SummaryEnd:
    return SummaryEnd(
        model=row["model"], unusable=unusable_models(row["attempts"]), age_seconds=row["age_seconds"],
        session_id=row["session_id"], is_own=row["is_own"],
    )  # fmt: skip


_RECORD_BACKOFF = Named("UPDATE sessions SET compaction_backoff = :backoff WHERE id = :session_id")
_DIGEST = Named("SELECT * FROM compactions WHERE id = :compaction_id AND active AND kind = 'digest'")
_SET_SIZE = Named("UPDATE compactions SET tokens_after = :after WHERE id = :compaction_id")
_COUNT_COMPACTION = Named("""
UPDATE session_totals SET compaction_count = compaction_count + 1 WHERE session_id = :session_id
""")
