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
from shared.core.identity.oidc import Attempt, NoEntry, ProviderAway, ProviderIdentity, ProviderRefused
from web.dashboard.access import AuthedRequest, can_keep_login, is_secure
from web.dashboard.sign_in.login import login_form, safe_next, see_other, set_login_cookie, wait_longer
from web.rest.operation import OperationRouter
from web.security import HttpRefusal

log = structlog.get_logger(__name__)

router = OperationRouter()
COOKIE = "evertalk_sign_in"
BACK = "/dashboard/oidc/back"
ATTEMPT_SECONDS = 600
MOST_CHARS = 8_192
_ATTEMPT = re.compile(r"([A-Za-z0-9_-]{43})\.([A-Za-z0-9_=-]{0,400})")


@router.page("GET /dashboard/oidc", anyone=True)
async def begin_login(authed: AuthedRequest) -> web.StreamResponse:
    request, context = authed.request, authed.context
    provider = _provider(authed)
    if not can_keep_login(request, context.settings):
        return login_form(authed, "plain", status=403)
    attempt = Attempt(secret=secrets.token_urlsafe(32))
    try:
        address = await provider.begin(attempt, redirect_uri=context.origin(request) + BACK)
    except ProviderAway as error:
        log.warning("oidc_provider_unreachable", reason=str(error))
        return login_form(authed, "away", status=503)
    response = see_other(address)
    following = base64.urlsafe_b64encode(safe_next(request.query.get("next", "")).encode()).decode()[:400]
    response.set_cookie(
        _cookie(authed), f"{attempt.secret}.{following}", path="/", httponly=True, samesite="Lax",
        secure=is_secure(request, context.settings), max_age=ATTEMPT_SECONDS,
    )  # fmt: skip
    return response


@router.page(f"GET {BACK}", anyone=True)
async def finish_login(authed: AuthedRequest) -> web.StreamResponse:
    """The attempt ends here, however it ends."""
    response = await _finish(authed)
    name = _cookie(authed)
    response.del_cookie(name, path="/", secure=name.startswith("__Host-"), httponly=True, samesite="Lax")
    return response


async def _finish(authed: AuthedRequest) -> web.StreamResponse:
    provider, source = _provider(authed), authed.context.address(authed.request)
    begun = _ATTEMPT.fullmatch(authed.request.cookies.get(_cookie(authed), ""))
    if begun is None or len(authed.request.query_string) > MOST_CHARS:
        return login_form(authed, "again", status=400)
    tries, keys = authed.context.admin.login_tries, address_key(source)
    if wait := await tries.begin(keys):
        return wait_longer(authed, wait)
    attempt, answer = Attempt(secret=begun[1]), dict(authed.request.query)
    try:
        identity = await provider.finish(
            attempt, answer, redirect_uri=authed.context.origin(authed.request) + BACK
        )
        token = await _let_in(authed, identity, source=source)
    except (ProviderRefused, NoEntry, ProviderAway) as error:
        return await _refused(authed, error, source=source)
    if token is None:
        return login_form(authed, "locked", status=403)
    await tries.record_success(keys)
    return await set_login_cookie(authed, token, following=_following(begun[2]))


async def _let_in(authed: AuthedRequest, identity: ProviderIdentity, *, source: str) -> str | None:
    operator = await authed.context.stores.operator_admin.upsert_from_provider(
        issuer=identity.issuer, subject=identity.subject, name=identity.name, role=identity.role
    )
    if operator is None:
        return None
    browser = authed.request.headers.get("User-Agent", "")
    return await authed.context.admin.operators.begin(
        operator, how="provider", source=source, browser=browser
    )


async def _refused(
    authed: AuthedRequest, error: ProviderRefused | NoEntry | ProviderAway, *, source: str
) -> web.Response:
    log.warning("oidc_refused", code=error.code, reason=str(error))
    detail = {"source": source, "how": "provider", "why": error.code}
    await authed.context.admin.operators.record(actor="nobody", action="login.refused", detail=detail)
    messages = {"no_entry": ("groups", 403), "provider_away": ("away", 503)}
    message, status = messages.get(error.code, ("again", 400))
    return login_form(authed, message, status=status)


def _provider(authed: AuthedRequest) -> OidcProvider:
    if authed.context.provider is None:
        raise HttpRefusal(404, "not_found", "No identity provider is set up here.")
    return authed.context.provider


def _cookie(authed: AuthedRequest) -> str:
    return f"__Host-{COOKIE}" if is_secure(authed.request, authed.context.settings) else COOKIE


def _following(encoded: str) -> str:
    try:
        return safe_next(base64.urlsafe_b64decode(encoded).decode())
    except (ValueError, binascii.Error):
        return safe_next("")
