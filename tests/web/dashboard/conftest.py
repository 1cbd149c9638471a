"""The dashboard alone in a web server on loopback, with an operator already at it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import asyncpg
import pytest
from aiohttp import web

from shared.adapters.postgres.operators import create_login_link
from shared.adapters.postgres.pool import open_pool
from shared.settings import load_settings
from tests.web.dashboard.serve import served


@dataclass(slots=True)
class RunCommands:
    """Remembers what was asked for, and answers as told."""

    asked: list[Mapping[str, Any]] = field(default_factory=list)
    outcome: Any = field(default_factory=lambda: {"success": True, "result": "done"})

    async def run(self, **request: Any) -> Any:
        self.asked.append(request)
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Dashboard:
    """A browser without a screen: `http` keeps cookies and says it is of the same origin."""

    url: str
    database_url: str
    pool: asyncpg.Pool[asyncpg.Record]
    http: aiohttp.ClientSession
    commands: RunCommands

    async def get(self, path: str, **headers: str) -> Any:
        async with self.http.get(f"{self.url}/api/v1{path}", headers=headers) as response:
            assert response.status == 200, (response.status, await response.text())
            return await response.json()

    async def status(self, method: str, path: str, **options: Any) -> int:
        options = {"allow_redirects": False} | options
        async with self.http.request(method, self.url + path, **options) as response:
            return response.status

    async def log_in(self) -> None:
        form = {"token": await create_login_link(self.database_url)}
        assert await self.status("POST", "/dashboard/login", data=form, headers=SAME_ORIGIN) == 303


SAME_ORIGIN = {"Sec-Fetch-Site": "same-origin"}
Start = Callable[..., Awaitable[Dashboard]]


@pytest.fixture
async def pool(database_url: str) -> AsyncIterator[asyncpg.Pool[asyncpg.Record]]:
    opened = await open_pool(database_url, size=4)
    yield opened
    await opened.close()


@pytest.fixture
async def stranger(database_url: str, pool: asyncpg.Pool[asyncpg.Record]) -> AsyncIterator[Dashboard]:
    """Somebody who has not logged in."""
    commands = RunCommands()
    app = web.Application()
    async with (
        served(app, pool=pool, settings=load_settings(), commands=commands) as url,
        aiohttp.ClientSession(
            cookie_jar=aiohttp.CookieJar(unsafe=True), timeout=aiohttp.ClientTimeout(total=20)
        ) as http,
    ):
        yield Dashboard(url=url, database_url=database_url, pool=pool, http=http, commands=commands)


@pytest.fixture
async def dashboard(stranger: Dashboard) -> Dashboard:
    """The first operator, logged in by a link."""
    await stranger.log_in()
    return stranger
