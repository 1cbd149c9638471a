"""Store of sample conversations that are played into sessions, message by message."""

from __future__ import annotations

from shared.adapters.postgres.db.pool import Named, PoolStore, store_method
from shared.adapters.postgres.turns import turn_sql
from shared.adapters.postgres.turns.turns import build_message_arguments
from shared.core.session.turns import Inbound
from shared.samples import SAMPLE_CID, SAMPLE_KEY, SamplePlay, StoppedSample

_AT_ONCE = 50


class PostgresSamples(PoolStore):
    """Store of samples; each method is one transaction and raises StorageUnavailable."""

    @store_method
    async def start(self, session_id: int, address_id: int, *, total: int) -> bool:
        """Start a sample of `total` messages; return False if the session already has one."""
        return (
            await self._pool.fetchval(
                *_START(
                    session_id=session_id,
                    address_id=address_id,
                    total=total,
                )
            )
            is not None
        )

    @store_method
    async def list_due(self, channel: str) -> tuple[SamplePlay, ...]:
        """Return at most 50 samples of a channel whose previous turn is answered."""
        return tuple(
            SamplePlay(**dict(row))
            for row in await self._pool.fetch(
                *_DUE(
                    channel=channel,
                    limit=_AT_ONCE,
                )
            )
        )

    @store_method
    async def accept_next(
        self, play: SamplePlay, inbound: Inbound, *, channel: str, tokens: int
    ) -> int | None:
        """Store the next message and return its event's number.

        Returns None if another process was first, if the sample has ended, or if a turn waits for its
        answer.
        """
        arguments = build_message_arguments(inbound, channel, tokens)
        session_id = play.session_id
        async with self._pool.acquire() as connection, connection.transaction():
            if not await connection.fetchval(*_LOCK_PLAY(session_id=session_id, played=play.played)):
                return None
            if not await connection.fetchval(*_LOCK_IDLE_SESSION(session_id=session_id)):
                return None
            row = await connection.fetchrow(*turn_sql.ACCEPT(**arguments))
            if row is None:
                return None
            await connection.execute(*_COUNT_PLAYED(session_id=session_id))
        return int(row["event_seq"])

    @store_method
    async def stop(self, session_id: int) -> StoppedSample | None:
        """Stop a sample and return the entries that it produced; None if there is none."""
        row = await self._pool.fetchrow(*_STOP(session_id=session_id))
        if row is None:
            return None
        return StoppedSample(
            seqs=tuple(row["seqs"]), begun_turn=row["begun_turn"], has_own_talk=row["has_own_talk"]
        )

    @store_method
    async def remove(self, session_id: int) -> None:
        """Delete the record of a sample, after its messages were erased; another may then start."""
        await self._pool.execute(*_REMOVE(session_id=session_id))


_START = Named("""
INSERT INTO sample_plays (session_id, address_id, begun_turn, total)
SELECT id, :address_id, next_turn, :total FROM sessions WHERE id = :session_id ON CONFLICT DO NOTHING
   RETURNING session_id
""")
_DUE = Named("""
SELECT p.session_id, p.address_id, p.begun_turn, p.played, p.total
  FROM sample_plays p JOIN sessions s ON s.id = p.session_id
  JOIN addresses a ON a.id = p.address_id AND a.session_id = s.id
 WHERE p.played < p.total AND a.channel = :channel AND s.answered_turn = s.next_turn - 1
   AND s.archived_at IS NULL AND s.held_after IS NULL
   AND NOT EXISTS (SELECT FROM jobs j WHERE j.session_id = p.session_id AND j.kind = 'compact'
                      AND (j.state = 'running' OR j.state = 'due'
                           AND j.due_at BETWEEN now() - interval '10 s' AND now()))
 ORDER BY p.started_at LIMIT :limit
""")
"""Select due samples.

The next message waits for a due summary, so that the context that it summarises is shown.
"""
_LOCK_PLAY = Named("""
SELECT true FROM sample_plays
 WHERE session_id = :session_id AND played = :played AND played < total FOR UPDATE
""")
_LOCK_IDLE_SESSION = Named("""
SELECT true FROM sessions WHERE id = :session_id AND answered_turn = next_turn - 1 FOR NO KEY UPDATE
""")
_COUNT_PLAYED = Named("UPDATE sample_plays SET played = played + 1 WHERE session_id = :session_id")
_STOP = Named(
    """
WITH p AS (
  UPDATE sample_plays SET total = played WHERE session_id = :session_id RETURNING begun_turn
), said AS (
  SELECT te.seq, te.turn_no FROM p, entry_rows e JOIN turn_entries te USING (session_id, seq)
   WHERE e.session_id = :session_id AND (starts_with(e.dedupe_key, :sample_key || p.begun_turn || '-')
                                OR e.dedupe_key = 'web:' || :sample_cid || p.begun_turn || '-ask')
)
SELECT (SELECT coalesce(array_agg(te.seq ORDER BY te.seq), '{}')
          FROM turn_entries te JOIN entry_rows e USING (session_id, seq)
         WHERE te.session_id = :session_id AND te.turn_no IN (SELECT turn_no FROM said)
           AND (e.author <> 'person' OR te.seq IN (SELECT seq FROM said))) AS seqs,
       begun_turn,
       EXISTS (SELECT FROM turn_entries te JOIN entries e USING (session_id, seq)
                 JOIN sessions s ON s.id = te.session_id
                WHERE te.session_id = :session_id AND te.turn_no > s.erased_turn AND e.author = 'person'
                  AND e.blocks <> erased_blocks(e.blocks) AND te.seq NOT IN (SELECT seq FROM said)
              ) AS has_own_talk
  FROM p
""",
    sample_key=SAMPLE_KEY,
    sample_cid=SAMPLE_CID,
)
"""Stop a sample, and select its own entries; messages that the person wrote meanwhile are not among them."""
_REMOVE = Named("DELETE FROM sample_plays WHERE session_id = :session_id")
