"""Figures by hour and day, from the rows that `db/hour_counts.py` maintains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import Any, Literal, get_args
from zoneinfo import ZoneInfo

from shared.adapters.postgres.dashboard.session_list import BadQuery
from shared.adapters.postgres.db.page_read import read_page
from shared.adapters.postgres.db.pool import Named, Pool, PoolStore
from shared.core.ops.latency import quantile

MOST_DAYS = 366
"""Maximum days of a period."""
MOST_HOURS = 31 * 24
"""Maximum hours of a series by the hour."""
Step = Literal["hour", "day"]
"""Length of one step of a series."""
STEPS: tuple[Step, ...] = get_args(Step)
"""All lengths of steps."""
SUMS = (
    "messages", "answers", "errors", "calls", "unknown_calls", "cost_micro", "input_tokens",
    "cache_read_tokens", "cache_write_tokens", "output_tokens", "summaries", "handovers",
)  # fmt: skip
"""Figures of an hour that are summed over a period."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """Time from `start` to before `end`; its days are those of the time zone `zone`, an IANA name.

    Raises BadQuery if it is empty or longer than MOST_DAYS.
    """

    start: datetime
    end: datetime
    zone: str

    def __post_init__(self) -> None:
        if self.start >= self.end:
            raise BadQuery("from lies after to")
        if self.last - self.first >= timedelta(days=MOST_DAYS):
            raise BadQuery(f"a period has at most {MOST_DAYS} days")

    @classmethod
    def from_days(cls, first: date, last: date, zone: str) -> Period:
        """Return the period of whole days from `first` to `last`, inclusive.

        Raises BadQuery if `first` is later, or if it is longer than MOST_DAYS.
        """
        if first > last:
            raise BadQuery("from lies after to")
        return cls(start=_midnight(first, zone), end=_midnight(last + timedelta(days=1), zone), zone=zone)

    @property
    def first(self) -> date:
        """First day of the period in its time zone."""
        return self.start.astimezone(ZoneInfo(self.zone)).date()

    @property
    def last(self) -> date:
        """Last day of the period in its time zone, inclusive."""
        return (self.end - timedelta(microseconds=1)).astimezone(ZoneInfo(self.zone)).date()

    @property
    def days(self) -> float:
        """Number of days, a fraction if the period does not begin at midnight.

        A day with a change of clocks counts as one.
        """
        whole = self.start == _midnight(self.first, self.zone)
        return (self.last - self.first).days + 1 if whole else (self.end - self.start) / timedelta(days=1)

    def shift_back(self) -> Period:
        """Return the period of the same number of days that ends where this one begins."""
        if self.start == _midnight(self.first, self.zone):
            length = timedelta(days=self.days)
            return Period.from_days(self.first - length, self.first - timedelta(days=1), self.zone)
        return Period(start=self.start - (self.end - self.start), end=self.start, zone=self.zone)


def _midnight(day: date, zone: str) -> datetime:
    return datetime.combine(day, time(), ZoneInfo(zone))


class PostgresHourlyStats(PoolStore):
    """Read-only queries of the hourly figures. They raise StorageUnavailable."""

    def __init__(self, pool: Pool, *, timezone: str = "UTC") -> None:
        super().__init__(pool)
        self._timezone = timezone

    async def load_series(self, period: Period, step: Step) -> dict[str, Any]:
        """Return `{steps: […], total, before, counted_at, since}` of a period.

        `steps` has figures of each hour or day, in order; `people` in `total` is the average per day.
        `before` is the total of the preceding period, None if that was not counted in full. `counted_at` is
        when figures were last counted, and `since` the first counted hour. Raises BadQuery for more than 31
        days by the hour.
        """
        if step == "hour" and period.end - period.start > timedelta(hours=MOST_HOURS + 1):
            raise BadQuery(f"by the hour a period has at most {MOST_HOURS // 24} days")
        found, former = await self._read(period, step), period.shift_back()
        counted = found["since"] is not None and datetime.fromisoformat(found["since"]) <= former.start
        before = (await self._read(former, "day"))["steps"] if counted else None
        return {
            **found,
            "steps": [
                _build_totals(one, one["people" if step == "hour" else "new_today"]) for one in found["steps"]
            ],
            "total": _sum_up(found["steps"], period),
            "before": None if before is None else _sum_up(before, former),
        }

    async def _read(self, period: Period, step: Step) -> Any:
        series = _SERIES[step](zone=self._timezone, start=period.start, end=period.end)
        return await read_page(self._pool, *series)


def _sum_up(steps: Sequence[Mapping[str, Any]], period: Period) -> dict[str, Any]:
    """Return the totals of all steps; `people` is the average per day."""
    sums = {name: sum(one[name] for one in steps) for name in SUMS}
    filled = [one["first_tokens"] for one in steps if one["first_tokens"]]
    kinds = {kind for one in steps for kind in one["jobs"]}
    jobs = {
        kind: [sum(one["jobs"].get(kind, (0, 0))[at] for one in steps) for at in (0, 1)] for kind in kinds
    }
    whole = {**sums, "first_tokens": [sum(column) for column in zip(*filled, strict=True)], "jobs": jobs}
    return _build_totals(whole, sum(one["new_today"] for one in steps) / period.days)


def _build_totals(sums: Mapping[str, Any], people: float) -> dict[str, Any]:
    told = {name: value for name, value in sums.items() if name not in ("first_tokens", "new_today")}
    quantiles = {
        f"first_token_p{share}_ms": quantile(sums["first_tokens"], share / 100) for share in (50, 95)
    }
    return {**told, "people": people, **quantiles}


_DAYS = """generate_series(date_trunc('day', :start::timestamptz AT TIME ZONE :zone),
    (:end::timestamptz AT TIME ZONE :zone) - interval '1 us', interval '1 day') AS d(day),
  LATERAL (SELECT d.day AT TIME ZONE :zone) AS s(at)"""
_HOURS = """generate_series(date_trunc('hour', :start::timestamptz, :zone),
    :end::timestamptz - interval '1 us', interval '1 hour') AS s(at)"""
_EACH = """
WITH w AS MATERIALIZED (
  SELECT *, {at} AS at FROM hourly_stats
   WHERE hour >= :start::timestamptz AND hour < :end::timestamptz AND zone = :zone
), f AS (
  SELECT at, json_agg(n ORDER BY place) AS counts FROM (
    SELECT w.at, b.place, sum(b.n) AS n FROM w, unnest(w.first_tokens) WITH ORDINALITY b(n, place)
     GROUP BY 1, 2) x GROUP BY 1
), j AS (
  SELECT at, json_object_agg(kind, json_build_array(done, failed)) AS kinds FROM (
    SELECT w.at, k.key AS kind, sum((k.value ->> 0)::bigint) AS done, sum((k.value ->> 1)::bigint) AS failed
      FROM w, jsonb_each(w.jobs) k GROUP BY 1, 2) x GROUP BY 1
), g AS (SELECT at, {sums} FROM w GROUP BY 1)
SELECT json_build_object(
  'counted_at', (SELECT max(counted_at) FROM hourly_stats WHERE zone = :zone),
  'since', (SELECT min(hour) FROM hourly_stats WHERE zone = :zone),
  'steps', (SELECT json_agg(json_build_object('at', s.at, {told},
              'first_tokens', coalesce(f.counts, '[]'::json), 'jobs', coalesce(j.kinds, '{{}}'::json))
              ORDER BY s.at)
              FROM {steps} LEFT JOIN g ON g.at = s.at LEFT JOIN f ON f.at = s.at
              LEFT JOIN j ON j.at = s.at))::text
"""
_SUMMED = (*SUMS, "people", "new_today")


def _each(at: str, steps: str) -> Named:
    sums = ", ".join(f"sum({name})::bigint AS {name}" for name in _SUMMED)
    told = ", ".join(f"'{name}', coalesce(g.{name}, 0)" for name in _SUMMED)
    return Named(_EACH.format(at=at, steps=steps, sums=sums, told=told))


_SERIES: Mapping[Step, Named] = {
    "day": _each("date_trunc('day', hour, :zone)", _DAYS),
    "hour": _each(
        "date_bin(interval '1 hour', hour, date_trunc('hour', :start::timestamptz, :zone))", _HOURS
    ),
}
