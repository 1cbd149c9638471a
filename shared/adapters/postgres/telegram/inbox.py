"""Inbox of Telegram updates: each raw update is stored once before it is acknowledged."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import asyncpg

from shared.adapters.postgres.db.pool import Named, PoolStore, store_method
from shared.adapters.postgres.telegram.receipts import rehearse_receipts
from shared.adapters.postgres.turns.turns import REHEARSALS, REHEARSED_CONNECTIONS
from shared.core.values.messages import storable_json

LATELY_SECONDS = 600.0
"""Seconds for which stored updates are also kept in memory."""
LATELY_AT_MOST = 2_000
"""Maximum updates kept in memory."""
_STORE = Named("""
WITH new AS (
  INSERT INTO telegram_updates (bot_id, update_id, body)
  SELECT :bot_id, (u->>'update_id')::bigint, u FROM jsonb_array_elements(:updates::jsonb) AS u
  ON CONFLICT DO NOTHING RETURNING update_id
), heard AS (
  UPDATE telegram_bots SET heard_at = now() WHERE bot_id = :bot_id
)
SELECT count(*) FROM new
""")
"""Insert new updates of a bot and count them; known ones change nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredUpdate:
    """Raw update of Telegram as it is stored."""

    update_id: int
    body: Mapping[str, Any]


class PostgresTelegramInbox(PoolStore):
    """Store of raw updates. Each method raises StorageUnavailable.

    Updates of the last ten minutes are also kept in memory, for `store_again`.
    """

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record]) -> None:
        super().__init__(pool)
        self._lately: deque[tuple[float, int, Any]] = deque(maxlen=LATELY_AT_MOST)
        """Updates stored recently: Telegram has forgotten them, and a promoted standby may lack them."""

    @store_method
    async def store(self, bot_id: int, updates: Sequence[Mapping[str, Any]]) -> int:
        """Store updates and return how many are new; each must have an integer `update_id`.

        Known updates change nothing. The time at which the bot was last heard is stored, also without
        updates.
        """
        kept = [storable_json(update) for update in updates]
        stored: int = await self._pool.fetchval(*_STORE(bot_id=bot_id, updates=kept))
        now = time.monotonic()
        while self._lately and now - self._lately[0][0] > LATELY_SECONDS:
            self._lately.popleft()
        self._lately.extend((now, bot_id, update) for update in kept)
        return stored

    @store_method
    async def store_again(self) -> int:
        """Store the updates kept in memory again, as a promoted standby may lack them, in order.

        Returns how many were missing.
        """
        since, waiting = time.monotonic() - LATELY_SECONDS, dict[int, list[Any]]()
        for at, bot_id, update in self._lately:
            if at >= since:
                waiting.setdefault(bot_id, []).append(update)
        return sum(
            [
                await self._pool.fetchval(
                    *_STORE(
                        bot_id=bot_id,
                        updates=kept,
                    )
                )
                for bot_id, kept in waiting.items()
            ]
        )

    async def rehearse(self) -> None:
        """Prepare the statements that store messages and end their updates, on the connections of a turn.

        Nothing is stored. Raises StorageUnavailable.
        """
        await asyncio.gather(*(self._rehearse() for _ in range(REHEARSED_CONNECTIONS)))

    @store_method
    async def _rehearse(self) -> None:
        async with self._pool.acquire() as connection:
            rehearsal = connection.transaction()
            await rehearsal.start()
            try:
                for _ in range(REHEARSALS):
                    await rehearse_receipts(connection)
            finally:
                await rehearsal.rollback()

    @store_method
    async def list_waiting(
        self, bot_id: int, *, limit: int = 200, known: Collection[int] = ()
    ) -> list[StoredUpdate]:
        """Return at most `limit` unhandled updates of a bot in order of arrival, without those in `known`.

        Claims none.
        """
        rows = await self._pool.fetch(
            *_LIST_WAITING(bot_id=bot_id, limit=limit, known=list(known)),
        )
        return [StoredUpdate(**dict(row)) for row in rows]

    @store_method
    async def mark_handled(self, bot_id: int, update_ids: Sequence[int], *, error: str = "") -> int:
        """Mark updates as handled and return how many were unhandled; the others do not change.

        `error` is a text for operators, "" for a success.
        """
        ended: int = await self._pool.fetchval(
            *_MARK_HANDLED(bot_id=bot_id, update_ids=list(update_ids), error=error),
        )
        return ended

    @store_method
    async def load_next_offset(self, bot_id: int) -> int:
        """Return the offset to poll from: the highest update id of the last six days plus one; 0 without any.

        After a week without updates, Telegram may number from any other id.
        """
        newest: int | None = await self._pool.fetchval(
            *_LOAD_NEXT_OFFSET(bot_id=bot_id),
        )
        return 0 if newest is None else newest + 1

    @store_method
    async def reopen(self, bot_id: int, update_ids: Sequence[int]) -> int:
        """Mark handled updates as unhandled whose content is still stored; return their number.

        They will be handled again, in order of arrival.
        """
        waiting: int = await self._pool.fetchval(
            *_REOPEN(bot_id=bot_id, update_ids=list(update_ids)),
        )
        return waiting


_LIST_WAITING = Named("""
SELECT update_id, body FROM telegram_updates
 WHERE bot_id = :bot_id AND handled_at IS NULL AND update_id <> ALL (:known)
 ORDER BY received_at, update_id LIMIT :limit
""")
_MARK_HANDLED = Named("""
WITH ended AS (
  UPDATE telegram_updates SET handled_at = now(), error = :error
   WHERE bot_id = :bot_id AND update_id = ANY (:update_ids) AND handled_at IS NULL RETURNING update_id
) SELECT count(*) FROM ended
""")
_LOAD_NEXT_OFFSET = Named("""
SELECT max(update_id) FROM telegram_updates
 WHERE bot_id = :bot_id AND received_at > now() - interval '6 days'
""")
_REOPEN = Named("""
WITH again AS (
  UPDATE telegram_updates SET handled_at = NULL, error = ''
   WHERE bot_id = :bot_id AND update_id = ANY (:update_ids) AND handled_at IS NOT NULL
     AND body <> jsonb_build_object('update_id', update_id) RETURNING update_id
) SELECT count(*) FROM again
""")
