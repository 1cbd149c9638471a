"""Decides which chats may use the bot, and answers strangers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any

import structlog
from aiogram import BaseMiddleware
from aiogram.types import TelegramObject

from bot.telegram.client.sender import ChatTarget
from bot.telegram.handlers.access_requests import AccessRequests
from bot.telegram.inbound.bot_context import BotContext
from bot.telegram.inbound.chat_access import (
    AccessDecision,
    Allowed,
    ChatAccessPolicy,
    NoReply,
    StrangerReply,
    UnknownChat,
)
from bot.telegram.inbound.message_batching import MessageBatch
from bot.telegram.inbound.updates import ChatRef, IncomingMessage, MessageAuthor
from bot.telegram.outbound.notifier import Notifier
from bot.telegram.outbound.uncertain_notices import UncertainNotices
from bot.telegram.texts import get_chat_texts, get_texts, say_hello_to_group
from shared.adapters.postgres.telegram.chats import ChatRow, MessageRow, PostgresTelegramChats
from shared.locales import Catalogue
from shared.ports import AccessRow

log = structlog.get_logger(__name__)


class ChatAdmission:
    """Opens the chats of one bot that have access, and answers chats without access."""

    def __init__(
        self,
        context: BotContext,
        *,
        access_policy: ChatAccessPolicy,
        notifier: Notifier,
        access_requests: AccessRequests,
        start: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._context = context
        self._bot_id = context.identity.bot_id
        self._stores = context.stores
        self._notifier = notifier
        self._access_requests = access_requests
        self._start = start
        self.policy = access_policy

    async def reply_to_stranger(
        self, decision: AccessDecision, chat_ref: ChatRef, sender: MessageAuthor
    ) -> None:
        """Send the reply that belongs to an access decision.

        For a new request, ask the owners in the background. Allowed and NoReply send nothing; a channel gets
        no message.
        """
        match decision:
            case StrangerReply(key=key, args=args):
                if chat_ref.kind != "channel":  # readers of a channel have not asked for access
                    notice = self._format_access_reply(get_texts(sender.language_code), key, args)
                    await self._notifier.send(get_reply_target(chat_ref), notice)
                if key == "access_owner":
                    log.info("owner_claimed", bot=self._bot_id)
                if decision.is_new:
                    self._start(self._access_requests.ask_owners(decision, chat_ref, sender))
            case NoReply(reason=reason):
                log.debug("message_ignored", reason=reason)
            case Allowed():
                return

    def _format_access_reply(self, texts: Catalogue, key: str, args: object) -> str:
        given = dict(args) if isinstance(args, dict) else {}
        match key:
            case "access_code" | "access_group_code":
                return texts.say("pairing_code", code=str(given.get("code", "")))
            case "access_too_many_waiting":
                return texts.say("pairing_full")
            case "access_owner":
                return texts.say("owner_now")
            case "access_group_welcome":
                return say_hello_to_group(
                    texts,
                    username=self._context.identity.username,
                    reads_all_messages=self._context.identity.reads_all_messages,
                )
            case _:
                return texts.say("refused")

    async def open_chat(
        self, chat_ref: ChatRef, sender: MessageAuthor, *, known: ChatRow | None = None
    ) -> ChatRow:
        """Return the row of a chat, created if needed, and mark the chat as reachable.

        `known` is the row if it was loaded before; the title and the person's app language are updated.
        """
        title = chat_ref.title[:128]
        chat = known if known is not None and known.title == (title or known.title) else None
        chat = chat or await self._stores.telegram_chats.open(
            self._bot_id,
            chat_id=chat_ref.chat_id,
            thread_id=chat_ref.thread_id,
            kind="person" if chat_ref.is_private else "group",
            title=title,
        )
        self._context.sender.mark_reachable(chat_ref.chat_id)
        if chat.unreachable:
            await self._stores.telegram_chats.set_reachable(self._bot_id, chat_ref.chat_id, reachable=True)
        language = sender.language_code[:10]
        if chat_ref.is_private and language and chat.settings.get("app_language") != language:
            await self._stores.telegram_chats.change_settings(chat.address_id, {"app_language": language})
            chat = await self._stores.telegram_chats.find_chat(chat.address_id) or chat
        return chat


class _KnownChat:
    """Loader of a chat's row together with its access; `row` is None if the chat has no row or no access."""

    def __init__(self, chats: PostgresTelegramChats, bot_id: int, message: IncomingMessage) -> None:
        self._chats = chats
        self._bot_id = bot_id
        self._chat = message.chat
        self.row: ChatRow | None = None

    async def find_access(self) -> AccessRow | None:
        self.row, access = await self._chats.find_with_access(
            self._bot_id, self._chat.chat_id, self._chat.thread_id
        )
        return access


