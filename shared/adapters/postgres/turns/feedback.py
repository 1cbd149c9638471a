"""Opinions on answers: one per turn, from every channel, with a text."""

from __future__ import annotations

from dataclasses import dataclass

import asyncpg

from shared.adapters.postgres.db.pool import store_method

OPINIONS = {1: "good", -1: "bad", 0: None}
VALUES = {"good": 1, "bad": -1, None: 0}
CIDS_KEPT = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedbackResult:
    """An opinion as it is now; `event_seq` only when screens must hear of it."""

    mid: str
    turn: int
    value: int
    event_seq: int | None = None
    repeated: bool = False


class PostgresFeedback:
    """Each method is one transaction; raises StorageUnavailable."""

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record]) -> None:
        self._pool = pool

    @store_method
    async def judge(
        self, session_id: int, *, seq: int, value: int, words: str, cid: str, source: str
    ) -> FeedbackResult | None:
        """1, -1, or 0 to take it back; None when the session has no such answer."""
        async with self._pool.acquire() as connection, connection.transaction():
            await connection.fetchval("SELECT id FROM sessions WHERE id = $1 FOR UPDATE", session_id)
            turn: int | None = await connection.fetchval(_TURN_OF, session_id, seq)
            if turn is None:
                return None
            known = await connection.fetchrow(_KNOWN, session_id, turn)
            before = VALUES[known["opinion"]] if known else 0
            if known is not None and cid in known["cids"]:
                return FeedbackResult(mid=f"m{seq}", turn=turn, value=before, repeated=True)
            await connection.execute(
                _RECORD, session_id, turn, OPINIONS[value], source, words, [cid], CIDS_KEPT
            )
            number = None
            if value != before:
                number = await connection.fetchval(_TELL, session_id, turn, f"m{seq}", value, cid)
        return FeedbackResult(mid=f"m{seq}", turn=turn, value=value, event_seq=number)

    @store_method
    async def record_feedback(self, session_id: int, words: str, *, source: str) -> bool:
        """Words about the newest answer, behind those said before; False when there is no answer yet."""
        told = await self._pool.fetchval(_SAY, session_id, words, source)
        return told is not None

    @store_method
    async def record_opinion(self, session_id: int, turn: int, opinion: str | None, *, source: str) -> None:
        """The opinion of a whole turn; None takes it back."""
        async with self._pool.acquire() as connection, connection.transaction():
            await connection.fetchval("SELECT id FROM sessions WHERE id = $1 FOR UPDATE", session_id)
            known = await connection.fetchrow(_KNOWN, session_id, turn)
            before = known["opinion"] if known else None
            await connection.execute(_RECORD, session_id, turn, opinion, source, "", [], CIDS_KEPT)
            await connection.execute(_FORGET_EMPTY, session_id, turn)
            seq: int | None = await connection.fetchval(_ANSWER_OF, session_id, turn)
            if opinion != before and seq is not None:
                await connection.fetchval(_TELL, session_id, turn, f"m{seq}", VALUES[opinion], None)


_TURN_OF = """
SELECT te.turn_no FROM entries e JOIN turn_entries te USING (session_id, seq)
 WHERE e.session_id = $1 AND e.seq = $2 AND e.author = 'assistant' LIMIT 1
"""
_ANSWER_OF = """
SELECT max(e.seq) FROM entries e JOIN turn_entries te USING (session_id, seq)
 WHERE te.session_id = $1 AND te.turn_no = $2 AND e.author = 'assistant'
"""
_KNOWN = "SELECT opinion, cids FROM feedback WHERE session_id = $1 AND turn_no = $2"
_RECORD = """
INSERT INTO feedback AS f (session_id, turn_no, opinion, source, words, cids) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (session_id, turn_no) DO UPDATE
   SET opinion = excluded.opinion, source = excluded.source, at = now(),
       words = concat_ws(E'\\n', nullif(f.words, ''), nullif(excluded.words, '')),
       cids = (excluded.cids || f.cids)[1:$7]
"""
_FORGET_EMPTY = """
DELETE FROM feedback
 WHERE session_id = $1 AND turn_no = $2 AND opinion IS NULL AND words = '' AND cids = '{}'
"""
_SAY = """
INSERT INTO feedback AS f (session_id, turn_no, opinion, source, words)
SELECT t.session_id, t.turn_no, NULL, $3, $2 FROM turns t
 WHERE t.session_id = $1 AND t.state IN ('answered', 'stopped') ORDER BY t.turn_no DESC LIMIT 1
ON CONFLICT (session_id, turn_no) DO UPDATE
   SET at = now(), words = concat_ws(E'\\n', nullif(f.words, ''), excluded.words)
RETURNING turn_no
"""
_TELL = """
WITH s AS (
  UPDATE sessions SET next_event_seq = next_event_seq + 1 WHERE id = $1
  RETURNING next_event_seq - 1 AS event_seq
)
INSERT INTO events (session_id, event_seq, kind, payload)
SELECT $1, event_seq, 'feedback', jsonb_strip_nulls(jsonb_build_object(
         'mid', $3::text, 'turn', $2::bigint, 'value', $4::integer, 'cid', $5::text)) FROM s
RETURNING event_seq
"""
