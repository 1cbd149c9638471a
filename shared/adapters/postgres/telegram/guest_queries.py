"""Store of questions asked in chats where a bot is a guest, and of the progress of their answers.

A query is `waiting` (nothing is in the chat), `sending` (a call is under way), `shown` (a message in the chat
says that the answer follows), `done`, or `lost` (no answer can reach the chat any more).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from shared.adapters.postgres.db.pool import Named, PoolStore, build_value, store_method
from shared.core.session.channels import GUEST_CHANNEL
from shared.core.session.turns import GUEST_NETWORK

NOTICES_PER_MINUTE = 1
"""Maximum notices per caller and minute; no notice is stored above it."""
FAILED_SECONDS = 10
"""Seconds after its end at which the answer of a turn without a waiting query counts as undeliverable."""
_ERROR_CHARS = 300

GuestSend = Literal["holding", "answer"]
"""Kind of message that is being sent: "holding" says that the answer follows.

"answer" is an answer or a notice.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestChat:
    """Conversation of one caller in one chat where the bot is a guest."""

    bot_id: int
    address_id: int
    session_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NewGuestQuery:
    """Guest query, a question in a chat without the bot, as Telegram delivered it."""

    bot_id: int
    update_id: int
    query_id: str
    caller_id: int
    chat_id: int
    language: str
    age_seconds: float
    """Seconds since the question was asked, by this machine's clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DueGuestQuery:
    """Query for which something must be sent: a holding message, a notice or an answer.

    `notice` is the code of a notice, "" if there is none. `session_id` and `turn` are None until a turn
    answers the query. `inline_message_id` is that of the holding message, None without one.
    """

    bot_id: int
    update_id: int
    query_id: str
    chat_id: int
    language: str
    notice: str
    session_id: int | None
    turn: int | None
    has_ended: bool
    """Whether the turn has ended, so that its answer is stored."""
    is_newest: bool
    """False for an earlier question of a turn that answers several."""
    inline_message_id: str | None

    @property
    def key(self) -> tuple[int, int]:
        """Id of the bot and id of the update."""
        return self.bot_id, self.update_id


class PostgresGuestQueries(PoolStore):
    """Store of guest queries; each method is one transaction and raises StorageUnavailable."""

    @store_method
    async def open_chat(
        self, bot_id: int, *, chat_id: int, thread_id: int, caller_id: int, name: str
    ) -> GuestChat:
        """Return a caller's conversation in a guest chat, created at the first question.

        Its contact is new and anonymous, so it shares no memory with other chats of the same person. The bot
        must be enrolled.
        """
        chat, thread = f"{chat_id}:{caller_id}", str(thread_id) if thread_id else ""
        async with self._pool.acquire() as connection, connection.transaction():
            await connection.execute(*_LOCK(what=f"guest {bot_id} {chat} {thread}"))
            row = await connection.fetchrow(*_FIND(bot=str(bot_id), chat=chat, thread=thread))
            if row is not None:
                await connection.execute(*_KEEP_NETWORK(session_id=row["session_id"]))
            else:
                row = await connection.fetchrow(*_OPEN(bot_id=bot_id, chat=chat, thread=thread, name=name))
        assert row is not None
        return build_value(GuestChat, row, bot_id=bot_id)

    @store_method
    async def find_chat_of_due_turn(self, session_id: int) -> GuestChat | None:
        """Return the guest chat from which the oldest unanswered turn of a session came.

        Returns None if it came from elsewhere.
        """
        row = await self._pool.fetchrow(*_OF_DUE_TURN(session_id=session_id))
        return None if row is None else build_value(GuestChat, row, bot_id=int(row["account"]))

    @store_method
    async def record(self, query: NewGuestQuery, *, most_per_hour: int) -> bool:
        """Store a question as waiting for a turn.

        Returns False, without storing it, if its caller has asked `most_per_hour` questions of this bot
        within the hour. A repeated update stores nothing; the result is True unless a notice was stored for
        it.
        """
        return await self._record(query, notice="", most=most_per_hour)

    @store_method
    async def record_notice(self, query: NewGuestQuery, notice: str) -> None:
        """Store a query whose reply is the notice with the code `notice` instead of an answer.

        Nothing is stored for a caller who got NOTICES_PER_MINUTE in the last minute.
        """
        await self._record(query, notice=notice, most=NOTICES_PER_MINUTE)

    async def _record(self, query: NewGuestQuery, *, notice: str, most: int) -> bool:
        async with self._pool.acquire() as connection, connection.transaction():
            await connection.execute(*_LOCK(what=f"guest caller {query.bot_id} {query.caller_id}"))
            return bool(
                await connection.fetchval(
                    *_RECORD(
                        bot_id=query.bot_id, update_id=query.update_id, query_id=query.query_id,
                        caller_id=query.caller_id, chat_id=query.chat_id, language=query.language,
                        notice=notice, age_seconds=query.age_seconds, most=most,
                    ),
                )
            )  # fmt: skip

    @store_method
    async def refuse(self, bot_id: int, update_id: int, *, notice: str) -> None:
        """Store a notice's code as the reply to a waiting question that has no turn; no effect otherwise."""
        await self._pool.execute(*_REFUSE(bot_id=bot_id, update_id=update_id, notice=notice))

    @store_method
    async def bind_turn(self, bot_id: int, update_id: int, *, session_id: int, turn: int) -> None:
        """Store which turn answers a question; no effect if that is stored already."""
        await self._pool.execute(
            *_BIND_TURN(bot_id=bot_id, update_id=update_id, session_id=session_id, turn=turn),
        )  # fmt: skip

    @store_method
    async def list_due(
        self, bot_ids: Sequence[int], *, holding_after: float, limit: int = 200
    ) -> list[DueGuestQuery]:
        """Return at most `limit` queries for which something must be sent, oldest first; claims none.

        A holding message is due `holding_after` seconds after the question.
        """
        rows = await self._pool.fetch(*_DUE(bot_ids=list(bot_ids), holding_after=holding_after, limit=limit))
        return [build_value(DueGuestQuery, row) for row in rows]

    @store_method
    async def find_next_due(self, bot_ids: Sequence[int], *, holding_after: float) -> float | None:
        """Return the seconds until the next holding message is due, negative if overdue.

        Returns None if none is needed.
        """
        seconds: float | None = await self._pool.fetchval(
            *_NEXT_DUE(bot_ids=list(bot_ids), holding_after=holding_after)
        )
        return seconds

    @store_method
    async def begin(self, bot_id: int, update_id: int, *, sends: GuestSend) -> bool:
        """Mark a waiting query as being answered, before the call.

        Returns False, without effect, if it is not waiting: another process sends it, or it was shown or has
        ended.
        """
        found = await self._pool.fetchval(
            *_BEGIN(bot_id=bot_id, update_id=update_id, sends=sends),
        )  # fmt: skip
        return found is not None

    @store_method
    async def mark_shown(self, bot_id: int, update_id: int, *, inline_message_id: str) -> None:
        """Store the id of the holding message, which is later edited into the answer."""
        await self._pool.execute(
            *_MARK_SHOWN(bot_id=bot_id, update_id=update_id, inline_message_id=inline_message_id),
        )  # fmt: skip

    @store_method
    async def mark_not_sent(self, bot_id: int, update_id: int, *, error: str) -> None:
        """Record that nothing was sent to the chat; the query waits again."""
        await self._pool.execute(
            *_MARK_NOT_SENT(bot_id=bot_id, update_id=update_id, error=error[:_ERROR_CHARS]),
        )  # fmt: skip

    @store_method
    async def finish(
        self, bot_id: int, update_id: int, *, state: Literal["done", "lost"], error: str = ""
    ) -> None:
        """End a query: its answer is in the chat ("done") or can never be ("lost").

        Unless a newer query waits for the same turn, the turn's delivery ends as well, as delivered or dead.
        """
        await self._pool.execute(
            *_FINISH(
                bot_id=bot_id,
                update_id=update_id,
                state=state,
                error=error[:_ERROR_CHARS],
            )
        )

    @store_method
    async def recover_interrupted(self, bot_ids: Sequence[int]) -> int:
        """End or release queries that are still being sent; return their number.

        An answer may be in the chat and is not sent again: the query is lost. After a holding message the
        query waits again. A process calls it when it begins to serve these bots, so the process that sent
        them is dead.
        """
        rows = await self._pool.fetch(*_LEFT_BY_THE_DEAD(bot_ids=list(bot_ids)))
        return len(rows)

    @store_method
    async def close_deliveries(self, bot_ids: Sequence[int]) -> int:
        """Mark deliveries to guest chats as dead that no query can carry; return their number.

        An operator's message is such a delivery. A turn must have ended for FAILED_SECONDS.
        """
        rows = await self._pool.fetch(
            *_NOT_DELIVERABLE(
                accounts=[str(bot_id) for bot_id in bot_ids],
                seconds=FAILED_SECONDS,
            )
        )
        return len(rows)


