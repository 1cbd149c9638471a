"""The door of visitors and programs: who asks, how often, and how they are answered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from shared.core.values.errors import UnknownSession
from web.auth.visitors import Known, Visitors
from web.ports import Readiness
from web.protocol import wire
from web.rest.api_key_auth import KEY, find_by_key
from web.rest.arguments import arguments_of, read_arguments
from web.rest.kinds import to_json
from web.rest.operation import HandlerTable, Operation
from web.security import HttpRefusal, cross_origin_headers, preflight, read_json
from web.server.client_limiter import ClientLimiter

_NO_STORE = {"Cache-Control": "no-store"}
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Others = Mapping[tuple[str, str], Handler]
"""Operators' handlers by method and path, for addresses that visitors and keys share with them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VisitorDoor:
    """Visitors, limits and readiness, by which a request of a visitor or a program is admitted."""

    visitors: Visitors
    limiter: ClientLimiter
    readiness: Readiness


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """Admitted request. `known` is None if everyone may call, or if the handler finds the caller
    itself.
    """

    request: web.Request
    door: VisitorDoor
    known: Known | None

    @property
    def person(self) -> Known:
        assert self.known is not None, "the operation says that a visitor may come"
        return self.known

    @property
    def session_id(self) -> int:
        return self.person.row.session_id

    @property
    def language(self) -> str:
        """Language that the client names first; empty if it names none."""
        return self.request.headers.get("Accept-Language", "").partition(",")[0].partition(";")[0].strip()

    def check_draining(self) -> None:
        if self.door.readiness.draining:
            words = "The server restarts. Please come back."
            raise HttpRefusal(503, "restarting", words, headers={"Retry-After": "2"})

    def check_rate(self, what: str) -> None:
        """Count a request in the limits of its conversation and its client address; raise RateLimited.

        `what` is `reads`, or another word for the limits of messages. With a key, reads do not count here,
        and other requests count by conversation only.
        """
        limiter, key = self.door.limiter, KEY in self.request
        if what == "reads" and key:
            return  # a key has its requests in a minute
        limits = limiter.limits_for(self.request)
        most, mark = (limits.reads, "read ") if what == "reads" else (limits.messages, "")
        wait = limiter.sessions.take(f"{mark}{self.session_id}", most)
        if not key:
            wait = wait or limiter.addresses.take(f"{mark}{limiter.client_key(self.request)}", most)
        if wait:
            raise wire.RateLimited(retry_after_seconds=wait, what=what)


def unauthorized_error(
    words: str = "A visitor's token or a key is needed.", *, code: str = "unauthorized"
) -> HttpRefusal:
    return HttpRefusal(401, code, words, headers={"WWW-Authenticate": "Bearer"})


def build_handler(
    operation: Operation, others: Others, *, door: VisitorDoor, handlers: HandlerTable
) -> Handler:
    """Build the handler for visitors and keys; other callers go to the operators' handler, if there is
    one.
    """
    handlers.bind(operation)  # a class that was forgotten shows at the start

    async def handle(request: web.Request) -> web.StreamResponse:
        itself = operation.anyone or operation.finds_caller
        known = None if itself else await _find_visitor(request, operation, door.visitors)
        if itself or known is not None:
            reply = await _run_operation(operation, handlers, Call(request=request, door=door, known=known))
            if reply is not None:
                return reply
        other = others.get((operation.method, operation.path))
        if other is not None and KEY not in request:
            return await other(request)
        raise unauthorized_error() if known is None else HttpRefusal(404, "not_found", operation.missing)

    return handle


async def _run_operation(
    operation: Operation, handlers: HandlerTable, call: Call
) -> web.StreamResponse | None:
    if operation.rate:
        call.check_rate(operation.rate)

    async def read_body(needed: bool) -> Mapping[str, Any]:
        return await read_json(call.request)

    given = await read_arguments(operation, call.request, read_body=read_body)
    if operation.method != "GET":
        for text in given.values():
            if isinstance(text, str):
                wire.clean(text)
    reply = await handlers.bind(operation)(call, **given)
    if reply is None or isinstance(reply, web.StreamResponse):
        return reply
    return await json_reply(call.request, reply, status=min(operation.answers))


async def _find_visitor(request: web.Request, operation: Operation, visitors: Visitors) -> Known | None:
    """Return the visitor, or for a key the person of the named session. Raises UnknownSession.

    None if the request comes from no visitor.
    """
    named = "/sessions/{id}" in operation.path
    asked = request.match_info["id"] if named else request.query.get("session_id")
    if (known := await find_by_key(request, asked)) is not None:
        return known
    visitor = await visitors.find_caller(request)
    if visitor is None:
        return None
    if not asked or (not named and visitor.site.config.conversations == "one"):
        return await visitors.open(visitor, "") or visitor
    if (known := await visitors.open(visitor, asked)) is not None:
        return known
    if "Authorization" in request.headers:
        raise UnknownSession("not this visitor's session")
    return None


async def json_reply(request: web.Request, body: Any, *, status: int = 200) -> web.Response:
    headers = {**_NO_STORE, **await cross_origin_headers(request)}
    return web.json_response(text=to_json(body), status=status, headers=headers)


def add_operations(
    app: web.Application,
    operations: tuple[Operation, ...],
    others: Others,
    *,
    door: VisitorDoor,
    handlers: HandlerTable,
) -> None:
    """Add a route for each operation, and a preflight route where pages of other origins may call it."""
    asked_first: dict[str, list[str]] = {}
    for one in operations:
        handler = build_handler(one, others, door=door, handlers=handlers)
        if one.method == "GET":
            app.router.add_get(one.pattern, handler, allow_head=one.head)
        else:
            app.router.add_route(one.method, one.pattern, handler)
        if (one.visitor or one.anyone) and one.group != "description":
            named = [each.wire_name for each in arguments_of(one) if each.place == "header"]
            asked_first.setdefault(one.pattern, []).extend(named)
    for pattern, named in asked_first.items():
        app.router.add_route("OPTIONS", pattern, preflight(*named))
