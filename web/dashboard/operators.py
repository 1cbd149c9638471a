"""Operators for admins: invite, change, lock and log out; and for everybody their own open logins."""

from __future__ import annotations

import base64
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, NotRequired
from uuid import UUID

from aiohttp import web
from pydantic import Field
from typing_extensions import TypedDict

from shared.core.identity.operators import MOST_PICTURE_BYTES, Role
from shared.core.values.files import picture_mime
from web.dashboard.access import AuthedRequest
from web.dashboard.requests import FORM_BYTES
from web.rest.kinds import DONE, Success, told
from web.rest.operation import Reply, Room
from web.server.pages import FOR_EVER

if TYPE_CHECKING:
    from shared.adapters.postgres.people.operator_admin import Invitation, OperatorAdmin

room = Room()
_ENDED = "This login has ended already."
OperatorId = Annotated[UUID, told("the id of an operator")]
LoginId = Annotated[UUID, told("the id of an open login")]
RoleWord = Annotated[str, Field(json_schema_extra={"enum": ["viewer", "operator", "admin"]})]

Login = TypedDict("Login", {
    "id": UUID, "at": datetime, "seen_at": datetime, "expires_at": datetime, "how": str, "source": str,
    "browser": str, "this": NotRequired[Annotated[bool, Field(description="the one that asks")]],
})  # fmt: skip
Logins = TypedDict("Logins", {"logins": list[Login]})

Operator = TypedDict("Operator", {
    "id": UUID, "name": str, "role": Role, "version": int, "locked": bool, "has_password": bool,
    "has_second_factor": bool, "by_provider": bool, "created_at": datetime, "last_login_at": datetime | None,
    "link_until": datetime | None, "refused_until": datetime | None, "logins": list[Login],
})  # fmt: skip
Operators = TypedDict("Operators", {"operators": list[Operator], "provider": str | None})

Invited = TypedDict("Invited", {
    "id": UUID, "name": str, "link": Annotated[str, Field(description="logs in once; shown this once")],
    "expires_at": datetime,
})  # fmt: skip
ChangedOperator = TypedDict("ChangedOperator", {
    "id": UUID, "name": str, "role": Role, "locked": bool, "version": int,
})  # fmt: skip
Picture = TypedDict("Picture", {
    "picture": Annotated[str, Field(description="its key: it stands at /pictures/{key}")],
})  # fmt: skip
Ended = TypedDict("Ended", {"ended": int})


@room.on("GET /me/logins", Logins, role="viewer")
async def list_own_logins(visit: AuthedRequest) -> Reply:
    """One's own open logins."""
    return {"logins": await _roster(visit).logins(visit.operator.operator_id, visit.token)}


@room.on("DELETE /me/logins", Ended, role="viewer", refusals=(404,))
async def end_other_logins(visit: AuthedRequest) -> Reply:
    """End all of one's logins but this."""
    return {"ended": await _roster(visit).end_own(visit.operator.operator_id, keep=visit.token)}


@room.on("DELETE /me/logins/{login}", Ended, role="viewer", refusals=(404,), missing=_ENDED)
async def end_own_login(visit: AuthedRequest, login: LoginId) -> Reply:
    """End another of one's logins."""
    ended = await _roster(visit).end_own(visit.operator.operator_id, keep=visit.token, login=login)
    return {"ended": ended} if ended else None


@room.on("POST /me/display-name", Success, role="viewer", body="DisplayName", most_bytes=FORM_BYTES)
async def set_display_name(
    visit: AuthedRequest, *, display_name: Annotated[str, Field(json_schema_extra={"maxLength": 60})]
) -> Reply:
    """What people see of oneself; empty takes it back."""
    await _roster(visit).show_as(visit.operator.operator_id, display_name, by=visit.operator.name)
    return DONE


