"""The dispatcher of one bot: its routers in their order, fed from the durable inbox lane by lane."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from aiogram import BaseMiddleware, Bot, Dispatcher, Router
from aiogram.types import TelegramObject, Update, User

from bot.telegram.inbound.message_batching import MessageBatch
from bot.telegram.texts import get_texts


class Locale(BaseMiddleware):
    """Gives handlers the texts in the language of the person's app, as `texts`."""

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
    """Feeds one bot's updates to its routers; a batch of messages goes as its addressed message."""

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
        """Pass a batch, which is one turn or one command, to its handler. Raises what the handler raises."""
        update = batch.addressed_message.update
        assert update is not None, "the parser sets it"
        await self._dispatcher.feed_update(self._bot, update, batch=batch)

    async def feed_other(self, update: Update) -> None:
        """Any other update, which the reader marks as handled when this returns."""
        await self._dispatcher.feed_update(self._bot, update)
