"""Serves the dashboard and its static files the way the web process does."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

import asyncpg
from aiohttp import web

from shared.config.settings import Settings
from shared.core.verdicts.breaker import BreakerState
from shared.services.admin.context_inspector import ContextInspector
from shared.services.admin.job_admin import JobAdmin
from shared.services.admin.playground import Playground
from shared.services.tools.handover import HandoverService
from web.dashboard import add_dashboard
from web.dashboard.live import DashboardNews
from web.parts import CommandRunner
from web.server.pages import ASK_AGAIN, Files, serve


@asynccontextmanager
async def served(
    app: web.Application,
    *,
    pool: asyncpg.Pool[asyncpg.Record],
    settings: Settings,
    commands: CommandRunner | None,
    handovers: HandoverService | None = None,
    inspecting: ContextInspector | None = None,
    work_desk: JobAdmin | None = None,
    playground: Playground | None = None,
    news: DashboardNews | None = None,
    breakers: Callable[[], Mapping[str, BreakerState]] | None = None,
    demo: bool = False,
) -> AsyncIterator[str]:
    add_dashboard(
        app,
        pool=pool,
        settings=settings,
        commands=commands,
        handovers=handovers,
        context_inspector=inspecting,
        job_admin=work_desk,
        playground=playground,
        news=news,
        breakers=breakers,
        demo=demo,
    )
    files = Files()

    async def static(request: web.Request) -> web.StreamResponse:
        found = files.get(request.match_info["path"])
        if found is None:
            raise web.HTTPNotFound
        return serve(request, found, cache=ASK_AGAIN, foreign=True)

    app.router.add_get("/static/{path:.+}", static)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    try:
        yield f"http://{host}:{port}"
    finally:
        await runner.cleanup()
