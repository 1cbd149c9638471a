"""The dashboard as `up` serves it, with one setting from the environment."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from shared.config.settings import ORIGINS_NAME, load_settings
from tests.kit.dashboard.fixtures import Dashboard, RunCommands
from tests.kit.dashboard.serve import served


@pytest.fixture
async def pages(
    database_url: str, pool: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Dashboard]:
    """As `up` runs it, with one setting from the environment."""
    monkeypatch.setenv(ORIGINS_NAME, "EVERTALK_PRESET=environment")
    monkeypatch.setenv("EVERTALK_PRESET", "pantheon")
    settings = load_settings(data_dir=tmp_path, secret_key="k" * 40)
    commands = RunCommands()
    async with (
        served(web.Application(), pool=pool, settings=settings, commands=commands) as url,
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as http,
    ):
        yield Dashboard(url=url, database_url=database_url, pool=pool, http=http, commands=commands)
