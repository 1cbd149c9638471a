"""Store of answer parts on their way to a chat, written before they are sent, so that a crash is recognised.

A part is `queued` (surely not sent), `sending` (a request is on its way), `sent` (a chat message that is
still being edited), `delivered`, `uncertain` (Telegram may have it, its id is unknown) or `dead` (it cannot
be sent).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from shared.adapters.postgres.db.pool import Named, PoolStore, store_method
from shared.core.values.files import Attached
from shared.core.values.messages import blocks_from_json, text_of

DeliveryState = Literal["queued", "sending", "sent", "delivered", "uncertain", "dead"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartRow:
    """Part of an answer; `remote_id` is its message id in the chat, None if unknown.

    Parts are numbered from 0; `attempt` is the number of tries so far.
    """

    part: int
    state: DeliveryState
    remote_id: int | None
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedTurn:
    """Ended turn, the text for its person, and the states of its parts."""

    session_id: int
    turn: int
    address_id: int
    state: str
    text: str
    """Answer in Markdown, or the notice why there is none."""
    error_code: str
    operator: str = ""
    """Name of the operator who wrote the answer; "" for the assistant's answers."""
    files: tuple[Attached, ...] = ()
    """Files that are sent after the text."""
    stop: str = ""
    """Reason why the model's answer ended; "" without one."""
    parts: tuple[PartRow, ...]


class PostgresDeliveries(PoolStore):
    """Store of deliveries; each method is one transaction and raises StorageUnavailable."""

    @store_method
    async def list_parts(self, session_id: int, turn: int) -> tuple[PartRow, ...]:
        """Return the stored parts of a turn's answer, ordered by number.

        Empty before a part was planned or shown.
        """
        rows = await self._pool.fetch(
            *_LIST_PARTS(session_id=session_id, turn=turn),
        )  # fmt: skip
        return tuple(PartRow(**dict(row)) for row in rows)

    @store_method
    async def record_bubble(
        self, session_id: int, turn: int, part: int, *, epoch: int, address_id: int, remote_id: int
    ) -> bool:
        """Store the id of the chat message that shows an unfinished answer, as a part in state `sent`.

        Returns False, without effect, if this process has lost the turn, whose claim has the epoch `epoch`.
        """
        found = await self._pool.fetchval(
            *_SHOWN(
                session_id=session_id,
                turn=turn,
                part=part,
                epoch=epoch,
                address_id=address_id,
                remote_id=str(remote_id),
            )
        )
        return found is not None

    @store_method
    async def plan(self, session_id: int, turn: int, *, address_id: int, count: int) -> tuple[PartRow, ...]:
        """Insert queued rows for the parts 0 to `count` - 1 of an ended answer, and return all its rows.

        Existing rows stay unchanged, also those of higher parts.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            await connection.execute(
                *_PLAN(
                    session_id=session_id,
                    turn=turn,
                    address_id=address_id,
                    count=count,
                )
            )
            rows = await connection.fetch(
                *_ARE_PLANNED(session_id=session_id, turn=turn),
            )  # fmt: skip
        return tuple(PartRow(**dict(row)) for row in rows)

    @store_method
    async def begin(self, session_id: int, turn: int, part: int) -> bool:
        """Mark a queued part as being sent, before the request.

        Returns False, without effect, if the part is not queued: another process sends it or it is done.
        """
        found = await self._pool.fetchval(
            *_BEGIN(session_id=session_id, turn=turn, part=part),
        )  # fmt: skip
        return found is not None

    @store_method
    async def mark_not_sent(self, session_id: int, turn: int, part: int, *, error: str) -> None:
        """Queue a part again after a request that certainly did not send it, with the error."""
        await self._pool.execute(
            *_MARK_NOT_SENT(session_id=session_id, turn=turn, part=part, error=error),
        )  # fmt: skip

    @store_method
    async def mark_delivered(self, session_id: int, turn: int, part: int, *, remote_id: int | None) -> None:
        """Mark a part as delivered, and store its message id for edits, replies and reactions.

        `remote_id` None keeps the id of the message that showed the unfinished answer.
        """
        await self._pool.execute(
            *_DELIVERED(
                session_id=session_id,
                turn=turn,
                part=part,
                remote_id=None if remote_id is None else str(remote_id),
            )
        )

    @store_method
    async def give_up(
        self,
        session_id: int,
        turn: int,
        part: int,
        *,
        state: Literal["uncertain", "dead"],
        error: str,
        remote_id: int | None = None,
    ) -> None:
        """Mark an undelivered part as `uncertain` or `dead`, with the error; it is not tried again.

        `remote_id` is the message that was sent in its place; None keeps the known id.
        """
        await self._pool.execute(
            *_GIVE_UP(
                session_id=session_id, turn=turn, part=part, state=state, error=error,
                remote_id=None if remote_id is None else str(remote_id),
            ),
        )  # fmt: skip

    @store_method
    async def drop_surplus(self, session_id: int, turn: int, *, count: int) -> None:
        """Delete the rows of parts numbered `count` and above, whose messages the caller has deleted."""
        await self._pool.execute(
            *_DROP_SURPLUS(session_id=session_id, turn=turn, count=count),
        )  # fmt: skip

    @store_method
    async def restart_delivery(
        self, session_id: int, turn: int, *, part: int, address_id: int, count: int
    ) -> None:
        """Queue the parts of an answer from `part` to `count` - 1 again, and delete the rows of higher parts.

        The caller has deleted their messages in the chat.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            await connection.execute(
                *_RESTART_DELIVERY(session_id=session_id, turn=turn, part=part),
            )  # fmt: skip
            await connection.execute(
                *_PLAN(
                    session_id=session_id,
                    turn=turn,
                    address_id=address_id,
                    count=count,
                )
            )

    @store_method
    async def recover_interrupted(self, accounts: Sequence[int]) -> int:
        """Mark parts of these bots' answers that are still being sent as `uncertain`; return their number.

        A process calls it when it begins to serve these bots, so the process that sent them is dead.
        """
        rows = await self._pool.fetch(
            *_RECOVER_INTERRUPTED(accounts=[str(account) for account in accounts]),
        )
        return len(rows)

    @store_method
    async def list_unfinished(self, accounts: Sequence[int], *, limit: int = 100) -> list[tuple[int, int]]:
        """Return (session id, turn) of at most `limit` ended answers with undelivered parts, oldest first.

        Uncertain and dead parts do not count. Answers to unreachable chats are left out until their next try.
        """
        rows = await self._pool.fetch(
            *_LIST_UNFINISHED(accounts=[str(account) for account in accounts], limit=limit),
        )
        return [(row["session_id"], row["turn_no"]) for row in rows]

    @store_method
    async def list_unfinished_before(self, session_id: int, turn: int, *, address_id: int) -> list[int]:
        """Return the ended turns before `turn` at the same address that have undelivered parts.

        They are in the order of their numbers.
        """
        rows = await self._pool.fetch(
            *_LIST_UNFINISHED_BEFORE(session_id=session_id, turn=turn, address_id=address_id),
        )  # fmt: skip
        return [row["turn_no"] for row in rows]

    @store_method
    async def load_ended_turn(self, session_id: int, turn: int) -> EndedTurn | None:
        """Return the outcome of an ended turn with all its parts; None if it runs or does not exist."""
        row = await self._pool.fetchrow(*_ENDED(session_id=session_id, turn=turn))
        if row is None:
            return None
        parts = [PartRow(**part) for part in row["parts"] or ()]
        return EndedTurn(
            session_id=session_id,
            turn=turn,
            address_id=row["address_id"],
            state=row["state"],
            text=_render_text(row["blocks"], row["screen"], row["state"]),
            error_code=row["error_code"] or "",
            operator=str((row["screen"] or {}).get("name", "")) if row["author"] == "operator" else "",
            files=tuple(map(_file, (row["screen"] or {}).get("attachments", ()))),
            stop=row["stop_reason"] or "",
            parts=tuple(sorted(parts, key=lambda part: part.part)),
        )


