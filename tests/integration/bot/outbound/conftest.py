"""A fake Telegram for all these tests, a database for each, and bot processes for the conversation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import asyncpg
import pytest
from aiogram import Bot

from bot.telegram.client.session import create_bot
from shared.adapters.postgres.telegram.chats import PostgresTelegramChats
from tests.integration.bot.outbound.delivery_driver import BOT_ID, BotProcess
from tests.kit.fakes.bot_api import TOKEN, Person, RunningBotApi, running_bot_api

SECONDS = 30.0


@pytest.fixture(scope="session")
async def outbound_telegram() -> AsyncIterator[RunningBotApi]:
    async with running_bot_api() as running:
        yield running


@pytest.fixture
async def fake(outbound_telegram: RunningBotApi) -> AsyncIterator[RunningBotApi]:
    """Every test ends with the question whether a careful bot would have made these calls."""
    await outbound_telegram.reset()
    await outbound_telegram.accept_connections()
    await outbound_telegram.change_bot(topics=False, privacy=True, revoked=False)
    yield outbound_telegram
    assert not await outbound_telegram.violations()


@pytest.fixture
async def client(outbound_telegram: RunningBotApi) -> AsyncIterator[Bot]:
    made = create_bot(TOKEN, api_url=outbound_telegram.base_url, timeout=SECONDS)
    yield made
    await made.session.close()


@pytest.fixture
async def ann(fake: RunningBotApi) -> Person:
    """Has already written to the bot."""
    person = await fake.person(42, first_name="Ann", language_code="en")
    await person.say("hello")
    return person


@pytest.fixture
async def bot_pool(pool: asyncpg.Pool[asyncpg.Record]) -> asyncpg.Pool[asyncpg.Record]:
    """A pool at a database in which the bot is enrolled."""
    await PostgresTelegramChats(pool).enrol(
        BOT_ID, username="ever_bot", agent="default", audience="personal", access="pairing", mode="polling"
    )
    return pool


@pytest.fixture
async def bots(
    fake: RunningBotApi, bot_pool: asyncpg.Pool[asyncpg.Record]
) -> AsyncIterator[Callable[[], BotProcess]]:
    """Each call is a bot process that knows nothing but what is stored."""
    made: list[BotProcess] = []

    def another() -> BotProcess:
        made.append(BotProcess(fake.base_url, bot_pool))
        return made[-1]

    yield another
    await asyncio.gather(*(bot.close() for bot in made))


@pytest.fixture
async def bot(bots: Callable[[], BotProcess]) -> BotProcess:
    return bots()
