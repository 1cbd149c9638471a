"""Rows that the Telegram channel stores with a message, in the transaction of the message itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from shared.adapters.postgres.db.pool import Connection, Named, Pool
from shared.adapters.postgres.turns.turn_sql import join_receipt
from shared.core.session.turns import Inbound, ReceiptParts
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

    @property
    def parts(self) -> ReceiptParts:
        """SQL that the statement which stores the message includes for this receipt."""
        return _PARTS

    def get_values(self) -> Mapping[str, object]:
        """Return the values of the parameters in `parts`."""
        nothing = (None,) * len(self.message_ids)
        return {
            "bot_id": self.bot_id,
            "update_ids": self.update_ids,
            "chat_id": self.chat_id,
            "message_ids": self.message_ids,
            "own_texts": self.own_texts or nothing,
            "files": self.files or nothing,
        }

    async def find_joined_turn(self, connection: Pool | Connection, inbound: Inbound) -> int | None:
        """Return the turn of the message `late_for`; None without it, or if that message is not stored.

        `inbound` is the message to store.
        """
        if self.late_for is None:
            return None
        turn: int | None = await connection.fetchval(
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

    @property
    def parts(self) -> ReceiptParts:
        """SQL that the statement which stores the message includes for this receipt."""
        return _CUSTOMER_PARTS

    def get_values(self) -> Mapping[str, object]:
        """Return the values of the parameters in `parts`."""
        return {
            "bot_id": self.bot_id, "owner_id": self.owner_id, "chat_id": self.chat_id,
            "message_id": self.message_id, "sent_at": self.sent_at,
        }  # fmt: skip

    async def find_joined_turn(self, connection: Pool | Connection, inbound: Inbound) -> int | None:
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
    statements = join_receipt(_PARTS)
    for statement in (statements.accept_and_claim, statements.accept_and_claim_known, statements.accept):
        await connection.fetch(*statement.rehearse(session_id=0))


FOLLOW_WORDING = Named("""
UPDATE telegram_messages SET seq = :new WHERE session_id = :session_id AND seq = :old
""")
"""Let chat messages of the entry `old` refer to its newest wording, the entry `new`."""
_LOCK = """
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
"""
"""Lock the updates of a message; select whether all are unhandled and a message is not stored yet.

The second condition also holds without messages. All messages are stored if an edit arrived before them.
"""
_END = """
UPDATE telegram_updates SET handled_at = now() FROM s
 WHERE bot_id = :bot_id AND update_id = ANY (:update_ids::bigint[]) AND handled_at IS NULL
"""
_KEEP_MESSAGES = """
INSERT INTO telegram_messages (bot_id, chat_id, message_id, session_id, seq, turn_no, own_text,
                               file_unique_id)
SELECT :bot_id, :chat_id, x.message_id, :session_id, s.seq, s.turn_no, x.own_text, x.file
  FROM s, unnest(:message_ids::bigint[], :own_texts::text[], :files::text[]) AS x(message_id, own_text, file)
ON CONFLICT DO NOTHING
"""
"""Insert the chat messages of an entry; messages that are already stored stay unchanged."""
_PARTS = ReceiptParts(lock=_LOCK, records=(_END, _KEEP_MESSAGES))
_KEEP_CUSTOMERS = """
INSERT INTO secretary_messages
  (bot_id, owner_id, chat_id, message_id, session_id, turn_no, seq, is_customers, at)
SELECT :bot_id::bigint, :owner_id::bigint, :chat_id::bigint, :message_id::bigint, :session_id::bigint,
       s.turn_no, s.seq, true, :sent_at::timestamptz
  FROM s
ON CONFLICT DO NOTHING
"""
_CUSTOMER_PARTS = ReceiptParts(lock="SELECT true", records=(_KEEP_CUSTOMERS,))
"""Receipt statements of a customer's message; its key prevents a second one, so nothing is locked."""
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