def _file(shown: Mapping[str, Any]) -> Attached:
    return Attached(**{name: shown[name] for name in ("id", "name", "mime", "size")})


def _render_text(blocks: Any, screen: Any, state: str) -> str:
    """Return the answer's text as screens show it, with all rounds; "" if it was stopped before any text."""
    shown = str((screen or {}).get("text", ""))
    if blocks is None:
        return "" if state == "stopped" else shown
    return shown or text_of(blocks_from_json(blocks))


_PLAN = Named("""
INSERT INTO deliveries (session_id, turn_no, part, channel, address_id)
SELECT :session_id, :turn, part, 'telegram', :address_id FROM generate_series(0, :count - 1) AS part
ON CONFLICT DO NOTHING
""")
_SHOWN = Named("""
WITH s AS (
  SELECT id FROM sessions WHERE id = :session_id AND turn_epoch = :epoch
     AND answered_turn = :turn - 1 FOR SHARE
), d AS (
  INSERT INTO deliveries AS d (session_id, turn_no, part, channel, address_id, state, remote_id)
  SELECT :session_id, :turn, :part, 'telegram', :address_id, 'sent', :remote_id FROM s
  ON CONFLICT (session_id, turn_no, part) DO UPDATE SET state = 'sent', remote_id = excluded.remote_id
  RETURNING part
), m AS (
  INSERT INTO telegram_messages (bot_id, chat_id, message_id, session_id, turn_no, part)
  SELECT a.account::bigint, a.chat::bigint, :remote_id::bigint, :session_id, :turn, d.part FROM d, addresses a
     WHERE a.id = :address_id
  ON CONFLICT DO NOTHING
)
SELECT part FROM d
""")
"""Store the chat message that shows a running turn's answer; no row if the turn's epoch has changed."""
_DELIVERED = Named("""
WITH d AS (
  UPDATE deliveries SET state = 'delivered', delivered_at = now(), error = '',
         remote_id = coalesce(:remote_id, remote_id)
   WHERE session_id = :session_id AND turn_no = :turn AND part = :part
  RETURNING part, address_id, remote_id
)
INSERT INTO telegram_messages (bot_id, chat_id, message_id, session_id, turn_no, part)
SELECT a.account::bigint, a.chat::bigint, d.remote_id::bigint, :session_id, :turn, d.part
  FROM d JOIN addresses a ON a.id = d.address_id
 WHERE d.remote_id IS NOT NULL AND a.channel = 'telegram'
ON CONFLICT DO NOTHING
""")
"""Mark a part as delivered, with the id of its message."""
_ENDED = Named("""
SELECT t.address_id, t.state, t.error_code, t.stop_reason, e.author, e.blocks, n.payload AS screen,
       (SELECT jsonb_agg(jsonb_build_object('part', d.part, 'state', d.state,
                 'remote_id', d.remote_id::bigint, 'attempt', d.attempt))
          FROM deliveries d WHERE d.session_id = t.session_id AND d.turn_no = t.turn_no) AS parts
  FROM turns t
  LEFT JOIN LATERAL (
    SELECT e.author, e.blocks, e.seq FROM turn_entries te JOIN entries e USING (session_id, seq)
     WHERE te.session_id = t.session_id AND te.turn_no = t.turn_no AND e.author IN ('assistant', 'operator')
     ORDER BY te.step DESC LIMIT 1) e ON t.state IN ('answered', 'stopped')
  LEFT JOIN LATERAL (
    SELECT v.payload FROM events v
     WHERE v.session_id = t.session_id AND v.turn_no = t.turn_no AND v.kind = 'msg'
       AND (v.seq IS NULL OR v.seq = e.seq)
     ORDER BY v.event_seq DESC LIMIT 1) n ON true
 WHERE t.session_id = :session_id AND t.turn_no = :turn AND t.ended_at IS NOT NULL
""")
"""Select the outcome of an ended turn and the states of its parts; no row while it runs."""
_LIST_PARTS = Named("""
SELECT part, state, remote_id::bigint, attempt FROM deliveries
 WHERE session_id = :session_id AND turn_no = :turn ORDER BY part
""")
_ARE_PLANNED = Named("""
SELECT part, state, remote_id::bigint, attempt FROM deliveries
 WHERE session_id = :session_id AND turn_no = :turn ORDER BY part
""")
_BEGIN = Named("""
UPDATE deliveries SET state = 'sending', attempt = attempt + 1
 WHERE session_id = :session_id AND turn_no = :turn AND part = :part AND state = 'queued' RETURNING part
""")
_MARK_NOT_SENT = Named("""
UPDATE deliveries SET state = 'queued', error = :error
 WHERE session_id = :session_id AND turn_no = :turn AND part = :part AND state = 'sending'
""")
_GIVE_UP = Named("""
UPDATE deliveries SET state = :state, error = :error, remote_id = coalesce(:remote_id, remote_id)
 WHERE session_id = :session_id AND turn_no = :turn AND part = :part
   AND state IN ('queued', 'sending', 'sent')
""")
_DROP_SURPLUS = Named("""
DELETE FROM deliveries WHERE session_id = :session_id AND turn_no = :turn AND part >= :count
""")
_RESTART_DELIVERY = Named("""
DELETE FROM deliveries WHERE session_id = :session_id AND turn_no = :turn AND part >= :part
""")
_RECOVER_INTERRUPTED = Named("""
UPDATE deliveries d SET state = 'uncertain', error = 'the sender ended while it was being sent'
  FROM addresses a WHERE a.id = d.address_id AND a.account = ANY (:accounts::text[])
   AND d.channel = 'telegram' AND d.state = 'sending' RETURNING d.part
""")
_LIST_UNFINISHED = Named("""
SELECT d.session_id, d.turn_no FROM deliveries d
  JOIN turns t USING (session_id, turn_no) JOIN addresses a ON a.id = d.address_id
 WHERE d.channel = 'telegram' AND d.state IN ('queued', 'sending', 'sent')
   AND a.channel = 'telegram' AND t.ended_at IS NOT NULL AND a.account = ANY (:accounts::text[])
   AND (a.unreachable_since IS NULL OR a.next_try_at <= now())
 GROUP BY 1, 2 ORDER BY min(d.created_at) LIMIT :limit
""")
_LIST_UNFINISHED_BEFORE = Named("""
SELECT DISTINCT d.turn_no FROM deliveries d JOIN turns t USING (session_id, turn_no)
 WHERE d.session_id = :session_id AND d.turn_no < :turn AND d.address_id = :address_id
   AND d.state IN ('queued', 'sending', 'sent') AND t.ended_at IS NOT NULL ORDER BY 1
""")
