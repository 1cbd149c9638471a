"""The floor: four bare commits, one read of the window and two publishes, by asyncpg and redis alone."""

from __future__ import annotations

import asyncpg
from redis.asyncio import Redis

TABLES = """
CREATE TABLE bare_sessions (id bigint PRIMARY KEY, next_seq bigint NOT NULL DEFAULT 1,
  epoch bigint NOT NULL DEFAULT 0, leased_by bigint) WITH (fillfactor = 70);
CREATE TABLE bare_entries (session_id bigint, seq bigint, role text NOT NULL, blocks jsonb NOT NULL,
  tokens int NOT NULL, dedupe_key text, at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (session_id, seq),
  UNIQUE (session_id, dedupe_key));
CREATE TABLE bare_deliveries (session_id bigint, seq bigint, state text NOT NULL,
  PRIMARY KEY (session_id, seq));
"""

_ACCEPT = """
WITH s AS (UPDATE bare_sessions SET next_seq = next_seq + 1 WHERE id = $1 RETURNING next_seq - 1 AS seq)
INSERT INTO bare_entries (session_id, seq, role, blocks, tokens, dedupe_key)
SELECT $1, seq, 'user', $2::jsonb, 20, $3 FROM s RETURNING seq
"""
_CLAIM = "UPDATE bare_sessions SET epoch = epoch + 1, leased_by = 1 WHERE id = $1 RETURNING epoch"
_LOAD = "SELECT seq, role, blocks, tokens, at FROM bare_entries WHERE session_id = $1 ORDER BY seq"
_ANSWER = """
WITH s AS (UPDATE bare_sessions SET next_seq = next_seq + 1, leased_by = NULL WHERE id = $1 AND epoch = $2
           RETURNING next_seq - 1 AS seq),
     d AS (INSERT INTO bare_deliveries SELECT $1, seq, 'queued' FROM s)
INSERT INTO bare_entries (session_id, seq, role, blocks, tokens)
SELECT $1, seq, 'assistant', $3::jsonb, 20 FROM s RETURNING seq
"""
_DELIVERED = "UPDATE bare_deliveries SET state = 'delivered' WHERE session_id = $1 AND seq = $2"


class BareTurns:
    """One connection, one session at a time."""

    def __init__(self, connection: asyncpg.Connection[asyncpg.Record], redis: Redis, *, answer: str) -> None:
        self._connection = connection
        self._redis = redis
        self._answer = answer
        self._session = 0
        self._number = 0

    async def prepare(self) -> None:
        await self._connection.execute(TABLES)

    async def begin(self) -> None:
        """A new session, so that windows grow alike on both sides."""
        self._session += 1
        await self._connection.execute("INSERT INTO bare_sessions (id) VALUES ($1)", self._session)

    async def turn(self, text: str) -> None:
        connection, session = self._connection, self._session
        self._number += 1
        await connection.fetchval(_ACCEPT, session, [{"type": "text", "text": text}], f"web:{self._number}")
        await self._publish(session)
        epoch = await connection.fetchval(_CLAIM, session)
        await connection.fetch(_LOAD, session)
        blocks = [{"type": "text", "text": self._answer}]
        seq = await connection.fetchval(_ANSWER, session, epoch, blocks)
        await self._publish(session)
        await connection.execute(_DELIVERED, session, seq)

    async def _publish(self, session: int) -> None:
        await self._redis.publish(f"bare:{session}", '{"event_seq":1}')
