"""Somebody who talks to a running app, and what must be true of all that is stored in the end."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest

from shared.adapters.postgres.operations.invariants import check_invariants
from tests.kit.app_driver import Visit, running_app, settings_for, visit


@pytest.fixture
async def guest(database_url: str, redis_url: str) -> AsyncIterator[Visit]:
    async with running_app(settings_for(database_url, redis_url)) as app:
        yield await visit(app)
        connection = await asyncpg.connect(database_url, timeout=60)
        try:
            assert await check_invariants(connection) == []
        finally:
            await connection.close(timeout=30)
