"""Serves the port of a web process while the database accepts no writes at the start: "try again later"."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import structlog
from aiohttp import web

from shared.config.settings import Settings
from shared.core.values.errors import StorageUnavailable
from shared.locales import catalogue, list_languages
from web.server.pages import choose_language

log = structlog.get_logger(__name__)

RETRY_SECONDS = 5
"""Seconds after which clients shall try again."""


@asynccontextmanager
async def open_waiting_room(settings: Settings, state: Callable[[], str]) -> AsyncIterator[None]:
    """Serve while the context is open: health checks, and status 503 for everything else.

    `/readyz` answers 503 with the state of the database, which `state` returns. If the port cannot be used,
    that is only logged.
    """
    app = web.Application()
    app.router.add_get("/healthz", _answer_healthz)
    app.router.add_get("/readyz", lambda request: _answer_readyz(state()))
    app.router.add_route("*", "/{path:.*}", _refuse)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    try:
        await web.TCPSite(runner, settings.http_host, settings.http_port, reuse_address=True).start()
    except OSError as error:
        log.warning("port_listen_failed", port=settings.http_port, reason=str(error))
    try:
        yield
    finally:
        await runner.cleanup()


async def _answer_healthz(request: web.Request) -> web.Response:
    return web.json_response({"status": "ok"}, headers={"Cache-Control": "no-store"})


async def _answer_readyz(state: str) -> web.Response:
    answer = {"status": "not ready", "database": state}
    return web.json_response(answer, status=503, headers={"Cache-Control": "no-store"})


async def _refuse(request: web.Request) -> web.Response:
    """Answer 503 with a text in the visitor's language, as JSON for programs."""
    language = choose_language(request.headers.get("Accept-Language", ""), list_languages())
    text = catalogue("commands", language).say("public_notice_no_room")
    headers = {
        "Cache-Control": "no-store",
        "Retry-After": str(RETRY_SECONDS),
        "X-Content-Type-Options": "nosniff",
    }
    if "text/html" in request.headers.get("Accept", ""):
        return web.Response(text=text, status=503, headers=headers)
    body = {"code": StorageUnavailable.code, "message": text}
    return web.json_response(body, status=503, headers=headers)
