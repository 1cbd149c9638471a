"""Actions by button or command that make a turn: answer again, shorter or longer."""

from __future__ import annotations

from collections.abc import Callable

from shared.adapters.postgres.telegram.chats import ChatRow
from shared.adapters.postgres.telegram.receipts import TelegramReceipt
from shared.adapters.postgres.turns.edits import PostgresEdits
from shared.core.session.turns import Inbound
from shared.services.turns.session_service import SessionService


class QuickActions:
    """Actions of one bot that request an answer without a typed message; each is stored once per update."""

    def __init__(
        self, sessions: SessionService, edits: PostgresEdits, answer: Callable[[ChatRow], None]
    ) -> None:
        self._sessions = sessions
        self._edits = edits
        self._answer = answer

    async def retry(self, chat: ChatRow, *, update_id: int, turn: int | None = None) -> bool:
        """Request a new answer to the question of `turn`.

        Return False if that question has no text or is unknown. `turn` None means the last turn; if it waits
        for its next attempt, that attempt starts now. A question that is hidden by a summary is sent again as
        a new message.
        """
        if turn is None and await self._edits.wake(chat.session_id):
            self._answer(chat)
            return True
        begun = await self._edits.request_retry(
            chat.session_id,
            channel="telegram",
            address_id=chat.address_id,
            dedupe_key=f"tg:{chat.bot_id}:{update_id}",
            turn=turn,
        )
        if begun in ("begun", "woken"):
            self._answer(chat)
            return True
        found = await self._edits.load_newest_text(chat.session_id, turn=turn)
        if found is None or not found[1].strip():
            return False
        await self.send_message(chat, found[1], update_id=update_id)
        return True

    async def stop(self, chat: ChatRow) -> bool:
        """Stop the running answer of a chat; return False if none is running."""
        return await self._sessions.stop(chat.session_id)

    async def go_on(self, chat: ChatRow, text: str, *, turn: int, update_id: int) -> bool:
        """Send `text`, a request to continue or lengthen the answer of `turn`, as a message of the person.

        Return False without sending if that turn is not the newest. A cut answer is continued once, even if
        the button is pressed again.
        """
        if not await self._edits.is_newest_turn(chat.session_id, turn):
            return False
        is_cut = await self._edits.is_cut(chat.session_id, turn)
        key = f"tg:{chat.bot_id}:go-on:{turn}" if is_cut else None
        await self.send_message(chat, text, update_id=update_id, key=key)
        return True

    async def shorten(self, chat: ChatRow, text: str, *, turn: int, update_id: int) -> bool:
        """Send `text`, a request for a shorter answer, as a message of the person.

        Return False without sending if `turn` is not the newest turn.
        """
        if not await self._edits.is_newest_turn(chat.session_id, turn):
            return False
        await self.send_message(chat, text, update_id=update_id)
        return True

    async def send_message(self, chat: ChatRow, text: str, *, update_id: int, key: str | None = None) -> None:
        """Store `text` as a message of the person and start its turn.

        A second message with the same `key` has no effect; None makes a key of the update id.
        """
        await self._sessions.accept_and_claim(
            Inbound(
                session_id=chat.session_id,
                address_id=chat.address_id,
                text=text,
                dedupe_key=key or f"tg:{chat.bot_id}:{update_id}",
                receipt=TelegramReceipt(
                    bot_id=chat.bot_id, update_ids=(update_id,), chat_id=chat.chat_id, message_ids=()
                ),
            )
        )
        self._answer(chat)
