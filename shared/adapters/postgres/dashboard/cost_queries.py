"""What was spent on whom, and what was saved: each page is one statement over the ledger."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any, Literal, get_args

from shared.adapters.postgres.dashboard.session_list import BadQuery
from shared.adapters.postgres.db.page_read import read_page
from shared.adapters.postgres.db.store import Pool

Group = Literal["model", "day", "agent", "person", "purpose"]
GROUPS: tuple[Group, ...] = get_args(Group)
MOST_ROWS = 200
MOST_DAYS = 366

_KEYS = {
    "model": ("u.model", "u.model", ""),
    "day": ("u.day::text", "u.day::text", ""),
    "purpose": ("u.purpose", "u.purpose", ""),
    "agent": (
        "a.name",
        "a.name",
        "LEFT JOIN sessions s ON s.id = u.session_id LEFT JOIN agents a ON a.id = s.agent_id",
    ),
    "person": ("p.public_id::text", "nullif(p.display_name, '')", "LEFT JOIN parties p ON p.id = u.party_id"),
}
_SUMS = """count(*) AS calls, sum(input_tokens)::bigint AS input_tokens,
  sum(output_tokens)::bigint AS output_tokens,
  sum(cache_read_tokens)::bigint AS cache_read_tokens, sum(cache_write_tokens)::bigint AS cache_write_tokens,
  CASE WHEN count(*) = 0 THEN 0 ELSE sum(cost_micro) END::bigint AS cost_micro,
  count(*) FILTER (WHERE cost_micro IS NULL) AS unknown_calls,
  count(*) FILTER (WHERE NOT known) AS uncounted_calls,
  (sum(cache_read_tokens) * 100.0
    / nullif(sum(input_tokens + cache_read_tokens + cache_write_tokens), 0))::float8 AS cache_hit_pct"""
_SUMS_OF_DAY = _SUMS.replace("count(*)", "count(u.id)").replace("NOT known", "NOT u.known")
"""A day without any call has a row of the calendar only."""
_LEDGER = """
SELECT u.id, u.session_id, u.party_id, u.model, u.purpose, u.known, u.input_tokens, u.output_tokens,
       u.cache_read_tokens, u.cache_write_tokens, u.cost_micro, (u.at AT TIME ZONE $1)::date AS day
  FROM usage u
 WHERE u.at >= $2::date::timestamp AT TIME ZONE $1 AND u.at < ($3::date + 1)::timestamp AT TIME ZONE $1"""
COSTS = f"""
WITH u AS MATERIALIZED ({_LEDGER}),
g AS (SELECT {{key}} AS key, max({{label}}) AS label, {_SUMS} FROM u {{joined}} GROUP BY 1),
shown AS (SELECT * FROM g ORDER BY {{order}} LIMIT $4),
d AS (SELECT x.day::date AS day, {_SUMS_OF_DAY}
        FROM generate_series($2::date, $3::date, interval '1 day') x(day) LEFT JOIN u ON u.day = x.day::date
       GROUP BY 1)
SELECT json_build_object(
  'total', (SELECT row_to_json(t) FROM (SELECT {_SUMS} FROM u) t),
  'groups', (SELECT count(*) FROM g),
  'rows', coalesce((SELECT json_agg(shown ORDER BY {{order}}) FROM shown), '[]'::json),
  'days', coalesce((SELECT json_agg(json_build_object('day', d.day, 'calls', d.calls,
      'cost_micro', d.cost_micro, 'unknown_calls', d.unknown_calls) ORDER BY d.day) FROM d), '[]'::json),
  'models', coalesce((SELECT json_agg(DISTINCT u.model) FROM u), '[]'::json))::text
"""
SAVED = f"""
WITH u AS MATERIALIZED ({_LEDGER}),
c AS (
  SELECT c.model_alias AS model, (c.created_at AT TIME ZONE $1)::date AS day, count(*) AS turns,
         sum(greatest(0, l.tokens_before - l.tokens_after))::bigint AS tokens
    FROM turn_context_audit c JOIN links l ON l.id = c.head
   WHERE c.created_at >= $2::date::timestamp AT TIME ZONE $1
     AND c.created_at < ($3::date + 1)::timestamp AT TIME ZONE $1
     AND l.kind IN ('summary', 'digest') AND NOT c.overflow_rejected
   GROUP BY 1, 2)
SELECT json_build_object(
  'cached', coalesce((SELECT json_agg(x) FROM (SELECT model, day, sum(input_tokens)::bigint AS input_tokens,
      sum(output_tokens)::bigint AS output_tokens, sum(cache_read_tokens)::bigint AS cache_read_tokens,
      sum(cache_write_tokens)::bigint AS cache_write_tokens, sum(cost_micro)::bigint AS cost_micro
    FROM u WHERE known AND cost_micro IS NOT NULL GROUP BY 1, 2) x), '[]'::json),
  'read_tokens', (SELECT coalesce(sum(cache_read_tokens), 0) FROM u),
  'uncounted_calls', (SELECT count(*) FROM u WHERE cost_micro IS NULL OR NOT known),
  'compacted', coalesce((SELECT json_agg(c) FROM c), '[]'::json),
  'summaries_micro', (SELECT coalesce(sum(cost_micro), 0) FROM u WHERE purpose = 'compact'),
  'summaries_unknown', (SELECT count(*) FROM u WHERE purpose = 'compact' AND cost_micro IS NULL))::text
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """Whole days of the installation's time zone, the last one included."""

    first: date
    last: date

    def __post_init__(self) -> None:
        if self.first > self.last:
            raise BadQuery("from lies after to")
        if self.last - self.first >= timedelta(days=MOST_DAYS):
            raise BadQuery(f"a period has at most {MOST_DAYS} days")


class CostInsights:
    """Reads only. A price that nobody knows is null; so is a sum of nothing but such prices."""

    def __init__(self, pool: Pool, *, timezone: str = "UTC") -> None:
        self._pool = pool
        self._timezone = timezone

    async def costs(self, group: str, period: Period, *, most: int = MOST_ROWS) -> dict[str, Any]:
        """Sums by a group, the dearest first (days in their order), by day, and of all; raises BadQuery."""
        if group not in _KEYS:
            raise BadQuery(f"group is one of {', '.join(GROUPS)}")
        key, label, joined = _KEYS[group]
        order = "key" if group == "day" else "cost_micro DESC NULLS LAST, calls DESC, key"
        statement = COSTS.format(key=key, label=label, joined=joined, order=order)
        found: dict[str, Any] = await self._read(statement, period, most)
        return found

    async def saved(self, period: Period) -> dict[str, Any]:
        """What `core/savings.py` computes with: tokens by model and day, and what summaries cost."""
        found: dict[str, Any] = await self._read(SAVED, period)
        return found

    async def _read(self, statement: str, period: Period, *more: object) -> Any:
        given = (self._timezone, period.first, period.last, *more)
        return await read_page(self._pool, statement, *given)
