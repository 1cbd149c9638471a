"""The second factor: set up and taken away at the page Account, asked for after password or link."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from aiohttp import web

from shared.adapters.encryption import CannotUnseal
from shared.adapters.postgres.people.operator_auth import TooManyTries
from shared.adapters.postgres.people.second_factors import NoSuchFactor, SecondFactors
from shared.config.settings import BadSettings
from shared.core.session.client_payloads import iso
from web.dashboard.access import (
    AuthedRequest,
    DashboardRefusal,
    Handler,
    Need,
    Route,
    answer,
    can_keep_login,
    cookie_name,
)
from web.dashboard.requests.params import typed
from web.dashboard.requests.request_json import read_form, read_json
from web.dashboard.sign_in.login import code_page, keep_login, login_again, wait_longer
from web.dashboard.sign_in.qr import qr_picture

BODY_BYTES = 1024
MOST_CHARS = 100


def routes() -> tuple[Route, ...]:
    def route(method: str, path: str, need: Need, handler: Handler) -> Route:
        return Route(method=method, path=path, need=need, handler=typed(handler))

    return (
        Route(method="POST", path="/dashboard/login/code", need="anyone", handler=log_in),
        route("GET", "/api/v1/me/second-factor", "viewer", state),
        route("POST", "/api/v1/me/second-factor", "viewer", begin),
        route("POST", "/api/v1/me/second-factor/confirm", "viewer", confirm),
        route("POST", "/api/v1/me/second-factor/remove", "viewer", remove),
    )


async def log_in(visit: AuthedRequest) -> web.StreamResponse:
    """The other half of a login; a wrong code asks again, for as long as the first half holds."""
    request, desk = visit.request, visit.desk
    if not can_keep_login(request, desk.settings):
        return login_again(visit, "plain", status=403)
    form = await read_form(visit)
    token, following = form.get("step", ""), form.get("next", "")
    browser = request.headers.get("User-Agent", "")
    try:
        outcome = await _factors(visit).log_in(
            token=token, code=form.get("code", "")[:MOST_CHARS], source=desk.address(request), browser=browser
        )
    except NoSuchFactor:
        return login_again(visit, "late", following=following, status=401)
    except (CannotUnseal, BadSettings):
        return login_again(visit, "sealed", following=following, status=503)
    if isinstance(outcome, TooManyTries):
        return wait_longer(outcome.retry_after_seconds, desk=desk)
    if outcome is None:
        return code_page(token, following=following, message="code", status=401)
    return await keep_login(visit, outcome, following=following)


async def state(visit: AuthedRequest) -> web.StreamResponse:
    found = await _factors(visit).state(visit.operator.operator_id)
    since, left = (None, 0) if found is None else found
    return answer({"on": found is not None, "since": iso(since) if since else None, "codes_left": left})


async def begin(visit: AuthedRequest) -> web.StreamResponse:
    begun = await _factors(visit).begin(visit.operator.operator_id)
    picture = qr_picture(begun.address)  # none of a very long name; the key can be typed
    return answer(
        {"key": begun.key, "address": begun.address, "picture": None if picture is None else asdict(picture)}
    )


async def confirm(visit: AuthedRequest) -> web.StreamResponse:
    """`{code}`; the recovery codes in the answer are shown this once."""
    codes = await _factors(visit).confirm(
        visit.operator.operator_id, await _code(visit), source=visit.desk.address(visit.request),
        keep=visit.request.cookies.get(cookie_name(visit.request, visit.desk.settings), ""),
    )  # fmt: skip
    if isinstance(codes, TooManyTries):
        raise _too_many(codes)
    return answer({"codes": list(codes)})


async def remove(visit: AuthedRequest) -> web.StreamResponse:
    """`{code}`, of the app or a recovery code."""
    waits = await _factors(visit).remove(
        visit.operator.operator_id, await _code(visit), source=visit.desk.address(visit.request)
    )
    if waits is not None:
        raise _too_many(waits)
    return answer({"success": True})


async def _code(visit: AuthedRequest) -> str:
    body: Mapping[str, Any] = await read_json(visit, most=BODY_BYTES)
    code = body.get("code")
    if not isinstance(code, str):
        raise DashboardRefusal(400, "bad_input", "code is a text.")
    return code[:MOST_CHARS]


def _too_many(waits: TooManyTries) -> DashboardRefusal:
    seconds = waits.retry_after_seconds
    headers = {"Retry-After": str(seconds)}
    return DashboardRefusal(429, "too_many_tries", "Too many tries. Please wait a while.", headers=headers)


def _factors(visit: AuthedRequest) -> SecondFactors:
    return visit.desk.admin.second_factors
