"""Store of pinned messages, which stay word for word whatever is summarised around them."""

from __future__ import annotations

from typing import Literal

import asyncpg

from shared.adapters.postgres.db.pool import Named, PoolStore, store_method
from shared.core.ops.session_stats import PinnedMessage
from shared.core.values.messages import blocks_from_json, text_of

PinResult = Literal["pinned", "unpinned", "already", "not_pinned", "too_many", "unknown"]
"""Result of pinning or unpinning: "already" is pinned before, "too_many" exceeds the limit of tokens."""


class PostgresPins(PoolStore):
    """Store of pins; each method is one transaction and raises StorageUnavailable."""

    @store_method
    async def pin(self, session_id: int, seq: int, *, most_tokens: int) -> PinResult:
        """Pin a message, unless all pins together would exceed `most_tokens`; return the result.

        Pinning raises the session's view epoch, so that planned compactions are planned again, and stores an
        event for screens. Returns "unknown" for another message, "too_many" above the limit, and "already" if
        it is pinned.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            await connection.fetchval(*_LOCK_SESSION(session_id=session_id))
            tokens: int | None = await connection.fetchval(
                *_IS_PINNED(session_id=session_id, seq=seq),
            )  # fmt: skip
            if tokens is None:
                return "unknown"
            held: int = await connection.fetchval(
                *_ADD(session_id=session_id, seq=seq),
            )  # fmt: skip
            if held + tokens > most_tokens:
                return "too_many"
            made = await connection.fetchval(
                *_SHOW_WHOLE(session_id=session_id, seq=seq),
            )  # fmt: skip
            if made is None:
                return "already"
            await connection.execute(*_MOVED(session_id=session_id, mid=f"m{seq}", pinned=True))
        return "pinned"

    @store_method
    async def unpin(self, session_id: int, seq: int) -> PinResult:
        """Remove a pin, raise the session's view epoch, and store an event for screens.

        Returns "unpinned", or "not_pinned" without effect.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            await connection.fetchval(*_LOCK_FOR_UNPIN(session_id=session_id))
            gone = await connection.fetchval(*_REMOVE(session_id=session_id, seq=seq))
            if gone is None:
                return "not_pinned"
            await connection.execute(*_MOVED(session_id=session_id, mid=f"m{seq}", pinned=False))
        return "unpinned"

    @store_method
    async def list_pins(self, session_id: int) -> list[PinnedMessage]:
        """Return the session's pinned messages, oldest first."""
        rows = await self._pool.fetch(
            *_LIST(session_id=session_id),
        )
        return [_message(row) for row in rows]

    @store_method
    async def find_message(self, session_id: int, seq: int | None) -> PinnedMessage | None:
        """Return a message of a person, the assistant or an operator; None if there is none.

        `seq` None means the newest answer that was not replaced. It need not be pinned.
        """
        row = await self._pool.fetchrow(*_MESSAGE(session_id=session_id, seq=seq))
        return None if row is None else _message(row)


def _message(row: asyncpg.Record) -> PinnedMessage:
    text = text_of(blocks_from_json(row["blocks"]))
    return PinnedMessage(seq=row["seq"], author=row["author"], text=text, tokens=row["tokens"])


_MESSAGE = Named("""
SELECT e.seq, e.author, e.blocks, e.tokens FROM entries e JOIN turn_entries te USING (session_id, seq)
 WHERE e.session_id = :session_id AND e.author IN ('person', 'assistant', 'operator')
   AND CASE WHEN :seq::bigint IS NULL THEN e.author = 'assistant' AND te.replaced_by IS NULL
     ELSE e.seq = :seq END
 ORDER BY e.seq DESC LIMIT 1
""")
_MOVED = Named("""
WITH s AS (
  UPDATE sessions SET view_epoch = view_epoch + 1, next_event_seq = next_event_seq + 1 WHERE id = :session_id
  RETURNING id, next_event_seq - 1 AS event_seq
)
INSERT INTO events (session_id, event_seq, kind, payload)
SELECT id, event_seq, 'pin', jsonb_build_object('mid', :mid::text, 'pinned', :pinned::boolean) FROM s
""")
_LOCK_SESSION = Named("SELECT id FROM sessions WHERE id = :session_id FOR UPDATE")
_IS_PINNED = Named("""
SELECT e.tokens FROM entries e JOIN turn_entries te USING (session_id, seq)
 WHERE e.session_id = :session_id AND e.seq = :seq
   AND e.author IN ('person', 'assistant', 'operator')
""")
_ADD = Named("""
SELECT coalesce(sum(e.tokens), 0)::bigint
  FROM pins p JOIN entries e USING (session_id, seq)
 WHERE p.session_id = :session_id AND p.seq <> :seq
""")
_SHOW_WHOLE = Named("""
INSERT INTO pins (session_id, seq) VALUES (:session_id, :seq) ON CONFLICT DO NOTHING RETURNING seq
""")
_LOCK_FOR_UNPIN = Named("SELECT id FROM sessions WHERE id = :session_id FOR UPDATE")
_REMOVE = Named("DELETE FROM pins WHERE session_id = :session_id AND seq = :seq RETURNING seq")
_LIST = Named("""
SELECT e.seq, e.author, e.blocks, e.tokens FROM pins p JOIN entries e USING (session_id, seq)
 WHERE p.session_id = :session_id ORDER BY e.seq
""")
