"""The door of the dashboard: who may do what, and what becomes of whatever is refused."""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

from aiohttp import web

from shared.adapters.postgres.dashboard.read_models import BadQuery
from shared.adapters.postgres.people.operator_auth import Operators, SignedIn
from shared.config.settings import BadSettings, Settings
from shared.core.identity.operators import StaleOperator, UnknownOperator
from shared.core.values.errors import EvertalkError, StorageUnavailable
from web.dashboard.requests import FORM_BYTES, read_json
from web.protocol.answers import to_json
from web.rest.arguments import BadField, read_arguments
from web.rest.operation import HandlerTable, Operation
from web.security import REQUEST_ID, SAFE_METHODS, HttpRefusal, status_of
from web.server.origins import Proxies

COOKIE = "evertalk_operator"
"""Name of the login cookie, without the prefix that `cookie_name` adds over https."""
LIVE = "/api/v1/live"
"""Path of the dashboard's stream of changes, which keeps no login alive."""
POLL_HEADER = "X-Evertalk-Refresh"
"""Header of requests by which a page refreshes itself.

They keep no login alive, and an equal reading is audited at most every 15 minutes.
"""

HEADERS = {
    "Server": "Evertalk",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "frame-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
        "worker-src 'self'; require-trusted-types-for 'script'; trusted-types evertalk"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}
"""Headers of every response of the dashboard, unless a handler sets others."""


@dataclass(slots=True, kw_only=True)
class DashboardDoor:
    """Logins of operators, settings and proxies, by which a request is admitted."""

    operators: Operators
    settings: Settings
    proxies: Proxies

    def address(self, request: web.Request) -> str:
        """Return the client's address behind trusted proxies, so that a lock-out concerns one client."""
        return self.proxies.client_address(request)

    def origin(self, request: web.Request) -> str:
        """Return the origin of links; the Host header counts only on loopback."""
        if self.settings.public_url is None and is_loopback(_host(request.host)):
            return f"{request.scheme}://{request.host}"
        return self.settings.base_url


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthedRequest:
    """Admitted request. `who` may be None for operations that are open to everyone or to scrapers."""

    request: web.Request
    door: DashboardDoor
    who: SignedIn | None

    @property
    def operator(self) -> SignedIn:
        """Operator who sent the request; only available for operations that name a role."""
        assert self.who is not None, "the operation names a role"
        return self.who

    @property
    def token(self) -> str:
        """Token of this login, from its cookie; empty without one."""
        return self.request.cookies.get(cookie_name(self.request, self.door.settings), "")

    @property
    def address(self) -> str:
        """Client's address behind trusted proxies."""
        return self.door.address(self.request)

    @property
    def origin(self) -> str:
        """Origin of links to this dashboard."""
        return self.door.origin(self.request)

    @property
    def refresh(self) -> bool:
        """True if a page that refreshes itself sent the request."""
        return POLL_HEADER in self.request.headers

    async def record(self, action: str, about: str = "", **detail: Any) -> None:
        """Write `action` of the operator to the audit log; `about` is its object, such as `person:<id>`.

        Raises StorageUnavailable, so that an unrecorded action is not carried out.
        """
        await self.door.operators.record(
            actor=self.operator.name, action=action, about=about, detail=detail or None
        )

    async def record_reading(self, what: str, about: str = "") -> None:
        """Write `read.<what>` of the operator to the audit log.

        For a page that refreshes itself, an equal entry is written at most every 15 minutes.
        """
        operators = self.door.operators
        record = operators.record_once if self.refresh else operators.record
        await record(actor=self.operator.name, action=f"read.{what}", about=about)


