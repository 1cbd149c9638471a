"""One fake Telegram for all these tests as its own process, and a database with the bot in it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TypeAlias

import asyncpg
import pytest
from aiogram import Bot

from bot.telegram.client.session import create_bot
from shared.adapters.postgres.telegram.chats import PostgresTelegramChats
from shared.adapters.postgres.telegram.inbox import PostgresTelegramInbox
from tests.kit.fakes.bot_api import TOKEN, Person, RunningBotApi
from tests.kit.telegram.fixtures import bot_api, bot_api_process, bot_pool, http
from tests.kit.telegram.updates import BOT

__all__ = ["bot_api", "bot_api_process", "bot_pool", "http"]

Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"


@pytest.fixture
async def newcomer(bot_api: RunningBotApi) -> Person:
    return await bot_api.person(42, first_name="Ann", language_code="en")


@pytest.fixture
async def inbound_bot(bot_api: RunningBotApi) -> AsyncIterator[Bot]:
    made = create_bot(TOKEN, api_url=bot_api.base_url)
    yield made
    await made.session.close()


@pytest.fixture
def inbox(bot_pool: Pool) -> PostgresTelegramInbox:
    return PostgresTelegramInbox(bot_pool)


@pytest.fixture
def places(bot_pool: Pool) -> PostgresTelegramChats:
    return PostgresTelegramChats(bot_pool)


async def texts(inbox: PostgresTelegramInbox) -> list[str]:
    rows = await inbox.list_waiting(BOT.bot_id, limit=1000)
    return [row.body["message"]["text"] for row in rows if "message" in row.body]


async def texts_come(inbox: PostgresTelegramInbox, count: int, *, within: float = 60.0) -> list[str]:
    async with asyncio.timeout(within):
        while len(found := await texts(inbox)) < count:
            await asyncio.sleep(0.02)
    return found
