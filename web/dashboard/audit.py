"""The audit log for admins: who read and changed what, whether its chain holds, and all of it as a file."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime

from aiohttp import web

from shared.adapters.postgres.dashboard.audit_queries import AuditInsights, AuditQuery
from shared.adapters.postgres.dashboard.read_models import MAX_LIMIT, BadQuery
from web.dashboard.access import AuthedRequest, Route, answer
from web.dashboard.requests.csv import stream_csv

COLUMNS = ("id", "at", "operator", "action", "about", "detail")


def routes() -> tuple[Route, ...]:
    return (
        Route(method="GET", path="/api/v1/audit", need="admin", handler=audit),
        Route(method="GET", path="/api/v1/audit/chain", need="admin", handler=chain),
        Route(method="GET", path="/api/v1/audit/csv", need="admin", handler=audit_csv),
    )


async def audit(visit: AuthedRequest) -> web.StreamResponse:
    return answer(await visit.desk.admin.audit.page(_query(visit)))


async def chain(visit: AuthedRequest) -> web.StreamResponse:
    return answer(await visit.desk.admin.audit.chain())


async def audit_csv(visit: AuthedRequest) -> web.StreamResponse:
    query = _query(visit)
    await visit.desk.admin.operators.record(actor=visit.operator.name, action="audit.exported")
    return await stream_csv(visit, "evertalk-audit", COLUMNS, _rows(visit.desk.admin.audit, query))


async def _rows(insights: AuditInsights, query: AuditQuery) -> AsyncIterator[tuple[object, ...]]:
    async for entry in insights.entries(query):
        detail = json.dumps(entry["detail"], ensure_ascii=False) if entry["detail"] else ""
        yield entry["id"], entry["at"], entry["actor"], entry["action"], entry["about"], detail


def _query(visit: AuthedRequest) -> AuditQuery:
    asked = visit.request.query
    return AuditQuery(
        actor=asked.get("operator", "")[:200],
        action=asked.get("action", "")[:200],
        about=asked.get("about", "")[:200],
        since=_moment(asked.get("from", "")),
        until=_moment(asked.get("to", "")),
        before=_number(asked.get("before", ""), "before", most=2**62),
        limit=_number(asked.get("limit", ""), "limit", most=MAX_LIMIT) or 100,
    )


def _number(raw: str, name: str, *, most: int) -> int | None:
    if not raw:
        return None
    if not (raw.isascii() and raw.isdigit() and len(raw) < 20 and 1 <= int(raw) <= most):
        raise BadQuery(f"{name} is a number from 1 to {most}")
    return int(raw)


def _moment(raw: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(raw) if raw else None
    except ValueError:
        raise BadQuery("from and to are dates such as 2026-11-21") from None
    return moment if moment is None or moment.tzinfo else moment.replace(tzinfo=UTC)
