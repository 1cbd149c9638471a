"""REST for visitors: the list of commands, earlier conversations, and the originals behind a summary."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from aiohttp import web

from shared.adapters.postgres.people.api_keys import ApiKey
from shared.adapters.postgres.turns.events import OriginalsPage
from shared.core.identity.people import ArchivedSession
from shared.core.session.client_payloads import iso
from web.api.responses import BEARER, caller, check_rate, check_reads, json_reply, language
from web.auth.api_key_auth import KEY, ONLY_IN_PERSON, reached_by_key
from web.auth.operator_auth import OPERATORS
from web.auth.visitors import Known, Site
from web.parts import PARTS, CommandShown, Parts
from web.protocol import request_fields
from web.security import HttpRefusal

__all__ = ["archived", "caller", "check_rate", "json_reply", "list_commands", "originals"]

MESSAGES_MOST = 200


async def list_commands(request: web.Request) -> web.StreamResponse:
    """What may be asked for here; without a visitor, what everybody may; for a key, what its site allows."""
    parts = request.app[PARTS]
    known = None if KEY in request else await parts.visitors.caller(request)
    tongue = language(request)
    if known is not None:
        offered = parts.commands_for(known.audience, site=known.site)
    else:
        offered = await _for_anyone(parts, request.get(KEY))
    entries = [command.entry(tongue, typed=True) for command in offered]
    return await json_reply(request, {"commands": entries})


async def _for_anyone(parts: Parts, key: ApiKey | None) -> list[CommandShown]:
    site = None
    if key is not None and key.site is not None:
        # A site that cannot be read lets nobody in: as if it were for strangers.
        site = (await parts.visitors.sites()).get(key.site, Site(audience="public"))
    public = "public" in (parts.settings.profile, site.audience if site is not None else "")
    offered = parts.commands_for("public" if public else "personal", site=site)
    return [one for one in offered if key is None or one.name not in ONLY_IN_PERSON]


async def archived(request: web.Request) -> web.StreamResponse:
    """Earlier conversations of this visitor, which went on elsewhere after a `/link`, to read."""
    known = await caller(request)
    if known.audience == "public":
        raise HttpRefusal(404, "not_found", "There is nothing here.")
    check_rate(request, request.app[PARTS], known)
    found = await request.app[PARTS].people.archived(known.row.session_id)
    return await json_reply(request, {"sessions": [_archived(session) for session in found]})


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
    if KEY in request:
        known = await reached_by_key(request, request.query.get("session_id"))
    else:
        known = await parts.visitors.caller(request)
    if known is not None:
        check_reads(request, parts, known)
    found = None if known is None else await _originals(request, known)
    if found is not None:
        return await json_reply(request, {"messages": found.messages, "before": found.before})
    door = request.app[OPERATORS]
    if door.originals is not None and KEY not in request:
        return await door.originals(request)
    if known is None:
        raise HttpRefusal(401, "unauthorized", "A visitor's token or a key is needed.", headers=BEARER)
    raise HttpRefusal(404, "not_found", "There is no such summary in this conversation.")


async def _originals(request: web.Request, known: Known) -> OriginalsPage | None:
    try:
        public_id = UUID(request.match_info["id"])
    except ValueError:
        return None
    if "." in request.query.get("before", ""):
        return None  # a place in what operators read
    return await request.app[PARTS].events.hidden_messages(
        known.row.session_id, public_id,
        limit=request_fields.number(request.query, "limit", least=1, most=MESSAGES_MOST) or MESSAGES_MOST,
        before_seq=request_fields.entry(request.query, "before"),
    )  # fmt: skip
