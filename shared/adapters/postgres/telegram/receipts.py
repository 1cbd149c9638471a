"""Rows that the Telegram channel stores with a message, in the transaction of the message itself."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from shared.adapters.postgres.db.pool import Connection, Named
from shared.adapters.postgres.turns.turn_sql import ACCEPT, ACCEPT_AND_CLAIM
from shared.core.session.turns import Inbound
from shared.core.values.errors import LeaseLost


@dataclass(frozen=True, slots=True, kw_only=True)
class TelegramReceipt:
    """Receipt of a message: raw updates to mark as handled, and ids of its chat messages.

    A crash leaves both or neither. The updates are locked first, and nothing is stored unless all of them
    wait; so of two processes with the same updates one stores the message.
    """

    bot_id: int
    update_ids: tuple[int, ...]
    chat_id: int
    message_ids: tuple[int, ...] = ()
    own_texts: tuple[str | None, ...] = ()
    """Text of each message alone, if the entry contains more; else None."""
    files: tuple[str | None, ...] = ()
    """Telegram's unique file id of each message; None without a file."""
    late_for: int | None = None
    """Id of an earlier message that this one continues, to join its turn if possible; else None."""

    async def lock(self, transaction: Connection) -> bool:
        """Lock the updates; return whether all of them wait and one of their messages is not stored yet."""
        may_be_stored: bool = await transaction.fetchval(*_LOCK(**self._list_sources()))
        return may_be_stored

    async def record(self, transaction: Connection, *, session_id: int, seq: int, turn: int) -> None:
        """Mark the updates as handled and store the ids of the message's chat messages."""
        nothing = (None,) * len(self.message_ids)
        await transaction.execute(
            *_RECORD(
                **self._list_sources(), session_id=session_id, seq=seq, turn=turn,
                own_texts=self.own_texts or nothing, files=self.files or nothing,
            )
        )  # fmt: skip

    def _list_sources(self) -> dict[str, object]:
        """Return the parameters that name the updates and the chat messages."""
        return {
            "bot_id": self.bot_id, "update_ids": self.update_ids, "chat_id": self.chat_id,
            "message_ids": self.message_ids,
        }  # fmt: skip

    async def find_joined_turn(self, transaction: Connection, inbound: Inbound) -> int | None:
        """Return the turn of the message `late_for`; None without it, or if that message is not stored.

        `inbound` is the message to store.
        """
        if self.late_for is None:
            return None
        turn: int | None = await transaction.fetchval(
            *_TURN_OF_MESSAGE(
                session_id=inbound.session_id,
                bot_id=self.bot_id,
                chat_id=self.chat_id,
                message_id=self.late_for,
            )
        )
        return turn

    async def find_stored(self, transaction: Connection, inbound: Inbound, *, is_stored: bool) -> int | None:
        """Mark updates as handled whose message was already stored by its edit.

        Returns the message's `seq`; None if it is not stored. `is_stored` says that an entry of the message
        itself exists; the result is then None. Raises LeaseLost if an update of a stored message is
        unhandled, or one of an unstored message is handled: the caller reads the updates again.
        """
        waiting: int = await transaction.fetchval(
            *_COUNT_WAITING(bot_id=self.bot_id, update_ids=self.update_ids)
        )
        if waiting if is_stored else waiting < len(self.update_ids):
            raise LeaseLost(
                f"bot {self.bot_id}: {len(self.update_ids) - waiting} of {len(self.update_ids)} updates "
                "ended elsewhere"
            )
        if is_stored:
            return None
        seq: int | None = await transaction.fetchval(
            *_FIND_KNOWN(
                session_id=inbound.session_id,
                bot_id=self.bot_id,
                chat_id=self.chat_id,
                message_ids=self.message_ids,
            )
        )
        if seq is not None:
            await transaction.execute(*_END_UPDATES(bot_id=self.bot_id, update_ids=self.update_ids))
        return seq


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomerReceipt:
    """Receipt of a customer's message to a business account.

    It stores the message's Telegram ids, by which its edit or deletion finds the entry.
    """

    bot_id: int
    owner_id: int
    chat_id: int
    message_id: int
    sent_at: datetime

    async def lock(self, transaction: Connection) -> bool:
        """Return True: the key of a customer's message prevents a second one, so nothing is locked."""
        return True

    async def record(self, transaction: Connection, *, session_id: int, seq: int, turn: int) -> None:
        """Store the message's place in the chat with its customer."""
        await transaction.execute(
            *_KEEP_CUSTOMERS(
                bot_id=self.bot_id, owner_id=self.owner_id, chat_id=self.chat_id, message_id=self.message_id,
                session_id=session_id, seq=seq, turn=turn, sent_at=self.sent_at,
            )
        )  # fmt: skip

    async def find_joined_turn(self, transaction: Connection, inbound: Inbound) -> int | None:
        """Return None, since a customer's message never continues an earlier one."""
        return None

    async def find_stored(self, transaction: Connection, inbound: Inbound, *, is_stored: bool) -> int | None:
        """Return None, since a repeated message is found by its key alone."""
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class TelegramEditReceipt:
    """Receipt of an edit: the new text of one Telegram message whose entry contains several."""

    bot_id: int
    chat_id: int
    message_id: int
    own_text: str
    file_unique_id: str | None = None
    """Unique id of the file that the message has now; None keeps the stored one."""

    async def record(self, transaction: Connection) -> None:
        """Replace the stored text and file id of the message, in the transaction of the edit.

        A stored text of None stays None.
        """
        await transaction.execute(
            *_REWORD(
                bot_id=self.bot_id, chat_id=self.chat_id, message_id=self.message_id, own_text=self.own_text,
                file_unique_id=self.file_unique_id,
            )
        )  # fmt: skip


