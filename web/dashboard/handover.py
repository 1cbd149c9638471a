"""Hand-over for operators: who waits, take a conversation or give it back, and write in it."""

from __future__ import annotations

import secrets
from typing import Any
from uuid import UUID

from aiohttp import web

from shared.adapters.postgres.dashboard.read_models import BadQuery
from shared.core.identity.handover import AnswerRuns, Listed, Moved, TakenByOther
from shared.core.session.client_payloads import iso
from shared.core.values.errors import BadInput, EvertalkError, StorageUnavailable
from shared.services.tools.handover import CID_CHARS, HandoverService
from web.dashboard.access import AuthedRequest, DashboardRefusal, answer
from web.dashboard.requests.request_json import read_json

RETRY_SECONDS = 2


async def handovers(visit: AuthedRequest) -> web.StreamResponse:
    """`GET /api/v1/handovers?state=waiting|human`, the longest first."""
    state = visit.request.query.get("state", "")
    if state not in ("", "waiting", "human"):
        raise BadQuery("state is waiting or human")
    desk = _desk(visit)
    found = await desk.list_handovers(
        "waiting" if state == "waiting" else "human" if state == "human" else None
    )
    record = visit.desk.admin.operators.record_once if visit.refresh else visit.desk.admin.operators.record
    await record(actor=visit.operator.name, action="read.handovers")
    return answer({"enabled": visit.desk.settings.has_handover, "handovers": [_listed(one) for one in found]})


async def handover(visit: AuthedRequest) -> web.StreamResponse:
    """`{"action": "take"|"return"}`; what is so already stays so. An admin may return what another has."""
    body = await read_json(visit)
    action = body.get("action")
    if action not in ("take", "return"):
        raise DashboardRefusal(400, "bad_input", "action is take or return.")
    desk, session_id = _desk(visit), await _session(visit)
    who = visit.operator
    if action == "take" and not visit.desk.settings.has_handover:
        raise DashboardRefusal(
            409, "handover_off", "Hand-over is switched off: EVERTALK_HANDOVER=on allows it."
        )
    try:
        if action == "take":
            moved = await desk.take_over(session_id, operator_id=who.operator_id, name=who.name)
        else:
            moved = await desk.release(session_id, operator_id=who.operator_id, any_ones=who.may("admin"))
    except EvertalkError as error:
        return _refused(visit, error)
    return answer(_moved(moved))


async def reply(visit: AuthedRequest) -> web.StreamResponse:
    """`{"cid", "text"}`: stored when this answers, and on its way; a repeated `cid` has the same `mid`."""
    body = await read_json(visit)
    cid, text = body.get("cid"), body.get("text")
    if not isinstance(cid, str) or not 0 < len(cid) <= CID_CHARS or not cid.isprintable():
        raise DashboardRefusal(
            400, "bad_input", f"cid is an id of your own of at most {CID_CHARS} characters."
        )
    if not isinstance(text, str):
        raise DashboardRefusal(400, "bad_input", "text is what the person shall read.")
    desk, session_id = _desk(visit), await _session(visit)
    who = visit.operator
    try:
        stored = await desk.reply(session_id, operator_id=who.operator_id, cid=cid, text=text)
    except EvertalkError as error:
        return _refused(visit, error)
    told = {"mid": stored.mid, "turn": stored.turn, "event_seq": stored.event_seq}
    return answer({**told, "dup": True} if stored.repeated else told)


def _desk(visit: AuthedRequest) -> HandoverService:
    if visit.desk.handovers is None:
        raise DashboardRefusal(503, "not_available", "Conversations cannot be taken from here just now.")
    return visit.desk.handovers


async def _session(visit: AuthedRequest) -> int:
    try:
        public_id = UUID(visit.request.match_info["id"])
    except ValueError:
        raise DashboardRefusal(404, "not_found", "There is no such conversation.") from None
    session_id = await _desk(visit).find_session(public_id)
    if session_id is None:
        raise DashboardRefusal(404, "not_found", "There is no such conversation.")
    return session_id


def _refused(visit: AuthedRequest, error: EvertalkError) -> web.Response:
    """With who has it, where somebody else does."""
    if isinstance(error, StorageUnavailable):
        raise error
    if isinstance(error, BadInput):
        raise DashboardRefusal(400, error.code, error.advice) from error
    body: dict[str, Any] = {
        "code": error.code,
        "message": error.advice,
        "request_id": str(visit.request.get("request_id") or secrets.token_hex(6)),
    }
    if isinstance(error, TakenByOther):
        body["details"] = {"operator": error.name}
    headers = {"Retry-After": str(RETRY_SECONDS)} if isinstance(error, AnswerRuns) else {}
    return answer(body, status=409, headers=headers)


def _moved(moved: Moved) -> dict[str, Any]:
    told: dict[str, Any] = {"state": moved.state, "changed": moved.event_seq > 0}
    return {**told, "name": moved.name} if moved.name else told


def _listed(one: Listed) -> dict[str, Any]:
    return {
        "session": one.session,
        "state": one.state,
        "asked_by": one.asked_by,
        "reason": one.reason,
        "operator": one.operator,
        "who": one.who,
        "person_id": one.person_id,
        "kind": one.kind,
        "anonymous": one.anonymous,
        "channel": one.channel,
        "agent": one.agent,
        "asked_at": iso(one.asked_at),
        "taken_at": one.taken_at and iso(one.taken_at),
        "waits_since": one.waits_since and iso(one.waits_since),
    }
