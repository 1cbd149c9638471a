"""What many tests of adapters begin with: a pool of connections, and a visitor of the demo."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest

from shared.adapters.postgres.db.pool import open_pool


@pytest.fixture
async def pool(database_url: str) -> AsyncIterator[asyncpg.Pool[asyncpg.Record]]:
    opened = await open_pool(database_url, size=8)
    yield opened
    await opened.close()
