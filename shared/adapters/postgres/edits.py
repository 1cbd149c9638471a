"""Messages that their person changed, and answers that are wished anew: the log is only ever added to."""

from __future__ import annotations

from typing import Literal

import asyncpg

from shared.adapters.postgres.pool import store_method
from shared.core.messages import Text, block_to_json, blocks_from_json, text_of

EditResult = Literal["replaced", "last", "old", "unknown"]


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
