"""A fake Telegram for all these tests, a database for each, and bot processes for the conversation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import asyncpg
import pytest
from aiogram import Bot

from bot.telegram.client.session import create_bot
from tests.integration.bot.outbound.delivery_driver import BotProcess
from tests.kit.fakes.bot_api import TOKEN, RunningBotApi
from tests.kit.telegram.fixtures import ann, bot_api, bot_api_process, bot_pool

__all__ = ["ann", "bot_api", "bot_api_process", "bot_pool"]

SECONDS = 30.0


@pytest.fixture
async def strict_api(bot_api: RunningBotApi) -> AsyncIterator[RunningBotApi]:
    """Every test ends with the question whether a careful bot would have made these calls."""
    await bot_api.accept_connections()
    yield bot_api
    assert not await bot_api.violations()


@pytest.fixture
async def outbound_bot(bot_api_process: RunningBotApi) -> AsyncIterator[Bot]:
    made = create_bot(TOKEN, api_url=bot_api_process.base_url, timeout=SECONDS)
    yield made
    await made.session.close()


@pytest.fixture
async def bots(
    strict_api: RunningBotApi, bot_pool: asyncpg.Pool[asyncpg.Record]
) -> AsyncIterator[Callable[[], BotProcess]]:
    """Each call is a bot process that knows nothing but what is stored."""
    made: list[BotProcess] = []

    def another() -> BotProcess:
        made.append(BotProcess(strict_api.base_url, bot_pool))
        return made[-1]

    yield another
    await asyncio.gather(*(bot.close() for bot in made))


@pytest.fixture
async def bot(bots: Callable[[], BotProcess]) -> BotProcess:
    return bots()
