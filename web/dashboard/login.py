"""Logging in and out: by password, or once by a link; both work without any script."""

from __future__ import annotations

import re
from pathlib import Path

from aiohttp import web

from shared.adapters.postgres.operators import SESSION_HOURS, TooManyTries, WeakPassword
from web.dashboard.access import Refusal, Visit, answer, can_keep_login, cookie_name, is_secure

PAGES = Path(__file__).resolve().parent.parent / "static" / "dash"
MAX_FORM_BYTES = 8192
_TOKEN = re.compile(r"[A-Za-z0-9_-]{20,200}")
_NEXT = re.compile(r"/dashboard(/[A-Za-z0-9/_-]*)?(\?[A-Za-z0-9=&_.%+-]*)?")

_MESSAGES = {
    "": "",
    "wrong": "Name or password are wrong.",
    "used": "This link was used, or is older than 15 minutes. Make another: ./evertalk login-link",
    "plain": "Logging in needs https, or a browser on the machine itself (http://127.0.0.1).",
    "out": "You are logged out.",
}


async def login_page(visit: Visit) -> web.StreamResponse:
    """Shows; a preview of a link in some chat must not use it up."""
    query = visit.request.query
    if visit.who is not None and "token" not in query:
        return _see_other(_next(query.get("next", "")))
    return _page(token=query.get("token", ""), following=query.get("next", ""), message=query.get("m", ""))


async def log_in(visit: Visit) -> web.StreamResponse:
    request, desk = visit.request, visit.desk
    if not can_keep_login(request, desk.settings):
        return _page(message="plain", status=403)
    form = await _form(request)
    token, source = form.get("token", ""), request.remote or ""
    if token:
        outcome = await desk.operators.use_link(token=token, source=source)
    else:
        outcome = await desk.operators.log_in(
            name=form.get("name", ""), password=form.get("password", ""), source=source
        )
    if isinstance(outcome, TooManyTries):
        return _wait(outcome)
    if outcome is None:
        return _page(message="used" if token else "wrong", following=form.get("next", ""), status=401)
    await _end(visit)
    response = _see_other(_next(form.get("next", "")))
    response.set_cookie(
        cookie_name(request, desk.settings),
        outcome,
        path="/",
        httponly=True,
        secure=is_secure(request, desk.settings),
        samesite="Lax",
        max_age=SESSION_HOURS * 3600,
    )
    return response


async def log_out(visit: Visit) -> web.StreamResponse:
    await _end(visit)
    name = cookie_name(visit.request, visit.desk.settings)
    response = _see_other("/dashboard/login?m=out")
    response.del_cookie(name, path="/", secure=name.startswith("__Host-"), httponly=True, samesite="Lax")
    return response


async def set_password(visit: Visit) -> web.StreamResponse:
    """JSON `{password}`; every other login of this operator ends."""
    try:
        password = (await visit.request.json())["password"]
        str(password).encode()
    except (ValueError, KeyError, TypeError):
        raise Refusal(400, "bad_input", "Send a password.") from None
    if not isinstance(password, str):
        raise Refusal(400, "bad_input", "A password is text.")
    token = visit.request.cookies.get(cookie_name(visit.request, visit.desk.settings), "")
    try:
        await visit.desk.operators.set_password(visit.operator.operator_id, password, keep=token)
    except WeakPassword as error:
        raise Refusal(422, "weak_password", str(error)) from None
    await visit.desk.operators.record(actor=visit.operator.name, action="password.set")
    return answer({"success": True})


async def _end(visit: Visit) -> None:
    """A login never goes on under its old number."""
    old = visit.request.cookies.get(cookie_name(visit.request, visit.desk.settings))
    if old:
        await visit.desk.operators.log_out(old)


async def _form(request: web.Request) -> dict[str, str]:
    if (request.content_length or 0) > MAX_FORM_BYTES:
        raise Refusal(413, "too_large", "That form is too large.")
    try:
        form = await request.post()
        fields = {name: value for name, value in form.items() if isinstance(value, str)}
        "".join(fields.values()).encode()
    except ValueError:
        raise Refusal(400, "bad_input", "That form cannot be read.") from None
    return {name: value.replace("\x00", "") for name, value in fields.items()}


def _next(path: str) -> str:
    return path if _NEXT.fullmatch(path) else "/dashboard"


def _see_other(location: str) -> web.Response:
    return web.Response(status=303, headers={"Location": location})


def _wait(outcome: TooManyTries) -> web.Response:
    minutes = -(-outcome.retry_after_seconds // 60)
    text = f"Too many tries. Please wait {minutes} minute{'s' if minutes > 1 else ''}."
    return _fill(text, status=429, headers={"Retry-After": str(outcome.retry_after_seconds)})


def _page(*, token: str = "", following: str = "", message: str = "", status: int = 200) -> web.Response:
    return _fill(_MESSAGES.get(message, ""), token=token, following=following, status=status)


def _fill(
    message: str,
    *,
    token: str = "",
    following: str = "",
    status: int = 200,
    headers: dict[str, str] | None = None,
) -> web.Response:
    """Only words of ours, and values of harmless characters, are ever put into the page."""
    page = (PAGES / "login.html").read_text(encoding="utf-8")
    link = token if _TOKEN.fullmatch(token) else ""
    page = re.sub(rf"<!--{'password' if link else 'link'}-->.*?<!--end-->", "", page, flags=re.DOTALL)
    if not message:
        page = re.sub(r"<!--message-->.*?<!--end-->", "", page, flags=re.DOTALL)
    filled = page.replace("[[token]]", link).replace("[[next]]", _next(following).replace("&", "&amp;"))
    return web.Response(
        status=status, text=filled.replace("[[message]]", message), content_type="text/html", headers=headers
    )
