"""Who may do what at the dashboard: a table of routes and roles, and the door to them."""

from __future__ import annotations

import ipaddress
import json
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol
from urllib.parse import quote, urlsplit

from aiohttp import web

from shared.adapters.models.breaker import BreakerState
from shared.adapters.oidc import OidcProvider
from shared.adapters.postgres.dashboard.read_models import BadQuery
from shared.adapters.postgres.people.operator_auth import SignedIn
from shared.bootstrap.dashboard_stores import DashboardStores
from shared.bootstrap.stores import Stores
from shared.config.settings import Settings
from shared.core.identity.operators import Role
from shared.core.values.errors import StorageUnavailable
from shared.services.admin.context_inspector import ContextInspector
from shared.services.admin.job_admin import JobAdmin
from shared.services.privacy.erasure import ErasureAnnouncer
from shared.services.tools.handover import HandoverService
from web.server.origins import Proxies

if TYPE_CHECKING:
    from web.dashboard.live import Live

Need = Role | Literal["anyone", "metrics"]
"""`anyone` needs no login; `metrics` is for a scraper with the token, or on a machine of one's own."""

COOKIE = "evertalk_operator"
LIVE = "/api/v1/live"
POLL_HEADER = "X-Evertalk-Refresh"
"""Sent by a screen that refreshes itself: it neither keeps a login alive nor counts as reading."""

