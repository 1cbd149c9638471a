"""The dashboard of an app with tool servers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from aiohttp import web

from shared.bootstrap.app import App
from tests.kit.dashboard.fixtures import SAME_ORIGIN
from tests.kit.dashboard.serve import served
from tests.kit.web.callers import make_operator


@dataclass(frozen=True, slots=True)
class AgentApi:
    app: App
    url: str
    http: aiohttp.ClientSession
    known: Mapping[str, str] = field(default_factory=dict)

    async def ask(self, method: str, path: str, *, match: int | None = None, **body: Any) -> tuple[int, Any]:
        headers = {**SAME_ORIGIN, **self.known}
        headers |= {} if match is None else {"If-Match": f'"{match}"'}
        url = f"{self.url}/api/v1{path}"
        async with self.http.request(method, url, headers=headers, json=body or None) as response:
            return response.status, await response.json()

    async def judged(self, **tools: Any) -> Any:
        status, found = await self.ask("POST", "/agents/default/check", config={"tools": tools})
        assert status == 200
        return found


@asynccontextmanager
async def opened(app: App) -> AsyncIterator[AgentApi]:
    async with (
        served(
            web.Application(), pool=app.pool, settings=app.settings, commands=None, playground=app.playground
        ) as url,
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as http,
    ):
        yield AgentApi(app, url, http, await make_operator(app.pool, "admin"))
