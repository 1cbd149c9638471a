"""Rules for every request: request id, errors without internals, security headers, no writes from foreign
pages.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import structlog
from aiohttp import web

from shared.core.identity.push import PushUnavailable
from shared.core.values.errors import (
    BadInput,
    CannotEdit,
    CannotFork,
    CapHeld,
    CapReached,
    ContextBudgetExceeded,
    EvertalkError,
    MessageTooLong,
    ModelError,
    NotFound,
    OnHold,
    SessionMoved,
    StaleView,
    StorageUnavailable,
    UnknownMessage,
    UnknownSession,
)
from shared.services.admin.agent_service import AgentTooLarge
from shared.services.voice.hearing import NotHeard, RecordingEmpty, RecordingTooLong
from shared.services.voice.speaking import NothingToSpeak, NotSpoken
from web.auth.site_tokens import BadIdentity, StillAnswering
from web.auth.visitors import VISITORS, UnknownSite, UnknownToken
from web.protocol import wire
from web.protocol.answers import to_plain
from web.server.http_server import HEADERS, Connection
from web.server.origins import PROXIES, parse_origin
from web.server.pages import FILES

log = structlog.get_logger(__name__)

BODY_SECONDS = 10.0
"""Seconds in which the body of a request must arrive."""
MAX_BODY_BYTES = 1024 * 1024
"""Maximum bytes of a body; dashboard operations allow less, and uploads have other limits."""
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
"""HTTP methods that change nothing, and that pages of other origins may use."""
_PROBES = frozenset({"/healthz", "/readyz"})
"""Paths of health checks, which are served under any host name."""
HELLO_PATH = "/api/v1/stream"
"""Path at which a page without token opens a chat; the page's origin is checked, and cookies do not count."""
STATUS: tuple[tuple[type[EvertalkError], int], ...] = (
    (MessageTooLong, 413),
    (AgentTooLarge, 413),
    (NotFound, 404),
    (UnknownSession, 404),
    (UnknownToken, 401),
    (BadIdentity, 401),
    (UnknownSite, 403),
    (StillAnswering, 409),
    (wire.CidUsed, 409),
    (CannotEdit, 409),
    (CannotFork, 409),
    (UnknownMessage, 404),
    (wire.RateLimited, 429),
    (RecordingTooLong, 422),
    (RecordingEmpty, 422),
    (BadInput, 400),
    (CapReached, 429),
    (CapHeld, 503),
    (NotHeard, 503),
    (NotSpoken, 503),
    (NothingToSpeak, 422),
    (ContextBudgetExceeded, 422),
    (StaleView, 409),
    (PushUnavailable, 503),
    (OnHold, 409),
    (SessionMoved, 409),
    (StorageUnavailable, 503),
    (ModelError, 503),
)
"""HTTP status of each error class; the first class that fits counts."""
_CROSS_ORIGIN: web.RequestKey[bool] = web.RequestKey("cross_origin", bool)
"""Request key that has whether the request's page may read the response, once that is known."""
REQUEST_ID: web.RequestKey[str] = web.RequestKey("request_id", str)
"""Key of the request's id, which appears in errors and in the log."""
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class HttpRefusal(Exception):
    """Raised to answer a request with this status, code and sentence for people.

    `details` become fields of the JSON body.
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        headers: Mapping[str, str] | None = None,
        **details: Any,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.headers = dict(headers or {})
        self.details = details


HTTPS_FOR_A_YEAR = "max-age=31536000"
"""Strict-Transport-Security for this host only; its subdomains are not affected."""


@web.middleware
async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn errors into responses without internals, and add security headers and the request id.

    Outermost middleware: only CancelledError and ConnectionError leave it as exceptions.
    """
    request[REQUEST_ID] = secrets.token_hex(8)
    connection = request.protocol
    if isinstance(connection, Connection):
        connection.mark_busy()
    try:
        response = await _respond(request, handler)
        if response.status >= 400 and not response.prepared:
            response.headers.update(await _readable_headers(request, response))
    finally:
        if isinstance(connection, Connection):
            connection.mark_idle()
    if not response.prepared:
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        if request.app[PROXIES].scheme(request) == "https":
            response.headers.setdefault("Strict-Transport-Security", HTTPS_FOR_A_YEAR)
        response.headers["X-Request-Id"] = request[REQUEST_ID]
    return response


