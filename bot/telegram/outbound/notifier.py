"""Sends the bot's own messages, such as command results, notices and refusals."""

from __future__ import annotations

import structlog
from aiogram.types import CallbackQuery, InlineKeyboardMarkup, Message

from bot.telegram.client.calls import (
    CallDone,
    CallOutcome,
    ChatMoved,
    ChatUnreachable,
    MessageSent,
    Priority,
)
from bot.telegram.client.sender import ChatTarget, Sender
from bot.telegram.markup.entity_text import render, split
from bot.telegram.texts import Markdown
from shared.adapters.postgres.telegram.chats import ChatRow, PostgresTelegramChats

log = structlog.get_logger(__name__)

PATIENCE_SECONDS = 30.0
"""Seconds that a message may wait for its turn."""


class Notifier:
    """Sender of one bot's own messages; a message that cannot be sent is logged and dropped."""

    def __init__(self, sender: Sender, chats: PostgresTelegramChats) -> None:
        self._sender = sender
        self._chats = chats

    async def send(
        self,
        target: ChatTarget,
        text: Markdown,
        *,
        keyboard: InlineKeyboardMarkup | None = None,
        silent: bool = False,
        reply_to: int | None = None,
    ) -> int | None:
        """Send a text, split if it is long; return the id of its last message, None if a part was not sent.

        `keyboard` is shown below the last message, `reply_to` is the message id that the first one replies
        to.
        """
        outcome = await self.attempt(target, text, keyboard=keyboard, silent=silent, reply_to=reply_to)
        return outcome.message_id if isinstance(outcome, MessageSent) else None

    async def attempt(
        self,
        target: ChatTarget,
        text: Markdown,
        *,
        keyboard: InlineKeyboardMarkup | None = None,
        silent: bool = False,
        reply_to: int | None = None,
    ) -> CallOutcome:
        """Send a text like `send`; return the outcome of the last part that was tried."""
        parts = split(render(text))
        outcome: CallOutcome = CallDone()
        for number, part in enumerate(parts):
            last = number == len(parts) - 1
            outcome = await self._sender.send_text(
                target,
                part,
                keyboard=keyboard if last else None,
                silent=silent,
                reply_to=reply_to if number == 0 else None,
                priority=Priority.NOTICE,
                patience=PATIENCE_SECONDS,
            )
            await self._handle_outcome(target, outcome)
            if not isinstance(outcome, MessageSent):
                break
        return outcome

    async def send_file(self, target: ChatTarget, *, name: str, content: bytes, caption: str) -> None:
        """Send a file with a caption; a file that cannot be sent is logged and dropped."""
        outcome = await self._sender.send_document(
            target, name=name, content=content, caption=caption, patience=PATIENCE_SECONDS
        )
        await self._handle_outcome(target, outcome)

    async def edit(
        self,
        target: ChatTarget,
        message_id: int,
        text: Markdown,
        *,
        keyboard: InlineKeyboardMarkup | None = None,
    ) -> None:
        """Replace text and buttons of a message; `keyboard` None removes the buttons.

        Only the first part of a text too long for one message is shown. A failed edit is ignored.
        """
        parts = split(render(text))
        if parts:
            await self._sender.edit_text(target.chat_id, message_id, parts[0], keyboard=keyboard)

    async def replace_or_send(
        self,
        target: ChatTarget,
        message_id: int | None,
        text: Markdown,
        *,
        keyboard: InlineKeyboardMarkup | None = None,
    ) -> None:
        """Edit a message, or send a new one if `message_id` is None, the text is too long, or the edit
        fails.
        """
        parts = split(render(text))
        if message_id is not None and len(parts) == 1:
            outcome = await self._sender.edit_text(
                target.chat_id, message_id, parts[0], keyboard=keyboard,
                priority=Priority.NOTICE, patience=PATIENCE_SECONDS,
            )  # fmt: skip
            if isinstance(outcome, MessageSent | CallDone):
                return
        await self.send(target, text, keyboard=keyboard)

    async def send_or_edit(
        self,
        chat: ChatRow,
        query: CallbackQuery | None,
        text: Markdown,
        *,
        keyboard: InlineKeyboardMarkup | None = None,
    ) -> None:
        """Edit the message whose button was pressed.

        Send a new message if `query` is None or it is too old.
        """
        target = get_chat_target(chat)
        if query is not None and (message_id := get_shown_id(query)) is not None:
            await self.edit(target, message_id, text, keyboard=keyboard)
        else:
            await self.send(target, text, keyboard=keyboard, silent=query is not None)

    async def delete(self, target: ChatTarget, message_id: int) -> None:
        """Delete a message; a failure is ignored."""
        await self._sender.delete(target.chat_id, [message_id])

    async def answer_callback(self, callback_id: str, text: str = "", *, alert: bool = False) -> None:
        """Answer a button press, so that the client stops waiting; `alert` shows the text as a dialog."""
        await self._sender.answer_callback(callback_id, text=text, alert=alert)

    async def _handle_outcome(self, target: ChatTarget, outcome: CallOutcome) -> None:
        match outcome:
            case MessageSent():
                pass
            case ChatUnreachable(reason=reason):
                log.info("chat_gone", chat_id=target.chat_id, reason=reason)
                await self._chats.set_reachable(self._sender.bot_id, target.chat_id, reachable=False)
            case ChatMoved(new_chat_id=new_chat):
                await self._chats.migrate(self._sender.bot_id, old_chat=target.chat_id, new_chat=new_chat)
            case _:
                log.warning("notice_send_failed", chat_id=target.chat_id, outcome=str(outcome))


def get_chat_target(chat: ChatRow) -> ChatTarget:
    """Return where to send messages to a chat."""
    return ChatTarget(chat_id=chat.chat_id, thread_id=chat.thread_id)


def get_pressed_id(query: CallbackQuery) -> int | None:
    """Return the id of the message whose button was pressed; None if Telegram does not name it."""
    return query.message.message_id if query.message is not None else None


def get_shown_id(query: CallbackQuery) -> int | None:
    """Return the id of the message whose button was pressed; None if that message can no longer be edited."""
    return query.message.message_id if isinstance(query.message, Message) else None
