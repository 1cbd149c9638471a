"""Secretary mode: business connections, the chats of their customers, and drafts that wait for an owner.

A draft is `due` (to be shown to the owner), `showing`, `shown`, `approved` (to be sent), `sending`, and at
last `sent`, `uncertain` (it may be in the chat), `refused` (by Telegram), `dropped` (by the owner),
`outdated` (a newer message came), `expired`, `closed` (the connection ended) or `failed` (no answer).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from shared.adapters.postgres.db.pool import Connection, Named, PoolStore, Record, build_value, store_method
from shared.adapters.postgres.handover.handovers import RECORD_REPLY
from shared.adapters.postgres.turns.edits import FENCE_JOBS
from shared.core.session.channels import SECRETARY_CHANNEL
from shared.core.session.turns import SECRETARY_NETWORK
from shared.core.values.messages import Text, blocks_from_json, blocks_to_json, typed_text_of
from shared.core.values.tokens import estimate_blocks, estimate_by_script

QUESTIONS_SHOWN = 3
"""Maximum messages of a customer that a draft shows the owner, the newest of those that it answers."""
REPLY_HOURS = 24
"""Hours after a customer's last message in which Telegram accepts an answer."""
_ERROR_CHARS = 300
_MAY_HAVE_ARRIVED = "Telegram did not confirm it; it may have arrived"

DraftState = Literal[
    "due", "showing", "shown", "approved", "sending", "sent", "uncertain", "refused", "dropped", "outdated",
    "expired", "closed", "failed",
]  # fmt: skip
"""State of a draft; the module's description explains each."""
Decision = Literal["approved", "dropped", "unknown", "no_right", "text_late"] | DraftState
"""Result of an owner's press of a button of a draft, or of an own text in its place.

"approved" and "dropped" took effect. Otherwise it is the reason why not: a draft's state, "unknown" for an
unknown draft, "no_right" if the bot may not reply, or "text_late" if another text was approved before the
owner's own.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class BusinessLink:
    """Connection of an owner's business account with a bot."""

    bot_id: int
    connection_id: str
    owner_id: int
    owner_chat_id: int
    owner_name: str
    language: str
    can_reply: bool
    is_enabled: bool
    established_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomerChat:
    """Conversation with one customer of one owner."""

    bot_id: int
    owner_id: int
    chat_id: int
    address_id: int
    session_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomerMessage:
    """Stored message of a customer's chat, of the customer or, if `is_customers` is False, of the owner.

    `seq` is the number of its entry, None for an answer that was sent.
    """

    session_id: int
    turn: int
    seq: int | None
    is_customers: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomerDraft:
    """Draft of an answer to a customer, with what is needed to show or send it.

    `own_text` is the owner's text in its place, None without one. `prompt_id` is the message that shows the
    draft to the owner, and `change_id` the one that requests another text; each is None without one.
    `is_automatic` says that it goes without approval. `error` is "" without one.
    """

    draft_id: int
    session_id: int
    turn: int
    bot_id: int
    owner_id: int
    chat_id: int
    state: DraftState
    is_automatic: bool
    own_text: str | None
    prompt_id: int | None
    change_id: int | None
    owner_chat_id: int
    language: str
    customer: str
    can_reply: bool
    error: str

    @property
    def key(self) -> tuple[int, int]:
        """Session's internal id and turn number."""
        return self.session_id, self.turn


