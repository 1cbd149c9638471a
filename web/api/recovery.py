"""REST of what a page shows before hello, and of codes that bring a conversation to another browser."""

from __future__ import annotations

import secrets
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, NotRequired

from aiohttp import web
from typing_extensions import TypedDict

from shared.adapters.postgres.people.identities import PostgresIdentities
from shared.config.sites import build_public_config
from shared.core.identity.recovery import CHARS, code_hash, code_of, plain_code
from shared.core.values.errors import StorageUnavailable
from web.auth.visitors import Visitors
from web.protocol import wire
from web.protocol.answers import to_json
from web.rest.arguments import BadField, Json, Shape
from web.rest.calls import Call, json_reply
from web.rest.kinds import Cut, SiteName, describe
from web.rest.operation import OperationRouter, Reply
from web.security import HttpRefusal, cross_origin_headers
from web.server.client_limiter import ClientLimiter

router = OperationRouter("stream")
_SHOWN = "public, max-age=300"
_REFUSALS = 120
"""Pages noted in a minute at most: an address can be made up."""
_FROM_ALL = 1_000
"""Tries in a minute from all addresses together: a code is beyond guessing, this spares the database."""
_PREFIX = 8
"""Characters of a code: who knows them and guesses the others is slowed down wherever they come from."""


Site = TypedDict("Site", {
    "starters": list[str], "title": NotRequired[str], "welcome": NotRequired[str],
    "offline_text": NotRequired[str], "ai_notice": NotRequired[str], "launcher_label": NotRequired[str],
    "accent": NotRequired[str], "on_accent": NotRequired[str], "position": NotRequired[str],
    "privacy_url": NotRequired[str],
    "ask_name": NotRequired[Annotated[bool, describe("true if the empty chat asks for a first name")]],
    "font": NotRequired[Annotated[str, describe("font families as in CSS")]],
})  # fmt: skip
Recovery = TypedDict("Recovery", {
    "code": str, "site": NotRequired[SiteName],
    "page": NotRequired[Annotated[bool, describe("true sets a cookie instead of returning a token")]],
})  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryCode:
    """Code that moves the conversation to another browser."""

    code: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    token: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryHandlers:
    """Handlers of what a page shows before hello, and of recovery codes."""

    visitors: Visitors
    limiter: ClientLimiter
    identities: PostgresIdentities

    @router.on("GET /sites/{name}", Site, anyone=True, refusals=(403, 404))
    async def describe_site(
        self,
        call: Call,
        name: Annotated[str, describe("name of a site", json_schema_extra={"pattern": wire.SITE_PATTERN})],
        *,
        locale: Annotated[str, Cut(64, "language of the visitor")] = "",
    ) -> Reply:
        """Get appearance and texts of a chat widget.

        A page whose origin is not allowed receives 403 `foreign_origin`.
        """
        request, visitors = call.request, self.visitors
        found = (await visitors.sites()).get(name)
        if found is None:
            raise HttpRefusal(404, "not_found", "There is no such site.")
        origin = request.headers.get("Origin")
        if origin is not None and not await visitors.is_page_allowed(request, site=name):
            if not self.limiter.addresses.take("refused origins", _REFUSALS):
                with suppress(StorageUnavailable):
                    await visitors.note_refused(name, origin)
            readable = {"Access-Control-Allow-Origin": origin, "Vary": "Origin"}
            message = "This page is not allowed to use the chat."
            raise HttpRefusal(403, "foreign_origin", message, headers=readable)
        headers = {"Cache-Control": _SHOWN, **await cross_origin_headers(request, site=name)}
        return web.json_response(text=to_json(build_public_config(found.config, locale)), headers=headers)

    @router.on("POST /recovery-code", visitor=True, rate="commands", refusals=(409,))
    async def make_recovery_code(self, call: Call) -> RecoveryCode:
        """Create a recovery code for another browser.

        The code is returned only once and replaces the former one.
        """
        row = call.person.row
        code = code_of(secrets.token_bytes(CHARS))
        if row.identified or not await self.identities.issue_code(row.address_id, code_hash(code)):
            raise HttpRefusal(409, "signed_in", "Sign in on any browser to find this conversation again.")
        return RecoveryCode(code=code)

    @router.on("POST /recover", anyone=True, refusals=(404,))
    async def recover(
        self, call: Call, *, body: Annotated[Json, Shape(Recovery)]
    ) -> Recovered | web.StreamResponse:
        """Exchange a recovery code for a visitor's token."""
        request = call.request
        code, name, page = body.get("code"), body.get("site", "default"), body.get("page", False)
        if not isinstance(code, str) or not isinstance(name, str) or not isinstance(page, bool):
            raise BadField("`code` and `site` are texts, `page` is true or false.")
        if page and not self.visitors.is_own_page(request):
            raise HttpRefusal(403, "foreign_origin", "This page may not do that here.")
        tries = self._check_tries(request, code)
        site, wanted = (name, code) if await self._is_open(request, name) else ("", "")
        found = await self.identities.recover(site, code_hash(wanted))
        if found is None:
            raise HttpRefusal(
                404, "unknown_code", "This code opens nothing. Please look for a mistake in it."
            )
        for key in tries:
            self.limiter.recovery_tries.mark_passed(key)
        if not page:
            return Recovered(token=found[1])
        response = await json_reply(request, Recovered(token=None))
        self.visitors.set_cookie(request, response, name, token=found[1])
        return response

    async def _is_open(self, request: web.Request, name: str) -> bool:
        """Return whether the site admits anonymous visitors, and whether this page may use it."""
        visitors = self.visitors
        known = (await visitors.sites()).get(name)
        if known is None or known.config.verified == "required":
            return False
        return "Origin" not in request.headers or await visitors.is_page_allowed(request, site=name)

    def _check_tries(self, request: web.Request, code: str) -> tuple[str, str]:
        """Count a try by address and by the beginning of the code, so that guessing is slow. Raises
        RateLimited.
        """
        most = self.limiter.limits.recoveries
        keys = (self.limiter.client_key(request), code_hash(plain_code(code)[:_PREFIX]).hex())
        wait = self.limiter.addresses.take("recover", _FROM_ALL)
        for key in keys:
            wait = wait or self.limiter.recovery_tries.take(key, most)
        if wait:
            raise wire.RateLimited(retry_after_seconds=wait, what="codes")
        return keys
