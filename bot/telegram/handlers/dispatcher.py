"""Dispatcher of one bot: passes updates from the inbox to its routers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from aiogram import BaseMiddleware, Bot, Dispatcher, Router
from aiogram.types import TelegramObject, Update, User

from bot.telegram.inbound.message_batching import MessageBatch
from bot.telegram.texts import get_texts


class Locale(BaseMiddleware):
    """Middleware that passes the texts in the language of the person's app on, as `texts`."""

    async def __call__(
        self,
        handler: Callable[[TelegramObject, dict[str, Any]], Awaitable[Any]],
        event: TelegramObject,
        data: dict[str, Any],
    ) -> Any:
        person: User | None = data.get("event_from_user")
        data["texts"] = get_texts(person.language_code or "" if person is not None else "")
        return await handler(event, data)


class BotDispatcher:
    """Dispatcher of one bot's updates to its routers.

    For a batch of messages, aiogram gets the update of its addressed message and the batch as an argument.
    """

    def __init__(self, bot: Bot, *, routers: Sequence[Router], batch_admission: BaseMiddleware) -> None:
        self._bot = bot
        self._dispatcher = Dispatcher(disable_fsm=True, name="evertalk")
        self._dispatcher.update.outer_middleware(Locale())
        for observer in (
            self._dispatcher.message,
            self._dispatcher.channel_post,
            self._dispatcher.edited_message,
        ):
            observer.outer_middleware(batch_admission)
        self._dispatcher.include_routers(*routers)

    async def feed_batch(self, batch: MessageBatch) -> None:
        """Pass a batch of messages to its handler, which makes one turn or runs one command.

        Raises what the handler raises.
        """
        update = batch.addressed_message.update
        assert update is not None, "the parser sets it"
        await self._dispatcher.feed_update(self._bot, update, batch=batch)

    async def feed_other(self, update: Update) -> None:
        """Pass an update without messages to its handler; the reader marks it as handled after that."""
        await self._dispatcher.feed_update(self._bot, update)