async def rehearse_receipts(connection: Connection) -> None:
    """Prepare the statements that store a message with a receipt on this connection.

    They are run for no message, and store nothing.
    """
    for statement in (_LOCK, ACCEPT_AND_CLAIM, ACCEPT, _RECORD):
        await connection.fetch(*statement.rehearse())


FOLLOW_WORDING = Named("""
UPDATE telegram_messages SET seq = :new WHERE session_id = :session_id AND seq = :old
""")
"""Let chat messages of the entry `old` refer to its newest wording, the entry `new`."""
_LOCK = Named("""
WITH mine AS (
  SELECT update_id FROM telegram_updates
   WHERE bot_id = :bot_id AND update_id = ANY (:update_ids::bigint[]) AND handled_at IS NULL
   ORDER BY update_id FOR UPDATE
)
SELECT (SELECT count(*) FROM mine) = cardinality(:update_ids::bigint[])
   AND (cardinality(:message_ids::bigint[]) = 0 OR cardinality(:message_ids::bigint[]) > (
         SELECT count(*) FROM telegram_messages
          WHERE bot_id = :bot_id AND chat_id = :chat_id AND message_id = ANY (:message_ids::bigint[])
            AND seq IS NOT NULL))
""")
"""Lock the updates of a message; select whether all are unhandled and a message is not stored yet.

The second condition also holds without messages. All messages are stored if an edit arrived before them.
Of two processes with the same updates one waits here, and then finds them handled.
"""
_RECORD = Named("""
WITH ended AS (
  UPDATE telegram_updates SET handled_at = now()
   WHERE bot_id = :bot_id AND update_id = ANY (:update_ids::bigint[]) AND handled_at IS NULL
)
INSERT INTO telegram_messages (bot_id, chat_id, message_id, session_id, seq, turn_no, own_text,
                               file_unique_id)
SELECT :bot_id, :chat_id, x.message_id, :session_id, :seq, :turn, x.own_text, x.file
  FROM unnest(:message_ids::bigint[], :own_texts::text[], :files::text[]) AS x(message_id, own_text, file)
ON CONFLICT DO NOTHING
""")
"""Mark the updates of a message as handled, and insert its chat messages.

Messages that are already stored stay unchanged.
"""
_KEEP_CUSTOMERS = Named("""
INSERT INTO secretary_messages
  (bot_id, owner_id, chat_id, message_id, session_id, turn_no, seq, is_customers, at)
VALUES (:bot_id, :owner_id, :chat_id, :message_id, :session_id, :turn, :seq, true, :sent_at)
ON CONFLICT DO NOTHING
""")
_TURN_OF_MESSAGE = Named("""
SELECT turn_no FROM telegram_messages
 WHERE session_id = :session_id AND bot_id = :bot_id AND chat_id = :chat_id AND message_id = :message_id
""")
_COUNT_WAITING = Named("""
SELECT count(*) FROM telegram_updates
 WHERE bot_id = :bot_id AND update_id = ANY (:update_ids::bigint[]) AND handled_at IS NULL
""")
_FIND_KNOWN = Named("""
SELECT seq FROM telegram_messages
 WHERE session_id = :session_id AND bot_id = :bot_id AND chat_id = :chat_id
   AND message_id = ANY (:message_ids::bigint[]) AND seq IS NOT NULL
 ORDER BY message_id LIMIT 1
""")
_END_UPDATES = Named("""
UPDATE telegram_updates SET handled_at = now()
 WHERE bot_id = :bot_id AND update_id = ANY (:update_ids::bigint[]) AND handled_at IS NULL
""")
_REWORD = Named("""
UPDATE telegram_messages SET own_text = CASE WHEN own_text IS NOT NULL THEN :own_text END,
                             file_unique_id = coalesce(:file_unique_id, file_unique_id)
 WHERE bot_id = :bot_id AND chat_id = :chat_id AND message_id = :message_id
""")
