"""Money on the dashboard: costs by a group, what was saved, and both lists as CSV."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import asdict
from datetime import date, datetime
from typing import Any
from zoneinfo import ZoneInfo

from aiohttp import web

from shared.adapters.models.price_list import price_list
from shared.adapters.postgres.dashboard.cost_queries import GROUPS, CostInsights, Period
from shared.adapters.postgres.dashboard.session_list import BadQuery, SessionQuery, check
from shared.core.ops.savings import saved_by_caching, saved_by_summaries
from web.dashboard.access import AuthedRequest, Route, answer
from web.dashboard.api import session_query
from web.dashboard.requests.csv import stream_csv

MOST_LINES = 100_000
FILTERS = ("group", "from", "to", "sort", "channel", "state", "agent", "site", "min_pct")
SESSION_COLUMNS = (
    "id", "person", "kind", "channel", "agent", "turns", "context_tokens", "context_limit", "context_pct",
    "input_tokens", "output_tokens", "cache_hit_pct", "cost_usd", "cost_unknown_calls", "compactions",
    "last_active_at", "created_at", "state",
)  # fmt: skip
COST_COLUMNS = (
    "key", "name", "calls", "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens",
    "cache_hit_pct", "cost_usd", "calls_of_unknown_price",
)  # fmt: skip


def routes() -> tuple[Route, ...]:
    return (
        Route(method="GET", path="/api/v1/costs", need="viewer", handler=costs),
        Route(method="GET", path="/api/v1/savings", need="viewer", handler=savings),
        Route(method="GET", path="/api/v1/export/sessions.csv", need="viewer", handler=sessions_sheet),
        Route(method="GET", path="/api/v1/export/costs.csv", need="viewer", handler=costs_sheet),
    )


async def costs(visit: AuthedRequest) -> web.StreamResponse:
    """`?group=model|day|agent|person|purpose&from=&to=`: days, the last one included; else this month."""
    group, period = _asked(visit)
    found = await _money(visit).costs(group, period)
    prices = price_list(visit.desk.settings).rows(found.pop("models"), _today(visit))
    told = {"group": group, "from": period.first.isoformat(), "to": period.last.isoformat()}
    return answer({**told, "timezone": visit.desk.settings.timezone, **found, "prices": prices})


async def savings(visit: AuthedRequest) -> web.StreamResponse:
    """Of this month so far."""
    today = _today(visit)
    period = Period(first=today.replace(day=1), last=today)
    found = await _money(visit).saved(period)
    price_on = price_list(visit.desk.settings).on
    paid = None if found["summaries_unknown"] else found["summaries_micro"]
    return answer(
        {
            "from": period.first.isoformat(),
            "to": period.last.isoformat(),
            "caching": asdict(saved_by_caching(found["cached"], price_on)),
            "summaries": asdict(saved_by_summaries(found["compacted"], price_on, paid_micro=paid)),
            "summarised_turns": sum(row["turns"] for row in found["compacted"]),
            "summaries_paid_micro": paid,
            "uncounted_calls": found["uncounted_calls"],
        }
    )


async def sessions_sheet(visit: AuthedRequest) -> web.StreamResponse:
    """The list as it is filtered and sorted, from its first row on."""
    query = session_query(visit.request.query)
    check(query)
    await _record(visit, "export.sessions")
    return await stream_csv(visit, "evertalk-sessions", SESSION_COLUMNS, _session_rows(visit, query))


async def _session_rows(visit: AuthedRequest, query: SessionQuery) -> AsyncIterator[Sequence[object]]:
    async for sessions in visit.desk.insights.every_session(query):
        for session in sessions:
            yield session_cells(session)


def session_cells(session: Mapping[str, Any]) -> list[object]:
    """A line of the list of sessions, by `SESSION_COLUMNS`."""
    known = {**session, "cost_usd": _usd(session["cost_micro"])}
    return [known[column] for column in SESSION_COLUMNS]


def _usd(micro: int | None) -> float | None:
    return None if micro is None else micro / 1_000_000


async def costs_sheet(visit: AuthedRequest) -> web.StreamResponse:
    group, period = _asked(visit)
    await _record(visit, "export.costs")
    found = await _money(visit).costs(group, period, most=MOST_LINES)
    return await stream_csv(visit, "evertalk-costs", COST_COLUMNS, _cost_rows(found["rows"]))


async def _cost_rows(rows: list[dict[str, Any]]) -> AsyncIterator[Sequence[object]]:
    for row in rows:
        yield (
            row["key"], row["label"], row["calls"], row["input_tokens"], row["output_tokens"],
            row["cache_read_tokens"], row["cache_write_tokens"], row["cache_hit_pct"],
            _usd(row["cost_micro"]), row["unknown_calls"],
        )  # fmt: skip


async def _record(visit: AuthedRequest, action: str) -> None:
    """Names and shares of many people leave the house: the filters say which, never a searched word."""
    query = visit.request.query
    filters: dict[str, Any] = {name: query[name][:60] for name in FILTERS if query.get(name)}
    if query.get("q"):
        filters["searched"] = True
    await visit.desk.operators.record(actor=visit.operator.name, action=action, detail=filters)


def _money(visit: AuthedRequest) -> CostInsights:
    return CostInsights(visit.desk.pool, timezone=visit.desk.settings.timezone)


def _today(visit: AuthedRequest) -> date:
    return datetime.now(ZoneInfo(visit.desk.settings.timezone)).date()


def _asked(visit: AuthedRequest) -> tuple[str, Period]:
    query, today = visit.request.query, _today(visit)
    group = query.get("group", "") or "model"
    if group not in GROUPS:
        raise BadQuery(f"group is one of {', '.join(GROUPS)}")
    last = _day(query.get("to", "")) or today
    first = _day(query.get("from", "")) or last.replace(day=1)
    return group, Period(first=first, last=last)


def _day(raw: str) -> date | None:
    try:
        day = date.fromisoformat(raw) if raw else None
    except ValueError:
        raise BadQuery("from and to are days such as 2026-11-21") from None
    if day is not None and not 2000 <= day.year <= 2200:
        raise BadQuery("from and to are days of our time")
    return day
