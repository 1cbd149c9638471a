"""An operator without a browser, who takes over a conversation and writes in it as on the dashboard."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from shared.adapters.models.token_counter import VocabularyCounter
from shared.adapters.postgres.db.pool import open_pool
from shared.adapters.postgres.handover.handovers import PostgresHandovers
from shared.adapters.postgres.turns.uploads import PostgresUploads
from shared.core.identity.handover import HandoverOutcome, Reply
from shared.core.values.files import Document
from shared.core.values.messages import Text
from shared.ports import Announcer
from shared.runtime import ignore_crash_point
from shared.services.tools.handover import HandoverService


class Unheard:
    """An announcer that reaches no one, as if Redis were away."""

    async def announce(self, session_id: int, message: Mapping[str, Any]) -> None: ...
    def listen(self) -> AsyncIterator[tuple[int, Mapping[str, Any]]]:
        raise NotImplementedError

    async def subscribe(self, session_ids: object) -> None: ...


class OperatorDriver:
    """One operator who handles one conversation."""

    def __init__(
        self,
        pool: asyncpg.Pool[asyncpg.Record],
        session_id: int,
        operator_id: int,
        announcer: Announcer | None = None,
    ) -> None:
        self._handovers = HandoverService(
            PostgresHandovers(pool),
            announcer or Unheard(),
            VocabularyCounter(),
            crash_point=ignore_crash_point,
        )
        self._pool, self._session_id, self._operator_id = pool, session_id, operator_id

    async def take_over(self) -> HandoverOutcome:
        return await self._handovers.take_over(self._session_id, operator_id=self._operator_id, name="Anna")

    async def record_reply(self, text: str, *, cid: str) -> Reply:
        return await self._handovers.reply(
            self._session_id, operator_id=self._operator_id, cid=cid, text=text
        )

    async def send_file(self, name: str, words: str, *, cid: str) -> Reply:
        """Send a file without any text beside it."""
        uploads, found = PostgresUploads(self._pool), Document(name=name, text=words)
        kept = await uploads.keep(self._session_id, words.encode(), found, name=name, most_per_day=10_000)
        (one,) = await uploads.load_for_message(self._session_id, [kept.id])
        more = (Text(text=words, attachment_id=one.attachment_id),)
        return await self._handovers.reply(
            self._session_id, operator_id=self._operator_id, cid=cid, text="", more=more, attached=(kept,)
        )

    async def say_typing(self) -> None:
        await self._handovers.say_typing(self._session_id, operator_id=self._operator_id)

    async def release(self, *, resolved: bool = False) -> HandoverOutcome:
        return await self._handovers.release(
            self._session_id, operator_id=self._operator_id, resolved=resolved
        )


@asynccontextmanager
async def drive_operator(
    database_url: str, chat: int, announcer: Announcer | None = None
) -> AsyncIterator[OperatorDriver]:
    """Yield an operator who handles the conversation of a Telegram chat."""
    pool = await open_pool(database_url, size=2)
    try:
        session_id = await pool.fetchval("SELECT session_id FROM addresses WHERE chat = $1", str(chat))
        operator_id = await pool.fetchval(
            """INSERT INTO operators (name, role, display_name)
               VALUES ('login ' || $1, 'operator', 'Anna') RETURNING id""",
            str(chat),
        )
        yield OperatorDriver(pool, session_id, operator_id, announcer)
    finally:
        await pool.close()