async def _readable_headers(request: web.Request, response: web.StreamResponse) -> Mapping[str, str]:
    """Return the CORS headers with which a script of an allowed page can read an error response.

    Empty if the request has no bearer token and does not open a chat, if the response has such headers, or if
    the page is not allowed.
    """
    if not _by_token(request) or "Access-Control-Allow-Origin" in response.headers:
        return {}
    try:
        return await cross_origin_headers(request)
    except (EvertalkError, TimeoutError):
        return {}


async def _respond(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Check a request, run its handler, and return a response for any error but cancellation and lost
    connection.
    """
    try:
        _refuse_foreign_names(request)
        _refuse_packed_bodies(request)
        await _refuse_foreign_writes(request)
        return await handler(request)
    except HttpRefusal as refusal:
        return error_response(
            request, refusal.status, refusal.code, refusal.message, refusal.details, headers=refusal.headers
        )
    except EvertalkError as error:
        return _known_error(request, error)
    except web.HTTPException as error:
        if error.status < 400:
            return web.Response(status=error.status, headers={"Location": error.headers.get("Location", "/")})
        return _http_error(request, error)
    except TimeoutError:
        return error_response(request, 408, "timeout", "That took too long. Please try again.")
    except (asyncio.CancelledError, ConnectionError):
        raise
    except Exception:
        log.exception("request_failed", path=request.path, request_id=request[REQUEST_ID])
        return error_response(request, 500, "internal_error", "Something went wrong on our side.")


def status_of(error: EvertalkError, other: int = 500) -> int:
    """Return the HTTP status of an error; `other` for a class that is not in `STATUS`."""
    return next((status for kind, status in STATUS if isinstance(error, kind)), other)


def _known_error(request: web.Request, error: EvertalkError) -> web.Response:
    status = status_of(error)
    seconds = getattr(error, "retry_after_seconds", 5 if status == 503 else None)
    headers = {} if seconds is None else {"Retry-After": str(max(1, round(seconds)))}
    if status >= 500:
        log.warning("request_refused", path=request.path, code=error.code, reason=str(error))
    return error_response(
        request, status, error.code, error.sentence, _details(error, seconds), headers=headers
    )


def _details(error: EvertalkError, seconds: float | None) -> dict[str, Any]:
    return {"advice": error.advice} | ({} if seconds is None else {"retry_after": round(float(seconds), 1)})


def error_body(request: web.Request, error: EvertalkError) -> dict[str, Any]:
    """Return `{code, message, request_id, details}` for a response whose status was already sent."""
    details = _details(error, getattr(error, "retry_after_seconds", None))
    shown = {"code": error.code, "message": error.sentence, "request_id": request[REQUEST_ID]}
    return {**shown, "details": details}


def _http_error(request: web.Request, error: web.HTTPException) -> web.Response:
    """Return the response for an HTTP error of aiohttp; a browser gets a page for 404."""
    if error.status == 404 and _wants_page(request):
        page = request.app[FILES].page("missing.html", request.headers.get("Accept-Language", ""))
        assert page is not None
        return web.Response(
            body=page.body, status=404, content_type="text/html", charset="utf-8",
            headers={"Cache-Control": "no-store"},
        )  # fmt: skip
    code = {404: "not_found", 405: "method_not_allowed", 413: "too_large"}.get(error.status, "bad_request")
    if error.status >= 500:
        code = "unavailable"
    kept = {name: error.headers[name] for name in ("Allow", "Retry-After") if name in error.headers}
    return error_response(request, error.status, code, error.reason, headers=kept)


def _wants_page(request: web.Request) -> bool:
    """Return whether a browser asks for a page; programs do not accept HTML."""
    return (
        request.method == "GET"
        and "text/html" in request.headers.get("Accept", "")
        and not request.path.startswith("/api/")
    )


def error_response(
    request: web.Request,
    status: int,
    code: str,
    message: str,
    details: Mapping[str, Any] | None = None,
    *,
    headers: Mapping[str, str] | None = None,
) -> web.Response:
    """Return a response `{code, message, request_id}`, with `details` unless None or empty; not cached."""
    body: dict[str, Any] = {"code": code, "message": message, "request_id": request[REQUEST_ID]}
    if details:
        body["details"] = dict(details)
    headers = {**(headers or {}), "Cache-Control": "no-store"}
    return web.json_response(text=json.dumps(body, default=to_plain), status=status, headers=headers)


def _refuse_foreign_names(request: web.Request) -> None:
    """Refuse requests for unknown host names, as a protection against DNS rebinding.

    Raises HttpRefusal with status 421. Health checks are allowed under any name.
    """
    if request.path not in _PROBES and not request.app[PROXIES].is_ours(request):
        message = "This host name is not served. The server's operator can set EVERTALK_PUBLIC_URL."
        raise HttpRefusal(421, "unknown_host", message)


def _refuse_packed_bodies(request: web.Request) -> None:
    """Refuse compressed bodies, which could expand to a large size. Raises HttpRefusal with status 415."""
    if request.headers.get("Content-Encoding", "identity").strip().lower() not in ("", "identity"):
        raise HttpRefusal(415, "bad_encoding", "The body must not be compressed.")


async def _refuse_foreign_writes(request: web.Request) -> None:
    """Refuse writes that a page of another origin makes with the visitor's cookies.

    Raises HttpRefusal with status 403. Requests with a bearer token are allowed from pages of the site.
    """
    if request.method in SAFE_METHODS:
        return
    fetch_site = request.headers.get("Sec-Fetch-Site")
    origin = request.headers.get("Origin")
    if fetch_site == "same-origin":
        return
    if fetch_site is None and origin is None and "Cookie" not in request.headers:
        return  # not a browser
    if fetch_site is None and origin is not None:
        own = parse_origin(origin)
        if own is not None and request.app[PROXIES].is_same_origin(request, own):
            return
    if _by_token(request) and (origin is None or await request.app[VISITORS].is_page_allowed(request)):
        return
    raise HttpRefusal(403, "foreign_origin", "This page may not do that here.")


def _by_token(request: web.Request) -> bool:
    """Return whether the request is authorised by a token or opens a chat, so that cookies do not matter."""
    bearer = request.headers.get("Authorization", "").lower().startswith("bearer ")
    return bearer or (request.path == HELLO_PATH and "Origin" in request.headers)


async def read_json(request: web.Request, *, needed: bool = True) -> dict[str, Any]:
    """Return the body as a JSON object; a missing body gives an empty object if it is not `needed`.

    Raises HttpRefusal for another content type, BadFrame for other JSON, TimeoutError after `BODY_SECONDS`.
    """
    if not needed and not request.body_exists:
        return {}
    if request.content_type != "application/json":
        raise HttpRefusal(415, "not_json", "The body must be JSON, with Content-Type: application/json.")
    async with asyncio.timeout(BODY_SECONDS):
        body = await request.read()
    return wire.read_object(body)


async def cross_origin_headers(request: web.Request, *, site: str | None = None) -> dict[str, str]:
    """Return the CORS headers of a response: for an allowed page those that let its scripts read it.

    They permit bearer tokens but no cookies. `site` None means that the page may belong to any site; the
    sites are then read once per request. Raises StorageUnavailable.
    """
    if "Origin" not in request.headers:
        return {"Vary": "Origin"}
    is_allowed = request.get(_CROSS_ORIGIN) if site is None else None
    if is_allowed is None:
        is_allowed = await request.app[VISITORS].is_page_allowed(request, site=site)
        if site is None:
            request[_CROSS_ORIGIN] = is_allowed
    if not is_allowed:
        return {"Vary": "Origin"}
    return {
        "Access-Control-Allow-Origin": request.headers["Origin"],
        "Cross-Origin-Resource-Policy": "cross-origin",
        "Vary": "Origin",
    }


def preflight(*headers: str) -> Handler:
    """Return a handler of CORS preflight requests.

    `headers` are request headers that are allowed in addition to the usual ones.
    """
    usual = ("Authorization", "Content-Type", "Idempotency-Key")

    async def handle(request: web.Request) -> web.StreamResponse:
        allowed = await cross_origin_headers(request)
        if "Access-Control-Allow-Origin" in allowed:
            allowed |= {
                "Access-Control-Allow-Methods": "GET, POST, PUT, DELETE",
                "Access-Control-Allow-Headers": ", ".join(dict.fromkeys((*usual, *headers))),
                "Access-Control-Max-Age": "600",
            }
        return web.Response(status=204, headers=allowed)

    return handle
