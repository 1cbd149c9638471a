"""Puts a long conversation of the past, questions and answers, into Postgres at once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import asyncpg

BEGAN = datetime(2026, 1, 1, 9, tzinfo=UTC)
_AT_ONCE = 2_000
_TALKED = """
WITH t AS (
  INSERT INTO turns (session_id, turn_no, state, channel, address_id, ended_at)
  SELECT $1, n, 'answered', 'web', $2, now() FROM generate_series($7::bigint, $3::bigint) n
), said AS (
  SELECT 2 * n - r AS seq, n AS turn, r = 1 AS asked, $4::timestamptz + n * $5::interval AS at
    FROM generate_series($7, $3) n, generate_series(0, 1) r
), e AS (
  INSERT INTO entries (session_id, seq, role, author, blocks, tokens, at)
  SELECT $1, seq, CASE WHEN asked THEN 'user' ELSE 'assistant' END,
         CASE WHEN asked THEN 'person' ELSE 'assistant' END,
         jsonb_build_array(jsonb_build_object('type', 'text', 'text',
           CASE WHEN asked THEN 'Question ' ELSE 'Answer ' END || turn ||
           repeat(E'.\\n\\nAnd a few words more, so that no two are of one height', (turn % $6)::int))),
         1, at FROM said
), te AS (
  INSERT INTO turn_entries (session_id, seq, turn_no, step) SELECT $1, seq, turn, seq FROM said
), v AS (
  INSERT INTO events (session_id, event_seq, kind, seq, turn_no, at)
  SELECT $1, seq, 'msg', seq, turn, at FROM said
)
UPDATE sessions SET next_turn = $3 + 1, next_seq = 2 * $3 + 1, next_event_seq = 2 * $3 + 1, answered_turn = $3
 WHERE id = $1
"""


async def talk_long_ago(
    pool: asyncpg.Pool[asyncpg.Record],
    session_id: int,
    address_id: int,
    *,
    turns: int,
    apart: timedelta = timedelta(days=1),
    heights: int = 1,
    began: datetime = BEGAN,
    since: int = 1,
) -> None:
    """Store answered turns from number `since` to `turns`; turn n took place `n * apart` after `began`.

    With `heights` above 1, texts differ in length.
    """
    for first in range(since, turns + 1, _AT_ONCE):
        last = min(turns, first + _AT_ONCE - 1)
        await pool.execute(_TALKED, session_id, address_id, last, began, apart, heights, first)
