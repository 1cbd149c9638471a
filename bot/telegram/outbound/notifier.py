"""The bot's own words: command results, notes and refusals, in the right topic, once, without haste."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from bot.telegram.client.call_queue import Priority
from bot.telegram.client.outcomes import CallOutcome, ChatMoved, ChatUnreachable, MessageSent
from bot.telegram.client.sender import ChatTarget, Sender
from bot.telegram.markup import render, split
from bot.telegram.texts import Markdown
from shared.adapters.postgres.telegram.chats import ChatRow, PostgresTelegramChats

if TYPE_CHECKING:
    from aiogram.types import InlineKeyboardMarkup

log = structlog.get_logger(__name__)

PATIENCE_SECONDS = 30.0


class Notifier:
    """For one bot. What cannot be said is logged: nothing that was promised hangs on it."""

    def __init__(self, sender: Sender, places: PostgresTelegramChats) -> None:
        self._sender = sender
        self._places = places

    async def send(
        self,
        where: ChatTarget,
        words: Markdown,
        *,
        keyboard: InlineKeyboardMarkup | None = None,
        silent: bool = False,
        reply_to: int | None = None,
    ) -> int | None:
        """The id of the last message; None when it did not get there."""
        parts = split(render(words))
        message_id = None
        for number, part in enumerate(parts):
            last = number == len(parts) - 1
            outcome = await self._sender.send_text(
                where,
                part,
                keyboard=keyboard if last else None,
                silent=silent,
                reply_to=reply_to if number == 0 else None,
                priority=Priority.NOTICE,
                patience=PATIENCE_SECONDS,
            )
            message_id = await self._heed(where, outcome)
            if message_id is None:
                return None
        return message_id

    async def send_file(self, where: ChatTarget, *, name: str, content: bytes, caption: str) -> None:
        """A file."""
        outcome = await self._sender.send_document(
            where, name=name, content=content, caption=caption, patience=PATIENCE_SECONDS
        )
        await self._heed(where, outcome)

    async def edit(
        self,
        where: ChatTarget,
        message_id: int,
        words: Markdown,
        *,
        keyboard: InlineKeyboardMarkup | None = None,
    ) -> None:
        """Put other words, and other buttons, into a message of ours."""
        parts = split(render(words))
        if parts:
            await self._sender.edit_text(where.chat_id, message_id, parts[0], keyboard=keyboard)

    async def delete(self, where: ChatTarget, message_id: int) -> None:
        await self._sender.delete(where.chat_id, [message_id])

    async def answer_callback(self, callback_id: str, words: str = "", *, alert: bool = False) -> None:
        """Ends the waiting of a pressed button; one that is too old by now needs no answer."""
        await self._sender.answer_callback(callback_id, text=words, alert=alert)

    async def _heed(self, where: ChatTarget, outcome: CallOutcome) -> int | None:
        match outcome:
            case MessageSent(message_id=message_id):
                return message_id
            case ChatUnreachable(reason=reason):
                log.info("chat_gone", chat_id=where.chat_id, reason=reason)
                await self._places.set_reachable(self._sender.bot_id, where.chat_id, reachable=False)
            case ChatMoved(new_chat_id=new_chat):
                await self._places.migrate(self._sender.bot_id, old_chat=where.chat_id, new_chat=new_chat)
            case _:
                log.warning("notice_send_failed", chat_id=where.chat_id, outcome=str(outcome))
        return None


def get_chat_target(place: ChatRow) -> ChatTarget:
    return ChatTarget(chat_id=place.chat_id, thread_id=place.thread_id)