class PostgresSecretary(PoolStore):
    """Store of secretary mode; each method is one transaction and raises StorageUnavailable."""

    # -- connections ----------------------------------------------------------------------------------

    @store_method
    async def record_link(self, link: BusinessLink) -> bool:
        """Store the newest state of a connection; an enabled one disables older ones of its owner and bot.

        Returns False if a newer state of it is stored, or if a newer connection of this owner and bot is
        enabled.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            await connection.execute(*_LOCK(what=f"secretary {link.bot_id} {link.owner_id}"))
            values = {
                "bot_id": link.bot_id, "connection_id": link.connection_id, "owner_id": link.owner_id,
                "established_at": link.established_at,
            }  # fmt: skip
            if link.is_enabled:
                await connection.execute(*_END_OTHERS(**values))
            stored = await connection.fetchval(
                *_RECORD_LINK(
                    **values, owner_chat_id=link.owner_chat_id, owner_name=link.owner_name[:128],
                    language=link.language[:10], can_reply=link.can_reply, is_enabled=link.is_enabled,
                )
            )  # fmt: skip
        return stored is not None

    @store_method
    async def find_link(self, bot_id: int, connection_id: str) -> BusinessLink | None:
        """Return a business connection; None if it is unknown."""
        row = await self._pool.fetchrow(*_FIND_LINK(bot_id=bot_id, connection_id=connection_id))
        return None if row is None else build_value(BusinessLink, row)

    # -- chats and messages ---------------------------------------------------------------------------

    @store_method
    async def open_chat(self, bot_id: int, *, owner_id: int, chat_id: int, name: str) -> CustomerChat:
        """Return the conversation with a customer, created at the first message; `name` is stored.

        Its contact is new: it shares no memory with the owner, with other customers, or with the customer's
        own chat with the bot. The bot must be enrolled.
        """
        chat, network = f"{owner_id}:{chat_id}", f"{SECRETARY_NETWORK}{bot_id}:{owner_id}"
        async with self._pool.acquire() as connection, connection.transaction():
            await connection.execute(*_LOCK(what=f"secretary {bot_id} {chat}"))
            row = await connection.fetchrow(*_FIND_CHAT(bot=str(bot_id), chat=chat))
            if row is not None:
                await connection.execute(
                    *_KEEP_CHAT(session_id=row["session_id"], network=network, name=name[:128])
                )
            else:
                row = await connection.fetchrow(
                    *_OPEN_CHAT(bot_id=bot_id, chat=chat, name=name[:128], network=network)
                )
        assert row is not None
        return CustomerChat(bot_id=bot_id, owner_id=owner_id, chat_id=chat_id, **dict(row))

    @store_method
    async def find_chat_of_due_turn(self, session_id: int) -> CustomerChat | None:
        """Return the customer's chat of the session's oldest unanswered turn.

        Returns None if the turn is not from such a chat.
        """
        row = await self._pool.fetchrow(*_OF_DUE_TURN(session_id=session_id))
        return None if row is None else build_value(CustomerChat, row)

    @store_method
    async def find_message(
        self, bot_id: int, *, owner_id: int, chat_id: int, message_id: int
    ) -> CustomerMessage | None:
        """Return a stored message by its Telegram ids; None if it is unknown."""
        row = await self._pool.fetchrow(
            *_FIND_MESSAGE(bot_id=bot_id, owner_id=owner_id, chat_id=chat_id, message_id=message_id)
        )
        return None if row is None else build_value(CustomerMessage, row)

    @store_method
    async def find_running_turn(self, session_id: int) -> int | None:
        """Return the oldest unanswered turn of a conversation; None if all are answered."""
        turn: int | None = await self._pool.fetchval(*_RUNNING_TURN(session_id=session_id))
        return turn

    @store_method
    async def record_owners_words(
        self, chat: CustomerChat, *, message_id: int, text: str, name: str, at: datetime
    ) -> None:
        """Store what the owner wrote to the customer as the answer to all waiting turns.

        Without a waiting turn it becomes a separate turn. Nothing is sent, since it is in the chat already. A
        process that is writing an answer loses the turn. A repeated message has no effect.
        """
        key = f"owner:{message_id}"
        blocks = (Text(text=text),)
        async with self._pool.acquire() as connection, connection.transaction():
            session = await connection.fetchrow(*_LOCK_SESSION(session_id=chat.session_id))
            assert session is not None, "the chat is open"
            known = await connection.fetchval(*_KNOWN_ENTRY(session_id=chat.session_id, key=key))
            if known:
                return
            waiting = session["answered_turn"] + 1 < session["next_turn"]
            row = await connection.fetchrow(
                *RECORD_REPLY(
                    session_id=chat.session_id, channel="telegram", address_id=chat.address_id,
                    from_turn=session["answered_turn"] + 1 if waiting else session["next_turn"],
                    through_turn=session["next_turn"] - 1 if waiting else session["next_turn"],
                    blocks=blocks_to_json(blocks), tokens=estimate_blocks(blocks, estimate_by_script),
                    key=key, cid=None, payload={"name": name},
                )
            )  # fmt: skip
            assert row is not None
            # The words are in the chat already.
            await connection.execute(*_ALREADY_THERE(session_id=chat.session_id, turn=row["turn"]))
            await connection.execute(
                *_RECORD_OWNERS_MESSAGE(
                    bot_id=chat.bot_id, owner_id=chat.owner_id, chat_id=chat.chat_id, message_id=message_id,
                    session_id=chat.session_id, turn=row["turn"], seq=row["seq"], at=at,
                )
            )  # fmt: skip

    # -- drafts ---------------------------------------------------------------------------------------

    @store_method
    async def settle(
        self, session_id: int, *, is_automatic: Callable[[int], bool], hours: int = REPLY_HOURS
    ) -> None:
        """Make drafts of the answers that ended, mark outdated ones, and hide what was never sent.

        It is called before each claim, so that no request shows an answer that the customer has not read.
        `is_automatic` says by the customer's chat id whether answers go without approval. A draft expires
        `hours` after the customer's last message, at most REPLY_HOURS. No effect for another session.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            if await connection.fetchrow(*_LOCK_SESSION(session_id=session_id)) is None:
                return
            chat = await connection.fetchval(*_CUSTOMER_OF(session_id=session_id))
            if chat is None:
                return
            await connection.execute(
                *_MAKE_DRAFTS(session_id=session_id, is_automatic=is_automatic(chat), hours=hours)
            )
            await connection.execute(*_MARK_OUTDATED(session_id=session_id))
            await connection.execute(*_END_DELIVERIES(session_ids=[session_id]))
            await _hide_unsent(connection, session_id)

    @store_method
    async def outdate(self, session_id: int, turn: int) -> None:
        """Mark the open draft of a turn as outdated, so that it is not sent; no effect on an approved one.

        Called when a message that it answers was deleted.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            await connection.execute(*_OUTDATE(session_id=session_id, turn=turn))
            await connection.execute(*_END_DELIVERIES(session_ids=[session_id]))

    @store_method
    async def list_unsettled(self, bot_ids: Sequence[int], *, limit: int = 100) -> list[int]:
        """Return at most `limit` sessions of these bots with an ended answer that has no draft yet."""
        rows = await self._pool.fetch(
            *_UNSETTLED(accounts=[str(bot_id) for bot_id in bot_ids], limit=limit),
        )
        return [row["session_id"] for row in rows]

    @store_method
    async def list_due(self, bot_ids: Sequence[int], *, limit: int = 100) -> list[CustomerDraft]:
        """Return at most `limit` drafts for which a request to Telegram is due, oldest first; claims none.

        The request shows the draft to the owner, sends it to the customer, or shows the owner how it ended.
        """
        rows = await self._pool.fetch(*_DUE(bot_ids=list(bot_ids), limit=limit))
        return [build_value(CustomerDraft, row) for row in rows]

    @store_method
    async def find_draft(self, bot_id: int, draft_id: int) -> CustomerDraft | None:
        """Return a draft of a bot; None if it is unknown."""
        row = await self._pool.fetchrow(*_FIND_DRAFT(bot_id=bot_id, draft_id=draft_id))
        return None if row is None else build_value(CustomerDraft, row)

    @store_method
    async def find_draft_to_change(
        self, bot_id: int, *, owner_id: int, change_id: int
    ) -> CustomerDraft | None:
        """Return the owner's draft whose other text the bot requested in the message `change_id`.

        Returns None if there is none.
        """
        row = await self._pool.fetchrow(*_FIND_CHANGED(bot_id=bot_id, owner_id=owner_id, change_id=change_id))
        return None if row is None else build_value(CustomerDraft, row)

    @store_method
    async def load_questions(self, session_id: int, turn: int) -> tuple[str, ...]:
        """Return the newest texts of the customer that the draft of a turn answers, oldest first.

        They are at most QUESTIONS_SHOWN, none from before the owner's or bot's last message.
        """
        rows = await self._pool.fetch(
            *_QUESTIONS(session_id=session_id, turn=turn, limit=QUESTIONS_SHOWN),
        )
        return tuple(typed_text_of(blocks_from_json(row["blocks"])) for row in reversed(rows))

    @store_method
    async def begin_showing(self, draft: CustomerDraft) -> bool:
        """Mark a due draft as being shown, before the request.

        Returns False, without effect, if it is not due: another process shows it, or it was shown or has
        ended.
        """
        return bool(await self._pool.fetchval(*_BEGIN_SHOWING(session_id=draft.session_id, turn=draft.turn)))

    @store_method
    async def mark_shown(self, draft: CustomerDraft, *, prompt_id: int | None, state: DraftState) -> None:
        """Record the message that shows a draft to its owner, and which state of the draft it shows.

        `prompt_id` None leaves the recorded message.
        """
        await self._pool.execute(
            *_MARK_SHOWN(session_id=draft.session_id, turn=draft.turn, prompt_id=prompt_id, state=state)
        )

    @store_method
    async def put_off(self, draft: CustomerDraft, *, seconds: float, error: str = "") -> None:
        """Make a request due again after `seconds` that was surely not sent, and store the error.

        A draft that was being shown is due, and one that was being sent is approved again.
        """
        await self._pool.execute(
            *_PUT_OFF(
                session_id=draft.session_id, turn=draft.turn, seconds=seconds, error=error[:_ERROR_CHARS]
            )
        )

    @store_method
    async def approve(self, draft: CustomerDraft, *, own_text: str | None = None) -> Decision:
        """Approve a draft that is open or uncertain, so that it is sent; an uncertain one is sent again.

        `own_text` is sent in its place; None leaves the text. Returns "approved", also without effect if the
        same was approved before. Any other decision is the reason why there was no effect; "text_late" means
        that another text than `own_text` is or was sent.
        """
        found = await self._pool.fetchval(
            *_APPROVE(session_id=draft.session_id, turn=draft.turn, own_text=own_text)
        )
        return "approved" if found else await self._explain(draft, own_text)

    @store_method
    async def drop(self, draft: CustomerDraft) -> Decision:
        """Mark an open draft as dropped, so that it is never sent.

        Returns "dropped", or the reason why that had no effect; an approved draft cannot be dropped.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            found = await connection.fetchval(*_DROP(session_id=draft.session_id, turn=draft.turn))
            await connection.execute(*_END_DELIVERIES(session_ids=[draft.session_id]))
        return "dropped" if found else await self._explain(draft)

    async def _explain(self, draft: CustomerDraft, own_text: str | None = None) -> Decision:
        """Return the reason why a press on this draft, or an own text in its place, had no effect."""
        row = await self._pool.fetchrow(*_EXPLAIN(session_id=draft.session_id, turn=draft.turn))
        if row is None:
            return "unknown"
        is_going = row["state"] in ("approved", "sending", "sent")
        if is_going and own_text is not None and own_text != row["own_text"]:
            return "text_late"
        if row["state"] not in ("due", "showing", "shown", "uncertain"):
            state: Decision = row["state"]
            return state
        if not row["is_enabled"]:
            return "closed"
        return "expired" if row["is_expired"] else "no_right"

    @store_method
    async def record_change(self, draft: CustomerDraft, change_id: int) -> None:
        """Record the message that requests the owner's own text; a former one of the draft is forgotten."""
        await self._pool.execute(
            *_RECORD_CHANGE(session_id=draft.session_id, turn=draft.turn, change_id=change_id)
        )

    @store_method
    async def withdraw_change(self, draft: CustomerDraft, change_id: int) -> None:
        """Forget the message `change_id` that requests the owner's own text; no effect for another one."""
        await self._pool.execute(
            *_WITHDRAW_CHANGE(session_id=draft.session_id, turn=draft.turn, change_id=change_id)
        )

    @store_method
    async def begin_sending(self, draft: CustomerDraft) -> str | None:
        """Mark an approved draft as being sent, before the request, and return its connection's id.

        Returns None, without effect, if it is not approved, has expired, or the connection may not reply.
        """
        connection_id: str | None = await self._pool.fetchval(
            *_BEGIN_SENDING(session_id=draft.session_id, turn=draft.turn)
        )
        return connection_id

    @store_method
    async def mark_sent(self, draft: CustomerDraft, *, message_id: int) -> None:
        """Record that the draft is in the customer's chat as message `message_id`.

        The owner's own text, if any, replaces the answer in the conversation. No effect unless it is being
        sent.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            await connection.execute(*_LOCK_SESSION(session_id=draft.session_id))
            ended = await connection.fetchval(
                *_MARK_SENT(session_id=draft.session_id, turn=draft.turn, message_id=message_id)
            )
            if ended is None or draft.own_text is None:
                return
            blocks = (Text(text=draft.own_text),)
            hidden = await connection.fetch(
                *_STORE_OWN_TEXT(
                    session_id=draft.session_id, turn=draft.turn, blocks=blocks_to_json(blocks),
                    tokens=estimate_blocks(blocks, estimate_by_script), key=f"owner:{message_id}",
                )
            )  # fmt: skip
            await _correct(connection, draft.session_id, hidden)

    @store_method
    async def mark_unsent(
        self, draft: CustomerDraft, *, state: Literal["uncertain", "refused"], error: str
    ) -> None:
        """End a draft that Telegram refused, or whose arrival is uncertain since Telegram gave no result.

        Its delivery is dead and listed as a problem.
        """
        await self._pool.execute(
            *_MARK_UNSENT(
                session_id=draft.session_id, turn=draft.turn, state=state, error=error[:_ERROR_CHARS]
            )
        )

    @store_method
    async def recover_interrupted(self, bot_ids: Sequence[int]) -> int:
        """Recover drafts that are still being shown or sent; return their number.

        An answer that was being sent may be in the chat, and is not sent again. A draft that was being shown
        is shown again. A process calls it when it begins to serve these bots, so the process that worked on
        them is dead.
        """
        rows = await self._pool.fetch(*_LEFT_BY_THE_DEAD(bot_ids=list(bot_ids), error=_MAY_HAVE_ARRIVED))
        return len(rows)

    @store_method
    async def end_overdue(self, bot_ids: Sequence[int]) -> int:
        """End open drafts that have expired or whose connection has ended; return their number.

        It also ends deliveries of answers that were erased.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            rows = await connection.fetch(*_END_OVERDUE(bot_ids=list(bot_ids)))
            accounts = [str(bot_id) for bot_id in bot_ids]
            await connection.execute(*_END_ERASED_DELIVERIES(accounts=accounts))
            if rows:
                await connection.execute(*_END_DELIVERIES(session_ids=[row["session_id"] for row in rows]))
        return len(rows)


