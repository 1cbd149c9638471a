"""Reads from Postgres what happened to one chat on Telegram: the turn of each message, and where its answer
is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shared.adapters.postgres.db.pool import open_pool
from shared.adapters.postgres.telegram.deliveries import EndedTurn, PostgresDeliveries

if TYPE_CHECKING:
    import asyncpg

SQL_SECONDS = 30.0

_SESSION = """
SELECT s.id, s.public_id::text AS public_id FROM addresses a JOIN sessions s ON s.id = a.session_id
 WHERE a.channel = 'telegram' AND a.account = $1 AND a.chat = $2 LIMIT 1
"""
_RESTING = """
SELECT (SELECT count(*) FROM telegram_messages m
         WHERE m.bot_id = $2 AND m.chat_id = $3 AND m.seq IS NOT NULL) >= $4
   AND NOT EXISTS (SELECT FROM turns t WHERE t.session_id = $1 AND (t.ended_at IS NULL OR NOT EXISTS (
         SELECT FROM deliveries d WHERE d.session_id = t.session_id AND d.turn_no = t.turn_no)))
   AND NOT EXISTS (SELECT FROM deliveries WHERE session_id = $1 AND state IN ('queued', 'sending', 'sent'))
   AND NOT EXISTS (SELECT FROM uncertain_notices
                    WHERE session_id = $1 AND state <> 'over' AND due_at < 'infinity')
"""
_IN_DOUBT = """
SELECT n.turn_no, n.message_id FROM uncertain_notices n
 WHERE n.session_id = $1 AND n.state = 'shown' ORDER BY n.turn_no
"""
_QUESTIONS = """
SELECT m.message_id, te.turn_no FROM telegram_messages m JOIN turn_entries te USING (session_id, seq)
 WHERE m.bot_id = $1 AND m.chat_id = $2 AND m.seq IS NOT NULL ORDER BY m.message_id
"""
_ENTRIES = "SELECT count(*) FROM entries WHERE session_id = $1 AND author = 'person'"
_TURNS = "SELECT turn_no FROM turns WHERE session_id = $1 AND ended_at IS NOT NULL ORDER BY turn_no"
_MODEL = "SELECT model FROM usage WHERE session_id = $1 AND purpose = 'chat' ORDER BY id DESC LIMIT 1"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatEvidence:
    session: str
    """Public id of the session; "" if no message arrived."""
    questions: Mapping[int, int]
    """Turn of each of the person's messages, by message id."""
    turns: Mapping[int, EndedTurn]
    entries: int
    """Number of stored messages of the person."""
    model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UncertainAnswer:
    answer: EndedTurn
    notice: int
    """Id of the message with the button that brings the answer."""


class ChatDatabaseProbe:
    """Reads a database without changing it: between messages, whether the chat is idle.

    At the end, the evidence.
    """

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record], bot_id: int) -> None:
        self._pool = pool
        self._bot_id = bot_id
        self._deliveries = PostgresDeliveries(pool)

    @classmethod
    async def connect(cls, database_url: str, bot_id: int) -> ChatDatabaseProbe:
        return cls(await open_pool(database_url, size=3), bot_id)

    async def close(self) -> None:
        async with asyncio.timeout(10):
            await self._pool.close()

    async def is_resting(self, chat: int, *, messages: int) -> bool:
        """Return whether that many messages have been stored and answered, and every answer was delivered.

        An answer also counts if the person was told that it may be missing.
        """
        session = await self._session(chat)
        if session is None:
            return False
        return bool(
            await self._pool.fetchval(
                _RESTING, session["id"], self._bot_id, chat, messages, timeout=SQL_SECONDS
            )
        )

    async def in_doubt(self, chat: int) -> list[UncertainAnswer]:
        """Return the answers that may not have arrived, each with the notice about it."""
        session = await self._session(chat)
        if session is None:
            return []
        rows = await self._pool.fetch(_IN_DOUBT, session["id"], timeout=SQL_SECONDS)
        return [
            UncertainAnswer(answer=answer, notice=row["message_id"])
            for row in rows
            if (answer := await self._deliveries.load_ended_turn(session["id"], row["turn_no"])) is not None
        ]

    async def collect(self, chat: int) -> ChatEvidence:
        session = await self._session(chat)
        if session is None:
            return ChatEvidence(session="", questions={}, turns={}, entries=0, model="")
        id_ = session["id"]
        asked = await self._pool.fetch(_QUESTIONS, self._bot_id, chat, timeout=SQL_SECONDS)
        turns = {}
        for row in await self._pool.fetch(_TURNS, id_, timeout=SQL_SECONDS):
            if ended := await self._deliveries.load_ended_turn(id_, row["turn_no"]):
                turns[ended.turn] = ended
        return ChatEvidence(
            session=session["public_id"],
            questions={row["message_id"]: row["turn_no"] for row in asked},
            turns=turns,
            entries=int(await self._pool.fetchval(_ENTRIES, id_, timeout=SQL_SECONDS)),
            model=str(await self._pool.fetchval(_MODEL, id_, timeout=SQL_SECONDS) or ""),
        )

    async def _session(self, chat: int) -> asyncpg.Record | None:
        found: asyncpg.Record | None = await self._pool.fetchrow(
            _SESSION, str(self._bot_id), str(chat), timeout=SQL_SECONDS
        )
        return found
