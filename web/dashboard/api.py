"""The dashboard's JSON: one handler per page, each a question to `Insights`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from aiohttp import web

from shared.adapters.models.breaker import BreakerState
from shared.adapters.postgres.dashboard.read_models import MAX_LIMIT, BadQuery, SessionQuery
from shared.adapters.telemetry.health import told_reason
from shared.core.values.errors import EvertalkError
from web.dashboard.access import AuthedRequest, DashboardRefusal, answer
from web.dashboard.alerts import newest_open


async def me(visit: AuthedRequest) -> web.StreamResponse:
    who = visit.operator
    acts, hands_over = who.may("operator"), visit.desk.handovers is not None
    return answer(
        {
            "name": who.name,
            "display_name": who.display_name,
            "role": who.role,
            "has_password": who.has_password,
            "by_provider": who.by_provider,
            "can_run_commands": acts and visit.desk.commands is not None,
            "can_take": acts and hands_over and visit.desk.settings.has_handover,
            "has_handovers": hands_over,
            "can_inspect": visit.desk.inspecting is not None,
        }
    )


async def overview(visit: AuthedRequest) -> web.StreamResponse:
    settings = visit.desk.settings
    page = await visit.desk.admin.overview.overview()
    own = _own_breakers(visit)
    for provider in page["providers"]:
        provider["reasons"] = [_in_full(one, own.get(provider["host"])) for one in provider["reasons"]]
    caps = {
        "cap_micro": int(settings.cap_total_per_day_usd * 1_000_000),
        "alerts": await newest_open(visit),
    }
    return answer(page | caps)


def _own_breakers(visit: AuthedRequest) -> dict[str, BreakerState]:
    """By host: a provider's own words, which are stored nowhere."""
    breakers = visit.desk.breakers
    found = {} if breakers is None else breakers()
    return {urlsplit(url).hostname or "provider": state for url, state in found.items()}


def _in_full(one: Mapping[str, Any], state: BreakerState | None) -> Mapping[str, Any]:
    """What this process told of itself, in all the words that it heard."""
    if state is None or one["role"] != "web" or one["reason"] != told_reason(state):
        return one
    return {**one, "reason": state.reason}


async def sessions(visit: AuthedRequest) -> web.StreamResponse:
    return answer(await visit.desk.admin.overview.sessions(session_query(visit.request.query)))


def session_query(query: Mapping[str, str]) -> SessionQuery:
    """What the address says; raises BadQuery."""
    return SessionQuery(
        search=query.get("q", "").strip()[:200],
        channel=query.get("channel", "")[:50],
        state=query.get("state", ""),
        agent=query.get("agent", "")[:200],
        site=query.get("site", "")[:200],
        min_pct=_share(query.get("min_pct", "")),
        since=_moment(query.get("from", "")),
        until=_moment(query.get("to", "")),
        sort=query.get("sort", "") or "-active",
        cursor=query.get("cursor", ""),
        limit=_count(query, "limit", 50, most=MAX_LIMIT),
    )


async def session(visit: AuthedRequest) -> web.StreamResponse:
    found = await visit.desk.admin.overview.session(_id(visit))
    if found is not None and (held := found["handover"]) is not None:
        held["mine"] = held.pop("operator_id") == visit.operator.operator_id
    response = _found(found)
    await _note_reading(visit, "session")
    return response


async def compactions(visit: AuthedRequest) -> web.StreamResponse:
    query = visit.request.query
    before = query.get("before", "")
    if before and not (before.isascii() and before.isdigit() and len(before) < 19):
        raise BadQuery("before is a number")
    found = _found(
        await visit.desk.admin.overview.compactions(
            _id(visit),
            before=int(before) if before else None,
            limit=_count(query, "limit", 50, most=MAX_LIMIT),
        )
    )
    await _note_reading(visit, "compactions")
    return found


async def context_audit(visit: AuthedRequest) -> web.StreamResponse:
    query = visit.request.query
    return _found(
        await visit.desk.admin.overview.context_audit(
            _id(visit),
            before=_place(query.get("before", ""), digits=18),
            limit=_count(query, "limit", 50, most=MAX_LIMIT),
        )
    )


async def messages(visit: AuthedRequest) -> web.StreamResponse:
    query = visit.request.query
    page = await visit.desk.admin.overview.messages(
        _id(visit), before=_place(query.get("before", "")), limit=_count(query, "limit", 100, most=MAX_LIMIT)
    )
    found = _found(page)
    await _note_reading(visit, "messages")
    return found


