"""REST for visitors: the list of commands, running one, and the originals behind a summary."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from aiohttp import web

from shared.core.errors import UnknownSession
from shared.core.people import ArchivedSession
from shared.core.screen import iso
from web.chat import COMMAND_SECONDS, UnknownCommand, result_payload
from web.parts import PARTS, Handler, Parts, audience_of
from web.security import Refusal, cross_origin_headers, read_json
from web.visitors import Known
from web.wire import RateLimited, arguments_text, clean

MESSAGES_MOST = 200
_NO_STORE = {"Cache-Control": "no-store"}


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorsDoor:
    """Who answers at an address of ours when no visitor asks."""

    originals: Handler | None


OPERATORS = web.AppKey("operators", OperatorsDoor)


async def list_commands(request: web.Request) -> web.StreamResponse:
    """What may be asked for here; without a visitor, what everybody may."""
    parts = request.app[PARTS]
    known = await parts.visitors.caller(request)
    audience = known.audience if known else parts.settings.profile
    language = _language(request)
    entries = [command.entry(language) for command in parts.commands_for(audience)]
    return await _json(request, {"commands": entries})


async def run_command(request: web.Request) -> web.StreamResponse:
    """`{"session_id": …, arguments…}` → `{command, success, result, error}`."""
    parts = request.app[PARTS]
    known = await _caller(request)
    name = request.match_info["name"]
    body = await read_json(request)
    if body.pop("session_id", None) != str(known.row.session_public_id):
        raise UnknownSession("not this visitor's session")
    if name not in {command.name for command in parts.commands_for(known.audience)}:
        raise Refusal(404, "unknown_command", UnknownCommand.advice)
    _check_rate(request, parts, known)
    async with asyncio.timeout(COMMAND_SECONDS):
        outcome = await parts.commands.run(
            session_id=known.row.session_id, address_id=known.row.address_id, name=name,
            args=clean(arguments_text(body)), cid=None, progress=None,
            audience=audience_of(known.row.audience), language=_language(request),
        )  # fmt: skip
    payload = result_payload(None, outcome)
    if outcome.event_seq:
        parts.hub.arrived(known.row.session_id, outcome.event_seq, "command.result", payload)
    return await _json(request, {"error": None, **payload, "event_seq": outcome.event_seq})


async def archived(request: web.Request) -> web.StreamResponse:
    """Earlier conversations of this visitor, which went on elsewhere after a `/link`, to read."""
    known = await _caller(request)
    if known.audience == "public":
        raise Refusal(404, "not_found", "There is nothing here.")
    _check_rate(request, request.app[PARTS], known)
    found = await request.app[PARTS].people.archived(known.row.session_id)
    return await _json(request, {"sessions": [_archived(session) for session in found]})


def _archived(session: ArchivedSession) -> dict[str, Any]:
    return {
        "session_id": session.public_id,
        "channel": session.channel,
        "archived_at": iso(session.archived_at),
        "messages": [{"role": one.author, "text": one.text, "at": iso(one.at)} for one in session.messages],
    }


async def originals(request: web.Request) -> web.StreamResponse:
    """For the visitor whose summary it is; anybody else is passed on to the operators' door."""
    parts = request.app[PARTS]
    known = await parts.visitors.caller(request)
    found = None if known is None else await _originals(parts, known, request.match_info["id"])
    if found is not None:
        return await _json(request, {"messages": found})
    door = request.app[OPERATORS]
    if door.originals is not None:
        return await door.originals(request)
    if known is None:
        raise Refusal(401, "unauthorized", "A visitor's token is needed.")
    raise Refusal(404, "not_found", "There is no such summary in this conversation.")


async def _originals(parts: Parts, known: Known, compaction: str) -> tuple[Any, ...] | None:
    try:
        public_id = UUID(compaction)
    except ValueError:
        return None
    return await parts.events.hidden_messages(known.row.session_id, public_id, limit=MESSAGES_MOST)


async def _caller(request: web.Request) -> Known:
    known = await request.app[PARTS].visitors.caller(request)
    if known is None:
        raise Refusal(
            401, "unauthorized", "A visitor's token is needed.", headers={"WWW-Authenticate": "Bearer"}
        )
    return known


def _language(request: web.Request) -> str:
    """The first that the client names; browsers put theirs in the order of their liking."""
    return request.headers.get("Accept-Language", "").partition(",")[0].partition(";")[0].strip()


def _check_rate(request: web.Request, parts: Parts, known: Known) -> None:
    most = parts.limits_for(request).messages
    wait = parts.session_windows.take(str(known.row.session_id), most)
    wait = wait or parts.address_windows.take(parts.proxies.client_address(request), most)
    if wait:
        raise RateLimited(retry_after_seconds=wait, what="commands")


async def _json(request: web.Request, body: Any) -> web.Response:
    text = json.dumps(body, ensure_ascii=False)
    headers = {**_NO_STORE, **await cross_origin_headers(request)}
    return web.json_response(text=text, headers=headers)


caller, check_rate, json_reply = _caller, _check_rate, _json
"""For the rooms beside this one, which answer in the same way."""
