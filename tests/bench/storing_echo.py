"""A second floor: an aiogram bot that stores what it hears, asks the model, and stores what it says.

`python -m tests.bench.storing_echo`: the six commits of a turn over Telegram, each one bare statement by a
primary key, and one streamed call by the provider's SDK; nothing else.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

import asyncpg
from aiogram import Bot, Dispatcher
from aiogram.client.session.aiohttp import AiohttpSession
from aiogram.client.session.middlewares.base import BaseRequestMiddleware, NextRequestMiddlewareType
from aiogram.client.telegram import TelegramAPIServer
from aiogram.exceptions import TelegramRetryAfter
from aiogram.methods import TelegramMethod
from aiogram.types import Message
from anthropic import AsyncAnthropic, DefaultAioHttpClient

TABLE = """
CREATE TABLE IF NOT EXISTS bare_telegram_turns (chat bigint, message bigint, question text NOT NULL,
  state text NOT NULL, answer text NOT NULL DEFAULT '', remote bigint, PRIMARY KEY (chat, message))
"""
STORED = "INSERT INTO bare_telegram_turns (chat, message, question, state) VALUES ($1, $2, $3, 'stored')"
MOVED = "UPDATE bare_telegram_turns SET state = $3 WHERE chat = $1 AND message = $2"
ANSWERED = "UPDATE bare_telegram_turns SET state = 'answered', answer = $3 WHERE chat = $1 AND message = $2"
DELIVERED = "UPDATE bare_telegram_turns SET state = 'delivered', remote = $3 WHERE chat = $1 AND message = $2"


class ObeyLimits(BaseRequestMiddleware):
    """Waits as long as Telegram asks, then repeats the call."""

    async def __call__(
        self, make_request: NextRequestMiddlewareType[Any], bot: Bot, method: TelegramMethod[Any]
    ) -> Any:
        while True:
            try:
                return await make_request(bot, method)
            except TelegramRetryAfter as error:
                await asyncio.sleep(error.retry_after)


class StoringEcho:
    def __init__(self, pool: asyncpg.Pool[asyncpg.Record], model: AsyncAnthropic) -> None:
        self._pool = pool
        self._model = model

    async def hear(self, message: Message) -> None:
        key, question = (message.chat.id, message.message_id), message.text or ""
        await self._pool.execute(STORED, *key, question)
        await self._pool.execute(MOVED, *key, "accepted")
        await self._pool.execute(MOVED, *key, "claimed")
        answer = await self._ask(question)
        await self._pool.execute(ANSWERED, *key, answer)
        await self._pool.execute(MOVED, *key, "sending")
        sent = await message.answer(answer)
        await self._pool.execute(DELIVERED, *key, sent.message_id)

    async def _ask(self, question: str) -> str:
        stream = await self._model.messages.create(
            model="claude-sonnet-5-5", max_tokens=1_000, stream=True,
            messages=[{"role": "user", "content": question}],
        )  # fmt: skip
        deltas = [event.delta async for event in stream if event.type == "content_block_delta"]
        return "".join(delta.text for delta in deltas if delta.type == "text_delta")


async def main() -> None:
    server = TelegramAPIServer.from_base(os.environ["ECHO_API_URL"])
    bot = Bot(os.environ["ECHO_TOKEN"], session=AiohttpSession(api=server))
    bot.session.middleware(ObeyLimits())
    pool = await asyncpg.create_pool(os.environ["ECHO_DATABASE_URL"], min_size=1, max_size=10)
    await pool.execute(TABLE)
    model = AsyncAnthropic(
        api_key="sk-ant-bench", base_url=os.environ["ECHO_MODEL_URL"], http_client=DefaultAioHttpClient()
    )
    dispatcher = Dispatcher()
    dispatcher.message.register(StoringEcho(pool, model).hear)
    print('{"event": "echo_serves"}', flush=True)
    try:
        await dispatcher.start_polling(bot, polling_timeout=20, handle_signals=True)
    finally:
        await model.close()
        await pool.close()


if __name__ == "__main__":
    asyncio.run(main())
