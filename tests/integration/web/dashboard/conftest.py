"""The dashboard for every test of this folder, as `tests.kit.dashboard.fixtures` serves it."""

from __future__ import annotations

import pytest

from tests.kit.dashboard.fixtures import Dashboard, dashboard, stranger
from tests.kit.dashboard.people_seed import Crowded, people

__all__ = ["dashboard", "stranger"]


@pytest.fixture
async def crowd(dashboard: Dashboard) -> Crowded:
    """Some people in the database of `dashboard`."""
    async with dashboard.pool.acquire() as connection:
        return await people(connection)
