"""What handlers of REST share: who asks, how often, in which language, and how they are answered."""

from __future__ import annotations

import json
from typing import Any

from aiohttp import web

from web.auth.api_key_auth import KEY, reached_by_key
from web.auth.visitors import Known
from web.parts import PARTS, Parts
from web.protocol.wire import RateLimited
from web.security import HttpRefusal, cross_origin_headers

BEARER = {"WWW-Authenticate": "Bearer"}
_NO_STORE = {"Cache-Control": "no-store"}


async def caller(request: web.Request) -> Known:
    """The visitor, or, for a key, the person of the session that `?session_id=` names."""
    if (known := await reached_by_key(request, request.query.get("session_id"))) is not None:
        return known
    known = await request.app[PARTS].visitors.caller(request)
    if known is None:
        raise HttpRefusal(401, "unauthorized", "A visitor's token or a key is needed.", headers=BEARER)
    return known


def language(request: web.Request) -> str:
    """The first that the client names; browsers put theirs in the order of their liking."""
    return request.headers.get("Accept-Language", "").partition(",")[0].partition(";")[0].strip()


def check_rate(request: web.Request, parts: Parts, known: Known, what: str = "commands") -> None:
    """By conversation; and by client address, unless a program asks for many people."""
    most = parts.limits_for(request).messages
    wait = parts.session_windows.take(str(known.row.session_id), most)
    if KEY not in request:
        wait = wait or parts.address_windows.take(parts.proxies.client_key(request), most)
    if wait:
        raise RateLimited(retry_after_seconds=wait, what=what)


def check_reads(request: web.Request, parts: Parts, known: Known) -> None:
    """Of visitors; a key has its requests in a minute."""
    if KEY in request:
        return
    most = parts.limits_for(request).reads
    wait = parts.session_windows.take(f"read {known.row.session_id}", most)
    wait = wait or parts.address_windows.take(f"read {parts.proxies.client_key(request)}", most)
    if wait:
        raise RateLimited(retry_after_seconds=wait, what="reads")


def not_while_draining(parts: Parts) -> None:
    if parts.readiness.draining:
        raise HttpRefusal(
            503, "restarting", "The server restarts. Please come back.", headers={"Retry-After": "2"}
        )


async def json_reply(request: web.Request, body: Any, *, status: int = 200) -> web.Response:
    text = json.dumps(body, ensure_ascii=False)
    headers = {**_NO_STORE, **await cross_origin_headers(request)}
    return web.json_response(text=text, status=status, headers=headers)
