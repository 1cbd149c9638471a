"""Authentication of programs by API key: scope, rate limit, and an audit record of each write."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Literal
from uuid import UUID

import structlog
from aiohttp import web

from shared.adapters.postgres.people.api_keys import ApiKey, PostgresApiKeys
from shared.adapters.postgres.people.api_sessions import ApiSession, PostgresApiSessions
from shared.adapters.postgres.people.visitors import VisitorRow
from shared.core.identity.api_keys import TOKEN_MARK, Scope
from shared.core.values.errors import UnknownSession
from web.auth.visitors import Known, Site, Visitors
from web.protocol.wire import RateLimited
from web.security import SAFE_METHODS, HttpRefusal
from web.server.client_limiter import KEY_SECONDS
from web.server.rate_limits import RateWindows

log = structlog.get_logger(__name__)

REQUESTS_PER_MINUTE = 600
"""Maximum requests of one API key per minute."""
_BEARER = {"WWW-Authenticate": "Bearer"}
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKeyAuth:
    """Stores, scopes and rate limits for the check of API keys."""

    keys: PostgresApiKeys
    sessions: PostgresApiSessions
    visitors: Visitors
    scope_of: Callable[[str, str], Scope | Literal["anyone"] | None]
    """Function from method and route to the needed scope; None where API keys are not allowed."""
    requests_per_minute: int = REQUESTS_PER_MINUTE
    windows: RateWindows = field(default_factory=lambda: RateWindows(KEY_SECONDS))


API: web.AppKey[ApiKeyAuth] = web.AppKey("api", ApiKeyAuth)
"""Application key of the API key check."""
KEY: web.RequestKey[ApiKey] = web.RequestKey("api_key", ApiKey)
"""Request key of the API key with which a request was admitted."""
RECORDED: web.RequestKey[bool] = web.RequestKey("recorded", bool)
"""Request key that is set once the action was recorded in the audit log."""


@web.middleware
async def check_api_key(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Middleware that checks the API key of a request; a request without one is passed on.

    Raises HttpRefusal with status 401 or 403, and RateLimited.
    """
    token = _find_key(request)
    if token is None or request.match_info.http_exception is not None:
        return await handler(request)
    auth = request.app[API]
    key = await auth.keys.find(token)
    if key is None:
        raise HttpRefusal(
            401, "unknown_key", "This key is not known here, was revoked, or has expired.", headers=_BEARER
        )
    if wait := auth.windows.take(str(key.id), auth.requests_per_minute):
        raise RateLimited(retry_after_seconds=wait, what="requests")
    resource = request.match_info.route.resource
    scope = auth.scope_of(request.method, resource.canonical if resource else "")
    if scope is None:
        raise HttpRefusal(403, "not_for_keys", "No key opens this address.")
    if scope != "anyone" and scope not in key.scopes:
        raise HttpRefusal(403, "scope_needed", f"This needs the scope {scope}.", scope=scope)
    request[KEY] = key
    response = await handler(request)
    if (
        scope != "anyone"
        and request.method not in SAFE_METHODS
        and response.status < 400
        and RECORDED not in request
    ):
        log.error("api_key_write_not_audited", route=resource.canonical if resource else "")
    return response


async def record(request: web.Request, action: str, *, about: str, **detail: Any) -> None:
    """Record an action in the audit log if an API key makes it; do nothing for other callers.

    Call it after the limits are checked and before the write, so that an action that cannot be recorded is
    not carried out. A write that then finds no object, or is refused by its store, stays recorded.
    """
    key = request.get(KEY)
    if key is not None:
        await request.app[API].keys.record(key, f"api.{action}", about=about, detail=detail)
        request[RECORDED] = True


async def find_by_key(request: web.Request, public_id: str | None) -> Known | None:
    """Return the visitor of the conversation that a request with API key names; None without a key.

    Raises UnknownSession if a request with a key may not access the conversation `public_id`, or if that is
    None or no UUID.
    """
    key = request.get(KEY)
    if key is None:
        return None
    try:
        session = UUID(public_id or "")
    except ValueError:
        raise UnknownSession("not an id", advice=NAME_THE_SESSION) from None
    reached = await request.app[API].sessions.find(session, site=key.site, agent_id=key.agent_id)
    if reached is None:
        raise UnknownSession("not within the key's limits", advice=NAME_THE_SESSION)
    return await build_known(request, reached)


async def build_known(request: web.Request, reached: ApiSession) -> Known:
    """Return the visitor to whom a conversation belongs, for an API key or an operator who may access it.

    On a public site the caller gets a visitor's rights only. A site that cannot be read counts as one
    without configuration; off the web, the address id is NOWHERE. Raises StorageUnavailable.
    """
    row = VisitorRow(
        site=reached.site,
        audience=reached.audience,
        contact_id=reached.contact_id,
        address_id=reached.address_id or NOWHERE,
        session_id=reached.session_id,
        session_public_id=reached.public_id,
    )
    visitors = request.app[API].visitors
    public, site = visitors.is_public(row.audience), (await visitors.sites()).get(reached.site, Site())
    key = request.get(KEY)
    return Known(row=row, audience="public" if public else "personal", site=site, admitted_by=key and key.id)


NOWHERE = 0
"""Address id of a conversation that does not take place on the web."""
NAME_THE_SESSION = "Name a conversation that this key may reach, by the id that it had when it was made."
"""Advice for an API key that names no conversation that it may access."""


def _find_key(request: web.Request) -> str | None:
    """Return the API key in the Authorization header; None if there is none."""
    kind, _, token = request.headers.get("Authorization", "").partition(" ")
    token = token.strip()
    return token if kind.lower() == "bearer" and token.startswith(TOKEN_MARK) else None
