"""One server of somebody else's for the run; each test has a database of its own there."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from itertools import count

import pytest

from tests.integration.external_servers.own_postgres import OwnPostgres, own_postgres
from tests.kit.temp_folders import short_folder

_numbers = count(1)


@pytest.fixture(scope="session")
async def own_server() -> AsyncIterator[OwnPostgres]:
    """It refuses whoever comes without TLS."""
    folder = short_folder("evw-")
    try:
        async with own_postgres(folder) as server:
            yield server
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
async def own_database(own_server: OwnPostgres) -> str:
    """Its name; empty."""
    name = f"own_{next(_numbers)}"
    await own_server.create(name)
    return name
