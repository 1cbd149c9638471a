"""A whole conversation for its person: every message, the summaries, and what is remembered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import asyncpg

from shared.adapters.postgres.pool import store_method
from shared.core.context import plain_words
from shared.core.messages import blocks_from_json

MESSAGES_AT_MOST = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SaidMessage:
    seq: int
    turn: int
    author: str
    text: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    public_id: str
    created_at: datetime
    messages: tuple[SaidMessage, ...]
    summaries: tuple[Mapping[str, Any], ...]
    notes: tuple[str, ...]


class PostgresExport:
    """Reads one moment of a session; raises StorageUnavailable."""

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record]) -> None:
        self._pool = pool

    @store_method
    async def read(self, session_id: int) -> Exported:
        async with self._pool.acquire() as connection, connection.transaction(isolation="repeatable_read"):
            session = await connection.fetchrow(
                "SELECT public_id, party_id, created_at FROM sessions WHERE id = $1", session_id
            )
            assert session is not None
            said = await connection.fetch(_SAID, session_id, MESSAGES_AT_MOST)
            links = await connection.fetch(_SUMMARIES, session_id)
            notes = await connection.fetch(_NOTES, session["party_id"])
        return Exported(
            public_id=str(session["public_id"]),
            created_at=session["created_at"],
            messages=tuple(
                SaidMessage(
                    seq=row["seq"],
                    turn=row["turn_no"],
                    author=row["author"],
                    text=plain_words(blocks_from_json(row["blocks"])),
                    at=row["at"],
                )
                for row in said
            ),
            summaries=tuple(dict(row) for row in links),
            notes=tuple(row["text"] for row in notes),
        )


_SAID = """
SELECT e.seq, te.turn_no, e.author, e.blocks, e.at
  FROM turn_entries te JOIN entries e USING (session_id, seq)
 WHERE te.session_id = $1 AND e.author IN ('person', 'assistant', 'operator', 'program')
 ORDER BY te.turn_no, te.step LIMIT $2
"""
_SUMMARIES = """
SELECT kind, from_turn, through_turn, summary_text, created_at FROM links
 WHERE session_id = $1 AND active AND kind IN ('summary', 'digest') ORDER BY id
"""
_NOTES = """
SELECT text FROM notes WHERE party_id = $1 AND superseded_by IS NULL AND forgotten_at IS NULL ORDER BY id
"""
