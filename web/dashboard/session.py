"""One session: what fills its window now, what the model saw, what a summary would do, and doing it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any
from uuid import UUID

from aiohttp import web

from shared.adapters.postgres.dashboard.read_models import BadQuery
from shared.adapters.postgres.dashboard.session_queries import SessionInsights
from shared.core.compaction.summary_diff import compare, says
from shared.core.session.ledger import ledger_from_json
from shared.core.values.errors import EvertalkError
from shared.core.values.messages import block_from_json, text_of
from shared.services.admin.context_inspector import (
    CompactionEstimate,
    ContextInspector,
    ContextSnapshot,
    ReplayedCall,
)
from web.dashboard.access import AuthedRequest, DashboardRefusal, Route, answer
from web.dashboard.exports import stream_conversation, wanted_format
from web.dashboard.requests.request_json import read_json

BODY_BYTES = 16 * 1024
FOCUS_CHARS = 300
COMMAND_SECONDS = 200.0
GONE = {
    "erased": "Parts of what was sent were erased, so it cannot be shown any more.",
    "refused": "The turn was refused before anything was sent.",
    "none": "No call of the model is on record for this turn.",
}
DIFFERS = {
    "fitted": "A later call of this turn was made to fit; this earlier one is shown as it would fit now.",
    "tools": "The turn's last call was made without tools; which ones this earlier call had is not kept.",
    "pictures": "Pictures were sent as files; here their descriptions stand for them.",
}


def routes() -> tuple[Route, ...]:
    def get(path: str, handler: Any, need: Any = "viewer") -> Route:
        return Route(method="GET", path=f"/api/v1/{path}", need=need, handler=handler)

    def post(path: str, handler: Any) -> Route:
        return Route(method="POST", path=f"/api/v1/{path}", need="operator", handler=handler)

    return (
        get("sessions/{id}/timeline", timeline),
        get("sessions/{id}/now", now),
        get("sessions/{id}/replay", replay),
        get("sessions/{id}/export", export),
        get("sessions/{id}/estimate", estimate, "operator"),
        post("sessions/{id}/compact", compact),
        post("sessions/{id}/flush", flush),
        get("compactions/{id}/diff", diff),
    )


async def timeline(visit: AuthedRequest) -> web.StreamResponse:
    page = await _reads(visit).timeline(
        _id(visit),
        max_points=_number(visit, "max_points", most=2000) or 500,
        from_turn=_number(visit, "from_turn") or 1,
    )
    if page is None:
        raise _missing()
    return answer(page)


async def now(visit: AuthedRequest) -> web.StreamResponse:
    session_id = await _session(visit)
    inspecting = _inspecting(visit)
    try:
        return answer(_now(await inspecting.load_snapshot(session_id)))
    except EvertalkError as error:
        raise DashboardRefusal(409, error.code, error.advice) from error


async def replay(visit: AuthedRequest) -> web.StreamResponse:
    """`?turn=&call=`, counted from 1; the newest without them. `?body=1` adds the request as it was sent."""
    session_id = await _session(visit)
    inspecting = _inspecting(visit)
    newest = await _reads(visit).newest_turn(session_id)
    turn = _number(visit, "turn") or newest or 0
    found = await inspecting.replay_call(session_id, turn, _number(visit, "call")) if turn else None
    page = _replay(found, turn)
    if found is not None and found.request is not None and visit.request.query.get("body") == "1":
        page["body"] = dict(await inspecting.build_body(found.request))
    if not visit.refresh:
        await visit.desk.admin.operators.record(
            actor=visit.operator.name, action="read.replay", about=visit.request.match_info["id"],
            detail={"turn": turn},
        )  # fmt: skip
    return answer({**page, "newest": newest})


async def export(visit: AuthedRequest) -> web.StreamResponse:
    """`?format=md|json`: the conversation as a file, which is to read all of it."""
    kind, session_id = wanted_format(visit), await _session(visit)
    about = visit.request.match_info["id"]
    await visit.desk.admin.operators.record(
        actor=visit.operator.name, action="read.export", about=about, detail={"format": kind}
    )
    return await stream_conversation(visit, session_id, name=about[:8])


async def estimate(visit: AuthedRequest) -> web.StreamResponse:
    """`?do=compact|flush`, `?force=1`: what it would read, save and cost; asks no model."""
    do, force = visit.request.query.get("do", "compact"), visit.request.query.get("force") == "1"
    if do not in ("compact", "flush"):
        raise BadQuery("do is compact or flush")
    session_id, inspecting = await _session(visit), _inspecting(visit)
    try:
        if do == "flush":
            return answer(_estimate(await inspecting.estimate_flush(session_id)))
        return answer(_estimate(await inspecting.estimate_compaction(session_id, force=force)))
    except EvertalkError as error:
        raise DashboardRefusal(409, error.code, error.advice) from error


async def compact(visit: AuthedRequest) -> web.StreamResponse:
    """`{"focus"?, "force"?}`: as `/compact`; answers when it is done."""
    body = await read_json(visit, most=BODY_BYTES, needed=False)
    focus, force = body.get("focus") or "", body.get("force") or False
    if not isinstance(focus, str) or len(focus) > FOCUS_CHARS or not isinstance(force, bool):
        raise DashboardRefusal(
            400, "bad_input", f"focus is words of at most {FOCUS_CHARS} characters, force is a flag."
        )
    return await _done(visit, "compact", f"{' '.join(focus.split())}{' --force' if force else ''}".strip())


async def flush(visit: AuthedRequest) -> web.StreamResponse:
    """`{}`: saves to memory what no flush has read; answers when it is done."""
    await read_json(visit, most=BODY_BYTES, needed=False)
    return await _done(visit, "flush", "")


async def _done(visit: AuthedRequest, name: str, args: str) -> web.StreamResponse:
    session_id, commands = await _session(visit), visit.desk.commands
    if commands is None:
        raise DashboardRefusal(503, "not_available", "Commands cannot be run from here just now.")
    about = visit.request.match_info["id"]
    await visit.desk.admin.operators.record(actor=visit.operator.name, action=f"session.{name}", about=about)
    try:
        async with asyncio.timeout(COMMAND_SECONDS):
            outcome = await commands.run(
                session_id=session_id, address_id=None, name=name, args=args, cid=None, progress=None
            )
    except EvertalkError as error:
        raise DashboardRefusal(409, error.code, error.advice) from error
    told = outcome if isinstance(outcome, Mapping) else {
        part: getattr(outcome, part, None) for part in ("success", "result", "error")
    }  # fmt: skip
    if told.get("success") is False:
        raise DashboardRefusal(409, f"cannot_{name}", str(told.get("error") or "It was not possible."))
    return answer({"success": True, "result": str(told.get("result") or "")})


async def diff(visit: AuthedRequest) -> web.StreamResponse:
    """What a summary changed against the one before it, and what of the facts to keep it does not say."""
    found = await _reads(visit).diff(_id(visit))
    if found is None:
        raise _missing()
    await _note_reading(visit, "diff")
    former = found["former"] or {"summary": "", "ledger": {}, "id": None}
    ledger, text = ledger_from_json(found["ledger"]), found["summary"]
    compared = compare(ledger_from_json(former["ledger"]), former["summary"], ledger, text)
    return answer(
        {
            "id": found["id"],
            "former": former["id"],
            "lines": [asdict(line) for line in compared.lines],
            "items": [asdict(item) for item in compared.items],
            "kept": compared.kept,
            "unsaid": [{"id": item.id, "kind": item.kind, "text": item.text} for item in compared.unsaid],
            "pins": [_pin(pin, found["summary"]) for pin in found["pins"]],
            "notes": [{"text": text, "said": says(found["summary"], text)} for text in found["notes"]],
        }
    )


def _pin(pin: Mapping[str, Any], summary: str) -> dict[str, Any]:
    words = text_of(tuple(block_from_json(block) for block in pin["blocks"]))
    return {"seq": pin["seq"], "turn": pin["turn"], "text": words, "said": says(summary, words)}


def _now(found: ContextSnapshot) -> dict[str, Any]:
    budget, gauge = found.budget, found.gauge
    used = gauge.used if gauge else None
    return {
        "used": used,
        "limit": budget.limit,
        "pct": gauge.percent if gauge else None,
        "status": gauge.status if gauge else None,
        "parts": dict(gauge.parts) if gauge else None,
        "free": max(0, budget.limit - used) if used is not None else None,
        "beyond": max(0, budget.window - budget.limit - budget.out),
        "answer": budget.out,
        "reserve": budget.reserve,
        "window": budget.window,
        "hard": budget.hard,
        "flush_at": budget.flush_at,
        "compact_at": budget.compact_at,
        "fixed": budget.fixed,
        "unsent": found.unsent,
        "model": found.card.name,
        "model_window": found.card.window if found.card.window_known else None,
        "preset": found.preset,
        "numbers": dict(found.policy),
        "overrides": [asdict(one) for one in found.overrides],
    }


def _replay(found: ReplayedCall | None, turn: int) -> dict[str, Any]:
    if found is None:
        return {"turn": turn, "call": 0, "calls": 0, "gone": GONE["none"], "pieces": []}
    return {
        "turn": found.turn,
        "call": found.call,
        "calls": found.calls,
        "gone": GONE.get(found.gone) if found.gone else None,
        "same": found.same and not found.gone,
        "differs": DIFFERS.get(found.differs),
        "model": found.model or None,
        "pieces": [asdict(piece) for piece in found.pieces],
    }


def _estimate(found: CompactionEstimate) -> dict[str, Any]:
    return asdict(found)


def _reads(visit: AuthedRequest) -> SessionInsights:
    return visit.desk.admin.sessions


def _inspecting(visit: AuthedRequest) -> ContextInspector:
    if visit.desk.inspecting is None:
        raise DashboardRefusal(503, "not_available", "This cannot be looked at from here just now.")
    return visit.desk.inspecting


async def _session(visit: AuthedRequest) -> int:
    found = await _reads(visit).session_id(_id(visit))
    if found is None:
        raise _missing()
    return found


async def _note_reading(visit: AuthedRequest, action: str) -> None:
    if not visit.refresh:
        await visit.desk.admin.operators.record(
            actor=visit.operator.name, action=f"read.{action}", about=visit.request.match_info["id"]
        )


def _number(visit: AuthedRequest, name: str, *, most: int = 2**53) -> int | None:
    raw = visit.request.query.get(name, "")
    if not raw:
        return None
    if not (raw.isascii() and raw.isdigit() and len(raw) < 18 and 1 <= int(raw) <= most):
        raise BadQuery(f"{name} is a number from 1 to {most}")
    return int(raw)


def _id(visit: AuthedRequest) -> UUID:
    try:
        return UUID(visit.request.match_info["id"])
    except ValueError:
        raise _missing() from None


def _missing() -> DashboardRefusal:
    return DashboardRefusal(404, "not_found", "There is no such thing here.")
