"""Messages that their person changed, and answers that are wished anew: the log is only ever added to."""

from __future__ import annotations

from typing import Literal

import asyncpg

from shared.adapters.postgres.db.pool import store_method
from shared.core.values.messages import Text, block_to_json, blocks_from_json, text_of

EditResult = Literal["replaced", "last", "old", "unknown"]
AgainResult = Literal["begun", "woken", "busy", "nothing", "with_human"]


class PostgresEdits:
    """Each method is one transaction; raises StorageUnavailable."""

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record]) -> None:
        self._pool = pool

    @store_method
    async def edit(self, session_id: int, seq: int, *, text: str, tokens: int, dedupe_key: str) -> EditResult:
        """Store the new words as an entry of their own.

        In a turn that nobody has claimed they take the place of the old ones (`replaced`); of the turn that
        was answered last they may be answered again (`last`); older ones change nothing (`old`).
        """
        async with self._pool.acquire() as connection, connection.transaction():
            session = await connection.fetchrow(
                "SELECT open_turn, answered_turn FROM sessions WHERE id = $1 FOR UPDATE", session_id
            )
            old = await connection.fetchrow(_OLD, session_id, seq, dedupe_key)
            if session is None or old is None:
                return "unknown"
            is_open = old["turn_no"] == session["open_turn"]
            if not old["known"]:
                blocks = [block_to_json(Text(text=text)), *_behind_the_words(old["blocks"])]
                await connection.execute(
                    _STORE, session_id, blocks, tokens, dedupe_key, seq, old["turn_no"] if is_open else None
                )
            if is_open:
                return "replaced"
        return "last" if old["turn_no"] >= session["answered_turn"] else "old"

    @store_method
    async def newest_words(self, session_id: int, *, turn: int | None = None) -> tuple[int, str] | None:
        """The last message of a person in a turn (the newest answered one), as it reads after edits."""
        row = await self._pool.fetchrow(_WORDS, session_id, turn)
        if row is None:
            return None
        return row["seq"], text_of(blocks_from_json(row["blocks"]))

    @store_method
    async def wake(self, session_id: int) -> bool:
        """A turn that was put back is due now; False when none waits."""
        return await self._pool.fetchval(_WAKE, session_id) is not None

    @store_method
    async def request_retry(
        self, session_id: int, *, channel: str, address_id: int | None, dedupe_key: str | None
    ) -> AgainResult:
        """Begin a turn that asks the last one's question once more; again with the same key changes nothing.

        `woken` where one was put back and is due now; `busy` while one is unanswered; `nothing` when nobody
        asked anything that is still in view; `with_human` while the assistant is silent.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            session = await connection.fetchrow(_SESSION, session_id, address_id, dedupe_key)
            if session is None:
                return "nothing"
            if session["known"]:
                return "begun"
            if session["held_after"] is not None:
                return "with_human"
            if session["answered_turn"] < session["next_turn"] - 1:
                return "woken" if await connection.fetchval(_WAKE, session_id) else "busy"
            asked = await connection.fetch(_ASKED, session_id)
            if not asked:
                return "nothing"
            blocks = [block for row in asked for block in row["blocks"]]
            await connection.execute(
                _AGAIN, session_id, channel, address_id, blocks, sum(row["tokens"] for row in asked),
                dedupe_key, asked[-1]["root"],
            )  # fmt: skip
        return "begun"


def _behind_the_words(blocks: list[dict[str, object]]) -> list[dict[str, object]]:
    return [block for block in blocks if block["type"] != "text"]


_OLD = """
SELECT te.turn_no, e.blocks,
       EXISTS (SELECT FROM entries k WHERE k.session_id = $1 AND k.dedupe_key = $3) AS known
  FROM entries e JOIN turn_entries te USING (session_id, seq)
 WHERE e.session_id = $1 AND e.author = 'person'
   AND e.seq = coalesce((SELECT max(r.seq) FROM entries r JOIN turn_entries USING (session_id, seq)
                          WHERE r.session_id = $1 AND r.replaces_seq = $2), $2)
