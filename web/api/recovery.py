"""REST of what a page shows before hello, and of codes that bring a conversation to another browser."""

from __future__ import annotations

import json
import secrets
from contextlib import suppress

from aiohttp import web

from shared.config.sites import build_public_config
from shared.core.identity.recovery import CHARS, code_hash, code_of, plain_code
from shared.core.values.errors import StorageUnavailable
from web.api.rest import caller, check_rate, json_reply
from web.parts import PARTS
from web.protocol import wire
from web.security import HttpRefusal, cross_origin_headers, preflight, read_json

SITE = "/api/v1/sites/{name}"
CODES = "/api/v1/recovery-code"
RECOVER = "/api/v1/recover"
_SHOWN = "public, max-age=300"
_REFUSALS = 120
"""Pages noted in a minute at most: an address can be made up."""
_FROM_ALL = 1_000
"""Tries in a minute from all addresses together: a code is beyond guessing, this spares the database."""
_PREFIX = 8
"""Characters of a code: who knows them and guesses the others is slowed down wherever they come from."""


def add_routes(app: web.Application) -> None:
    app.router.add_get(SITE, site)
    app.router.add_post(CODES, issue)
    app.router.add_post(RECOVER, recover)
    for path in (SITE, CODES, RECOVER):
        app.router.add_route("OPTIONS", path, preflight)


async def site(request: web.Request) -> web.StreamResponse:
    """`?locale=de` → how the launcher and the empty chat look and speak. Nothing of anybody.

    A page that may not use the chat is told so: of a socket that is refused, browsers say nothing.
    """
    visitors, name = request.app[PARTS].visitors, request.match_info["name"]
    found = (await visitors.sites()).get(name)
    if found is None:
        raise HttpRefusal(404, "not_found", "There is no such site.")
    origin = request.headers.get("Origin")
    if origin is not None and not await visitors.admits(request, site=name):
        if not request.app[PARTS].address_windows.take("refused origins", _REFUSALS):
            with suppress(StorageUnavailable):
                await visitors.note_refused(name, origin)
        readable = {"Access-Control-Allow-Origin": origin, "Vary": "Origin"}
        message = "This page is not allowed to use the chat."
        raise HttpRefusal(403, "foreign_origin", message, headers=readable)
    headers = {"Cache-Control": _SHOWN, **await cross_origin_headers(request, site=name)}
    shown = build_public_config(found.config, request.query.get("locale", "")[:64])
    return web.json_response(text=json.dumps(shown, ensure_ascii=False), headers=headers)


async def issue(request: web.Request) -> web.StreamResponse:
    """`{"code": "ABCD-…"}`, shown this once; the former one of this conversation is good no longer."""
    parts, known = request.app[PARTS], await caller(request)
    check_rate(request, parts, known)
    code = code_of(secrets.token_bytes(CHARS))
    identified = known.row.identified
    if identified or not await parts.identities.issue_code(known.row.address_id, code_hash(code)):
        raise HttpRefusal(409, "signed_in", "Sign in on any browser to find this conversation again.")
    return await json_reply(request, {"code": code})


async def recover(request: web.Request) -> web.StreamResponse:
    """`{"code", "site", "page"?}` → `{"token"}`, or for our own page (`"page": true`) its cookie."""
    parts = request.app[PARTS]
    body = await read_json(request)
    code, name, page = body.get("code"), body.get("site", "default"), body.get("page", False)
    if not isinstance(code, str) or not isinstance(name, str) or not isinstance(page, bool):
        raise wire.BadFrame("`code` and `site` are texts, `page` is true or false")
    if page and not parts.visitors.from_our_page(request):
        raise HttpRefusal(403, "foreign_origin", "This page may not do that here.")
    tries = _check_tries(request, code)
    wanted = code if await _is_open(request, name) else ""
    found = await parts.identities.recover(name, code_hash(wanted))
    if found is None:
        raise HttpRefusal(404, "unknown_code", "This code opens nothing. Please look for a mistake in it.")
    for key in tries:
        parts.recovery_tries.passed(key)
    if not page:
        return await json_reply(request, {"token": found[1]})
    response = await json_reply(request, {"token": None})
    parts.visitors.set_cookie(request, response, name, token=found[1])
    return response


async def _is_open(request: web.Request, name: str) -> bool:
    """Whether anonymous people of that site may talk, and to a page like this one."""
    visitors = request.app[PARTS].visitors
    known = (await visitors.sites()).get(name)
    if known is None or known.config.verified == "required":
        return False
    return "Origin" not in request.headers or await visitors.admits(request, site=name)


def _check_tries(request: web.Request, code: str) -> tuple[str, str]:
    """Whoever guesses is slowed down: by address, and by the beginning of what they guess."""
    parts = request.app[PARTS]
    most = parts.limits.recoveries
    keys = (parts.proxies.client_key(request), code_hash(plain_code(code)[:_PREFIX]).hex())
    wait = parts.address_windows.take("recover", _FROM_ALL)
    for key in keys:
        wait = wait or parts.recovery_tries.take(key, most)
    if wait:
        raise wire.RateLimited(retry_after_seconds=wait, what="codes")
    return keys
