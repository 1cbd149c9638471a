"""Numbers by the hour: counted by a worker from the tables that they are about, read by the dashboard.

A row is counted as a whole, so that counting twice is counting once: the hour that runs and the one before
it in every look, each hour once more three and 49 hours after it ended, for answers that came late. What
happened to an hour after that is not in its row, nor does a row lose what an erasure or the retention takes
away. Messages, people, answers, errors and first tokens are of the hour in which the person wrote; the rest
is of when it happened.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import Any, Literal, get_args
from zoneinfo import ZoneInfo

from shared.adapters.postgres.dashboard.session_list import BadQuery
from shared.adapters.postgres.db.page_read import read_page
from shared.adapters.postgres.db.pool import Pool, store_method
from shared.core.ops.latency import BUCKETS, LEAST_MS, MOST_MS, quantile

AT_ONCE = 24
"""Hours of one look: a year is counted in some minutes, and nobody waits for it."""
MOST_DAYS = 366
MOST_HOURS = 31 * 24
Step = Literal["hour", "day"]
STEPS: tuple[Step, ...] = get_args(Step)
SUMS = (
    "messages", "answers", "errors", "calls", "unknown_calls", "cost_micro", "input_tokens",
    "cache_read_tokens", "cache_write_tokens", "output_tokens", "summaries", "handovers",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """From a moment up to another; days are those of a time zone."""

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
        """Whole days, the last one included."""
        if first > last:
            raise BadQuery("from lies after to")
        return cls(start=_midnight(first, zone), end=_midnight(last + timedelta(days=1), zone), zone=zone)

    @property
    def first(self) -> date:
        return self.start.astimezone(ZoneInfo(self.zone)).date()

    @property
    def last(self) -> date:
        return (self.end - timedelta(microseconds=1)).astimezone(ZoneInfo(self.zone)).date()

    @property
    def days(self) -> float:
        """How many; a day on which the clocks change is one."""
        whole = self.start == _midnight(self.first, self.zone)
        return (self.last - self.first).days + 1 if whole else (self.end - self.start) / timedelta(days=1)

    def shift_back(self) -> Period:
        """As long, and just before it."""
        if self.start == _midnight(self.first, self.zone):
            length = timedelta(days=self.days)
            return Period.from_days(self.first - length, self.first - timedelta(days=1), self.zone)
        return Period(start=self.start - (self.end - self.start), end=self.start, zone=self.zone)


def _midnight(day: date, zone: str) -> datetime:
    return datetime.combine(day, time(), ZoneInfo(zone))


class PostgresHourlyStats:
    """Raises StorageUnavailable."""

    def __init__(self, pool: Pool, *, timezone: str = "UTC") -> None:
        self._pool = pool
        self._timezone = timezone

    @store_method
    async def catch_up(self) -> bool:
        """Counts what is not counted yet, the newest first; whether there may be more."""
        async with self._pool.acquire() as connection, connection.transaction():
            if not await connection.fetchval(_ALONE):
                return False
            await connection.execute("DELETE FROM hourly_stats WHERE zone <> $1", self._timezone)
            hours = [row["hour"] for row in await connection.fetch(_TO_COUNT, self._timezone)]
            for hour in hours:
                await connection.execute(_COUNT, self._timezone, hour)
        return len(hours) >= AT_ONCE

    async def load_series(self, period: Period, step: Step) -> dict[str, Any]:
        """`{steps: […], total, before, counted_at, since}`; `before` is the total of the period before, null
        where that was not counted from its beginning. Raises BadQuery.
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
        given = (self._timezone, period.start, period.end)
        return await read_page(self._pool, _SERIES[step], *given)


def _sum_up(steps: Sequence[Mapping[str, Any]], period: Period) -> dict[str, Any]:
    """`people` is their number on a day, on average."""
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


_ALONE = "SELECT pg_try_advisory_xact_lock(hashtext('evertalk.hourly_stats'))"
_KEPT = "interval '24 months'"
"""How long the ledger is kept: what is older cannot be counted."""
_TO_COUNT = f"""
WITH hours AS (
  SELECT DISTINCT date_trunc('hour', x, $1) AS hour FROM generate_series(greatest(now() - {_KEPT}, least(
           now(), (SELECT created_at FROM sessions ORDER BY id LIMIT 1),
           (SELECT at FROM usage ORDER BY id LIMIT 1),
           (SELECT opened_at FROM turns ORDER BY session_id, turn_no LIMIT 1))),
         now() + interval '1 hour', interval '1 hour') x
   WHERE date_trunc('hour', x, $1) <= now()
)
SELECT hour FROM hours h WHERE hour > now() - interval '2 hours'
    OR NOT EXISTS (SELECT FROM hourly_stats n WHERE n.hour = h.hour)
    OR EXISTS (SELECT FROM hourly_stats n JOIN (VALUES (interval '4 h'), (interval '50 h')) again(age)
                     ON n.counted_at < n.hour + again.age AND now() >= n.hour + again.age
                WHERE n.hour = h.hour)
 ORDER BY hour DESC LIMIT {AT_ONCE}
"""
_BUCKET = f"width_bucket(ln(greatest(first_token_ms, 1)), ln({LEAST_MS}), ln({MOST_MS}), {BUCKETS})"
_LEDGER = "cost_micro", "input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens"
_COUNTED = (
    "counted_at", "messages", "people", "new_today", "answers", "errors", "first_tokens", "calls",
    "unknown_calls", *_LEDGER, "summaries", "handovers", "jobs",
)  # fmt: skip
_SAID = """JOIN sessions s ON s.id = t.session_id
  JOIN turn_entries te ON te.session_id = t.session_id AND te.turn_no = t.turn_no
  JOIN entry_rows e ON e.session_id = te.session_id AND e.seq = te.seq AND e.author = 'person'"""
