"""One fake Telegram for all these tests, emptied before each, and two clients: aiogram and bare HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Protocol

import aiohttp
import pytest
from aiogram import Bot
from aiogram.client.session.aiohttp import AiohttpSession
from aiogram.client.telegram import TelegramAPIServer

from tests.kit.fakes.bot_api import TOKEN, Person, RunningBotApi, running_bot_api

SECONDS = 20.0
Json = dict[str, Any]


class RawCall(Protocol):
    async def __call__(self, method: str, /, *, token: str = TOKEN, **params: Any) -> tuple[int, Json]: ...


@pytest.fixture(scope="session")
async def telegram() -> AsyncIterator[RunningBotApi]:
    async with running_bot_api() as running:
        yield running


@pytest.fixture(autouse=True)
async def fake(telegram: RunningBotApi) -> RunningBotApi:
    await telegram.reset()
    await telegram.change_bot(topics=False, privacy=True, revoked=False)
    return telegram


def aiogram_bot(fake: RunningBotApi, token: str = TOKEN) -> Bot:
    server = TelegramAPIServer.from_base(fake.base_url)
    return Bot(token, session=AiohttpSession(api=server, timeout=SECONDS))


@pytest.fixture(scope="session")
async def bot(telegram: RunningBotApi) -> AsyncIterator[Bot]:
    """One for all: closing its session takes a quarter of a second."""
    made = aiogram_bot(telegram)
    yield made
    await made.session.close()


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=SECONDS)) as session:
        yield session


@pytest.fixture
async def call(fake: RunningBotApi, http: aiohttp.ClientSession) -> RawCall:
    """A JSON call without any library's help."""

    async def called(method: str, /, *, token: str = TOKEN, **params: Any) -> tuple[int, Json]:
        async with http.post(f"{fake.base_url}/bot{token}/{method}", json=params) as response:
            return response.status, await response.json()

    return called


@pytest.fixture
async def ann(fake: RunningBotApi) -> Person:
    """Has already written to the bot."""
    person = await fake.person(42, first_name="Ann", language_code="en")
    await person.say("hello")
    return person