async def _hide_unsent(connection: Connection, session_id: int) -> None:
    """Hide answers that were never sent from the conversation, and have it read again without them."""
    hidden = await connection.fetch(*_HIDE(session_id=session_id))
    await _correct(connection, session_id, hidden)


async def _correct(connection: Connection, session_id: int, hidden: Sequence[Record]) -> None:
    """Make recall, flushes and summaries read the conversation without the hidden entries."""
    if not hidden:
        return
    await connection.execute(*_FORGET_HIDDEN(session_id=session_id, seqs=[row["seq"] for row in hidden]))
    await connection.execute(*_READ_AGAIN(session_id=session_id, turn=min(row["turn_no"] for row in hidden)))
    await connection.execute(*FENCE_JOBS(session_id=session_id))


_LOCK = Named("SELECT pg_advisory_xact_lock(hashtextextended('evertalk.' || :what, 0))")
_FIND_LINK = Named("""
SELECT bot_id, connection_id, owner_id, owner_chat_id, owner_name, language, can_reply, is_enabled,
       established_at
  FROM secretary_connections WHERE bot_id = :bot_id AND connection_id = :connection_id
""")
_END_OTHERS = Named("""
UPDATE secretary_connections SET is_enabled = false, ended_at = now()
 WHERE bot_id = :bot_id AND owner_id = :owner_id AND connection_id <> :connection_id AND is_enabled
   AND established_at <= :established_at
""")
_RECORD_LINK = Named("""
INSERT INTO secretary_connections AS c
  (bot_id, connection_id, owner_id, owner_chat_id, owner_name, language, can_reply, is_enabled,
   established_at, ended_at)
SELECT :bot_id, :connection_id, :owner_id, :owner_chat_id, :owner_name, :language, :can_reply,
       :is_enabled::boolean, :established_at, CASE WHEN NOT :is_enabled::boolean THEN now() END
 WHERE NOT :is_enabled::boolean OR NOT EXISTS (
       SELECT FROM secretary_connections o
        WHERE o.bot_id = :bot_id AND o.owner_id = :owner_id AND o.connection_id <> :connection_id
          AND o.is_enabled)
ON CONFLICT (bot_id, connection_id) DO UPDATE
   SET owner_chat_id = excluded.owner_chat_id, owner_name = excluded.owner_name,
       language = excluded.language, can_reply = excluded.can_reply, is_enabled = excluded.is_enabled,
       established_at = excluded.established_at, ended_at = excluded.ended_at
 WHERE c.established_at <= excluded.established_at
RETURNING true
""")
"""Store a connection's newest state; of an owner's connections with a bot at most one is enabled."""
_FIND_CHAT = Named(
    """
SELECT id AS address_id, session_id FROM addresses
 WHERE channel = :channel AND account = :bot AND chat = :chat AND thread = ''
""",
    channel=SECRETARY_CHANNEL,
)
_OPEN_CHAT = Named(
    """
WITH b AS (
  SELECT bot_id::text AS account, agent_id FROM telegram_bots WHERE bot_id = :bot_id
), p AS (
  -- Anonymous, with the owner's network: the caps of the owner and of a customer hold, and nobody's memory.
  INSERT INTO contacts (kind, display_name, anonymous, network)
  SELECT 'person', :name, true, :network FROM b RETURNING id
), s AS (
  INSERT INTO sessions (contact_id, agent_id) SELECT p.id, b.agent_id FROM p, b RETURNING id
), t AS (
  INSERT INTO session_totals (session_id) SELECT id FROM s
)
INSERT INTO addresses (channel, account, chat, thread, contact_id, session_id, title)
SELECT :channel, b.account, :chat, '', p.id, s.id, :name FROM b, p, s
RETURNING id AS address_id, session_id
""",
    channel=SECRETARY_CHANNEL,
)
"""Insert a customer's contact, conversation and address in one commit."""
# An erasure deletes the network and the name.
_KEEP_CHAT = Named("""
UPDATE contacts p SET network = :network, display_name = :name FROM sessions s
 WHERE s.id = :session_id AND p.id = s.contact_id
   AND (p.network IS DISTINCT FROM :network OR p.display_name <> :name)
""")
_OF_DUE_TURN = Named(
    """
SELECT a.account::bigint AS bot_id, split_part(a.chat, ':', 1)::bigint AS owner_id,
       split_part(a.chat, ':', 2)::bigint AS chat_id, a.id AS address_id, a.session_id
  FROM sessions s JOIN turns t ON t.session_id = s.id AND t.turn_no = s.answered_turn + 1
  JOIN addresses a ON a.id = t.address_id AND a.session_id = s.id
 WHERE s.id = :session_id AND a.channel = :channel
""",
    channel=SECRETARY_CHANNEL,
)
"""Select the customer's chat of the session's oldest unanswered turn; no row for other chats."""
_CUSTOMER_OF = Named(
    """
SELECT split_part(chat, ':', 2)::bigint FROM addresses
 WHERE session_id = :session_id AND channel = :channel LIMIT 1
""",
    channel=SECRETARY_CHANNEL,
)
_FIND_MESSAGE = Named("""
SELECT session_id, turn_no AS turn, seq, is_customers FROM secretary_messages
 WHERE bot_id = :bot_id AND owner_id = :owner_id AND chat_id = :chat_id AND message_id = :message_id
""")
_RECORD_OWNERS_MESSAGE = Named("""
INSERT INTO secretary_messages
  (bot_id, owner_id, chat_id, message_id, session_id, turn_no, seq, is_customers, at)
VALUES (:bot_id, :owner_id, :chat_id, :message_id, :session_id, :turn, :seq, false, :at)
ON CONFLICT DO NOTHING
""")
_RUNNING_TURN = Named("""
SELECT answered_turn + 1 FROM sessions WHERE id = :session_id AND answered_turn < next_turn - 1
""")
_LOCK_SESSION = Named("""
SELECT answered_turn, next_turn FROM sessions WHERE id = :session_id FOR NO KEY UPDATE
""")
_KNOWN_ENTRY = Named("""
SELECT EXISTS (SELECT FROM entries WHERE session_id = :session_id AND dedupe_key = :key)
""")
_ALREADY_THERE = Named("""
UPDATE deliveries SET state = 'delivered', delivered_at = now()
 WHERE session_id = :session_id AND turn_no = :turn AND state = 'queued'
""")

