"""A house with the strict fake provider, where a few turns fill the window."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.kit.app_driver import Visit, running_app, settings_for, visit
from tests.kit.fakes.messages_api.harness import RunningFake


@pytest.fixture
async def provider(running_provider: RunningFake) -> RunningFake:
    await running_provider.reset()
    return running_provider


@pytest.fixture
async def guest(database_url: str, redis_url: str, provider: RunningFake) -> AsyncIterator[Visit]:
    settings = settings_for(
        database_url, redis_url, anthropic_api_key="test-key", anthropic_base_url=provider.base_url,
        context_window=9_000, max_output=1_000, cap_total_per_day_usd="100",
    )  # fmt: skip
    async with running_app(settings) as app:
        yield await visit(app)