@room.on("PUT /me/picture", Picture, role="viewer", body="NewPicture", most_bytes=2 * MOST_PICTURE_BYTES)
async def set_picture(
    visit: AuthedRequest,
    *,
    picture: Annotated[
        str,
        told("a JPEG, PNG, GIF or WebP file of at most 40 kB"),
        Field(json_schema_extra={"contentEncoding": "base64"}),
    ],
) -> Reply:
    """Set what people see beside one's name from the next word on.

    Beside former words the name stands alone then.
    """
    try:
        content = base64.b64decode(picture, validate=True)
    except ValueError:
        content = b""
    return {
        "picture": await _roster(visit).set_picture(
            visit.operator.operator_id, content, by=visit.operator.name
        )
    }


@room.on("DELETE /me/picture", Success, role="viewer")
async def remove_picture(visit: AuthedRequest) -> Reply:
    """Let people see the name alone."""
    await _roster(visit).set_picture(visit.operator.operator_id, None, by=visit.operator.name)
    return DONE


@room.page("GET /pictures/{key:[0-9a-f]{32}}", anyone=True)
async def show_picture(visit: AuthedRequest) -> web.StreamResponse:
    """What people see of an operator; the key changes with it."""
    content = await _roster(visit).picture(visit.request.match_info["key"])
    mime = content and picture_mime(content)
    if not content or not mime:
        raise web.HTTPNotFound
    headers = {
        "Cache-Control": FOR_EVER, "Cross-Origin-Resource-Policy": "cross-origin",
        "Content-Security-Policy": "sandbox; default-src 'none'",
    }  # fmt: skip
    return web.Response(body=content, content_type=mime, headers=headers)


@room.on("GET /operators", Operators, role="admin")
async def list_operators(visit: AuthedRequest) -> Reply:
    """Everybody with their open logins."""
    return {"operators": await _roster(visit).all(), "provider": visit.desk.settings.oidc_issuer}


@room.on("POST /operators", Invited, status=201, role="admin", body="Invitation", most_bytes=FORM_BYTES)
async def invite_operator(
    visit: AuthedRequest,
    *,
    name: Annotated[
        str, Field(json_schema_extra={"minLength": 1, "maxLength": 64, "pattern": r"^\w[\w.@+ \-]*$"})
    ],
    role: RoleWord,
) -> Reply:
    """Let somebody in, by a link that logs in once."""
    return _invitation(visit, await _roster(visit).invite(name, role, by=visit.operator.name))


@room.on("POST /operators/{operator}/link", Invited, status=201, role="admin")
async def make_login_link(visit: AuthedRequest, operator: OperatorId) -> Reply:
    """Another link, for who forgot the password."""
    return _invitation(visit, await _roster(visit).link(operator, by=visit.operator.name))


@room.on(
    "PATCH /operators/{operator}", ChangedOperator, role="admin", body="OperatorChange",
    most_bytes=FORM_BYTES,
)  # fmt: skip
async def change_operator(
    visit: AuthedRequest,
    operator: OperatorId,
    *,
    version: int,
    role: RoleWord | None = None,
    locked: bool | None = None,
) -> Reply:
    """Change the role, lock or unlock."""
    return await _roster(visit).change(
        operator, by=visit.operator.name, version=version, role=role, locked=locked
    )


@room.on("DELETE /operators/{operator}/logins", Ended, role="admin", refusals=(404,))
async def end_logins(visit: AuthedRequest, operator: OperatorId) -> Reply:
    """End every login of somebody."""
    return {"ended": await _roster(visit).end_logins(operator, by=visit.operator.name)}


@room.on(
    "DELETE /operators/{operator}/logins/{login}", Ended, role="admin", refusals=(404,), missing=_ENDED
)  # fmt: skip
async def end_login(visit: AuthedRequest, operator: OperatorId, login: LoginId) -> Reply:
    """End one login of somebody."""
    ended = await _roster(visit).end_login(operator, login, by=visit.operator.name)
    return {"ended": int(ended)} if ended else None


def _roster(visit: AuthedRequest) -> OperatorAdmin:
    return visit.desk.stores.operator_admin


def _invitation(visit: AuthedRequest, invited: Invitation) -> dict[str, Any]:
    address = f"{visit.desk.origin(visit.request)}/dashboard/login?token={invited.token}"
    return {"id": invited.id, "name": invited.name, "link": address, "expires_at": invited.expires_at}