_MAKE_DRAFTS = Named(
    """
WITH ended AS (
  SELECT d.session_id, d.turn_no, a.account::bigint AS bot_id, split_part(a.chat, ':', 1)::bigint AS owner_id,
         split_part(a.chat, ':', 2)::bigint AS chat_id,
         t.state = 'answered' AND EXISTS (
           SELECT FROM turn_entries te JOIN entries e USING (session_id, seq)
            WHERE te.session_id = d.session_id AND te.turn_no = d.turn_no
              AND e.author IN ('assistant', 'operator')) AS is_answered
    FROM deliveries d JOIN turns t USING (session_id, turn_no) JOIN addresses a ON a.id = d.address_id
    JOIN sessions s ON s.id = d.session_id
   WHERE d.session_id = :session_id AND d.part = 0 AND d.state = 'queued' AND t.ended_at IS NOT NULL
     AND d.turn_no > s.erased_turn AND a.channel = :channel
), f AS (
  SELECT e.*, :is_automatic::boolean AND coalesce(c.can_reply, false) AS goes,
         coalesce((SELECT max(m.at) FROM secretary_messages m
                    WHERE m.session_id = e.session_id AND m.turn_no <= e.turn_no AND m.is_customers), now())
           + make_interval(hours => least(:hours::int, :reply_hours)) AS expires_at,
         -- One line an hour says that answers to a customer fail.
         CASE WHEN EXISTS (SELECT FROM secretary_drafts o
                            WHERE o.session_id = e.session_id AND o.state = 'failed'
                              AND o.created_at > now() - interval '1 hour') THEN 'failed' ELSE '' END AS told
    FROM ended e LEFT JOIN secretary_connections c
      ON c.bot_id = e.bot_id AND c.owner_id = e.owner_id AND c.is_enabled
)
INSERT INTO secretary_drafts
  (session_id, turn_no, bot_id, owner_id, chat_id, state, is_automatic, shown_state, expires_at, ended_at)
SELECT session_id, turn_no, bot_id, owner_id, chat_id,
       CASE WHEN NOT is_answered THEN 'failed' WHEN goes THEN 'approved' ELSE 'due' END,
       goes, CASE WHEN NOT is_answered THEN told ELSE '' END, expires_at,
       CASE WHEN NOT is_answered THEN now() END
  FROM f
ON CONFLICT DO NOTHING
""",
    channel=SECRETARY_CHANNEL,
    reply_hours=REPLY_HOURS,
)
"""Insert one draft for each ended answer without one."""
_MARK_OUTDATED = Named("""
UPDATE secretary_drafts f
   SET state = 'outdated', ended_at = now(),
       shown_state = CASE WHEN f.prompt_id IS NULL AND f.state <> 'showing' THEN 'outdated'
                          ELSE f.shown_state END
 WHERE f.session_id = :session_id AND f.state IN ('due', 'showing', 'shown')
   AND EXISTS (SELECT FROM turns t WHERE t.session_id = f.session_id AND t.turn_no > f.turn_no)
""")
"""End open drafts whose conversation has gone on; one that was never shown needs no message about its end."""
_OUTDATE = Named("""
UPDATE secretary_drafts f
   SET state = 'outdated', ended_at = now(),
       shown_state = CASE WHEN f.prompt_id IS NULL AND f.state <> 'showing' THEN 'outdated'
                          ELSE f.shown_state END
 WHERE f.session_id = :session_id AND f.turn_no = :turn AND f.state IN ('due', 'showing', 'shown')
""")
_END_DELIVERIES = Named("""
UPDATE deliveries d SET state = 'delivered', delivered_at = now() FROM secretary_drafts f
 WHERE f.session_id = ANY (:session_ids::bigint[])
   AND f.state IN ('dropped', 'outdated', 'expired', 'closed', 'failed')
   AND d.session_id = f.session_id AND d.turn_no = f.turn_no AND d.state = 'queued'
""")
"""End deliveries of drafts that no customer has seen and that will not be sent."""
_END_ERASED_DELIVERIES = Named(
    """
UPDATE deliveries d SET state = 'delivered', delivered_at = now() FROM sessions s, addresses a
 WHERE d.channel = 'telegram' AND d.state = 'queued' AND s.id = d.session_id AND d.turn_no <= s.erased_turn
   AND a.id = d.address_id AND a.channel = :channel AND a.account = ANY (:accounts::text[])
""",
    channel=SECRETARY_CHANNEL,
)
"""End deliveries of answers that were erased before their draft was decided."""
_HIDE = Named("""
WITH newer AS (
  SELECT f.turn_no, n.seq FROM secretary_drafts f CROSS JOIN LATERAL (
    SELECT te.seq FROM turn_entries te JOIN entries e USING (session_id, seq)
     WHERE te.session_id = f.session_id AND te.turn_no > f.turn_no AND e.author = 'person'
     ORDER BY te.turn_no, te.seq LIMIT 1) n
   WHERE f.session_id = :session_id AND NOT f.is_hidden
     AND f.state IN ('dropped', 'outdated', 'expired', 'closed', 'failed')
), marked AS (
  UPDATE secretary_drafts f SET is_hidden = true FROM newer n
   WHERE f.session_id = :session_id AND f.turn_no = n.turn_no
)
UPDATE turn_entries te SET replaced_by = n.seq FROM newer n, entries e
 WHERE te.session_id = :session_id AND te.turn_no = n.turn_no AND te.replaced_by IS NULL
   AND e.session_id = :session_id AND e.seq = te.seq AND e.author NOT IN ('person', 'operator')
RETURNING te.seq, te.turn_no
""")
"""Replace an unsent answer and its tool results in the turn by the customer's next message."""
_FORGET_HIDDEN = Named("""
DELETE FROM passages WHERE session_id = :session_id AND seq = ANY (:seqs::bigint[])
""")
_READ_AGAIN = Named("""
UPDATE sessions SET view_epoch = view_epoch + 1,
       flushed_turn = CASE WHEN base_turn < :turn THEN least(flushed_turn, :turn - 1) ELSE flushed_turn END
 WHERE id = :session_id
""")
_UNSETTLED = Named(
    """
SELECT DISTINCT d.session_id
  FROM deliveries d JOIN turns t USING (session_id, turn_no) JOIN addresses a ON a.id = d.address_id
  JOIN sessions s ON s.id = d.session_id AND s.erased_turn < d.turn_no
 WHERE d.channel = 'telegram' AND d.state = 'queued' AND d.part = 0 AND a.channel = :channel
   AND a.account = ANY (:accounts::text[]) AND t.ended_at IS NOT NULL
   AND NOT EXISTS (SELECT FROM secretary_drafts f
                    WHERE f.session_id = d.session_id AND f.turn_no = d.turn_no)
 LIMIT :limit
""",
    channel=SECRETARY_CHANNEL,
)
"""Select conversations with an ended answer that has no draft, by the index of queued deliveries."""
_DUE = Named("""
SELECT * FROM customer_drafts
 WHERE bot_id = ANY (:bot_ids) AND next_try_at <= now() AND (ended_at IS NULL OR shown_state <> state)
   AND (state IN ('due', 'approved') OR ended_at IS NOT NULL AND shown_state <> state)
 ORDER BY draft_id LIMIT :limit
""")
_FIND_DRAFT = Named("SELECT * FROM customer_drafts WHERE bot_id = :bot_id AND draft_id = :draft_id")
_FIND_CHANGED = Named("""
SELECT * FROM customer_drafts WHERE bot_id = :bot_id AND owner_id = :owner_id AND change_id = :change_id
""")
_QUESTIONS = Named("""
SELECT e.blocks FROM turn_entries te JOIN entries e USING (session_id, seq)
 WHERE te.session_id = :session_id AND te.turn_no <= :turn AND e.author = 'person' AND te.replaced_by IS NULL
   AND te.turn_no > coalesce((
     SELECT max(m.turn_no) FROM secretary_messages m
      WHERE m.session_id = :session_id AND m.turn_no < :turn AND NOT m.is_customers), 0)
 ORDER BY te.turn_no DESC, te.step DESC LIMIT :limit
""")
_BEGIN_SHOWING = Named("""
UPDATE secretary_drafts SET state = 'showing'
 WHERE session_id = :session_id AND turn_no = :turn AND state = 'due' RETURNING true
""")
_MARK_SHOWN = Named("""
UPDATE secretary_drafts
   SET prompt_id = coalesce(:prompt_id, prompt_id), shown_state = :state,
       state = CASE WHEN state = 'showing' AND :state = 'shown' THEN 'shown' ELSE state END
 WHERE session_id = :session_id AND turn_no = :turn
""")
_PUT_OFF = Named("""
UPDATE secretary_drafts
   SET state = CASE state WHEN 'showing' THEN 'due' WHEN 'sending' THEN 'approved' ELSE state END,
       next_try_at = now() + make_interval(secs => :seconds), error = :error
 WHERE session_id = :session_id AND turn_no = :turn
""")
_APPROVE = Named("""
UPDATE secretary_drafts f
   SET state = 'approved', approved_at = now(), ended_at = NULL, next_try_at = now(), error = '',
       own_text = coalesce(:own_text, f.own_text)
  FROM secretary_connections c
 WHERE f.session_id = :session_id AND f.turn_no = :turn
   AND f.state IN ('due', 'showing', 'shown', 'uncertain')
   AND f.expires_at > now()
   AND c.bot_id = f.bot_id AND c.owner_id = f.owner_id AND c.is_enabled AND c.can_reply
RETURNING true
""")
"""Approve an open draft whose time is not over and whose connection may reply.

Of several presses one has an effect.
"""
_DROP = Named("""
UPDATE secretary_drafts SET state = 'dropped', ended_at = now()
 WHERE session_id = :session_id AND turn_no = :turn AND state IN ('due', 'showing', 'shown') RETURNING true
""")
_EXPLAIN = Named("""
SELECT f.state, f.own_text, f.expires_at <= now() AS is_expired,
       EXISTS (SELECT FROM secretary_connections c
                WHERE c.bot_id = f.bot_id AND c.owner_id = f.owner_id AND c.is_enabled) AS is_enabled
  FROM secretary_drafts f WHERE f.session_id = :session_id AND f.turn_no = :turn
""")
_RECORD_CHANGE = Named("""
UPDATE secretary_drafts SET change_id = :change_id WHERE session_id = :session_id AND turn_no = :turn
""")
_WITHDRAW_CHANGE = Named("""
UPDATE secretary_drafts SET change_id = NULL
 WHERE session_id = :session_id AND turn_no = :turn AND change_id = :change_id
""")
_BEGIN_SENDING = Named("""
UPDATE secretary_drafts f SET state = 'sending' FROM secretary_connections c
 WHERE f.session_id = :session_id AND f.turn_no = :turn AND f.state = 'approved' AND f.expires_at > now()
   AND c.bot_id = f.bot_id AND c.owner_id = f.owner_id AND c.is_enabled AND c.can_reply
RETURNING c.connection_id
""")
_MARK_SENT = Named("""
WITH f AS (
  UPDATE secretary_drafts f
     SET state = 'sent', ended_at = now(), message_id = :message_id, error = '',
         shown_state = CASE WHEN f.prompt_id IS NULL THEN 'sent' ELSE f.shown_state END
   WHERE f.session_id = :session_id AND f.turn_no = :turn AND f.state = 'sending' RETURNING f.*
), d AS (
  UPDATE deliveries d SET state = 'delivered', delivered_at = now(), error = '', remote_id = :message_id::text
    FROM f WHERE d.session_id = f.session_id AND d.turn_no = f.turn_no AND d.state IN ('queued', 'dead')
), m AS (
  INSERT INTO secretary_messages
    (bot_id, owner_id, chat_id, message_id, session_id, turn_no, is_customers, at)
  SELECT bot_id, owner_id, chat_id, :message_id, session_id, turn_no, false, now() FROM f
  ON CONFLICT DO NOTHING
)
SELECT true FROM f
""")
"""End a draft that is in the customer's chat, with its delivery and its message."""
_STORE_OWN_TEXT = Named("""
WITH s AS (
  UPDATE sessions SET next_seq = next_seq + 1, next_event_seq = next_event_seq + 1,
         view_epoch = view_epoch + 1
   WHERE id = :session_id RETURNING next_seq - 1 AS seq, next_event_seq - 1 AS event_seq
), e AS (
  INSERT INTO entries (session_id, seq, role, author, blocks, tokens, dedupe_key)
  SELECT :session_id, seq, 'user', 'operator', :blocks::jsonb, :tokens, :key FROM s
), te AS (
  INSERT INTO turn_entries (session_id, seq, turn_no, step) SELECT :session_id, seq, :turn, seq FROM s
), ev AS (
  INSERT INTO events (session_id, event_seq, kind, seq, turn_no, payload)
  SELECT :session_id, event_seq, 'edited', seq, :turn, '{}' FROM s
), tot AS (
  UPDATE session_totals SET total_tokens_estimate = total_tokens_estimate + :tokens
   WHERE session_id = :session_id
), f AS (
  UPDATE secretary_drafts SET is_hidden = true WHERE session_id = :session_id AND turn_no = :turn
)
UPDATE turn_entries o SET replaced_by = s.seq FROM s, entries w
 WHERE o.session_id = :session_id AND o.turn_no = :turn AND o.replaced_by IS NULL
   AND w.session_id = :session_id AND w.seq = o.seq AND w.author NOT IN ('person', 'operator')
RETURNING o.seq, o.turn_no
""")
"""Replace the answer that the owner changed by the owner's own text."""
_MARK_UNSENT = Named("""
WITH f AS (
  UPDATE secretary_drafts SET state = :state, ended_at = now(), error = :error
   WHERE session_id = :session_id AND turn_no = :turn AND state IN ('approved', 'sending')
  RETURNING session_id, turn_no
)
UPDATE deliveries d SET state = 'dead', error = :error FROM f
 WHERE d.session_id = f.session_id AND d.turn_no = f.turn_no AND d.state = 'queued'
""")
"""End a draft that Telegram refused or did not confirm; its delivery is listed as a problem."""
_LEFT_BY_THE_DEAD = Named("""
WITH f AS (
  UPDATE secretary_drafts
     SET state = CASE state WHEN 'showing' THEN 'due' ELSE 'uncertain' END,
         ended_at = CASE state WHEN 'sending' THEN now() END,
         error = CASE state WHEN 'sending' THEN :error ELSE '' END
   WHERE bot_id = ANY (:bot_ids) AND state IN ('showing', 'sending')
  RETURNING session_id, turn_no, state
), d AS (
  UPDATE deliveries d SET state = 'dead', error = :error FROM f
   WHERE f.state = 'uncertain' AND d.session_id = f.session_id AND d.turn_no = f.turn_no
     AND d.state = 'queued'
)
SELECT state FROM f
""")
"""Recover drafts of a killed process; one that was being sent may be in the chat and is not sent again."""
_END_OVERDUE = Named("""
WITH over AS (
  SELECT f.session_id, f.turn_no, CASE WHEN c.bot_id IS NULL THEN 'closed' ELSE 'expired' END AS state
    FROM secretary_drafts f LEFT JOIN secretary_connections c
      ON c.bot_id = f.bot_id AND c.owner_id = f.owner_id AND c.is_enabled
   WHERE f.bot_id = ANY (:bot_ids) AND f.state IN ('due', 'showing', 'shown', 'approved')
     AND (f.expires_at <= now() OR c.bot_id IS NULL)
)
UPDATE secretary_drafts f
   SET state = o.state, ended_at = now(),
       shown_state = CASE WHEN f.prompt_id IS NULL AND f.state <> 'showing' THEN o.state
                          ELSE f.shown_state END
  FROM over o WHERE f.session_id = o.session_id AND f.turn_no = o.turn_no
RETURNING f.session_id
""")
"""End open drafts whose time is over or whose connection has ended; none of them can be sent."""
