"""The dashboard's JSON: one handler per page, each a question to `Insights`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from aiohttp import web

from shared.adapters.postgres.insights import MAX_LIMIT, BadQuery, SessionQuery
from shared.core.errors import EvertalkError
from web.dashboard.access import Refusal, Visit, answer


async def me(visit: Visit) -> web.StreamResponse:
    who = visit.operator
    can_run = visit.desk.commands is not None and who.may("operator")
    return answer(
        {"name": who.name, "role": who.role, "has_password": who.has_password, "can_run_commands": can_run}
    )


async def overview(visit: Visit) -> web.StreamResponse:
    caps = {"cap_micro": int(visit.desk.settings.cap_total_per_day_usd * 1_000_000)}
    return answer(await visit.desk.insights.overview() | caps)


async def sessions(visit: Visit) -> web.StreamResponse:
    query = visit.request.query
    return answer(
        await visit.desk.insights.sessions(
            SessionQuery(
                search=query.get("q", "").strip()[:200],
                channel=query.get("channel", "")[:50],
                state=query.get("state", ""),
                min_pct=_share(query.get("min_pct", "")),
                since=_moment(query.get("from", "")),
                until=_moment(query.get("to", "")),
                sort=query.get("sort", "") or "-active",
                cursor=query.get("cursor", ""),
                limit=_count(query, "limit", 50, most=MAX_LIMIT),
            )
        )
    )


async def session(visit: Visit) -> web.StreamResponse:
    return _found(await visit.desk.insights.session(_id(visit)))


async def timeline(visit: Visit) -> web.StreamResponse:
    points = _count(visit.request.query, "max_points", 500, most=2000)
    return _found(await visit.desk.insights.timeline(_id(visit), max_points=points))


async def compactions(visit: Visit) -> web.StreamResponse:
    found = _found(await visit.desk.insights.compactions(_id(visit)))
    await _note_reading(visit, "compactions")
    return found


async def context_audit(visit: Visit) -> web.StreamResponse:
    query = visit.request.query
    before = query.get("before", "")
    if before and not (before.isascii() and before.isdigit() and len(before) < 19):
        raise BadQuery("before is a number")
    return _found(
        await visit.desk.insights.context_audit(
            _id(visit),
            before=int(before) if before else None,
            limit=_count(query, "limit", 50, most=MAX_LIMIT),
        )
    )


async def messages(visit: Visit) -> web.StreamResponse:
    query = visit.request.query
    page = await visit.desk.insights.messages(
        _id(visit), before=_place(query.get("before", "")), limit=_count(query, "limit", 100, most=MAX_LIMIT)
    )
    found = _found(page)
    await _note_reading(visit, "messages")
    return found


async def originals(visit: Visit) -> web.StreamResponse:
    query = visit.request.query
    page = await visit.desk.insights.originals(
        _id(visit), before=_place(query.get("before", "")), limit=_count(query, "limit", 100, most=MAX_LIMIT)
    )
    found = _found(page)
    await _note_reading(visit, "originals")
    return found


async def jobs(visit: Visit) -> web.StreamResponse:
    query = visit.request.query
    before = query.get("before", "")
    if before and not (before.isascii() and before.isdigit() and len(before) < 19):
        raise BadQuery("before is a number")
    return answer(
        await visit.desk.insights.jobs(
            state=query.get("state", ""),
            before=int(before) if before else None,
            limit=_count(query, "limit", 50, most=MAX_LIMIT),
        )
    )


async def undo(visit: Visit) -> web.StreamResponse:
    return await _change(visit, command="undo", allowed="can_undo", reason="undo_reason")


async def restore(visit: Visit) -> web.StreamResponse:
    return await _change(visit, command="restore", allowed="can_restore", reason="restore_reason")


async def _change(visit: Visit, *, command: str, allowed: str, reason: str) -> web.StreamResponse:
    """The page's own view of what is possible is checked first: the command acts on the newest link only."""
    commands, link = visit.desk.commands, _id(visit)
    owner = await visit.desk.insights.compaction_owner(link)
    if owner is None:
        raise _missing()
    if commands is None:
        raise Refusal(503, "not_available", "Commands cannot be run from here just now.")
    listed = await visit.desk.insights.compactions(owner[1]) or {"compactions": ()}
    verdict: Mapping[str, Any] = next((row for row in listed["compactions"] if row["id"] == str(link)), {})
    if not verdict.get(allowed):
        raise Refusal(409, f"cannot_{command}", str(verdict.get(reason) or "This is not possible any more."))
    await visit.desk.operators.record(
        actor=visit.operator.name, action=f"compaction.{command}", about=f"compaction:{link}"
    )
    try:
        outcome = await commands.run(
            session_id=owner[0], address_id=None, name=command, args="", cid=None, progress=None
        )
    except EvertalkError as error:
        raise Refusal(409, error.code, error.advice) from error
    success, words = _told(outcome)
    if not success:
        raise Refusal(409, f"cannot_{command}", words or "It was not possible.")
    return answer({"success": True, "result": words})


def _told(outcome: Any) -> tuple[bool, str]:
    """Whether a command succeeded and what it says, of a mapping or of a value with these names."""

    def get(name: str) -> Any:
        return outcome.get(name) if isinstance(outcome, Mapping) else getattr(outcome, name, None)

    words = get("error") or get("text") or get("result") or ""
    return get("success") is not False, words if isinstance(words, str) else ""


async def _note_reading(visit: Visit, action: str) -> None:
    if not visit.refresh:
        await visit.desk.operators.record(
            actor=visit.operator.name, action=f"read.{action}", about=visit.request.match_info["id"]
        )


def _found(page: dict[str, Any] | None) -> web.Response:
    if page is None:
        raise _missing()
    return answer(page)


def _missing() -> Refusal:
    return Refusal(404, "not_found", "There is no such thing here.")


def _id(visit: Visit) -> UUID:
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


def _place(raw: str) -> tuple[int, int] | None:
    if not raw:
        return None
    turn, _, step = raw.partition(".")
    if (
        not (turn + step).isascii()
        or not turn.isdigit()
        or not step.isdigit()
        or len(turn) > 18
        or len(step) > 9
    ):
        raise BadQuery("before is a place such as 12.3")
    return int(turn), int(step)
