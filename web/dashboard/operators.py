"""Operators for admins: invite, change, lock and log out; and for everybody their own open logins."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, NotRequired, cast
from uuid import UUID

from aiohttp import web
from pydantic import Field
from typing_extensions import TypedDict

from shared.config.settings import Settings
from shared.core.identity.operators import MOST_PICTURE_BYTES, Role
from shared.core.values.files import picture_mime
from web.dashboard.access import AuthedRequest
from web.dashboard.requests import FORM_BYTES
from web.rest.kinds import DONE, Success, describe
from web.rest.operation import OperationRouter, Reply
from web.server.pages import FOR_EVER

if TYPE_CHECKING:
    from shared.adapters.postgres.people.operator_admin import Invitation, OperatorAdmin

router = OperationRouter()
_ENDED = "This login has ended already."
OperatorId = Annotated[UUID, describe("id of an operator")]
LoginId = Annotated[UUID, describe("id of an open login")]
RoleWord = Annotated[str, Field(json_schema_extra={"enum": ["viewer", "operator", "admin"]})]

Login = TypedDict("Login", {
    "id": UUID, "at": datetime, "seen_at": datetime, "expires_at": datetime, "how": str, "source": str,
    "browser": str,
    "this": NotRequired[Annotated[bool, Field(description="true for the login that sent this request")]],
})  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Logins:
    logins: list[Login]


Operator = TypedDict("Operator", {
    "id": UUID, "name": str, "role": Role, "version": int, "locked": bool, "locked_at": datetime | None,
    "has_password": bool, "has_second_factor": bool, "by_provider": bool, "created_at": datetime,
    "last_login_at": datetime | None, "link_until": datetime | None, "refused_until": datetime | None,
    "logins": list[Login],
})  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorList:
    operators: list[Operator]
    provider: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Invited:
    """New operator, with a login link."""

    id: UUID
    name: str
    link: Annotated[str, Field(description="single-use login link; returned only once")]
    expires_at: datetime


ChangedOperator = TypedDict("ChangedOperator", {
    "id": UUID, "name": str, "role": Role, "locked": bool, "version": int,
})  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureKey:
    picture: Annotated[str, Field(description="key of the picture, served at `/pictures/{key}`")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """Number of logins that were ended."""

    ended: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorHandlers:
    """Handlers of operators, their logins and pictures."""

    operator_admin: OperatorAdmin
    settings: Settings

    @router.on("GET /me/logins", role="viewer")
    async def list_own_logins(self, authed: AuthedRequest) -> Logins:
        """List your open logins."""
        found = await self.operator_admin.list_logins(authed.operator.operator_id, authed.token)
        return Logins(logins=cast("list[Login]", found))

    @router.on("DELETE /me/logins", role="viewer", refusals=(404,))
    async def end_other_logins(self, authed: AuthedRequest) -> Ended:
        """End all of your other logins."""
        return Ended(ended=await self.operator_admin.end_own(authed.operator.operator_id, keep=authed.token))

    @router.on("DELETE /me/logins/{login}", role="viewer", refusals=(404,), missing=_ENDED)
    async def end_own_login(self, authed: AuthedRequest, login: LoginId) -> Ended | None:
        """End one of your other logins."""
        ended = await self.operator_admin.end_own(authed.operator.operator_id, keep=authed.token, login=login)
        return Ended(ended=ended) if ended else None

    @router.on("POST /me/display-name", role="viewer", body="DisplayName", most_bytes=FORM_BYTES)
    async def set_display_name(
        self,
        authed: AuthedRequest,
        *,
        display_name: Annotated[str, Field(json_schema_extra={"maxLength": 60})],
    ) -> Success:
        """Set your display name for visitors.

        An empty name removes it.
        """
        await self.operator_admin.set_display_name(
            authed.operator.operator_id, display_name, by=authed.operator.name
        )
        return DONE

    @router.on("PUT /me/picture", role="viewer", body="NewPicture", most_bytes=2 * MOST_PICTURE_BYTES)
    async def set_picture(
        self,
        authed: AuthedRequest,
        *,
        picture: Annotated[
            str,
            describe("a JPEG, PNG, GIF or WebP file of at most 40 kB"),
            Field(json_schema_extra={"contentEncoding": "base64"}),
        ],
    ) -> PictureKey:
        """Set your picture, shown from the next message on.

        Earlier messages then show your name without a picture.
        """
        try:
            content = base64.b64decode(picture, validate=True)
        except ValueError:
            content = b""
        who = authed.operator
        return PictureKey(
            picture=await self.operator_admin.set_picture(who.operator_id, content, by=who.name)
        )

    @router.on("DELETE /me/picture", role="viewer")
    async def remove_picture(self, authed: AuthedRequest) -> Success:
        """Delete your picture."""
        await self.operator_admin.set_picture(authed.operator.operator_id, None, by=authed.operator.name)
        return DONE

    @router.page("GET /pictures/{key:[0-9a-f]{32}}", anyone=True)
    async def show_picture(self, authed: AuthedRequest) -> web.StreamResponse:
        """Send the picture of an operator; a new picture has a new key."""
        content = await self.operator_admin.load_picture(authed.request.match_info["key"])
        mime = content and picture_mime(content)
        if not content or not mime:
            raise web.HTTPNotFound
        headers = {
            "Cache-Control": FOR_EVER, "Cross-Origin-Resource-Policy": "cross-origin",
            "Content-Security-Policy": "sandbox; default-src 'none'",
        }  # fmt: skip
        return web.Response(body=content, content_type=mime, headers=headers)

    @router.on("GET /operators", role="admin")
    async def list_operators(self, authed: AuthedRequest) -> OperatorList:
        """List operators with their open logins."""
        found = await self.operator_admin.list_all()
        return OperatorList(operators=cast("list[Operator]", found), provider=self.settings.oidc_issuer)

    @router.on("POST /operators", status=201, role="admin", body="Invitation", most_bytes=FORM_BYTES)
    async def invite_operator(
        self,
        authed: AuthedRequest,
        *,
        name: Annotated[
            str, Field(json_schema_extra={"minLength": 1, "maxLength": 64, "pattern": r"^\w[\w.@+ \-]*$"})
        ],
        role: RoleWord,
    ) -> Invited:
        """Invite an operator by a single-use link."""
        return _invitation(authed, await self.operator_admin.invite(name, role, by=authed.operator.name))

    @router.on("POST /operators/{operator}/link", status=201, role="admin")
    async def make_login_link(self, authed: AuthedRequest, operator: OperatorId) -> Invited:
        """Create a new login link for an operator."""
        return _invitation(authed, await self.operator_admin.link(operator, by=authed.operator.name))

    @router.on(
        "PATCH /operators/{operator}", ChangedOperator, role="admin", body="OperatorChange",
        most_bytes=FORM_BYTES,
    )  # fmt: skip
    async def change_operator(
        self,
        authed: AuthedRequest,
        operator: OperatorId,
        *,
        version: int,
        role: RoleWord | None = None,
        locked: bool | None = None,
    ) -> Reply:
        """Change role or lock state of an operator."""
        return await self.operator_admin.change(
            operator, by=authed.operator.name, version=version, role=role, locked=locked
        )

    @router.on("DELETE /operators/{operator}/logins", role="admin", refusals=(404,))
    async def end_logins(self, authed: AuthedRequest, operator: OperatorId) -> Ended:
        """End all logins of an operator."""
        return Ended(ended=await self.operator_admin.end_logins(operator, by=authed.operator.name))

    @router.on(
        "DELETE /operators/{operator}/logins/{login}", role="admin", refusals=(404,), missing=_ENDED
    )  # fmt: skip
    async def end_login(self, authed: AuthedRequest, operator: OperatorId, login: LoginId) -> Ended | None:
        """End one login of an operator."""
        ended = await self.operator_admin.end_login(operator, login, by=authed.operator.name)
        return Ended(ended=int(ended)) if ended else None


def _invitation(authed: AuthedRequest, invited: Invitation) -> Invited:
    address = f"{authed.origin}/dashboard/login?token={invited.token}"
    return Invited(id=invited.id, name=invited.name, link=address, expires_at=invited.expires_at)
