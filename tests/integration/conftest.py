"""What many tests of adapters begin with: a pool of connections, and a visitor of the demo."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest

from shared.adapters.postgres.db.pool import open_pool
from tests.kit.app_driver import Visit, running_app, settings_for, visit


@pytest.fixture
async def pool(database_url: str) -> AsyncIterator[asyncpg.Pool[asyncpg.Record]]:
    opened = await open_pool(database_url, size=8)
    yield opened
    await opened.close()


@pytest.fixture
async def guest(database_url: str, redis_url: str) -> AsyncIterator[Visit]:
    """Visitor whom the built-in demo answers."""
    async with running_app(settings_for(database_url, redis_url)) as app:
        yield await visit(app)