class BatchAdmission(BaseMiddleware):
    """Middleware that passes batches of chats with access on, with `chat`, `texts` and `stored`.

    `stored` is the stored version of an edited message, or the stored first part of a late one; None if there
    is none. Batches of other chats are answered and marked as handled.
    """

    def __init__(self, context: BotContext, *, admission: ChatAdmission, uncertain: UncertainNotices) -> None:
        self._bot_id = context.identity.bot_id
        self._stores = context.stores
        self._admission = admission
        self._uncertain = uncertain

    async def __call__(
        self,
        handler: Callable[[TelegramObject, dict[str, Any]], Awaitable[Any]],
        event: TelegramObject,
        data: dict[str, Any],
    ) -> Any:
        batch: MessageBatch | None = data.get("batch")
        if batch is None:  # an update about the chat itself
            return await handler(event, data)
        message = batch.addressed_message
        stored = await (self._find_edited(message) if message.is_edited else self._find_first_part(batch))
        # Only one part of a split message mentions the bot, so a late part of a stored message counts as
        # addressed.
        policy, known = self._admission.policy, _KnownChat(self._stores.telegram_chats, self._bot_id, message)
        decision = await (
            policy.admit(message, find=known.find_access) if stored is None else policy.check(message.chat)
        )
        if isinstance(decision, UnknownChat):
            decision = NoReply(reason="the rest of what a stranger said")
        if not isinstance(decision, Allowed):
            await self._admission.reply_to_stranger(decision, message.chat, message.sender)
            await self._stores.telegram_inbox.mark_handled(self._bot_id, batch.update_ids)
            return None
        batch = _keep_addressed(batch) if stored is None and not message.is_edited else batch
        chat = await self._admission.open_chat(message.chat, message.sender, known=known.row)
        await self._handle_quotes(chat, batch)
        data |= {"chat": chat, "texts": get_chat_texts(chat), "stored": stored, "batch": batch}
        return await handler(event, data)

    async def _find_first_part(self, batch: MessageBatch) -> MessageRow | None:
        """Return the stored first part of a message whose rest came late; None if this is no late part."""
        if batch.late_for is None or batch.first.is_edited:
            return None
        return await self._find(batch.first.chat.chat_id, batch.late_for)

    async def _find_edited(self, message: IncomingMessage) -> MessageRow | None:
        """Return the stored message that was edited; None if that message was not stored."""
        return await self._find(message.chat.chat_id, message.message_id)

    async def _find(self, chat_id: int, message_id: int) -> MessageRow | None:
        found = await self._stores.telegram_chats.find_message(self._bot_id, chat_id, message_id)
        return found if found is not None and found.seq is not None else None

    async def _handle_quotes(self, chat: ChatRow, batch: MessageBatch) -> None:
        """Report replies to uncertain answers: a person replied, so the answer has arrived."""
        for message in batch.messages:
            quoted, message_id = message.quoted, message.reply_to_message_id
            if quoted is not None and quoted.by_bot and message_id is not None:
                await self._uncertain.handle_quote(chat, message_id, quoted)


def _keep_addressed(batch: MessageBatch) -> MessageBatch:
    """Return the batch without messages of group members who did not address the bot.

    Their updates count as read.
    """
    if batch.addressed_message.chat.is_private:
        return batch
    asked = {one.sender.user_id for one in batch.messages if one.is_addressed}
    kept = tuple(one for one in batch.messages if one.sender.user_id in asked)
    left = tuple(one.update_id for one in batch.messages if one.sender.user_id not in asked)
    return replace(batch, messages=kept, superseded=(*batch.superseded, *left)) if left else batch


def get_reply_target(chat_ref: ChatRef) -> ChatTarget:
    """Return the chat and topic to which a reply to its message is sent."""
    return ChatTarget(chat_id=chat_ref.chat_id, thread_id=chat_ref.thread_id)
