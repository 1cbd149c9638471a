"""A conversation that has gone on for a while, written straight into the log; nothing of it is hidden."""

from __future__ import annotations

import asyncpg

_LOG = (
    """INSERT INTO entries (session_id, seq, role, author, blocks, tokens)
       SELECT $1, n, CASE WHEN n % 2 = 1 THEN 'user' ELSE 'assistant' END,
              CASE WHEN n % 2 = 1 THEN 'person' ELSE 'assistant' END,
              jsonb_build_array(jsonb_build_object('type', 'text', 'text', 'Number ' || n || ': ' || $3)),
              greatest(1, length($3) / 4)
         FROM generate_series(1, 2 * $2::bigint) n""",
    """INSERT INTO turns (session_id, turn_no, state, channel, address_id, ended_at)
       SELECT $1, n, 'answered', 'web', (SELECT min(id) FROM addresses WHERE session_id = $1), now()
         FROM generate_series(1, $2::bigint) n WHERE $3::text <> ''""",
    """INSERT INTO turn_entries (session_id, seq, turn_no, step)
       SELECT $1, n, (n + 1) / 2, 2 - n % 2 FROM generate_series(1, 2 * $2::bigint) n
        WHERE $3::text <> ''""",
    """UPDATE sessions SET next_seq = 2 * $2::bigint + 1, next_turn = $2::bigint + 1,
              answered_turn = $2::bigint
        WHERE id = $1 AND $3::text <> ''""",
)


async def write_log(pool: asyncpg.Pool[asyncpg.Record], session_id: int, *, turns: int, text: str) -> None:
    """So many turns of a new conversation, a question and an answer each."""
    async with pool.acquire() as connection, connection.transaction():
        for statement in _LOG:
            await connection.execute(statement, session_id, turns, text)
