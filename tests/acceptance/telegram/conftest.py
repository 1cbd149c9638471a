"""One bot process for all tests of a module: each test brings people of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import count
from typing import Any

import asyncpg
import pytest

from shared.adapters.postgres.operations.invariants import check_invariants
from tests.kit.fakes.bot_api import running_bot_api
from tests.kit.fakes.speech.harness import RunningSpeech
from tests.kit.fakes.transcriptions.harness import RunningTranscriptions
from tests.kit.telegram.bot_process import TelegramHouse, telegram_house
from tests.kit.telegram.deployment import Deployment, deployment

_numbers = count(100)


@pytest.fixture(scope="module")
def bot_options() -> dict[str, Any]:
    """Settings of the bot process; for `here` also answers of the model, a worker and more bots."""
    return {}


@pytest.fixture
def number() -> int:
    """A person's id that no other test has."""
    return next(_numbers)


@pytest.fixture(scope="module")
async def module_transcriptions() -> AsyncIterator[RunningTranscriptions]:
    async with RunningTranscriptions() as service:
        yield service


@pytest.fixture(scope="module")
async def module_speech() -> AsyncIterator[RunningSpeech]:
    async with RunningSpeech() as service:
        yield service


@pytest.fixture(scope="module")
async def here(
    module_database_url: str,
    module_redis_url: str,
    tmp_path_factory: pytest.TempPathFactory,
    bot_options: dict[str, Any],
) -> AsyncIterator[Deployment]:
    """A bot whose model answers by a script."""
    given = {"answers": {}, **bot_options}
    folder = tmp_path_factory.mktemp("telegram")
    async with deployment(
        given.pop("answers"), module_database_url, module_redis_url, folder, **given
    ) as bot:
        yield bot


@pytest.fixture(scope="module")
async def demo(
    module_database_url: str,
    module_redis_url: str,
    tmp_path_factory: pytest.TempPathFactory,
    bot_options: dict[str, Any],
) -> AsyncIterator[TelegramHouse]:
    """A bot whom the built-in demo answers."""
    folder, settings = tmp_path_factory.mktemp("telegram"), bot_options.get("settings", {})
    async with (
        running_bot_api() as api,
        telegram_house(api, module_database_url, module_redis_url, folder, **settings) as house,
    ):
        yield house
    connection = await asyncpg.connect(module_database_url)
    assert await check_invariants(connection) == []
    await connection.close()
