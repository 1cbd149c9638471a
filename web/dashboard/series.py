"""Numbers over time, and the period that pages with numbers are asked for."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any, Unpack
from zoneinfo import ZoneInfo

from pydantic import BeforeValidator
from typing_extensions import TypedDict

from shared.adapters.postgres.dashboard.hourly_stats import STEPS, Period, PostgresHourlyStats
from shared.adapters.postgres.dashboard.session_list import BadQuery
from shared.config.settings import Settings
from web.dashboard.access import AuthedRequest
from web.rest.kinds import choice, describe
from web.rest.operation import OperationRouter

router = OperationRouter()
RANGES = {"24h": 1, "7d": 7, "30d": 30, "90d": 90}
"""Number of days of each named range, which ends today."""
_HOURLY_DAYS = 2
"""Days up to which a range is drawn by the hour unless the request names a step."""


def _day(raw: Any) -> date:
    try:
        day = date.fromisoformat(raw)
    except ValueError:
        raise ValueError("a day such as 2026-11-21") from None
    if not 2000 <= day.year <= 2200:
        raise ValueError("a day of our time")
    return day


Day = Annotated[date, BeforeValidator(_day)]
Ranged = TypedDict("Ranged", {
    "range": Annotated[str, choice("period that ends now; ignored if `from` or `to` is given", *RANGES)],
    "from": Annotated[Day, describe("first day, inclusive")],
    "to": Annotated[Day, describe("last day, inclusive")],
}, total=False)  # fmt: skip


class Stepped(Ranged, total=False):
    step: Annotated[str, choice("length of a step; chosen by the range by default", *STEPS)]


SeriesTotal = TypedDict("SeriesTotal", {
    "messages": int, "answers": int, "errors": int, "calls": int, "unknown_calls": int, "cost_micro": int,
    "input_tokens": int, "cache_read_tokens": int, "cache_write_tokens": int, "output_tokens": int,
    "summaries": int, "handovers": int,
    "people": Annotated[float, describe("people who wrote; of several days the average of a day")],
    "jobs": Annotated[dict[str, tuple[int, int]], describe("by kind: done and failed jobs")],
    "first_token_p50_ms": float | None, "first_token_p95_ms": float | None,
})  # fmt: skip


class SeriesPoint(SeriesTotal):
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    from_: date
    to: date
    timezone: str
    step: str
    steps: list[SeriesPoint]
    total: SeriesTotal
    before: Annotated[SeriesTotal | None, describe("totals of the preceding period of equal length")]
    counted_at: datetime | None
    since: Annotated[datetime | None, describe("start of counting; older data are not included")]


def today_of(settings: Settings) -> date:
    """Return today's date in the deployment's time zone."""
    return datetime.now(ZoneInfo(settings.timezone)).date()


def period_of(settings: Settings, asked: Ranged, *, days: int | None = None) -> Period:
    """Return the period of a request: its days `from` and `to`, else its `range`.

    Without any of them, the last `days`, and with `days` None this month up to today. `24h` ends with the
    current hour. Raises BadQuery for an unknown range.
    """
    zone, last = settings.timezone, asked.get("to") or today_of(settings)
    if not asked.get("from") and not asked.get("to"):
        if (name := asked.get("range")) is not None and name not in RANGES:
            raise BadQuery(f"range is one of {', '.join(RANGES)}")
        days = RANGES[name] if name else days
        if name == "24h":
            hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
            return Period(start=hour - timedelta(days=1), end=hour, zone=zone)
    first = last - timedelta(days=days - 1) if days else last.replace(day=1)
    return Period.from_days(asked.get("from") or first, last, zone)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesHandlers:
    """Handler of figures over time."""

    settings: Settings
    hourly_stats: PostgresHourlyStats

    @router.on("GET /series", role="viewer")
    async def series(self, authed: AuthedRequest, **asked: Unpack[Stepped]) -> Series:
        """Get figures over time by hour or day.

        Each step and each total has `messages`, `people`, `answers`, `errors`, `first_token_p50_ms`,
        `first_token_p95_ms`, `calls`, `cost_micro`, `unknown_calls` (of unknown price), `input_tokens` (not
        cached), `cache_read_tokens`, `cache_write_tokens`, `output_tokens`, `summaries`, `handovers` and
        `jobs` (by kind: done, failed). `people` of a total is the average of its days. Quantiles are within
        five percent. A worker counts every 15 seconds; `counted_at` says when it last did.
        """
        period = period_of(self.settings, asked, days=7)
        step = asked.get("step") or ("hour" if period.days <= _HOURLY_DAYS else "day")
        if step not in STEPS:
            raise BadQuery(f"step is one of {', '.join(STEPS)}")
        found = await self.hourly_stats.load_series(period, "hour" if step == "hour" else "day")
        return Series(from_=period.first, to=period.last, timezone=period.zone, step=step, **found)