_OF_HOUR = "{0} >= $2 AND {0} < $2 + interval '1 hour'"
_COUNT = f"""
WITH t AS MATERIALIZED (
  SELECT session_id, turn_no, state, error_code, first_token_ms FROM turns
   WHERE {_OF_HOUR.format("opened_at")}
), said AS MATERIALIZED (
  SELECT s.party_id, count(*) AS messages FROM t {_SAID} GROUP BY 1
), earlier AS (
  SELECT DISTINCT s.party_id FROM turns t {_SAID}
   WHERE t.opened_at >= date_trunc('day', $2::timestamptz, $1) AND t.opened_at < $2
     AND s.party_id IN (SELECT party_id FROM said)
), u AS (
  SELECT count(*), count(*) FILTER (WHERE cost_micro IS NULL),
         {", ".join(f"coalesce(sum({name}), 0)::bigint" for name in _LEDGER)}
    FROM usage WHERE {_OF_HOUR.format("at")}
), b AS (SELECT {_BUCKET} AS bucket, count(*)::int AS n FROM t WHERE first_token_ms IS NOT NULL GROUP BY 1
), j AS (
  SELECT kind, count(*) FILTER (WHERE state = 'done') AS done,
         count(*) FILTER (WHERE state = 'dead') AS failed
    FROM (SELECT kind, state FROM jobs WHERE state = 'done' AND {_OF_HOUR.format("ended_at")}
          UNION ALL SELECT kind, state FROM jobs WHERE state = 'dead' AND NOT outcome ? 'cancelled'
             AND last_error <> '' AND {_OF_HOUR.format("ended_at")}) x GROUP BY 1
)
INSERT INTO hourly_stats (zone, hour, {", ".join(_COUNTED)})
SELECT $1, $2, now(), (SELECT coalesce(sum(messages), 0) FROM said), (SELECT count(*) FROM said),
       (SELECT count(*) FROM said WHERE party_id NOT IN (SELECT party_id FROM earlier)),
       (SELECT count(*) FROM t WHERE state = 'answered' AND error_code IS NULL),
       (SELECT count(*) FROM t WHERE state = 'failed' AND error_code IS DISTINCT FROM 'erased'),
       coalesce((SELECT array_agg(coalesce(n, 0) ORDER BY x.bucket)
          FROM generate_series(0, {BUCKETS + 1}) x(bucket) LEFT JOIN b ON b.bucket = x.bucket
         WHERE EXISTS (SELECT FROM b)), '{{}}'),
       u.*, (SELECT count(*) FROM links
              WHERE kind IN ('summary', 'digest') AND {_OF_HOUR.format("created_at")}),
       (SELECT count(*) FROM handovers WHERE {_OF_HOUR.format("asked_at")}),
       coalesce((SELECT jsonb_object_agg(kind, jsonb_build_array(done, failed)) FROM j), '{{}}')
  FROM u
ON CONFLICT (hour) DO UPDATE SET ({", ".join(_COUNTED)})
   = ROW({", ".join(f"excluded.{name}" for name in _COUNTED)})
"""
_DAYS = """generate_series(date_trunc('day', $2::timestamptz AT TIME ZONE $1),
    ($3::timestamptz AT TIME ZONE $1) - interval '1 us', interval '1 day') AS d(day),
  LATERAL (SELECT d.day AT TIME ZONE $1) AS s(at)"""
_HOURS = """generate_series(date_trunc('hour', $2::timestamptz, $1), $3::timestamptz - interval '1 us',
    interval '1 hour') AS s(at)"""
_EACH = """
WITH w AS MATERIALIZED (
  SELECT *, {at} AS at FROM hourly_stats
   WHERE hour >= $2::timestamptz AND hour < $3::timestamptz AND zone = $1
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
  'counted_at', (SELECT max(counted_at) FROM hourly_stats WHERE zone = $1),
  'since', (SELECT min(hour) FROM hourly_stats WHERE zone = $1),
  'steps', (SELECT json_agg(json_build_object('at', s.at, {told},
              'first_tokens', coalesce(f.counts, '[]'::json), 'jobs', coalesce(j.kinds, '{{}}'::json))
              ORDER BY s.at)
              FROM {steps} LEFT JOIN g ON g.at = s.at LEFT JOIN f ON f.at = s.at
              LEFT JOIN j ON j.at = s.at))::text
"""
_SUMMED = (*SUMS, "people", "new_today")


def _each(at: str, steps: str) -> str:
    sums = ", ".join(f"sum({name})::bigint AS {name}" for name in _SUMMED)
    told = ", ".join(f"'{name}', coalesce(g.{name}, 0)" for name in _SUMMED)
    return _EACH.format(at=at, steps=steps, sums=sums, told=told)


_SERIES: Mapping[Step, str] = {
    "day": _each("date_trunc('day', hour, $1)", _DAYS),
    "hour": _each("date_bin(interval '1 hour', hour, date_trunc('hour', $2::timestamptz, $1))", _HOURS),
}