async def originals(visit: AuthedRequest) -> web.StreamResponse:
    query = visit.request.query
    page = await visit.desk.admin.overview.originals(
        _id(visit), before=_place(query.get("before", "")), limit=_count(query, "limit", 100, most=MAX_LIMIT)
    )
    found = _found(page)
    await _note_reading(visit, "originals")
    return found


async def attachment(visit: AuthedRequest) -> web.StreamResponse:
    """A person's file, for those who may read what the person wrote."""
    found = await visit.desk.stores.uploads.served_to_operators(visit.request.match_info["id"])
    if found is None:
        raise _missing()
    await _note_reading(visit, "attachment")
    return web.Response(body=found.body, headers=found.headers())


async def undo(visit: AuthedRequest) -> web.StreamResponse:
    return await _change(visit, command="undo", allowed="can_undo", reason="undo_reason")


async def restore(visit: AuthedRequest) -> web.StreamResponse:
    return await _change(visit, command="restore", allowed="can_restore", reason="restore_reason")


async def _change(visit: AuthedRequest, *, command: str, allowed: str, reason: str) -> web.StreamResponse:
    """The page's own view of what is possible is checked first: the command acts on the newest link only."""
    commands, link = visit.desk.commands, _id(visit)
    found = await visit.desk.admin.overview.compaction(link)
    if found is None:
        raise _missing()
    session_id, verdict = found
    if commands is None:
        raise DashboardRefusal(503, "not_available", "Commands cannot be run from here just now.")
    if not verdict.get(allowed):
        raise DashboardRefusal(
            409, f"cannot_{command}", str(verdict.get(reason) or "This is not possible any more.")
        )
    await visit.desk.admin.operators.record(
        actor=visit.operator.name, action=f"compaction.{command}", about=f"compaction:{link}"
    )
    try:
        outcome = await commands.run(
            session_id=session_id, address_id=None, name=command, args="", cid=None, progress=None
        )
    except EvertalkError as error:
        raise DashboardRefusal(409, error.code, error.advice) from error
    success, words = _told(outcome)
    if not success:
        raise DashboardRefusal(409, f"cannot_{command}", words or "It was not possible.")
    return answer({"success": True, "result": words})


def _told(outcome: Any) -> tuple[bool, str]:
    """Whether a command succeeded and what it says, of a mapping or of a value with these names."""

    def get(name: str) -> Any:
        return outcome.get(name) if isinstance(outcome, Mapping) else getattr(outcome, name, None)

    words = get("error") or get("text") or get("result") or ""
    return get("success") is not False, words if isinstance(words, str) else ""


async def _note_reading(visit: AuthedRequest, action: str) -> None:
    """A screen that refreshes itself is told once in a while: the header alone must not hide a reading."""
    record = visit.desk.admin.operators.record_once if visit.refresh else visit.desk.admin.operators.record
    about = visit.request.match_info["id"]
    await record(actor=visit.operator.name, action=f"read.{action}", about=about)


def _found(page: dict[str, Any] | None) -> web.Response:
    if page is None:
        raise _missing()
    return answer(page)


def _missing() -> DashboardRefusal:
    return DashboardRefusal(404, "not_found", "There is no such thing here.")


def _id(visit: AuthedRequest) -> UUID:
    try:
        return UUID(visit.request.match_info["id"])
    except ValueError:
        raise _missing() from None


def _count(query: Mapping[str, str], name: str, default: int, *, most: int) -> int:
    raw = query.get(name, "")
    if not raw:
        return default
    if not (raw.isascii() and raw.isdigit() and 1 <= int(raw[:9]) <= most):
        raise BadQuery(f"{name} is a number from 1 to {most}")
    return int(raw)


def _share(raw: str) -> float | None:
    try:
        share = float(raw) if raw else None
    except ValueError:
        raise BadQuery("min_pct is a number") from None
    if share is not None and not math.isfinite(share):
        raise BadQuery("min_pct is a number")
    return share


def _moment(raw: str) -> datetime | None:
    if not raw:
        return None
    try:
        moment = datetime.fromisoformat(raw)
    except ValueError:
        raise BadQuery("from and to are dates such as 2026-11-21") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _place(raw: str, *, digits: int = 9) -> tuple[int, int] | None:
    if not raw:
        return None
    turn, _, step = raw.partition(".")
    if (
        not (turn + step).isascii()
        or not turn.isdigit()
        or not step.isdigit()
        or len(turn) > 18
        or len(step) > digits
    ):
        raise BadQuery("before is a place such as 12.3")
    return int(turn), int(step)