HEADERS = {
    "Server": "Evertalk",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "frame-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})


class CommandsLike(Protocol):
    """What the dashboard asks of the commands: to run one for a session."""

    async def run(
        self,
        *,
        session_id: int,
        address_id: int | None,
        name: str,
        args: str,
        cid: str | None,
        progress: Callable[..., Awaitable[None]] | None,
    ) -> Any:
        """What came of it: a mapping, or a value with `success`, `result` and `error`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DashboardContext:
    """What the handlers work with."""

    stores: Stores
    admin: DashboardStores
    settings: Settings
    commands: CommandsLike | None
    proxies: Proxies
    handovers: HandoverService | None = None
    announcer: ErasureAnnouncer | None = None
    """Tells screens that something new is stored; None where nobody listens."""
    provider: OidcProvider | None = None
    breakers: Callable[[], Mapping[str, BreakerState]] | None = None
    inspecting: ContextInspector | None = None
    work: JobAdmin | None = None
    live: Live | None = None

    def open_streams(self) -> int:
        return 0 if self.live is None else self.live.streams

    def address(self, request: web.Request) -> str:
        """Of the client, behind proxies that are trusted: who locks themselves out locks out nobody else."""
        return self.proxies.client_address(request)

    def origin(self, request: web.Request) -> str:
        """What links begin with; the Host header is believed only where nobody else can send it."""
        if self.settings.public_url is None and is_loopback(_host(request.host)):
            return f"{request.scheme}://{request.host}"
        return self.settings.base_url


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthedRequest:
    """One request that was let in; `who` is None only where anyone may come."""

    request: web.Request
    desk: DashboardContext
    who: SignedIn | None

    @property
    def operator(self) -> SignedIn:
        assert self.who is not None, "the route table names a role"
        return self.who

    @property
    def refresh(self) -> bool:
        return POLL_HEADER in self.request.headers


Handler = Callable[[AuthedRequest], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    method: str
    path: str
    need: Need
    handler: Handler


class DashboardRefusal(Exception):
    """The answer is no, or not like this; told as JSON."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        headers: Mapping[str, str] | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.headers = status, code, message, headers or {}
        self.details = details


def guarded(route: Route, desk: DashboardContext) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """The only way in: own origin for what changes something, then the role, then the handler."""

    async def handle(request: web.Request) -> web.StreamResponse:
        try:
            response = await _let_in(route, desk, request)
        except DashboardRefusal as refusal:
            response = refusal_response(request, refusal)
        except BadQuery as error:
            response = refusal_response(
                request, DashboardRefusal(400, "bad_query", f"That cannot be shown: {error}.")
            )
        except (StorageUnavailable, TimeoutError):
            away = DashboardRefusal(
                503, "storage_unavailable", "The database does not answer just now. Try again."
            )
            response = refusal_response(request, away)
        except web.HTTPException as error:
            for name, value in HEADERS.items():
                error.headers.setdefault(name, value)
            raise
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        return response

    return handle


async def _let_in(route: Route, desk: DashboardContext, request: web.Request) -> web.StreamResponse:
    if request.method not in _SAFE and not from_own_origin(request, desk.settings):
        raise DashboardRefusal(403, "foreign_origin", "This request came from another page.")
    if any("\x00" in value for value in request.query.values()):
        raise BadQuery("it holds a NUL character")
    who = await signed_in(request, desk)
    visit = AuthedRequest(request=request, desk=desk, who=who)
    match route.need:
        case "anyone":
            pass
        case "metrics":
            check_scraper(request, desk)
        case role if who is None:
            return login_needed(request)
        case role if not who.may(role):
            raise DashboardRefusal(403, "role_needed", f"This needs the role {role}; you are {who.role}.")
    return await route.handler(visit)


async def signed_in(request: web.Request, desk: DashboardContext) -> SignedIn | None:
    token = request.cookies.get(cookie_name(request, desk.settings), "")
    refreshing = POLL_HEADER in request.headers or request.path == LIVE
    return await desk.admin.operators.signed_in(token, present=not refreshing) if token else None


def login_needed(request: web.Request) -> web.StreamResponse:
    if request.path.startswith("/api/"):
        raise DashboardRefusal(401, "login_needed", "Please log in again.")
    return web.Response(
        status=303, headers={"Location": f"/dashboard/login?next={quote(request.path_qs, safe='/')}"}
    )


def check_scraper(request: web.Request, desk: DashboardContext) -> None:
    """With a token configured only its bearer; else only a direct caller on this machine."""
    token = desk.settings.metrics_token
    if token is not None:
        given = request.headers.get("Authorization", "").removeprefix("Bearer ").encode()
        if secrets.compare_digest(given, token.get_secret_value().encode()):
            return
        raise DashboardRefusal(
            401, "token_needed", "Metrics need their token.", headers={"WWW-Authenticate": "Bearer"}
        )
    if not desk.proxies.is_local(request):
        message = "Set EVERTALK_METRICS_TOKEN to read metrics from elsewhere, or where there is a public URL."
        raise DashboardRefusal(403, "local_only", message)


def from_own_origin(request: web.Request, settings: Settings) -> bool:
    """Browsers say so by `Sec-Fetch-Site`; over plain http, and older ones, only by Origin."""
    site = request.headers.get("Sec-Fetch-Site")
    if site is not None:
        return site == "same-origin"
    origin = urlsplit(request.headers.get("Origin", ""))
    if not origin.netloc:
        return False
    own = {request.host.lower(), urlsplit(settings.base_url).netloc.lower()}
    return origin.netloc.lower() in own


def is_secure(request: web.Request, settings: Settings) -> bool:
    """True when the browser speaks https with us, maybe through a proxy."""
    if request.scheme == "https" or request.headers.get("Origin", "").startswith("https://"):
        return True
    public = urlsplit(settings.public_url or "")
    return public.scheme == "https" and not is_loopback(_host(request.host))


def cookie_name(request: web.Request, settings: Settings) -> str:
    """With the `__Host-` prefix wherever the browser accepts it; Safari does not on http://127.0.0.1."""
    secured = f"__Host-{COOKIE}"
    if is_secure(request, settings) or secured in request.cookies:
        return secured
    return COOKIE


def can_keep_login(request: web.Request, settings: Settings) -> bool:
    """Plain http is fine on this machine alone: elsewhere the cookie would travel in the open."""
    return is_secure(request, settings) or is_loopback(_host(request.host))


def is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == ""  # a unix socket has no address


def _host(netloc: str) -> str:
    return (urlsplit(f"//{netloc}").hostname or "").lower()


def refusal_response(request: web.Request, refusal: DashboardRefusal) -> web.Response:
    request_id = str(request.get("request_id") or secrets.token_hex(6))
    body: dict[str, Any] = {"code": refusal.code, "message": refusal.message, "request_id": request_id}
    if refusal.details:
        body["details"] = dict(refusal.details)
    if request.path.startswith("/dashboard"):
        return web.Response(status=refusal.status, text=refusal.message, headers=dict(refusal.headers))
    return answer(body, status=refusal.status, headers=refusal.headers)


def answer(body: Any, *, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
    return web.Response(
        status=status, text=text, content_type="application/json", headers=dict(headers or {})
    )
