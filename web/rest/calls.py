"""Handling of REST calls by visitors and programs: identify the caller, check the rate, run the handler,
answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from shared.core.values.errors import UnknownSession
from web.auth.visitors import Known, Visitors
from web.ports import Readiness
from web.protocol import wire
from web.protocol.answers import to_json
from web.rest.api_key_auth import KEY, find_by_key
from web.rest.arguments import BadField, arguments_of, read_arguments
from web.rest.operation import HandlerTable, Operation
from web.security import HttpRefusal, cross_origin_headers, preflight, read_json
from web.server.client_limiter import ClientLimiter

_NO_STORE = {"Cache-Control": "no-store"}
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Others = Mapping[tuple[str, str], Handler]
"""Handlers of operators by method and path, for paths that visitors and API keys share with them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VisitorDoor:
    """Services that admit the request of a visitor or program."""

    visitors: Visitors
    limiter: ClientLimiter
    readiness: Readiness


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """Admitted request.

    `known` is the visitor whose conversation the call is for, also if a program calls with its API key. None
    if everyone may call or if the handler itself identifies the caller.
    """

    request: web.Request
    door: VisitorDoor
    known: Known | None

    @property
    def person(self) -> Known:
        """Visitor whose conversation the call is for; only for operations that identify one."""
        assert self.known is not None, "the operation says that a visitor may come"
        return self.known

    @property
    def session_id(self) -> int:
        """Id of the visitor's conversation."""
        return self.person.row.session_id

    @property
    def language(self) -> str:
        """Language tag that the client prefers; empty if it states none."""
        return self.request.headers.get("Accept-Language", "").partition(",")[0].partition(";")[0].strip()

    def check_draining(self) -> None:
        """Raise HttpRefusal with status 503 if the process is stopping."""
        if self.door.readiness.draining:
            words = "The server restarts. Please come back."
            raise HttpRefusal(503, "restarting", words, headers={"Retry-After": "2"})

    def check_rate(self, what: str) -> None:
        """Count a request towards the limits of its conversation and client address. Raises RateLimited.

        `what` is `reads`, or any other name for the limits of messages, which all of these names share. With
        an API key, reads are not counted, and other requests count for the conversation only.
        """
        limiter, key = self.door.limiter, KEY in self.request
        if what == "reads" and key:
            return  # the requests per minute of a key are limited already
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
    """Return the error with status 401 for a missing or invalid token."""
    return HttpRefusal(401, code, words, headers={"WWW-Authenticate": "Bearer"})


def build_handler(
    operation: Operation, others: Others, *, door: VisitorDoor, handlers: HandlerTable
) -> Handler:
    """Return the request handler of an operation for visitors and API keys.

    Other callers are passed to the operators' handler of the same path, if there is one. Raises KeyError if
    the handler's object is missing.
    """
    handlers.bind(operation)  # a missing object is found at the start of the process

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
        if known is None and not itself:
            raise unauthorized_error()
        raise HttpRefusal(404, "not_found", operation.missing)

    return handle


async def _run_operation(
    operation: Operation, handlers: HandlerTable, call: Call
) -> web.StreamResponse | None:
    """Read the arguments and run the handler; None means that the object was not found."""
    if operation.rate:
        call.check_rate(operation.rate)

    async def read_body(needed: bool) -> Mapping[str, Any]:
        try:
            return await read_json(call.request, needed=needed)
        except wire.BadFrame:
            raise BadField("The body is no JSON object.") from None

    given = await read_arguments(operation, call.request, read_body=read_body)
    if operation.method != "GET":
        for text in given.values():
            if isinstance(text, str):
                wire.clean(text)
    if operation.method != "GET":
        # The answer needs the sites; an error of theirs after the write would hide that it is stored.
        await cross_origin_headers(call.request)
    reply = await handlers.bind(operation)(call, **given)
    if reply is None or isinstance(reply, web.StreamResponse):
        return reply
    return await json_reply(call.request, reply, status=min(operation.answers))


async def _find_visitor(request: web.Request, operation: Operation, visitors: Visitors) -> Known | None:
    """Return the visitor, or with an API key the person of the named conversation; None if there is none.

    Raises UnknownSession if the caller may not access the named conversation.
    """
    in_path = "/sessions/{id}" in operation.path
    public_id = request.match_info["id"] if in_path else request.query.get("session_id")
    if (known := await find_by_key(request, public_id)) is not None:
        return known
    visitor = await visitors.find_caller(request)
    if visitor is None:
        return None
    if not public_id or (not in_path and visitor.site.config.conversations == "one"):
        return await visitors.open(visitor, "") or visitor
    if (known := await visitors.open(visitor, public_id)) is not None:
        return known
    if "Authorization" in request.headers:
        raise UnknownSession("not this visitor's session")
    return None


async def json_reply(request: web.Request, body: Any, *, status: int = 200) -> web.Response:
    """Return a JSON response with CORS headers."""
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
    """Add a route for each operation, and a preflight route where pages of other origins may call."""
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
