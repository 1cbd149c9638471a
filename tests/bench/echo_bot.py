"""The floor of an answer: a bare aiogram bot that says what it hears: `python -m tests.bench.echo_bot`."""

from __future__ import annotations

import asyncio
import os

from aiogram import Bot, Dispatcher
from aiogram.client.session.aiohttp import AiohttpSession
from aiogram.client.telegram import TelegramAPIServer
from aiogram.types import Message


async def main() -> None:
    server = TelegramAPIServer.from_base(os.environ["ECHO_API_URL"])
    bot = Bot(os.environ["ECHO_TOKEN"], session=AiohttpSession(api=server))
    dispatcher = Dispatcher()

    async def echo(message: Message) -> None:
        await message.answer(message.text or "")

    dispatcher.message.register(echo)
    print('{"event": "echo_serves"}', flush=True)
    await dispatcher.start_polling(bot, polling_timeout=20, handle_signals=True)


if __name__ == "__main__":
    asyncio.run(main())
