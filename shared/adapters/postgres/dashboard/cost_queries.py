"""What was spent on whom, and what was saved: each page is one statement over the ledger."""

from __future__ import annotations

from typing import Any, Literal, get_args

from shared.adapters.postgres.dashboard.hourly_stats import Period
from shared.adapters.postgres.dashboard.session_list import BadQuery
from shared.adapters.postgres.db.connecting import connect
from shared.adapters.postgres.db.page_read import read_page
from shared.adapters.postgres.db.store import PoolStore
from shared.adapters.postgres.turns.slice_sql import SPENT_OF_OPEN

Group = Literal["model", "day", "agent", "person", "purpose"]
GROUPS: tuple[Group, ...] = get_args(Group)
MOST_ROWS = 200

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
_LEDGER = """
SELECT u.id, u.session_id, u.party_id, u.model, u.purpose, u.known, u.input_tokens, u.output_tokens,
       u.cache_read_tokens, u.cache_write_tokens, u.cost_micro, (u.at AT TIME ZONE $1)::date AS day
  FROM usage u
 WHERE u.at >= $2::timestamptz AND u.at < $3::timestamptz"""
COSTS = f"""
WITH u AS MATERIALIZED ({_LEDGER}),
g AS (SELECT {{key}} AS key, max({{label}}) AS label, {_SUMS} FROM u {{joined}} GROUP BY 1),
shown AS (SELECT * FROM g ORDER BY {{order}} LIMIT $4)
SELECT json_build_object(
  'total', (SELECT row_to_json(t) FROM (SELECT {_SUMS} FROM u) t),
  'groups', (SELECT count(*) FROM g),
  'rows', coalesce((SELECT json_agg(shown ORDER BY {{order}}) FROM shown), '[]'::json),
  'models', coalesce((SELECT json_agg(DISTINCT u.model) FROM u), '[]'::json))::text
"""
SAVED = f"""
WITH u AS MATERIALIZED ({_LEDGER}),
c AS (
  SELECT c.model_alias AS model, (c.created_at AT TIME ZONE $1)::date AS day, count(*) AS turns,
         sum(greatest(0, l.tokens_before - l.tokens_after))::bigint AS tokens
    FROM turn_context_audit c JOIN links l ON l.id = c.head
   WHERE c.created_at >= $2::timestamptz AND c.created_at < $3::timestamptz
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


class CostInsights(PoolStore):
    """Reads only. A price that nobody knows is null; so is a sum of nothing but such prices."""

    async def costs(self, group: str, period: Period, *, most: int = MOST_ROWS) -> dict[str, Any]:
        """Sums by a group, the dearest first (days in their order), and of all; raises BadQuery."""
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
        given = (period.zone, period.start, period.end, *more)
        return await read_page(self._pool, statement, *given)


_TODAY = f"""
SELECT coalesce(max(spent_micro) FILTER (WHERE scope = 'total'), 0)
         + {SPENT_OF_OPEN.format(day="(now() AT TIME ZONE $1)::date")} AS used,
       count(*) FILTER (WHERE scope ~ '^(party|session):' AND warned_at IS NOT NULL) AS warned
  FROM spend_days WHERE day = (now() AT TIME ZONE $1)::date
"""


async def spent_today(database_url: str, *, timezone: str) -> tuple[int, int]:
    """Micro-dollars under the total cap, and how many people and conversations came near caps of theirs."""
    connection = await connect(database_url)
    try:
        row = await connection.fetchrow(_TODAY, timezone, timeout=10)
    finally:
        await connection.close(timeout=5)
    assert row is not None
    return row["used"], row["warned"]