"""
_STORE = """
WITH s AS (
  UPDATE sessions SET next_seq = next_seq + 1 WHERE id = $1 RETURNING next_seq - 1 AS seq
), e AS (
  INSERT INTO entries (session_id, seq, role, author, blocks, tokens, dedupe_key, replaces_seq)
  SELECT $1, seq, 'user', 'person', $2::jsonb, $3, $4, $5 FROM s
), gone AS (
  DELETE FROM turn_entries te USING entries o
   WHERE $6::bigint IS NOT NULL AND te.session_id = $1 AND te.turn_no = $6
     AND o.session_id = $1 AND o.seq = te.seq AND (o.seq = $5 OR o.replaces_seq = $5)
)
INSERT INTO turn_entries (session_id, seq, turn_no, step) SELECT $1, seq, $6, seq FROM s WHERE $6 IS NOT NULL
"""
_WORDS = """
SELECT e.seq, coalesce(r.blocks, e.blocks) AS blocks
  FROM turn_entries te JOIN entries e USING (session_id, seq)
  LEFT JOIN LATERAL (SELECT x.blocks FROM entries x
                      WHERE x.session_id = $1 AND x.replaces_seq = coalesce(e.replaces_seq, e.seq)
                      ORDER BY x.seq DESC LIMIT 1) r ON true
 WHERE te.session_id = $1 AND e.author = 'person'
   AND te.turn_no = coalesce($2, (SELECT answered_turn FROM sessions WHERE id = $1))
 ORDER BY te.step DESC LIMIT 1
"""
_SESSION = """
SELECT answered_turn, next_turn, held_after,
       EXISTS (SELECT FROM entries k WHERE k.session_id = $1 AND k.dedupe_key = $3) AS known
  FROM sessions
 WHERE id = $1 AND archived_at IS NULL
   AND ($2::bigint IS NULL OR left_by IS NULL OR NOT $2 = ANY (left_by))
   FOR UPDATE
"""
_WAKE = """
UPDATE sessions SET retry_at = now()
 WHERE id = $1 AND answered_turn < next_turn - 1 AND held_after IS NULL
   AND leased_by IS NULL AND retry_at > now()
RETURNING id
"""
_ASKED = """
SELECT coalesce(r.blocks, e.blocks) AS blocks, coalesce(r.tokens, e.tokens) AS tokens,
       coalesce(e.replaces_seq, e.seq) AS root
  FROM sessions s JOIN turn_entries te ON te.session_id = s.id AND te.turn_no = s.answered_turn
  JOIN entries e ON e.session_id = s.id AND e.seq = te.seq
  LEFT JOIN LATERAL (SELECT x.blocks, x.tokens FROM entries x
                      WHERE x.session_id = $1 AND x.replaces_seq = coalesce(e.replaces_seq, e.seq)
                      ORDER BY x.seq DESC LIMIT 1) r ON true
 WHERE s.id = $1 AND e.author = 'person' AND s.answered_turn > greatest(s.base_turn, s.erased_turn)
   AND e.blocks <> erased_blocks(e.blocks)
   AND NOT EXISTS (SELECT FROM turn_entries h JOIN entries o USING (session_id, seq)
                    WHERE h.session_id = $1 AND h.turn_no = s.answered_turn AND o.author = 'operator')
 ORDER BY te.step
"""
"""What a human has answered is not the assistant's to answer again: their words would be out of its sight."""
_AGAIN = """
WITH s AS (
  UPDATE sessions SET next_seq = next_seq + 1, next_turn = next_turn + 1, last_channel = $2,
                      last_active_at = now()
   WHERE id = $1 RETURNING next_seq - 1 AS seq, next_turn - 1 AS turn_no, answered_turn
), t AS (
  INSERT INTO turns (session_id, turn_no, channel, address_id)
  SELECT $1, s.turn_no, $2, coalesce($3, l.address_id)
    FROM s JOIN turns l ON l.session_id = $1 AND l.turn_no = s.answered_turn
), e AS (
  INSERT INTO entries (session_id, seq, role, author, blocks, tokens, dedupe_key, replaces_seq)
  SELECT $1, seq, 'user', 'person', $4::jsonb, $5, $6, $7 FROM s
)
INSERT INTO turn_entries (session_id, seq, turn_no, step) SELECT $1, seq, turn_no, seq FROM s
"""
"""The question has no event of its own: every screen shows it where it was first asked."""
