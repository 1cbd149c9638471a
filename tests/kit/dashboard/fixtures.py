"""Serves the dashboard alone on a local port, with a logged-in operator."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, TypeAlias

import aiohttp
import asyncpg
import pytest
from aiohttp import web
from pytest_aiohttp import AiohttpClient

from shared.adapters.postgres.dashboard.job_changes import PostgresJobChanges
from shared.adapters.postgres.people.operator_auth import create_login_link
from shared.config.settings import load_settings
from shared.core.session.turns import DueJob
from shared.runtime import ignore_crash_point
from shared.services.admin.job_admin import JobAdmin
from tests.kit.dashboard.serve import add_pages
from tests.kit.midday import MIDDAY
from tests.kit.web.inspector import inspecting_over


@dataclass(slots=True)
class RunCommands:
    """Command runner that records requests and returns a prepared outcome, or raises it."""

    asked: list[Mapping[str, Any]] = field(default_factory=list)
    outcome: Any = field(default_factory=lambda: {"success": True, "result": "done"})

    async def run(self, **request: Any) -> Any:
        self.asked.append(request)
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return SimpleNamespace(**{"success": True, "result": "", "error": None, **self.outcome})


@dataclass(frozen=True, slots=True, kw_only=True)
class Dashboard:
    """Client of the dashboard without a screen; `http` keeps cookies and sends requests as same-origin."""

    url: str
    database_url: str
    pool: asyncpg.Pool[asyncpg.Record]
    http: aiohttp.ClientSession
    commands: RunCommands
    bell: list[DueJob] = field(default_factory=list)
    """Jobs that were announced, with their attempts."""

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
Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"
Start = Callable[..., Awaitable[Dashboard]]


@dataclass(slots=True)
class Bell:
    """Doorbell that records the announced jobs."""

    rung: list[DueJob]

    async def ring(self, job: DueJob) -> bool:
        self.rung.append(job)
        return True


class NobodyListens:
    """Announcer whose messages reach no one."""

    async def announce(self, session_id: int, message: Mapping[str, Any]) -> None:
        return None

    async def subscribe(self, session_ids: Sequence[int]) -> None:
        return None

    async def listen(self) -> AsyncIterator[tuple[int, Mapping[str, Any]]]:
        await asyncio.Event().wait()
        yield 0, {}


def make_job_admin(pool: Pool, bell: list[DueJob], *, announcer: Any = None) -> JobAdmin:
    return JobAdmin(
        PostgresJobChanges(pool), Bell(bell), announcer or NobodyListens(), crash_point=ignore_crash_point
    )


@pytest.fixture
async def stranger(
    database_url: str, pool: asyncpg.Pool[asyncpg.Record], aiohttp_client: AiohttpClient
) -> Dashboard:
    """Client of the dashboard whose operator has not logged in."""
    commands, bell = RunCommands(), list[DueJob]()
    app = add_pages(
        web.Application(),
        pool=pool,
        settings=load_settings(timezone=MIDDAY),
        commands=commands,
        inspecting=inspecting_over(pool),
        job_admin=make_job_admin(pool, bell),
    )
    client = await aiohttp_client(app, timeout=aiohttp.ClientTimeout(total=20))
    return Dashboard(
        url=str(client.make_url("")).rstrip("/"),
        database_url=database_url,
        pool=pool,
        http=client.session,
        commands=commands,
        bell=bell,
    )


@pytest.fixture
async def dashboard(stranger: Dashboard) -> Dashboard:
    """Client of the dashboard whose operator has logged in by a link."""
    await stranger.log_in()
    return stranger