_LOCK = Named("SELECT pg_advisory_xact_lock(hashtextextended('evertalk.' || :what, 0))")
_FIND = Named(
    """
SELECT id AS address_id, session_id FROM addresses
 WHERE channel = :channel AND account = :bot AND chat = :chat AND thread = :thread
""",
    channel=GUEST_CHANNEL,
)
_OPEN = Named(
    """
WITH b AS (
  SELECT bot_id::text AS account, agent_id FROM telegram_bots WHERE bot_id = :bot_id
), p AS (
  -- Anonymous, with the guests' network: the caps of visitors and of guests hold, and no owner's memory.
  INSERT INTO contacts (kind, display_name, anonymous, network)
  SELECT 'person', :name, true, :network FROM b RETURNING id
), s AS (
  INSERT INTO sessions (contact_id, agent_id) SELECT p.id, b.agent_id FROM p, b RETURNING id
), t AS (
  INSERT INTO session_totals (session_id) SELECT id FROM s
)
INSERT INTO addresses (channel, account, chat, thread, contact_id, session_id, title)
SELECT :channel, b.account, :chat, :thread, p.id, s.id, :name FROM b, p, s
RETURNING id AS address_id, session_id
""",
    channel=GUEST_CHANNEL,
    network=GUEST_NETWORK,
)
"""Insert a guest with session and address in one commit.

The spending limits of visitors and of guests apply.
"""
# An erasure deletes the network, and with it the guests' spending limit.
_KEEP_NETWORK = Named(
    """
UPDATE contacts p SET network = :network FROM sessions s
 WHERE s.id = :session_id AND p.id = s.contact_id AND p.network IS DISTINCT FROM :network
""",
    network=GUEST_NETWORK,
)
_OF_DUE_TURN = Named(
    """
SELECT a.id AS address_id, a.account, a.session_id
  FROM sessions s JOIN turns t ON t.session_id = s.id AND t.turn_no = s.answered_turn + 1
  JOIN addresses a ON a.id = t.address_id AND a.session_id = s.id
 WHERE s.id = :session_id AND a.channel = :channel
""",
    channel=GUEST_CHANNEL,
)
"""Select the guest chat of the session's oldest unanswered turn; no row if the turn came from elsewhere."""
# Notices are limited per minute, and questions, including unreadable ones, per hour. A known update is
# neither counted nor stored again.
_RECORD = Named("""
WITH known AS (
  SELECT notice = :notice AS is_same FROM guest_queries WHERE bot_id = :bot_id AND update_id = :update_id
), room AS (
  SELECT NOT EXISTS (SELECT FROM known) AND count(*) < :most AS is_left FROM guest_queries
   WHERE bot_id = :bot_id AND caller_id = :caller_id
     AND (notice = '' OR notice LIKE 'notice%') = (:notice = '')
     AND asked_at > now() - CASE WHEN :notice = '' THEN interval '1 hour' ELSE interval '1 minute' END
), made AS (
  INSERT INTO guest_queries (bot_id, update_id, query_id, caller_id, chat_id, language, notice, asked_at)
  SELECT :bot_id, :update_id, :query_id, :caller_id, :chat_id, :language, :notice,
         now() - make_interval(secs => :age_seconds) FROM room WHERE is_left
  RETURNING true
)
SELECT EXISTS (SELECT FROM made) OR coalesce((SELECT is_same FROM known), false)
""")
"""Insert a question, once per update, if its caller is below the limit; true also for a repeated update."""
_DUE = Named("""
SELECT q.bot_id, q.update_id, q.query_id, q.chat_id, q.language, q.notice, q.session_id, q.turn_no AS turn,
       t.ended_at IS NOT NULL AS has_ended, q.inline_message_id,
       NOT EXISTS (SELECT FROM guest_queries n WHERE n.session_id = q.session_id AND n.turn_no = q.turn_no
                      AND n.update_id > q.update_id) AS is_newest
  FROM guest_queries q LEFT JOIN turns t ON t.session_id = q.session_id AND t.turn_no = q.turn_no
 WHERE q.bot_id = ANY (:bot_ids)
   AND (q.state = 'waiting' AND (
          q.notice <> '' OR t.ended_at IS NOT NULL
          OR NOT q.holding_tried AND q.asked_at <= now() - make_interval(secs => :holding_after))
        OR q.state = 'shown' AND t.ended_at IS NOT NULL)
 ORDER BY q.asked_at LIMIT :limit
""")
"""Select queries for which something must be sent: a notice, an answer, or a holding message."""
_FINISH = Named("""
WITH q AS (
  UPDATE guest_queries SET state = :state, error = :error, ended_at = now()
   WHERE bot_id = :bot_id AND update_id = :update_id AND state IN ('waiting', 'sending', 'shown')
  RETURNING session_id, turn_no, update_id
)
UPDATE deliveries d SET state = CASE WHEN :state = 'done' THEN 'delivered' ELSE 'dead' END,
       delivered_at = CASE WHEN :state = 'done' THEN now() END, error = :error
  FROM q WHERE d.session_id = q.session_id AND d.turn_no = q.turn_no AND d.state IN ('queued', 'dead')
   AND NOT EXISTS (SELECT FROM guest_queries n WHERE n.session_id = q.session_id AND n.turn_no = q.turn_no
                      AND n.update_id > q.update_id)
""")
"""End a query, and the delivery of its answer unless a newer query waits for it."""
_LEFT_BY_THE_DEAD = Named("""
WITH left_over AS (
  UPDATE guest_queries SET
         state = CASE sends WHEN 'holding' THEN 'waiting' ELSE 'lost' END,
         ended_at = CASE sends WHEN 'holding' THEN NULL ELSE now() END,
         error = 'the sender ended while it was being sent'
   WHERE bot_id = ANY (:bot_ids) AND state = 'sending' RETURNING session_id, turn_no, state
), d AS (
  UPDATE deliveries d SET state = 'dead', error = 'the sender ended while it was being sent' FROM left_over q
   WHERE q.state = 'lost' AND d.session_id = q.session_id AND d.turn_no = q.turn_no AND d.state = 'queued'
)
SELECT state FROM left_over
""")
"""Release queries whose sender died: a holding message may be sent again, an answer must not."""
_NOT_DELIVERABLE = Named(
    """
UPDATE deliveries d SET state = 'dead', error = 'no question of the guest waits for it'
  FROM addresses a, turns t
 WHERE a.id = d.address_id AND a.channel = :channel AND a.account = ANY (:accounts)
   AND t.session_id = d.session_id AND t.turn_no = d.turn_no
   AND d.state = 'queued' AND t.ended_at < now() - make_interval(secs => :seconds)
   AND NOT EXISTS (SELECT FROM guest_queries q WHERE q.session_id = d.session_id AND q.turn_no = d.turn_no
                      AND q.state IN ('waiting', 'sending', 'shown'))
RETURNING d.part
""",
    channel=GUEST_CHANNEL,
)
"""End deliveries of answers for which no query waits any more."""
_NEXT_DUE = Named("""
SELECT extract(epoch FROM min(asked_at) + make_interval(secs => :holding_after) - now())::float8
  FROM guest_queries
 WHERE bot_id = ANY (:bot_ids) AND state = 'waiting' AND notice = '' AND NOT holding_tried
""")
"""Select the seconds until the oldest query without any message needs its holding message."""
_REFUSE = Named("""
UPDATE guest_queries SET notice = :notice
 WHERE bot_id = :bot_id AND update_id = :update_id AND state = 'waiting' AND session_id IS NULL
""")
"""Store a notice for a waiting query that has no turn."""
_BIND_TURN = Named("""
UPDATE guest_queries SET session_id = :session_id, turn_no = :turn
 WHERE bot_id = :bot_id AND update_id = :update_id AND session_id IS NULL
""")
_BEGIN = Named("""
UPDATE guest_queries SET state = 'sending', sends = :sends,
       holding_tried = holding_tried OR :sends = 'holding'
 WHERE bot_id = :bot_id AND update_id = :update_id AND state = 'waiting' RETURNING update_id
""")
_MARK_SHOWN = Named("""
UPDATE guest_queries SET state = 'shown', inline_message_id = :inline_message_id
 WHERE bot_id = :bot_id AND update_id = :update_id AND state = 'sending'
""")
_MARK_NOT_SENT = Named("""
UPDATE guest_queries SET state = 'waiting', error = :error
 WHERE bot_id = :bot_id AND update_id = :update_id AND state = 'sending'
""")
