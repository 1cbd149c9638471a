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
from tests.kit.fakes.bot_api import TOKEN, Person, RunningBotApi, running_bot_api
from tests.kit.telegram.updates import BOT

Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"


@pytest.fixture(scope="session")
async def telegram() -> AsyncIterator[RunningBotApi]:
    async with running_bot_api() as running:
        yield running


@pytest.fixture
async def fake(telegram: RunningBotApi) -> RunningBotApi:
    await telegram.reset()
    await telegram.change_bot(topics=False, privacy=True, revoked=False)
    return telegram


@pytest.fixture
async def ann(fake: RunningBotApi) -> Person:
    return await fake.person(42, first_name="Ann", language_code="en")


@pytest.fixture
async def api(fake: RunningBotApi) -> AsyncIterator[Bot]:
    made = create_bot(TOKEN, api_url=fake.base_url)
    yield made
    await made.session.close()


@pytest.fixture
async def bot_pool(pool: Pool) -> Pool:
    """A pool at a database in which the bot is enrolled."""
    await PostgresTelegramChats(pool).enrol(
        BOT.bot_id,
        username=BOT.username,
        agent="default",
        audience="personal",
        access="pairing",
        mode="polling",
    )
    return pool


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
