"""Logging in by an identity provider: the browser goes there and comes back with an answer."""

from __future__ import annotations

import base64
import binascii
import re
import secrets

import structlog
from aiohttp import web

from shared.adapters.oidc import OidcProvider
from shared.adapters.postgres.people.login_tries import address_key
from shared.core.identity.oidc import Attempt, NoEntry, ProviderAway, ProviderRefused, Vouched
from web.dashboard.access import AuthedRequest, can_keep_login, is_secure
from web.dashboard.sign_in.login import keep_login, login_form, next_of, see_other, wait_longer
from web.rest.operation import Room
from web.security import HttpRefusal

log = structlog.get_logger(__name__)

room = Room()
COOKIE = "evertalk_sign_in"
BACK = "/dashboard/oidc/back"
ATTEMPT_SECONDS = 600
MOST_CHARS = 8_192
_ATTEMPT = re.compile(r"([A-Za-z0-9_-]{43})\.([A-Za-z0-9_=-]{0,400})")


@room.page("GET /dashboard/oidc", anyone=True)
async def begin(visit: AuthedRequest) -> web.StreamResponse:
    request, desk = visit.request, visit.desk
    provider = _provider(visit)
    if not can_keep_login(request, desk.settings):
        return login_form(visit, "plain", status=403)
    attempt = Attempt(secret=secrets.token_urlsafe(32))
    try:
        address = await provider.begin(attempt, redirect_uri=desk.origin(request) + BACK)
    except ProviderAway as error:
        log.warning("oidc_provider_away", reason=str(error))
        return login_form(visit, "away", status=503)
    response = see_other(address)
    following = base64.urlsafe_b64encode(next_of(request.query.get("next", "")).encode()).decode()[:400]
    response.set_cookie(
        _cookie(visit), f"{attempt.secret}.{following}", path="/", httponly=True, samesite="Lax",
        secure=is_secure(request, desk.settings), max_age=ATTEMPT_SECONDS,
    )  # fmt: skip
    return response


@room.page(f"GET {BACK}", anyone=True)
async def back(visit: AuthedRequest) -> web.StreamResponse:
    """The attempt ends here, however it ends."""
    response = await _finish(visit)
    name = _cookie(visit)
    response.del_cookie(name, path="/", secure=name.startswith("__Host-"), httponly=True, samesite="Lax")
    return response


async def _finish(visit: AuthedRequest) -> web.StreamResponse:
    provider, source = _provider(visit), visit.desk.address(visit.request)
    begun = _ATTEMPT.fullmatch(visit.request.cookies.get(_cookie(visit), ""))
    if begun is None or len(visit.request.query_string) > MOST_CHARS:
        return login_form(visit, "again", status=400)
    tries, keys = visit.desk.admin.login_tries, address_key(source)
    if wait := await tries.begin(keys):
        return wait_longer(visit, wait)
    attempt, answer = Attempt(secret=begun[1]), dict(visit.request.query)
    try:
        vouched = await provider.finish(attempt, answer, redirect_uri=visit.desk.origin(visit.request) + BACK)
        token = await _let_in(visit, vouched, source=source)
    except (ProviderRefused, NoEntry, ProviderAway) as error:
        return await _refused(visit, error, source=source)
    if token is None:
        return login_form(visit, "locked", status=403)
    await tries.succeeded(keys)
    return await keep_login(visit, token, following=_following(begun[2]))


async def _let_in(visit: AuthedRequest, vouched: Vouched, *, source: str) -> str | None:
    operator = await visit.desk.stores.operator_admin.of_provider(
        issuer=vouched.issuer, subject=vouched.subject, name=vouched.name, role=vouched.role
    )
    if operator is None:
        return None
    browser = visit.request.headers.get("User-Agent", "")
    return await visit.desk.admin.operators.begin(operator, how="provider", source=source, browser=browser)


async def _refused(
    visit: AuthedRequest, error: ProviderRefused | NoEntry | ProviderAway, *, source: str
) -> web.Response:
    log.warning("oidc_refused", code=error.code, reason=str(error))
    detail = {"source": source, "how": "provider", "why": error.code}
    await visit.desk.admin.operators.record(actor="nobody", action="login.refused", detail=detail)
    messages = {"no_entry": ("groups", 403), "provider_away": ("away", 503)}
    message, status = messages.get(error.code, ("again", 400))
    return login_form(visit, message, status=status)


def _provider(visit: AuthedRequest) -> OidcProvider:
    if visit.desk.provider is None:
        raise HttpRefusal(404, "not_found", "No identity provider is set up here.")
    return visit.desk.provider


def _cookie(visit: AuthedRequest) -> str:
    return f"__Host-{COOKIE}" if is_secure(visit.request, visit.desk.settings) else COOKIE


def _following(encoded: str) -> str:
    try:
        return next_of(base64.urlsafe_b64decode(encoded).decode())
    except (ValueError, binascii.Error):
        return next_of("")