def build_handler(
    operation: Operation, door: DashboardDoor, handlers: HandlerTable
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """Return the aiohttp handler of an operation, which checks access before it calls the operation's method.

    First the origin of a change is checked, then the role. Typed errors become responses with status and
    code, and every response gets `HEADERS`.
    """
    handlers.bind(operation)  # a class that was forgotten shows at the start

    async def handle(request: web.Request) -> web.StreamResponse:
        try:
            response = await _dispatch(operation, handlers, door, request)
        except HttpRefusal as refusal:
            response = refusal_response(request, refusal)
        except (BadQuery, BadField, EvertalkError, BadSettings, TimeoutError) as error:
            response = refusal_response(request, await _build_refusal(request, error))
        except web.HTTPException as error:
            for name, value in HEADERS.items():
                error.headers.setdefault(name, value)
            raise
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        return response

    return handle


async def _build_refusal(request: web.Request, error: Exception) -> HttpRefusal:
    """Return the HTTP refusal for a typed error: status, code and advice."""
    match error:
        case BadField(place="body"):
            return HttpRefusal(400, "bad_input", error.advice)
        case BadField() | BadQuery():
            words = error.advice if isinstance(error, BadField) else f"{error}."
            return HttpRefusal(400, "bad_query", f"That cannot be shown: {words}")
        case StorageUnavailable() | TimeoutError():
            words = "The database does not answer just now. Try again."
            return HttpRefusal(503, "storage_unavailable", words)
        case StaleOperator():
            yours = dict(await read_json(request, most=FORM_BYTES))
            return HttpRefusal(409, error.code, error.advice, current=error.current, yours=yours)
        case EvertalkError():
            status = 404 if isinstance(error, UnknownOperator) else status_of(error, 409)
            return HttpRefusal(status, error.code, error.advice)
    return HttpRefusal(503, "no_secret_key", "EVERTALK_SECRET_KEY cannot be read: nothing was made.")


async def _dispatch(
    operation: Operation, handlers: HandlerTable, door: DashboardDoor, request: web.Request
) -> web.StreamResponse:
    if request.method not in SAFE_METHODS and not is_own_origin(request, door.settings):
        raise HttpRefusal(403, "foreign_origin", "This request came from another page.")
    if any("\x00" in value for value in request.query.values()):
        raise BadQuery("it holds a NUL character")
    who, role = await find_signed_in(request, door), operation.role
    if operation.scraper:
        check_scraper(request, door)
    elif not operation.anyone:
        if who is None:
            return require_login(request)
        if role is None or not who.has_role(role):
            raise HttpRefusal(403, "role_needed", f"This needs the role {role}; you are {who.role}.")

    async def read_body(needed: bool) -> Mapping[str, Any]:
        return await read_json(request, most=operation.most_bytes, needed=needed)

    given = await read_arguments(operation, request, read_body=read_body, without_empty=True)
    handler = handlers.bind(operation)
    reply = await handler(AuthedRequest(request=request, door=door, who=who), **given)
    if reply is None:
        raise HttpRefusal(404, "not_found", operation.missing)
    if isinstance(reply, web.StreamResponse):
        return reply
    return json_response(reply, status=min(operation.answers))


@contextmanager
def raise_conflicts() -> Iterator[None]:
    """Turn each EvertalkError of the block into HTTP 409, except StorageUnavailable, which becomes 503."""
    try:
        yield
    except StorageUnavailable:
        raise
    except EvertalkError as error:
        raise HttpRefusal(409, error.code, error.advice) from error


async def find_signed_in(request: web.Request, door: DashboardDoor) -> SignedIn | None:
    """Return the operator whose login cookie the request has; None without a valid login.

    Extends the login, unless the page refreshes itself or follows the stream of changes.
    """
    token = request.cookies.get(cookie_name(request, door.settings), "")
    refreshing = POLL_HEADER in request.headers or request.path == LIVE
    return await door.operators.authenticate(token, present=not refreshing) if token else None


def require_login(request: web.Request) -> web.StreamResponse:
    """Return a redirect to the login page, which leads back to this address afterwards.

    Raises HttpRefusal 401 for an address of the API instead.
    """
    if request.path.startswith("/api/"):
        raise HttpRefusal(401, "login_needed", "Please log in again.")
    return web.Response(
        status=303, headers={"Location": f"/dashboard/login?next={quote(request.path_qs, safe='/')}"}
    )


def check_scraper(request: web.Request, door: DashboardDoor) -> None:
    """Check who may read metrics. Raises HttpRefusal without the configured token.

    If no token is configured, only a direct caller on this machine may.
    """
    token = door.settings.metrics_token
    if token is not None:
        given = request.headers.get("Authorization", "").removeprefix("Bearer ").encode()
        if secrets.compare_digest(given, token.get_secret_value().encode()):
            return
        raise HttpRefusal(
            401, "token_needed", "Metrics need their token.", headers={"WWW-Authenticate": "Bearer"}
        )
    if not door.proxies.is_local(request):
        message = "Set EVERTALK_METRICS_TOKEN to read metrics from elsewhere, or where there is a public URL."
        raise HttpRefusal(403, "local_only", message)


def is_own_origin(request: web.Request, settings: Settings) -> bool:
    """Return whether the request comes from a page of this server.

    Browsers send `Sec-Fetch-Site` for that; over plain http, and in older ones, only `Origin`.
    """
    site = request.headers.get("Sec-Fetch-Site")
    if site is not None:
        return site == "same-origin"
    origin = urlsplit(request.headers.get("Origin", ""))
    if not origin.netloc:
        return False
    own = {request.host.lower(), urlsplit(settings.base_url).netloc.lower()}
    return origin.netloc.lower() in own


def is_secure(request: web.Request, settings: Settings) -> bool:
    """Return whether the browser uses https, directly or through a proxy."""
    if request.scheme == "https" or request.headers.get("Origin", "").startswith("https://"):
        return True
    public = urlsplit(settings.public_url or "")
    return public.scheme == "https" and not is_loopback(_host(request.host))


def cookie_name(request: web.Request, settings: Settings) -> str:
    """Return the name of the login cookie, with the `__Host-` prefix wherever the browser accepts it.

    Safari does not accept it on http://127.0.0.1.
    """
    secured = f"__Host-{COOKIE}"
    if is_secure(request, settings) or secured in request.cookies:
        return secured
    return COOKIE


def can_keep_login(request: web.Request, settings: Settings) -> bool:
    """Return whether a login cookie is safe here: over https, or over http on this machine alone."""
    return is_secure(request, settings) or is_loopback(_host(request.host))


def is_loopback(host: str) -> bool:
    """Return whether a host name or address is this machine; an empty one, of a unix socket, is."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == ""  # a unix socket has no address


def _host(netloc: str) -> str:
    return (urlsplit(f"//{netloc}").hostname or "").lower()


def refusal_response(request: web.Request, refusal: HttpRefusal) -> web.Response:
    """Return a refusal as a response: plain text for a page, else `{code, message, request_id, details}`."""
    if request.path.startswith("/dashboard"):
        return web.Response(status=refusal.status, text=refusal.message, headers=refusal.headers)
    request_id = request.get(REQUEST_ID) or secrets.token_hex(8)
    body: dict[str, Any] = {"code": refusal.code, "message": refusal.message, "request_id": request_id}
    return json_response(
        body | ({"details": refusal.details} if refusal.details else {}),
        status=refusal.status, headers=refusal.headers,
    )  # fmt: skip


def json_response(body: Any, *, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    """Return a value as a JSON response."""
    return web.Response(
        status=status, text=to_json(body), content_type="application/json", headers=dict(headers or {})
    )
