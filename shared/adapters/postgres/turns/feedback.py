"""Store of opinions on answers: one per turn from all channels, with an optional text."""

from __future__ import annotations

from dataclasses import dataclass

from shared.adapters.postgres.db.pool import Named, PoolStore, store_method

OPINIONS = {1: "good", -1: "bad", 0: None}
"""Stored opinion by the value that a client sends."""
VALUES = {"good": 1, "bad": -1, None: 0}
"""Value that a client receives by the stored opinion."""
CIDS_KEPT = 8
"""Client ids of the newest requests kept per turn, by which repeats are recognised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedbackResult:
    """Stored opinion on an answer: `value` is 1 for good, -1 for bad, 0 for none.

    `event_seq` is the number of the event for other screens, None if nothing changed for them. `repeated`
    says that the request was a repeat.
    """

    mid: str
    turn: int
    value: int
    event_seq: int | None = None
    repeated: bool = False


class PostgresFeedback(PoolStore):
    """Store of opinions on answers; each method is one transaction and raises StorageUnavailable."""

    @store_method
    async def judge(
        self, session_id: int, *, seq: int, value: int, words: str, cid: str, source: str
    ) -> FeedbackResult | None:
        """Store a rating of the answer `seq`: 1 is good, -1 is bad, and 0 removes it.

        `words` is a text, "" for none; it is appended to earlier ones. A changed rating is stored as an event
        for other screens. Returns None if the session has no such answer. A repeated `cid` changes nothing.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            await connection.fetchval(*_LOCK_SESSION(session_id=session_id))
            turn: int | None = await connection.fetchval(*_TURN_OF(session_id=session_id, seq=seq))
            if turn is None:
                return None
            known = await connection.fetchrow(*_KNOWN(session_id=session_id, turn=turn))
            before = VALUES[known["opinion"]] if known else 0
            if known is not None and cid in known["cids"]:
                return FeedbackResult(mid=f"m{seq}", turn=turn, value=before, repeated=True)
            await connection.execute(
                *_RECORD(
                    session_id=session_id,
                    turn=turn,
                    opinion=OPINIONS[value],
                    source=source,
                    words=words,
                    cids=[cid],
                    cids_kept=CIDS_KEPT,
                )
            )
            number = None
            if value != before:
                number = await connection.fetchval(
                    *_TELL(
                        session_id=session_id,
                        turn=turn,
                        mid=f"m{seq}",
                        value=value,
                        cid=cid,
                    )
                )
        return FeedbackResult(mid=f"m{seq}", turn=turn, value=value, event_seq=number)

    @store_method
    async def record_feedback(self, session_id: int, words: str, *, source: str) -> bool:
        """Append a text about the newest answer to earlier ones; return False if there is no answer yet.

        The rating stays as it is, and screens are not notified.
        """
        told = await self._pool.fetchval(*_SAY(session_id=session_id, words=words, source=source))
        return told is not None

    @store_method
    async def record_opinion(self, session_id: int, turn: int, opinion: str | None, *, source: str) -> None:
        """Store the opinion `good` or `bad` on a whole turn; None removes it.

        If the opinion changed and the turn has an answer, an event for other screens is stored.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            await connection.fetchval(*_LOCK_FOR_OPINION(session_id=session_id))
            known = await connection.fetchrow(*_KNOWN(session_id=session_id, turn=turn))
            before = known["opinion"] if known else None
            await connection.execute(
                *_RECORD(
                    session_id=session_id,
                    turn=turn,
                    opinion=opinion,
                    source=source,
                    words="",
                    cids=[],
                    cids_kept=CIDS_KEPT,
                )
            )
            await connection.execute(*_FORGET_EMPTY(session_id=session_id, turn=turn))
            seq: int | None = await connection.fetchval(*_ANSWER_OF(session_id=session_id, turn=turn))
            if opinion != before and seq is not None:
                await connection.fetchval(
                    *_TELL(
                        session_id=session_id,
                        turn=turn,
                        mid=f"m{seq}",
                        value=VALUES[opinion],
                        cid=None,
                    )
                )


_TURN_OF = Named("""
SELECT te.turn_no FROM entries e JOIN turn_entries te USING (session_id, seq)
 WHERE e.session_id = :session_id AND e.seq = :seq AND e.author = 'assistant' LIMIT 1
""")
_ANSWER_OF = Named("""
SELECT max(e.seq) FROM entries e JOIN turn_entries te USING (session_id, seq)
 WHERE te.session_id = :session_id AND te.turn_no = :turn AND e.author = 'assistant'
""")
_KNOWN = Named("SELECT opinion, cids FROM feedback WHERE session_id = :session_id AND turn_no = :turn")
_RECORD = Named("""
INSERT INTO feedback AS f (session_id, turn_no, opinion, source, words, cids)
   VALUES (:session_id, :turn, :opinion, :source, :words, :cids)
ON CONFLICT (session_id, turn_no) DO UPDATE
   SET opinion = excluded.opinion, source = excluded.source, at = now(),
       words = concat_ws(E'\\n', nullif(f.words, ''), nullif(excluded.words, '')),
       cids = (excluded.cids || f.cids)[1 : :cids_kept]
""")
_FORGET_EMPTY = Named("""
DELETE FROM feedback
 WHERE session_id = :session_id AND turn_no = :turn AND opinion IS NULL AND words = '' AND cids = '{}'
""")
_SAY = Named("""
INSERT INTO feedback AS f (session_id, turn_no, opinion, source, words)
SELECT t.session_id, t.turn_no, NULL, :source, :words FROM turns t
 WHERE t.session_id = :session_id AND t.state IN ('answered', 'stopped') ORDER BY t.turn_no DESC LIMIT 1
ON CONFLICT (session_id, turn_no) DO UPDATE
   SET at = now(), words = concat_ws(E'\\n', nullif(f.words, ''), excluded.words)
RETURNING turn_no
""")
_TELL = Named("""
WITH s AS (
  UPDATE sessions SET next_event_seq = next_event_seq + 1 WHERE id = :session_id
  RETURNING next_event_seq - 1 AS event_seq
)
INSERT INTO events (session_id, event_seq, kind, payload)
SELECT :session_id, event_seq, 'feedback', jsonb_strip_nulls(jsonb_build_object(
         'mid', :mid::text, 'turn', :turn::bigint, 'value', :value::integer, 'cid', :cid::text)) FROM s
RETURNING event_seq
""")
"""Insert the event of a rating for other screens, with the session's next number."""
_LOCK_SESSION = Named("SELECT id FROM sessions WHERE id = :session_id FOR UPDATE")
_LOCK_FOR_OPINION = Named("SELECT id FROM sessions WHERE id = :session_id FOR UPDATE")
