"""The one table of REST: router, access, and description come from it; what is not in it does not exist."""

from __future__ import annotations

import asyncio
from typing import Literal

from aiohttp import web

from shared.core.identity.api_keys import Scope
from web import dashboard
from web.api import commands, conversations, desk, export, memory, messages, recovery, rest, uploads
from web.chat import event_stream_chat
from web.rest.calls import Call
from web.rest.kinds import to_json
from web.rest.operation import Operation, Reply, Room
from web.security import cross_origin_headers

description = Room("description")
DESCRIPTION: web.AppKey[list[str]] = web.AppKey("description", list)
"""Once it was asked for."""


@description.on("GET /openapi.json", anyone=True)
async def describe(call: Call) -> Reply:
    """This description."""
    kept = call.request.app[DESCRIPTION]
    if not kept:
        from web.rest.openapi import document

        kept.append(to_json(await asyncio.to_thread(document, OPERATIONS)))
    headers = {"Cache-Control": "no-store", **await cross_origin_headers(call.request)}
    return web.json_response(text=kept[0], headers=headers)


FOR_VISITORS: tuple[Operation, ...] = (
    *messages.room,
    *rest.room,
    *conversations.room,
    *export.room,
    *commands.room,
    *memory.room,
    *description,
    *event_stream_chat.room,
    *recovery.room,
    *desk.room,
    *uploads.room,
)
"""And for programs; at an address that they share with operators these come first."""
OPERATIONS: tuple[Operation, ...] = (*FOR_VISITORS, *dashboard.OPERATIONS)
ANYONE: Literal["anyone"] = "anyone"
_OPENS = {(one.method, one.path): ANYONE if one.anyone else one.scope for one in FOR_VISITORS}


def scope_of(method: str, path: str) -> Scope | Literal["anyone"] | None:
    """What opens a route to a key; None where no key may come."""
    return _OPENS.get(("GET" if method == "HEAD" else method, path))
