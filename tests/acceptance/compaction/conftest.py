"""For tests that hold over every API of a provider, each with its strict fake."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from shared.bootstrap.app import App
from tests.kit.app_driver import running_app, settings_for
from tests.kit.fakes.messages_api import RunningFake, running_fake
from tests.kit.fakes.messages_api.harness import WIRES


@pytest.fixture(scope="module", params=WIRES)
def wire(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def server(wire: str) -> Iterator[RunningFake]:
    fake = running_fake(wire=wire)
    fake.start()
    try:
        yield fake
    finally:
        fake.close()


@pytest.fixture
def app_options() -> dict[str, Any]:
    """Return settings of `app` beside its servers; a module may override them."""
    return {}


@pytest.fixture
async def app(
    database_url: str, redis_url: str, provider: RunningFake, app_options: dict[str, Any]
) -> AsyncIterator[App]:
    """A process on the shared strict fake, with caps that no test reaches."""
    await provider.reset()
    settings = settings_for(
        database_url, redis_url, anthropic_api_key="test-key", anthropic_base_url=provider.base_url,
        cap_total_per_day_usd="1000", cap_visitor_per_day_usd="1000", **app_options,
    )  # fmt: skip
    async with running_app(settings) as app:
        yield app
