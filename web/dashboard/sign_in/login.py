"""Logging in and out: by password, or once by a link; both work without any script."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

from aiohttp import web
from pydantic import Field

from shared.adapters.oidc import OidcProvider
from shared.adapters.postgres.people.operator_auth import (
    SESSION_HOURS,
    CodeNeeded,
    Operators,
    TooManyTries,
    WeakPassword,
)
from shared.config.settings import Settings
from shared.core.identity.operators import OfTheProvider
from web.dashboard.access import (
    AuthedRequest,
    can_keep_login,
    cookie_name,
    is_secure,
)
from web.dashboard.requests import FORM_BYTES, read_form
from web.rest.kinds import DONE, Success
from web.rest.operation import OperationRouter
from web.security import HttpRefusal
from web.server.dashboard_streams import Live
from web.server.words import language_of, translate, translate_page

router = OperationRouter()
PAGES = Path(__file__).resolve().parents[2] / "static" / "dashboard"
"""Folder of the dashboard's HTML pages."""
_TOKEN = re.compile(r"[A-Za-z0-9_-]{20,200}")
_NEXT = re.compile(r"/dashboard(/[A-Za-z0-9/_-]*)?(\?[A-Za-z0-9=&_.%+-]*)?")

MESSAGES = {
    "": "",
    "wrong": "Name or password are wrong.",
    "used": "This link was used or has expired. Ask an admin for one, or run ./evertalk login-link.",
    "plain": "Logging in needs https, or a browser on the machine itself (http://127.0.0.1).",
    "out": "You are logged out.",
    "again": "Logging in did not work. Please start again.",
    "away": "Your identity provider does not answer just now. Try again in a minute.",
    "groups": "Your account is in no group that may use this dashboard. Ask its admin.",
    "code": "That code is not right, or was used already. Wait for the next one.",
    "late": "That took too long. Please start again.",
    "sealed": "The second factor cannot be read: the secret key is missing or has changed. "
    "On the server, ./evertalk operator totp reset NAME removes it.",
    "locked": "Your account is locked here. Ask an admin.",
    "wait": "Too many tries. Please wait {minutes} min.",
}
"""Sentences of the login form, by the code that an address gives as `m`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginHandlers:
    """Handlers of logging in and out, and the form that other ways of logging in show."""

    settings: Settings
    operators: Operators
    live: Live | None
    static_root: str
    provider: OidcProvider | None

    @router.page("GET /dashboard/login", anyone=True)
    async def login_page(self, authed: AuthedRequest) -> web.StreamResponse:
        """Show the login form, or redirect an operator who is logged in already.

        The token of a login link is only put into the form, since a preview of the link must not use it up.
        """
        query = authed.request.query
        if authed.who is not None and "token" not in query:
            return see_other(safe_next(query.get("next", "")))
        return self.login_form(
            authed, query.get("m", ""), token=query.get("token", ""), following=query.get("next", "")
        )

    @router.page("POST /dashboard/login", anyone=True)
    async def log_in(self, authed: AuthedRequest) -> web.StreamResponse:
        """Log in by password or by the token of a link; redirect with a login cookie.

        Shows the form again with the reason of a refusal, or with the field for a code of the second factor.
        """
        request = authed.request
        if not can_keep_login(request, self.settings):
            return self.login_form(authed, "plain", status=403)
        form = await read_form(request)
        token, source = form.get("token", ""), authed.address
        browser = request.headers.get("User-Agent", "")
        if token:
            outcome = await self.operators.use_link(token=token, source=source, browser=browser)
        else:
            outcome = await self.operators.log_in(
                name=form.get("name", ""), password=form.get("password", ""), source=source, browser=browser
            )
        if isinstance(outcome, TooManyTries):
            return self.wait_longer(authed, outcome.retry_after_seconds)
        if isinstance(outcome, CodeNeeded):
            return self.login_form(authed, step=outcome.token, following=form.get("next", ""))
        if outcome is None:
            message = "used" if token else "wrong"
            return self.login_form(authed, message, following=form.get("next", ""), status=401)
        return await self.set_login_cookie(authed, outcome, following=form.get("next", ""))

    async def set_login_cookie(self, authed: AuthedRequest, token: str, *, following: str) -> web.Response:
        """Redirect with the cookie of a new login, and end the login before it."""
        request = authed.request
        await self._end(authed)
        response = see_other(safe_next(following))
        response.set_cookie(
            cookie_name(request, self.settings),
            token,
            path="/",
            httponly=True,
            secure=is_secure(request, self.settings),
            samesite="Lax",
            max_age=SESSION_HOURS * 3600,
        )
        return response

    @router.page("POST /dashboard/logout", anyone=True)
    async def log_out(self, authed: AuthedRequest) -> web.StreamResponse:
        """End the login, close the open streams of logins that have ended, and redirect to the login form."""
        await self._end(authed)
        if self.live is not None:
            await self.live.announce_sign_out()
        name = cookie_name(authed.request, self.settings)
        response = see_other("/dashboard/login?m=out")
        response.del_cookie(name, path="/", secure=name.startswith("__Host-"), httponly=True, samesite="Lax")
        return response

    @router.on(
        "POST /me/password",
        role="viewer",
        body="Password",
        most_bytes=FORM_BYTES,
        refusals=(409, 422),
    )
    async def set_password(
        self,
        authed: AuthedRequest,
        *,
        password: Annotated[str, Field(json_schema_extra={"minLength": 10, "maxLength": 1_000})],
    ) -> Success:
        """Change your password.

        All of your other logins end.
        """
        who = authed.operator
        try:
            await self.operators.set_password(who.operator_id, password, by=who.name, keep=authed.token)
        except OfTheProvider as error:
            words = "Your password is your identity provider's; change it there."
            raise HttpRefusal(409, error.code, words) from None
        except WeakPassword as error:
            raise HttpRefusal(422, "weak_password", str(error)) from None
        return DONE

    async def _end(self, authed: AuthedRequest) -> None:
        """End the current login, so that a new login gets a new token."""
        if authed.token:
            await self.operators.log_out(authed.token)

    def wait_longer(self, authed: AuthedRequest, seconds: int) -> web.Response:
        """Return the login form with status 429, after too many tries; `seconds` is rounded up to minutes."""
        return self.login_form(
            authed,
            "wait",
            minutes=str(-(-seconds // 60)),
            status=429,
            headers={"Retry-After": str(seconds)},
        )

    def login_form(
        self,
        authed: AuthedRequest,
        message: str = "",
        *,
        minutes: str = "",
        token: str = "",
        step: str = "",
        following: str = "",
        status: int = 200,
        headers: dict[str, str] | None = None,
    ) -> web.Response:
        """Return the login form: name and password, a login link, or the code of the authenticator app.

        `message` is a key of `MESSAGES`, `token` that of a login link, `step` the proof of a passed first
        step, and `following` the address to which a login leads. Unsafe characters never reach the page.
        """
        language = language_of(authed.request)
        words = translate(language, MESSAGES.get(message, ""), minutes=minutes)
        page = (PAGES / "login.html").read_text(encoding="utf-8")
        link = token if _TOKEN.fullmatch(token) else ""
        half = step if _TOKEN.fullmatch(step) else ""
        asked = "code" if half else "link" if link else "password"
        for other in {"code", "link", "password"} - {asked}:
            page = re.sub(rf"<!--{other}-->.*?<!--end-->", "", page, flags=re.DOTALL)
        if link or half or self.provider is None:
            page = re.sub(r"<!--provider-->.*?<!--end-->", "", page, flags=re.DOTALL)
        if not words:
            page = re.sub(r"<!--message-->.*?<!--end-->", "", page, flags=re.DOTALL)
        root = self.static_root
        page = translate_page(language, page, static_root=root, command="<code>./evertalk login-link</code>")
        filled = (
            page.replace("[[token]]", link)
            .replace("[[step]]", half)
            .replace("[[next]]", safe_next(following).replace("&", "&amp;"))
        )
        filled = filled.replace("[[next-part]]", quote(safe_next(following), safe=""))
        return web.Response(
            status=status,
            text=filled.replace("[[message]]", words),
            content_type="text/html",
            headers=headers,
        )


def safe_next(path: str) -> str:
    """Return the address if it is one of the dashboard, else its first page."""
    return path if _NEXT.fullmatch(path) else "/dashboard"


def see_other(location: str) -> web.Response:
    """Return a redirect (303) to an address."""
    return web.Response(status=303, headers={"Location": location})
