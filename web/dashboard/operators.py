"""Operators for admins: invite, change, lock and log out; and for everybody their own open logins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from uuid import UUID

from aiohttp import web

from shared.core.session.client_payloads import iso
from web.dashboard.access import AuthedRequest, DashboardRefusal, Handler, Need, Route, answer, cookie_name
from web.dashboard.requests.params import typed
from web.dashboard.requests.request_json import read_json

if TYPE_CHECKING:
    from shared.adapters.postgres.people.operator_admin import Invitation, OperatorAdmin

BODY_BYTES = 8192


def routes() -> tuple[Route, ...]:
    def route(method: str, path: str, need: Need, handler: Handler) -> Route:
        return Route(method=method, path=f"/api/v1{path}", need=need, handler=typed(handler))

    return (
        route("GET", "/me/logins", "viewer", own_logins),
        route("DELETE", "/me/logins", "viewer", end_other_logins),
        route("DELETE", "/me/logins/{login}", "viewer", end_own_login),
        route("GET", "/operators", "admin", operators),
        route("POST", "/operators", "admin", invite),
        route("PATCH", "/operators/{operator}", "admin", change),
        route("POST", "/operators/{operator}/link", "admin", new_link),
        route("DELETE", "/operators/{operator}/logins", "admin", end_logins),
        route("DELETE", "/operators/{operator}/logins/{login}", "admin", end_login),
    )


async def own_logins(visit: AuthedRequest) -> web.StreamResponse:
    return answer({"logins": await _roster(visit).logins(visit.operator.operator_id, _token(visit))})


async def end_other_logins(visit: AuthedRequest) -> web.StreamResponse:
    ended = await _roster(visit).end_own(visit.operator.operator_id, keep=_token(visit))
    return answer({"ended": ended})


async def end_own_login(visit: AuthedRequest) -> web.StreamResponse:
    """The one that asks is ended by logging out."""
    ended = await _roster(visit).end_own(
        visit.operator.operator_id, keep=_token(visit), login=_uuid(visit, "login")
    )
    return _ended(ended)


async def operators(visit: AuthedRequest) -> web.StreamResponse:
    found = await _roster(visit).all()
    return answer({"operators": found, "provider": visit.desk.settings.oidc_issuer})


async def show_as(visit: AuthedRequest) -> web.StreamResponse:
    """`{display_name}`: what people see of whoever asks; empty takes it back."""
    name = _text(await read_json(visit, most=BODY_BYTES), "display_name")
    await _roster(visit).show_as(visit.operator.operator_id, name, by=visit.operator.name)
    return answer({"success": True})


async def invite(visit: AuthedRequest) -> web.StreamResponse:
    """`{name, role}`; the link in the answer is shown this once."""
    body = await read_json(visit, most=BODY_BYTES)
    invited = await _roster(visit).invite(_text(body, "name"), _text(body, "role"), by=visit.operator.name)
    return answer(_invitation(visit, invited), status=201)


async def new_link(visit: AuthedRequest) -> web.StreamResponse:
    invited = await _roster(visit).link(_uuid(visit, "operator"), by=visit.operator.name)
    return answer(_invitation(visit, invited), status=201)


async def change(visit: AuthedRequest) -> web.StreamResponse:
    """`{version, role?, locked?}`; of an older version it is refused, with both."""
    body = await read_json(visit, most=BODY_BYTES)
    version, locked = body.get("version"), body.get("locked")
    if type(version) is not int:
        raise DashboardRefusal(400, "bad_input", "version is the number that the list showed.")
    if locked is not None and type(locked) is not bool:
        raise DashboardRefusal(400, "bad_input", "locked is true or false.")
    role = None if body.get("role") is None else _text(body, "role")
    changed = await _roster(visit).change(
        _uuid(visit, "operator"), by=visit.operator.name, version=version, role=role, locked=locked
    )
    return answer(changed)


async def end_logins(visit: AuthedRequest) -> web.StreamResponse:
    ended = await _roster(visit).end_logins(_uuid(visit, "operator"), by=visit.operator.name)
    return answer({"ended": ended})


async def end_login(visit: AuthedRequest) -> web.StreamResponse:
    ended = await _roster(visit).end_login(
        _uuid(visit, "operator"), _uuid(visit, "login"), by=visit.operator.name
    )
    return _ended(int(ended))


def _roster(visit: AuthedRequest) -> OperatorAdmin:
    return visit.desk.stores.operator_admin


def _token(visit: AuthedRequest) -> str:
    return visit.request.cookies.get(cookie_name(visit.request, visit.desk.settings), "")


def _uuid(visit: AuthedRequest, name: str) -> UUID:
    try:
        return UUID(visit.request.match_info[name])
    except ValueError:
        raise DashboardRefusal(404, "not_found", "There is no such thing here.") from None


def _invitation(visit: AuthedRequest, invited: Invitation) -> dict[str, Any]:
    address = f"{visit.desk.origin(visit.request)}/dashboard/login?token={invited.token}"
    return {
        "id": str(invited.id),
        "name": invited.name,
        "link": address,
        "expires_at": iso(invited.expires_at),
    }


def _ended(ended: int) -> web.Response:
    if not ended:
        raise DashboardRefusal(404, "not_found", "This login has ended already.")
    return answer({"ended": ended})


def _text(body: Mapping[str, Any], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str):
        raise DashboardRefusal(400, "bad_input", f"{name} is a text.")
    return value
