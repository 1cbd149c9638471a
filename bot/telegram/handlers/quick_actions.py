"""Turns that are not typed: an answer again, shorter or longer."""

from __future__ import annotations

from collections.abc import Callable

from shared.adapters.postgres.telegram.chats import ChatRow
from shared.adapters.postgres.telegram.receipts import TelegramReceipt
from shared.adapters.postgres.turns.edits import PostgresEdits
from shared.core.session.turns import Inbound
from shared.services.turns.session_service import SessionService


class QuickActions:
    """Quick actions: each is a separate message, stored once per update."""

    def __init__(
        self, sessions: SessionService, edits: PostgresEdits, answer: Callable[[ChatRow], None]
    ) -> None:
        self._sessions = sessions
        self._edits = edits
        self._answer = answer

    async def retry(self, chat: ChatRow, *, update_id: int, turn: int | None = None) -> bool:
        """Ask the question of a turn again, as it reads now; return False when there is none.

        Without a `turn`, while one waits for its next attempt, that attempt is made now. A question that a
        summary hides is asked again as a new message.
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
        """Stop the running answer; return False when there is none."""
        return await self._sessions.stop(chat.session_id)

    async def go_on(self, chat: ChatRow, text: str, *, turn: int, update_id: int) -> bool:
        """Ask for more of the newest answer; return False if something was said since.

        An answer that was cut is continued once, however often and by whomever the button is pressed.
        """
        if not await self._edits.is_newest_turn(chat.session_id, turn):
            return False
        is_cut = await self._edits.is_cut(chat.session_id, turn)
        key = f"tg:{chat.bot_id}:go-on:{turn}" if is_cut else None
        await self.send_message(chat, text, update_id=update_id, key=key)
        return True

    async def shorten(self, chat: ChatRow, text: str, *, turn: int, update_id: int) -> bool:
        """Ask for a shorter form of the newest answer; return False if something was said since."""
        if not await self._edits.is_newest_turn(chat.session_id, turn):
            return False
        await self.send_message(chat, text, update_id=update_id)
        return True

    async def send_message(self, chat: ChatRow, text: str, *, update_id: int, key: str | None = None) -> None:
        """Store a message of the person; a second one with the same key changes nothing."""
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
