"""Topics in private chats as separate conversations, opened by `/new`."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import structlog
from aiogram.types import Message

from bot.telegram.client.calls import CallDone, CallOutcome, is_undecided
from bot.telegram.client.sender import ChatTarget
from bot.telegram.inbound.bot_context import BotContext
from bot.telegram.inbound.message_batching import MessageBatch
from bot.telegram.outbound.notifier import Notifier, get_chat_target
from bot.telegram.texts import escape_markdown, get_chat_texts
from shared.adapters.postgres.telegram.chats import ChatRow
from shared.core.session.turns import title_of

log = structlog.get_logger(__name__)

TOPIC_CHARS = 128
"""Maximum characters of a topic's name."""
KEPT_SETTINGS = ("language", "app_language", "notices", "announce", "drafts", "rich")
"""Settings that a new topic copies from its chat."""
_UNTITLED = "untitled"
"""Setting of a topic that has no title yet."""


class TopicConversations:
    """Opens and renames topics in the private chats of one bot."""

    def __init__(
        self,
        context: BotContext,
        *,
        notifier: Notifier,
        start: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._context = context
        self._notifier = notifier
        self._start = start

    async def has_topics(self, _: Message, batch: MessageBatch) -> bool:
        """Return whether a batch is from a private chat in which topics can be opened.

        A filter of aiogram.
        """
        chat = batch.addressed_message.chat
        return chat.is_private and (self._context.identity.has_topics or bool(chat.thread_id))

    async def open(self, chat: ChatRow, title: str) -> CallOutcome:
        """Open a topic for a new conversation, store it with the chat's settings, and post a message in the
        topic and one in the chat.

        An empty `title` is replaced after the first question. Return the outcome of opening the topic;
        unless it is CallDone, nothing is stored. This method sends the person a notice of an
        undecided outcome; after a refusal the caller answers. Raises StorageUnavailable.
        """
        texts, named = get_chat_texts(chat), " ".join(title.split())
        outcome = await self._context.sender.create_topic(
            chat.chat_id, (named or texts.say("topic_untitled"))[:TOPIC_CHARS]
        )
        if not isinstance(outcome, CallDone):
            log.info("topic_not_opened", chat_id=chat.chat_id, outcome=str(outcome))
            if is_undecided(outcome):
                await self._notifier.send(get_chat_target(chat), texts.say("not_now"))
            return outcome
        topic = outcome.result
        opened = await self._context.stores.telegram_chats.open(
            chat.bot_id, chat_id=chat.chat_id, thread_id=topic.message_thread_id, kind="person",
            title=chat.title,
        )  # fmt: skip
        kept = {name: chat.settings[name] for name in KEPT_SETTINGS if name in chat.settings}
        await self._context.stores.telegram_chats.change_settings(
            opened.address_id, {**kept, **({} if named else {_UNTITLED: True})}
        )
        target = ChatTarget(chat_id=chat.chat_id, thread_id=topic.message_thread_id)
        await self._notifier.send(target, texts.say("topic_opened"))
        told = texts.say("topic_made", title=escape_markdown(topic.name, most=TOPIC_CHARS))
        await self._notifier.send(get_chat_target(chat), told, silent=True)
        return outcome

    async def name_after(self, chat: ChatRow, question: str) -> None:
        """If a topic has no title yet, rename it after its first question in the background."""
        if not chat.settings.get(_UNTITLED) or not question.strip():
            return
        await self._context.stores.telegram_chats.change_settings(chat.address_id, {_UNTITLED: None})
        self._start(self._rename(chat, title_of(question)))

    async def _rename(self, chat: ChatRow, title: str) -> None:
        outcome = await self._context.sender.rename_topic(chat.chat_id, chat.thread_id, title)
        if not isinstance(outcome, CallDone):
            log.info("topic_not_renamed", chat_id=chat.chat_id, outcome=str(outcome))
