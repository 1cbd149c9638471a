"""Money on the dashboard: costs by a group, what was saved, and both lists as CSV."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any, NotRequired, Unpack, cast

from typing_extensions import TypedDict

from shared.adapters.models.price_list import load_price_list
from shared.adapters.postgres.dashboard.cost_queries import GROUPS, CostInsights
from shared.adapters.postgres.dashboard.hourly_stats import Period
from shared.adapters.postgres.dashboard.read_models import Insights
from shared.adapters.postgres.dashboard.session_list import BadQuery, SessionQuery, check_query
from shared.config.settings import Settings
from shared.core.ops.savings import Saving, compute_caching_savings, compute_summary_savings
from web.dashboard.access import HEADERS, AuthedRequest
from web.dashboard.api import Filters, session_query
from web.dashboard.series import Ranged, period_of, today_of
from web.protocol.answers import ABSENT, Absent
from web.rest.files import send_csv
from web.rest.kinds import choice, describe
from web.rest.operation import OperationRouter, Reply

router = OperationRouter()
MOST_LINES = 100_000
"""Maximum groups in the CSV of costs."""
FILTERS = ("group", "range", "from", "to", "sort", "channel", "state", "agent", "site", "min_pct")
"""Query parameters that are recorded in the audit log with an export."""
SESSION_COLUMNS = (
    "id", "person", "kind", "channel", "agent", "turns", "context_tokens", "context_reserved",
    "context_limit", "context_pct", "input_tokens", "output_tokens", "cache_hit_pct", "cost_usd",
    "cost_unknown_calls", "compactions", "last_active_at", "created_at", "state",
)  # fmt: skip
"""Columns of the CSV of conversations, in order."""
COST_COLUMNS = (
    "key", "name", "calls", "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens",
    "cache_hit_pct", "cost_usd", "calls_of_unknown_price",
)  # fmt: skip
"""Columns of the CSV of costs, in order."""


class Spent(Ranged, total=False):
    group: Annotated[str, choice("column to group by", *GROUPS)]


Sums = TypedDict("Sums", {
    "calls": int, "input_tokens": int | None, "output_tokens": int | None, "cache_read_tokens": int | None,
    "cache_write_tokens": int | None, "cost_micro": int | None, "unknown_calls": int,
    "uncounted_calls": int, "cache_hit_pct": float | None,
})  # fmt: skip


class SumsOfOne(Sums):
    key: str | None
    label: str | None
    kind: NotRequired[Annotated[str, describe("kind of the person; only if grouped by person")]]
    anonymous: NotRequired[bool]


ModelPrice = TypedDict("ModelPrice", {
    "model": str, "source": str | None, "current": bool, "old": bool, "input": float | None,
    "output": float | None, "cache_read": float | None, "cache_write": float | None, "dated": str | None,
    "starts": str | None, "above": int | None, "above_factor": NotRequired[float],
})  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class CostsByGroup:
    """Costs of a period by group, the highest first, with the prices of their models."""

    group: str
    from_: date
    to: date
    timezone: str
    total: Sums
    groups: int
    rows: list[SumsOfOne]
    prices: list[ModelPrice]


@dataclass(frozen=True, slots=True, kw_only=True)
class Savings:
    """Money that the cache and summaries saved in a period."""

    from_: date
    to: date
    caching: Saving
    summaries: Saving
    summarised_turns: int
    summaries_paid_micro: int | Absent | None = ABSENT
    uncounted_calls: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CostHandlers:
    """Handlers of costs, savings and exports of tables."""

    settings: Settings
    cost_insights: CostInsights
    insights: Insights

    @router.on("GET /costs", role="viewer")
    async def costs(self, authed: AuthedRequest, **asked: Unpack[Spent]) -> CostsByGroup:
        """List costs by group."""
        group, period = self._asked(asked)
        found = await self.cost_insights.load_costs(group, period)
        prices = load_price_list(self.settings).rows(found.pop("models"), today_of(self.settings))
        return CostsByGroup(
            group=group,
            from_=period.first,
            to=period.last,
            timezone=period.zone,
            prices=cast("list[ModelPrice]", prices),
            **found,
        )

    @router.on("GET /savings", role="viewer")
    async def savings(self, authed: AuthedRequest) -> Savings:
        """Get this month's savings by caching and summaries."""
        period = period_of(self.settings, {})
        found = await self.cost_insights.load_savings(period)
        price_on = load_price_list(self.settings).find_prices
        paid = None if found["summaries_unknown"] else found["summaries_micro"]
        return Savings(
            from_=period.first,
            to=period.last,
            caching=compute_caching_savings(found["cached"], price_on),
            summaries=compute_summary_savings(found["compacted"], price_on, paid_micro=paid),
            summarised_turns=sum(row["turns"] for row in found["compacted"]),
            summaries_paid_micro=paid,
            uncounted_calls=found["uncounted_calls"],
        )

    @router.on("GET /export/sessions.csv", role="viewer", media="text/csv")
    async def export_sessions(self, authed: AuthedRequest, **filters: Unpack[Filters]) -> Reply:
        """Export the list of conversations as CSV."""
        query = session_query(filters)
        check_query(query)
        await _record(authed, "export.sessions")
        rows = self._session_rows(query)
        return await send_csv(
            authed.request, rows, name="evertalk-sessions", columns=SESSION_COLUMNS, headers=HEADERS
        )

    async def _session_rows(self, query: SessionQuery) -> AsyncIterator[Sequence[object]]:
        async for sessions in self.insights.iterate_sessions(query):
            for session in sessions:
                yield session_cells(session)

    @router.on("GET /export/costs.csv", role="viewer", media="text/csv")
    async def export_costs(self, authed: AuthedRequest, **asked: Unpack[Spent]) -> Reply:
        """Export costs as CSV."""
        group, period = self._asked(asked)
        await _record(authed, "export.costs")
        found = await self.cost_insights.load_costs(group, period, most=MOST_LINES)
        rows = _cost_rows(found["rows"])
        return await send_csv(
            authed.request, rows, name="evertalk-costs", columns=COST_COLUMNS, headers=HEADERS
        )

    def _asked(self, asked: Spent) -> tuple[str, Period]:
        group = asked.get("group", "model")
        if group not in GROUPS:
            raise BadQuery(f"group is one of {', '.join(GROUPS)}")
        return group, period_of(self.settings, asked)


def session_cells(session: Mapping[str, Any]) -> list[object]:
    """Return the cells of a session's line, in the order of `SESSION_COLUMNS`."""
    known = {**session, "cost_usd": _usd(session["cost_micro"])}
    return [known[column] for column in SESSION_COLUMNS]


def _usd(micro: int | None) -> float | None:
    return None if micro is None else micro / 1_000_000


async def _cost_rows(rows: list[dict[str, Any]]) -> AsyncIterator[Sequence[object]]:
    for row in rows:
        yield (
            row["key"], row["label"], row["calls"], row["input_tokens"], row["output_tokens"],
            row["cache_read_tokens"], row["cache_write_tokens"], row["cache_hit_pct"],
            _usd(row["cost_micro"]), row["unknown_calls"],
        )  # fmt: skip


async def _record(authed: AuthedRequest, action: str) -> None:
    """Record an export of people's names and costs in the audit log, with its filters but no search text."""
    query = authed.request.query
    filters: dict[str, Any] = {name: query[name][:60] for name in FILTERS if query.get(name)}
    if query.get("q"):
        filters["searched"] = True
    await authed.record(action, **filters)
