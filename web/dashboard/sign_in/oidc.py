"""Logging in by an identity provider: the browser goes there and comes back with an answer."""

from __future__ import annotations

import base64
import binascii
import re
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog
from aiohttp import web

from shared.adapters.oidc import OidcProvider
from shared.adapters.postgres.people.login_tries import LoginTries, address_key
from shared.adapters.postgres.people.operator_auth import Operators
from shared.config.settings import Settings
from shared.core.identity.oidc import Attempt, NoEntry, ProviderAway, ProviderIdentity, ProviderRefused
from web.dashboard.access import AuthedRequest, can_keep_login, is_secure
from web.dashboard.sign_in.login import LoginHandlers, safe_next, see_other
from web.rest.operation import OperationRouter
from web.security import HttpRefusal

if TYPE_CHECKING:
    from shared.adapters.postgres.people.operator_admin import OperatorAdmin

log = structlog.get_logger(__name__)

router = OperationRouter()
COOKIE = "evertalk_sign_in"
"""Name of the cookie of a login that waits for the identity provider, without the prefix for https."""
BACK = "/dashboard/oidc/back"
"""Path to which the identity provider sends the browser back."""
ATTEMPT_SECONDS = 600
"""Seconds within which the browser must come back."""
MOST_CHARS = 8_192
"""Maximum characters of the provider's answer in the address."""
_ATTEMPT = re.compile(r"([A-Za-z0-9_-]{43})\.([A-Za-z0-9_=-]{0,400})")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderLoginHandlers:
    """Handlers of logging in by an identity provider."""

    settings: Settings
    login: LoginHandlers
    login_tries: LoginTries
    operator_admin: OperatorAdmin
    operators: Operators
    provider: OidcProvider | None

    @router.page("GET /dashboard/oidc", anyone=True)
    async def begin_login(self, authed: AuthedRequest) -> web.StreamResponse:
        """Redirect to the identity provider, with a cookie that holds the secret of this attempt."""
        request = authed.request
        provider = self._provider()
        if not can_keep_login(request, self.settings):
            return self.login.login_form(authed, "plain", status=403)
        attempt = Attempt(secret=secrets.token_urlsafe(32))
        try:
            address = await provider.begin(attempt, redirect_uri=authed.origin + BACK)
        except ProviderAway as error:
            log.warning("oidc_provider_unreachable", reason=str(error))
            return self.login.login_form(authed, "away", status=503)
        response = see_other(address)
        following = base64.urlsafe_b64encode(safe_next(request.query.get("next", "")).encode()).decode()[:400]
        response.set_cookie(
            self._cookie(authed), f"{attempt.secret}.{following}", path="/", httponly=True, samesite="Lax",
            secure=is_secure(request, self.settings), max_age=ATTEMPT_SECONDS,
        )  # fmt: skip
        return response

    @router.page(f"GET {BACK}", anyone=True)
    async def finish_login(self, authed: AuthedRequest) -> web.StreamResponse:
        """Check the provider's answer, create or update the operator, and log them in.

        The attempt's cookie is deleted in any case; after a refusal the login form shows the reason.
        """
        response = await self._finish(authed)
        name = self._cookie(authed)
        response.del_cookie(name, path="/", secure=name.startswith("__Host-"), httponly=True, samesite="Lax")
        return response

    async def _finish(self, authed: AuthedRequest) -> web.StreamResponse:
        provider, source = self._provider(), authed.address
        begun = _ATTEMPT.fullmatch(authed.request.cookies.get(self._cookie(authed), ""))
        if begun is None or len(authed.request.query_string) > MOST_CHARS:
            return self.login.login_form(authed, "again", status=400)
        tries, keys = self.login_tries, address_key(source)
        if wait := await tries.begin(keys):
            return self.login.wait_longer(authed, wait)
        attempt, answer = Attempt(secret=begun[1]), dict(authed.request.query)
        try:
            identity = await provider.finish(attempt, answer, redirect_uri=authed.origin + BACK)
            token = await self._let_in(authed, identity, source=source)
        except (ProviderRefused, NoEntry, ProviderAway) as error:
            return await self._refused(authed, error, source=source)
        if token is None:
            return self.login.login_form(authed, "locked", status=403)
        await tries.record_success(keys)
        return await self.login.set_login_cookie(authed, token, following=_following(begun[2]))

    async def _let_in(self, authed: AuthedRequest, identity: ProviderIdentity, *, source: str) -> str | None:
        operator = await self.operator_admin.upsert_from_provider(
            issuer=identity.issuer, subject=identity.subject, name=identity.name, role=identity.role
        )
        if operator is None:
            return None
        browser = authed.request.headers.get("User-Agent", "")
        return await self.operators.begin(operator, how="provider", source=source, browser=browser)

    async def _refused(
        self, authed: AuthedRequest, error: ProviderRefused | NoEntry | ProviderAway, *, source: str
    ) -> web.Response:
        log.warning("oidc_refused", code=error.code, reason=str(error))
        detail = {"source": source, "how": "provider", "why": error.code}
        await self.operators.record(actor="nobody", action="login.refused", detail=detail)
        messages = {"no_entry": ("groups", 403), "provider_away": ("away", 503)}
        message, status = messages.get(error.code, ("again", 400))
        return self.login.login_form(authed, message, status=status)

    def _provider(self) -> OidcProvider:
        if self.provider is None:
            raise HttpRefusal(404, "not_found", "No identity provider is set up here.")
        return self.provider

    def _cookie(self, authed: AuthedRequest) -> str:
        return f"__Host-{COOKIE}" if is_secure(authed.request, self.settings) else COOKIE


def _following(encoded: str) -> str:
    try:
        return safe_next(base64.urlsafe_b64decode(encoded).decode())
    except (ValueError, binascii.Error):
        return safe_next("")
