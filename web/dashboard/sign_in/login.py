"""Logging in and out: by password, or once by a link; both work without any script."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

from aiohttp import web
from pydantic import Field

from shared.adapters.postgres.people.operator_auth import (
    SESSION_HOURS,
    CodeNeeded,
    TooManyTries,
    WeakPassword,
)
from shared.core.identity.operators import OfTheProvider
from web.dashboard.access import (
    AuthedRequest,
    can_keep_login,
    cookie_name,
    is_secure,
)
from web.dashboard.requests import FORM_BYTES, read_form
from web.rest.kinds import DONE, Success
from web.rest.operation import Reply, Room
from web.security import HttpRefusal
from web.server.words import language_of, page_in, say

room = Room()
PAGES = Path(__file__).resolve().parents[2] / "static" / "dashboard"
_TOKEN = re.compile(r"[A-Za-z0-9_-]{20,200}")
_NEXT = re.compile(r"/dashboard(/[A-Za-z0-9/_-]*)?(\?[A-Za-z0-9=&_.%+-]*)?")

MESSAGES = {
    "": "",
    "wrong": "Name or password are wrong.",
    "used": "This link was used, or is too old. Ask an admin for another, or make one: ./evertalk login-link",
    "plain": "Logging in needs https, or a browser on the machine itself (http://127.0.0.1).",
    "out": "You are logged out.",
    "again": "Logging in did not work. Please start again.",
    "away": "Your identity provider does not answer just now. Try again in a minute.",
    "groups": "Your account is in no group that may use this dashboard. Ask whoever runs it.",
    "code": "That code is not right, or was used already. Wait for the next one.",
    "late": "That took too long. Please start again.",
    "sealed": "The second factor cannot be read: EVERTALK_SECRET_KEY is another one, or is missing. "
    "On the server, ./evertalk operator totp reset NAME takes it away.",
    "locked": "Your account is locked here. Ask an admin.",
    "wait": "Too many tries. Please wait {minutes} min.",
}


@room.page("GET /dashboard/login", anyone=True)
async def login_page(visit: AuthedRequest) -> web.StreamResponse:
    """Shows; a preview of a link in some chat must not use it up."""
    query = visit.request.query
    if visit.who is not None and "token" not in query:
        return see_other(next_of(query.get("next", "")))
    return login_form(
        visit, query.get("m", ""), token=query.get("token", ""), following=query.get("next", "")
    )


@room.page("POST /dashboard/login", anyone=True)
async def log_in(visit: AuthedRequest) -> web.StreamResponse:
    request, desk = visit.request, visit.desk
    if not can_keep_login(request, desk.settings):
        return login_form(visit, "plain", status=403)
    form = await read_form(request)
    token, source = form.get("token", ""), desk.address(request)
    browser = request.headers.get("User-Agent", "")
    if token:
        outcome = await desk.admin.operators.use_link(token=token, source=source, browser=browser)
    else:
        outcome = await desk.admin.operators.log_in(
            name=form.get("name", ""), password=form.get("password", ""), source=source, browser=browser
        )
    if isinstance(outcome, TooManyTries):
        return wait_longer(visit, outcome.retry_after_seconds)
    if isinstance(outcome, CodeNeeded):
        return login_form(visit, step=outcome.token, following=form.get("next", ""))
    if outcome is None:
        message = "used" if token else "wrong"
        return login_form(visit, message, following=form.get("next", ""), status=401)
    return await keep_login(visit, outcome, following=form.get("next", ""))


async def keep_login(visit: AuthedRequest, token: str, *, following: str) -> web.Response:
    """A new login, in place of the one that was."""
    request, desk = visit.request, visit.desk
    await _end(visit)
    response = see_other(next_of(following))
    response.set_cookie(
        cookie_name(request, desk.settings),
        token,
        path="/",
        httponly=True,
        secure=is_secure(request, desk.settings),
        samesite="Lax",
        max_age=SESSION_HOURS * 3600,
    )
    return response


@room.page("POST /dashboard/logout", anyone=True)
async def log_out(visit: AuthedRequest) -> web.StreamResponse:
    await _end(visit)
    if visit.desk.live is not None:
        await visit.desk.live.signed_out()
    name = cookie_name(visit.request, visit.desk.settings)
    response = see_other("/dashboard/login?m=out")
    response.del_cookie(name, path="/", secure=name.startswith("__Host-"), httponly=True, samesite="Lax")
    return response


@room.on(
    "POST /me/password", Success, role="viewer", body="Password", most_bytes=FORM_BYTES, refusals=(409, 422)
)  # fmt: skip
async def set_password(
    visit: AuthedRequest,
    *,
    password: Annotated[str, Field(json_schema_extra={"minLength": 10, "maxLength": 1_000})],
) -> Reply:
    """Set one's own password; every other login ends."""
    operators = visit.desk.admin.operators
    if visit.operator.by_provider:
        words = "Your password is your identity provider's; change it there."
        raise HttpRefusal(409, OfTheProvider.code, words)
    try:
        await operators.set_password(visit.operator.operator_id, password, keep=visit.token)
    except WeakPassword as error:
        raise HttpRefusal(422, "weak_password", str(error)) from None
    await visit.record("password.set")
    return DONE


async def _end(visit: AuthedRequest) -> None:
    """A login never goes on under its old number."""
    if visit.token:
        await visit.desk.admin.operators.log_out(visit.token)


def next_of(path: str) -> str:
    return path if _NEXT.fullmatch(path) else "/dashboard"


def see_other(location: str) -> web.Response:
    return web.Response(status=303, headers={"Location": location})


def wait_longer(visit: AuthedRequest, seconds: int) -> web.Response:
    return login_form(
        visit,
        "wait",
        minutes=str(-(-seconds // 60)),
        status=429,
        headers={"Retry-After": str(seconds)},
    )


def login_form(
    visit: AuthedRequest,
    message: str = "",
    *,
    minutes: str = "",
    token: str = "",
    step: str = "",
    following: str = "",
    status: int = 200,
    headers: dict[str, str] | None = None,
) -> web.Response:
    """Asks for a name and a password, or for the code of the authenticator app: `step` stands for what was
    right so far. Only words of ours, and values of harmless characters, are ever put into the page.
    """
    language = language_of(visit.request)
    words = say(language, MESSAGES.get(message, ""), minutes=minutes)
    page = (PAGES / "login.html").read_text(encoding="utf-8")
    link = token if _TOKEN.fullmatch(token) else ""
    half = step if _TOKEN.fullmatch(step) else ""
    asked = "code" if half else "link" if link else "password"
    for other in {"code", "link", "password"} - {asked}:
        page = re.sub(rf"<!--{other}-->.*?<!--end-->", "", page, flags=re.DOTALL)
    if link or half or visit.desk.provider is None:
        page = re.sub(r"<!--provider-->.*?<!--end-->", "", page, flags=re.DOTALL)
    if not words:
        page = re.sub(r"<!--message-->.*?<!--end-->", "", page, flags=re.DOTALL)
    page = page_in(language, page, command="<code>./evertalk login-link</code>")
    filled = (
        page.replace("[[token]]", link)
        .replace("[[step]]", half)
        .replace("[[next]]", next_of(following).replace("&", "&amp;"))
    )
    filled = filled.replace("[[next-part]]", quote(next_of(following), safe=""))
    return web.Response(
        status=status, text=filled.replace("[[message]]", words), content_type="text/html", headers=headers
    )
