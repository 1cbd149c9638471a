"""Logins of operators, for the tests of this folder."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest

from shared.adapters.postgres.people.operator_auth import Operators


@pytest.fixture
async def operators(pool: asyncpg.Pool[asyncpg.Record]) -> AsyncIterator[Operators]:
    made = Operators(pool)
    yield made
    await made.close()
