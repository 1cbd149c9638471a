"""One fake Telegram for all these tests, emptied before each, and two clients: aiogram and bare HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Protocol

import aiohttp
import pytest
from aiogram import Bot
from aiogram.client.session.aiohttp import AiohttpSession
from aiogram.client.telegram import TelegramAPIServer

from tests.kit.fakes.bot_api import TOKEN, RunningBotApi
from tests.kit.telegram.fixtures import ann, bot_api, bot_api_process, http

__all__ = ["ann", "bot_api", "bot_api_process", "http"]

SECONDS = 20.0
Json = dict[str, Any]


class RawCall(Protocol):
    async def __call__(self, method: str, /, *, token: str = TOKEN, **params: Any) -> tuple[int, Json]: ...


@pytest.fixture(autouse=True)
def emptied(bot_api: RunningBotApi) -> RunningBotApi:
    return bot_api


def aiogram_bot(fake: RunningBotApi, token: str = TOKEN) -> Bot:
    server = TelegramAPIServer.from_base(fake.base_url)
    return Bot(token, session=AiohttpSession(api=server, timeout=SECONDS))


@pytest.fixture(scope="session")
async def aiobot(bot_api_process: RunningBotApi) -> AsyncIterator[Bot]:
    """One for all: closing its session takes a quarter of a second."""
    made = aiogram_bot(bot_api_process)
    yield made
    await made.session.close()


@pytest.fixture
async def call(bot_api: RunningBotApi, http: aiohttp.ClientSession) -> RawCall:
    """A JSON call without any library's help."""

    async def called(method: str, /, *, token: str = TOKEN, **params: Any) -> tuple[int, Json]:
        async with http.post(f"{bot_api.base_url}/bot{token}/{method}", json=params) as response:
            return response.status, await response.json()

    return called
