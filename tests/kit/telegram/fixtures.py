"""A fake Telegram, one process for a run, and a person who writes to the bot there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TypeAlias

import aiohttp
import asyncpg
import pytest

from shared.adapters.postgres.telegram.chats import PostgresTelegramChats
from tests.kit.fakes.bot_api import Person, RunningBotApi, running_bot_api
from tests.kit.telegram.updates import BOT

Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"


@pytest.fixture(scope="session")
async def bot_api_process() -> AsyncIterator[RunningBotApi]:
    async with running_bot_api() as running:
        yield running


@pytest.fixture
async def bot_api(bot_api_process: RunningBotApi) -> RunningBotApi:
    """The fake Telegram, as after its start."""
    await bot_api_process.reset()
    await bot_api_process.change_bot(topics=False, privacy=True, revoked=False)
    return bot_api_process


@pytest.fixture
async def ann(bot_api: RunningBotApi) -> Person:
    """Has already written to the bot."""
    person = await bot_api.person(42, first_name="Ann", language_code="en")
    await person.say("hello")
    return person


@pytest.fixture
async def bot_pool(pool: Pool) -> Pool:
    """A pool at a database in which the bot is enrolled, under a former name."""
    await PostgresTelegramChats(pool).enrol(
        BOT.bot_id, username="ever_bot", agent="default", audience="personal", access="pairing",
        mode="polling",
    )  # fmt: skip
    return pool


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20)) as session:
        yield session
