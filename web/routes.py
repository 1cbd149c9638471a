"""Table of all REST operations, and the handlers of pages and health checks."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from aiohttp import web

from shared.adapters.postgres.db.readiness import PostgresReadiness
from shared.core.identity.api_keys import Scope
from shared.core.values.errors import StorageUnavailable
from web import dashboard
from web.api import (
    commands,
    conversations,
    export,
    imports,
    memory,
    messages,
    push,
    recovery,
    rest,
    uploads,
    visitor_reports,
)
from web.auth.visitors import Visitors
from web.chat import event_stream_chat, long_poll
from web.ports import Readiness
from web.protocol import wire
from web.protocol.answers import to_json
from web.rest import kinds
from web.rest.calls import Call
from web.rest.operation import Operation, OperationRouter, Reply
from web.security import cross_origin_headers
from web.server.pages import ASK_AGAIN, FOR_EVER, File, Files, serve

description = OperationRouter("description")


@dataclass(frozen=True, slots=True, kw_only=True)
class DescriptionHandlers:
    """Handler of the OpenAPI document, which is built at the first request and then kept."""

    made: list[str] = field(default_factory=list)

    @description.on(
        "GET /openapi.json", Annotated[dict[str, Any], kinds.describe("OpenAPI 3.1 document")], anyone=True
    )
    async def describe(self, call: Call) -> Reply:
        """The OpenAPI description of this interface."""
        if not self.made:
            from web.rest.openapi import document

            self.made.append(to_json(await asyncio.to_thread(document, OPERATIONS)))
        headers = {"Cache-Control": "no-store", **await cross_origin_headers(call.request)}
        return web.json_response(text=self.made[0], headers=headers)


FOR_VISITORS: tuple[Operation, ...] = (
    *messages.router,
    *rest.router,
    *conversations.router,
    *export.router,
    *commands.router,
    *memory.router,
    *memory.answers,
    *imports.router,
    *description,
    *event_stream_chat.router,
    *long_poll.router,
    *recovery.router,
    *visitor_reports.router,
    *push.router,
    *uploads.router,
)
"""Operations for visitors and programs; at addresses shared with operators they are tried first."""
OPERATIONS: tuple[Operation, ...] = (*FOR_VISITORS, *dashboard.OPERATIONS)
ANYONE: Literal["anyone"] = "anyone"
"""Value of `scope_of` for operations that need no scope."""
_OPENS = {(one.method, one.path): ANYONE if one.anyone else one.scope for one in FOR_VISITORS}


def scope_of(method: str, path: str) -> Scope | Literal["anyone"] | None:
    """Return the scope that an API key needs for a route.

    `anyone` if none is needed, None if keys are not allowed.
    """
    return _OPENS.get(("GET" if method == "HEAD" else method, path))


READY_SECONDS = 3.0
"""Seconds that the readiness check waits for the database."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatPageHandlers:
    """Handlers of the chat page, the widget and static files."""

    files: Files
    visitors: Visitors

    async def chat_page(self, request: web.Request) -> web.StreamResponse:
        """Serve the chat page, and set a cookie that identifies the visitor for a year."""
        site = request.query.get("site", "default")
        if not wire.is_site(site):
            raise web.HTTPNotFound
        page = self.files.page("chat.html", request.headers.get("Accept-Language", ""))
        response = serve(request, _known(page), cache="no-store", foreign=False)
        self.visitors.set_cookie(request, response, site)
        return response

    async def widget(self, request: web.Request) -> web.StreamResponse:
        """Serve the widget's script, which pages of other sites may load."""
        return serve(request, _known(self.files.widget), cache=ASK_AGAIN, foreign=True)

    async def push_worker(self, request: web.Request) -> web.StreamResponse:
        """Serve the service worker that shows push notifications.

        At the root, so that it covers all pages.
        """
        worker = _known(self.files.get("push.js"))
        return serve(request, worker, cache=ASK_AGAIN, foreign=False)

    async def static(self, request: web.Request) -> web.StreamResponse:
        """Serve a static file that browsers must revalidate."""
        return self._serve_static(request, cache=ASK_AGAIN, packed=False)

    async def static_for_ever(self, request: web.Request) -> web.StreamResponse:
        """Serve a static file at an address with the digest of all files.

        Browsers may keep it for ever; if the digest is outdated, they get the current file and must
        revalidate.
        """
        newest = request.match_info["digest"] == self.files.digest
        return self._serve_static(request, cache=FOR_EVER if newest else ASK_AGAIN, packed=True)

    def _serve_static(self, request: web.Request, *, cache: str, packed: bool) -> web.StreamResponse:
        file = self.files.get(request.match_info["path"], packed=packed)
        return serve(request, _known(file), cache=cache, foreign=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthHandlers:
    """Handler of the readiness check."""

    readiness: Readiness
    store: PostgresReadiness

    async def readyz(self, request: web.Request) -> web.StreamResponse:
        """Answer 200 if this process can store and answer messages, else 503.

        Checks the last heartbeat, the database schema and loaded libraries; 503 while draining, too.
        """
        draining = self.readiness.draining
        database: str = self.readiness.write_state()
        if database == "ok" and not draining:
            try:
                async with asyncio.timeout(READY_SECONDS):
                    database = "ok" if await self.store.is_migrated() else "not migrated"
            except (StorageUnavailable, TimeoutError):
                database = "unreachable"
        draining = self.readiness.draining
        ready = database == "ok" and not draining and self.readiness.is_warm()
        status = "draining" if draining else "ready" if ready else "not ready"
        return web.json_response(
            {"status": status, "database": database},
            status=200 if ready else 503,
            headers={"Cache-Control": "no-store"},
        )


async def go_to_chat(request: web.Request) -> web.StreamResponse:
    """Redirect to the chat page."""
    raise web.HTTPFound("/chat")


async def healthz(request: web.Request) -> web.StreamResponse:
    """Answer 200 as long as the process runs."""
    return web.json_response({"status": "ok"}, headers={"Cache-Control": "no-store"})


def _known(file: File | None) -> File:
    """Return the file; for None, answer with status 404."""
    if file is None:
        raise web.HTTPNotFound
    return file
