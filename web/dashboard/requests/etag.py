"""What pages that change something share: the version that was seen, and telling who was too late."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from aiohttp import web

from shared.config.agents import AGENT_NAME
from web.dashboard.access import AuthedRequest, DashboardRefusal, answer
from web.dashboard.requests.request_json import read_json


def public_id(visit: AuthedRequest, what: str) -> UUID:
    try:
        return UUID(visit.request.match_info["id"])
    except ValueError:
        raise DashboardRefusal(404, "not_found", f"There is no such {what}.") from None


async def new_name(visit: AuthedRequest) -> str:
    """`{"name"}` of what is to be made, by the rule of the command line; raises Refusal."""
    body = await read_json(visit)
    name = body.get("name")
    if set(body) != {"name"} or not isinstance(name, str) or not AGENT_NAME.fullmatch(name):
        raise DashboardRefusal(400, "bad_input", "A name is 1 to 40 of a-z, 0-9, _ and -, no mark first.")
    return name


def if_match(visit: AuthedRequest) -> str:
    """The version that the editor began with; an edit without one would overwrite what nobody has seen."""
    given = visit.request.headers.get("If-Match", "").strip().removeprefix("W/")
    if not given:
        raise DashboardRefusal(428, "version_needed", "Send `If-Match` with the version that you have read.")
    return given


def seen_version(visit: AuthedRequest) -> int:
    """A version that is a number; raises Refusal."""
    given = if_match(visit).strip('"')
    if not (given.isascii() and given.isdigit() and len(given) < 19):
        raise DashboardRefusal(400, "bad_input", "`If-Match` is the `etag` that came with it.")
    return int(given)


def stale(visit: AuthedRequest, *, yours: Any, theirs: Any) -> web.Response:
    """Somebody was faster: 409 with both versions, so that nothing typed is lost."""
    return told(
        visit, 409, "stale", "Somebody else changed this meanwhile: nothing of yours was stored.",
        {"yours": yours, "theirs": theirs},
    )  # fmt: skip


def told(
    visit: AuthedRequest, status: int, code: str, message: str, details: Mapping[str, Any]
) -> web.Response:
    """A refusal that says more than a sentence."""
    request_id = str(visit.request.get("request_id") or secrets.token_hex(6))
    body = {"code": code, "message": message, "request_id": request_id, "details": details}
    return answer(body, status=status)


async def tell_screens(visit: AuthedRequest, session_id: int, event_seq: int | None) -> None:
    """Open screens of the person read the stored event themselves."""
    if event_seq is not None and visit.desk.announcer is not None:
        await visit.desk.announcer.announce(session_id, {"event_seq": event_seq})


class Unheard:
    """Where nobody can be told: screens find what is stored by themselves, within seconds."""

    async def announce(self, session_id: int, message: Mapping[str, Any]) -> None:
        return None
