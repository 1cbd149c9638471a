"""Serves the dashboard and its static files like the web process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
from aiohttp import web
from aiohttp.test_utils import TestServer

from shared.config.settings import Settings
from shared.core.verdicts.breaker import BreakerState
from shared.services.admin.context_inspector import ContextInspector
from shared.services.admin.job_admin import JobAdmin
from shared.services.admin.playground import Playground
from shared.services.tools.handover import HandoverService
from web.dashboard import build_dashboard
from web.ports import CommandRunner
from web.server.dashboard_streams import DashboardNews
from web.server.pages import ASK_AGAIN, Files, serve


def add_pages(
    app: web.Application,
    *,
    pool: asyncpg.Pool[asyncpg.Record],
    settings: Settings,
    commands: CommandRunner | None,
    handovers: HandoverService | None = None,
    inspecting: ContextInspector | None = None,
    job_admin: JobAdmin | None = None,
    playground: Playground | None = None,
    news: DashboardNews | None = None,
    breakers: Callable[[], Mapping[str, BreakerState]] | None = None,
    demo: bool = False,
) -> web.Application:
    """Add the dashboard and its static files to an application."""
    files = Files()
    dashboard = build_dashboard(
        pool=pool,
        settings=settings,
        commands=commands,
        handovers=handovers,
        context_inspector=inspecting,
        job_admin=job_admin,
        playground=playground,
        news=news,
        breakers=breakers,
        demo=demo,
        static_root=f"/static-{files.digest}",
    )
    dashboard.add_to(app)

    async def static(request: web.Request) -> web.StreamResponse:
        found = files.get(request.match_info["path"], packed="digest" in request.match_info)
        if found is None:
            raise web.HTTPNotFound
        return serve(request, found, cache=ASK_AGAIN, foreign=True)

    app.router.add_get("/static/{path:.+}", static)
    app.router.add_get("/static-{digest:[0-9a-f]+}/{path:.+}", static)
    return app


@asynccontextmanager
async def served(app: web.Application, **parts: Any) -> AsyncIterator[str]:
    """Serve the dashboard while the context is open, and yield its URL; `parts` are those of `add_pages`."""
    async with TestServer(add_pages(app, **parts)) as server:
        yield str(server.make_url("")).rstrip("/")
