"""An app on a fresh database for each test that asks."""

from __future__ import annotations

import pytest

from tests.kit.fakes.messages_api.harness import RunningFake
from tests.seeds.scenes import House, house_on


@pytest.fixture
async def start(database_url: str, redis_url: str, provider: RunningFake) -> House:
    await provider.reset()
    return house_on(database_url, redis_url, provider)
