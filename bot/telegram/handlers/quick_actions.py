"""Turns that are not typed: an answer wished anew, shorter or longer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from shared.adapters.postgres.telegram.chats import ChatRow
from shared.adapters.postgres.turns.edits import PostgresEdits
from shared.core.session.events import Accepted, Inbound, InboxReceipt


class MessageAcceptor(Protocol):
    async def accept(self, inbound: Inbound) -> Accepted: ...


class QuickActions:
    """Each is a message of its own, stored once per update however often the update is read."""

    def __init__(
        self, conversation: MessageAcceptor, edits: PostgresEdits, answer: Callable[[ChatRow], None]
    ) -> None:
        self._conversation = conversation
        self._edits = edits
        self._answer = answer

    async def retry(self, place: ChatRow, *, update_id: int, turn: int | None = None) -> bool:
        """The question of a turn, as it reads now, is asked once more; False when there is none.

        Without a `turn`, while one waits for its next attempt, that attempt is made now.
        """
        if turn is None and await self._edits.wake(place.session_id):
            self._answer(place)
            return True
        found = await self._edits.newest_words(place.session_id, turn=turn)
        if found is None or not found[1].strip():
            return False
        await self.send_message(place, found[1], update_id=update_id)
        return True

    async def send_message(self, place: ChatRow, words: str, *, update_id: int) -> None:
        await self._conversation.accept(
            Inbound(
                session_id=place.session_id,
                address_id=place.address_id,
                text=words,
                dedupe_key=f"tg:{place.bot_id}:{update_id}",
                receipt=InboxReceipt(
                    bot_id=place.bot_id, update_ids=(update_id,), chat_id=place.chat_id, message_ids=()
                ),
            )
        )
        self._answer(place)
