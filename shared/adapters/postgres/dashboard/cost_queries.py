"""Queries of costs and savings, each one statement over the ledger; also the store of playground costs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

from shared.adapters.postgres.dashboard.hourly_stats import Period
from shared.adapters.postgres.dashboard.session_list import BadQuery
from shared.adapters.postgres.db.connecting import connect
from shared.adapters.postgres.db.page_read import read_page
from shared.adapters.postgres.db.pool import Named, PoolStore, store_method
from shared.adapters.postgres.turns import spend_sql
from shared.adapters.postgres.turns.turns import build_usage_rows, find_reached_cap
from shared.core.session.turns import Caps, Spending

Group = Literal["model", "day", "agent", "person", "purpose"]
"""Name by which costs are summed."""
GROUPS: tuple[Group, ...] = get_args(Group)
"""All names by which costs can be summed."""
MOST_ROWS = 200
"""Maximum groups of a costs page."""

_KEYS = {
    "model": ("u.model", "u.model", ""),
    "day": ("u.day::text", "u.day::text", ""),
    "purpose": ("u.purpose", "u.purpose", ""),
    "agent": (
        "a.name",
        "a.name",
        "LEFT JOIN sessions s ON s.id = u.session_id LEFT JOIN agents a ON a.id = s.agent_id",
    ),
    "person": (
        "p.public_id::text",
        "nullif(p.display_name, '')",
        """LEFT JOIN contacts o ON o.id = u.contact_id
           LEFT JOIN contacts p ON p.id = coalesce(o.merged_into, o.id)""",
    ),
}
COSTS = """
WITH u AS MATERIALIZED (
  SELECT u.id, u.session_id, u.contact_id, u.model, u.purpose, u.known, u.input_tokens, u.output_tokens,
         u.cache_read_tokens, u.cache_write_tokens, u.cost_micro, (u.at AT TIME ZONE :zone)::date AS day
    FROM usage u WHERE u.at >= :start::timestamptz AND u.at < :end::timestamptz
), g AS (
  SELECT {key} AS key, max({label}) AS label{more},
         count(*) AS calls, sum(input_tokens)::bigint AS input_tokens,
         sum(output_tokens)::bigint AS output_tokens, sum(cache_read_tokens)::bigint AS cache_read_tokens,
         sum(cache_write_tokens)::bigint AS cache_write_tokens,
         CASE WHEN count(*) = 0 THEN 0 ELSE sum(cost_micro) END::bigint AS cost_micro,
         count(*) FILTER (WHERE cost_micro IS NULL) AS unknown_calls,
         count(*) FILTER (WHERE NOT known) AS uncounted_calls,
         (sum(cache_read_tokens) * 100.0
           / nullif(sum(input_tokens + cache_read_tokens + cache_write_tokens), 0))::float8
           AS cache_hit_pct
    FROM u {joined} GROUP BY 1
), shown AS (
  SELECT * FROM g ORDER BY {order} LIMIT :limit
)
SELECT json_build_object(
  'total', (SELECT row_to_json(t) FROM (
     SELECT count(*) AS calls, sum(input_tokens)::bigint AS input_tokens,
            sum(output_tokens)::bigint AS output_tokens, sum(cache_read_tokens)::bigint AS cache_read_tokens,
            sum(cache_write_tokens)::bigint AS cache_write_tokens,
            CASE WHEN count(*) = 0 THEN 0 ELSE sum(cost_micro) END::bigint AS cost_micro,
            count(*) FILTER (WHERE cost_micro IS NULL) AS unknown_calls,
            count(*) FILTER (WHERE NOT known) AS uncounted_calls,
            (sum(cache_read_tokens) * 100.0
              / nullif(sum(input_tokens + cache_read_tokens + cache_write_tokens), 0))::float8
              AS cache_hit_pct
       FROM u) t),
  'groups', (SELECT count(*) FROM g),
  'rows', coalesce((SELECT json_agg(shown ORDER BY {order}) FROM shown), '[]'::json),
  'models', coalesce((SELECT json_agg(DISTINCT u.model) FROM u), '[]'::json))::text
"""
"""Template of the costs page as JSON: total, number of groups, at most `limit` groups, and models.

Its slots are SQL: `key` and `label` of a group, `more` columns, `joined` tables and `order`.
"""
SAVED = Named("""
WITH u AS MATERIALIZED (
  SELECT u.id, u.session_id, u.contact_id, u.model, u.purpose, u.known, u.input_tokens, u.output_tokens,
         u.cache_read_tokens, u.cache_write_tokens, u.cost_micro, (u.at AT TIME ZONE :zone)::date AS day
    FROM usage u WHERE u.at >= :start::timestamptz AND u.at < :end::timestamptz
), c AS (
  SELECT c.model_alias AS model, (c.created_at AT TIME ZONE :zone)::date AS day, count(*) AS turns,
         sum(greatest(0, l.tokens_before - l.tokens_after))::bigint AS tokens
    FROM turn_context_audit c JOIN compactions l ON l.id = c.head
   WHERE c.created_at >= :start::timestamptz AND c.created_at < :end::timestamptz
     AND l.kind IN ('summary', 'digest') AND NOT c.overflow_rejected
   GROUP BY 1, 2
)
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
""")
"""Savings by caches and compactions in a period, with the cost of summaries, as JSON."""


class CostInsights(PoolStore):
    """Read-only queries of costs in micro-dollars; a sum is None if all its prices are unknown.

    They raise StorageUnavailable.
    """

    async def load_costs(self, group: str, period: Period, *, most: int = MOST_ROWS) -> dict[str, Any]:
        """Return `{total, groups, rows, models}` of the calls of a period, summed by `group` and in total.

        `rows` has at most `most` of the `groups` groups, the most expensive first, days in order. Raises
        BadQuery for an unknown group.
        """
        if group not in _KEYS:
            raise BadQuery(f"group is one of {', '.join(GROUPS)}")
        key, label, joined = _KEYS[group]
        order = "key" if group == "day" else "cost_micro DESC NULLS LAST, calls DESC, key"
        more = ", max(p.kind) AS kind, bool_or(p.anonymous) AS anonymous" if group == "person" else ""
        statement = Named(COSTS.format(key=key, label=label, more=more, joined=joined, order=order))
        found: dict[str, Any] = await self._read(statement, period, limit=most)
        return found

    async def load_savings(self, period: Period) -> dict[str, Any]:
        """Return cached and hidden tokens by model and day, and the cost of summaries, in a period.

        `core/ops/savings.py` computes savings from them.
        """
        found: dict[str, Any] = await self._read(SAVED, period)
        return found

    async def _read(self, statement: Named, period: Period, **more: object) -> Any:
        page = statement(zone=period.zone, start=period.start, end=period.end, **more)
        return await read_page(self._pool, *page)


_TODAY = Named("""
SELECT coalesce(max(spent_micro) FILTER (WHERE scope = 'total'), 0)
         + spent_of_open_slices((now() AT TIME ZONE :timezone)::date) AS used,
       count(*) FILTER (WHERE scope ~ '^(contact|session):' AND warned_at IS NOT NULL) AS warned
  FROM spend_days WHERE day = (now() AT TIME ZONE :timezone)::date
""")


async def load_spent_today(database_url: str, *, timezone: str) -> tuple[int, int]:
    """Return (micro-dollars spent today, number of people and conversations near a cap).

    What is only reserved does not count. The day is that of `timezone`. Raises StorageUnavailable and
    exceptions of asyncpg.
    """
    connection = await connect(database_url)
    try:
        row = await connection.fetchrow(*_TODAY(timezone=timezone), timeout=10)
    finally:
        await connection.close(timeout=5)
    assert row is not None
    return row["used"], row["warned"]


class PostgresPlayground(PoolStore):
    """Store of costs outside of conversations, such as those of the dashboard's playground.

    Each method is one transaction and raises StorageUnavailable.
    """

    @store_method
    async def reserve(
        self, session_id: int, micro: int, *, caps: Caps, turn: int | None = None, job_id: int | None = None
    ) -> int | None:
        """Reserve `micro` micro-dollars under the deployment's cap; return the reservation's id.

        Returns None if no cap applies. `session_id`, `turn` and `job_id` are ignored. Raises CapReached.
        """
        row = await self._pool.fetchrow(
            *spend_sql.RESERVE(
                session_id=None,
                micro=micro,
                timezone=caps.timezone,
                limits=caps.limits,
                turn=None,
                job_id=None,
            )
        )
        assert row is not None
        if row["shortages"]:
            raise find_reached_cap(row["shortages"], caps)
        reservation_id: int | None = row["id"]
        return reservation_id

    @store_method
    async def release_reservation(self, reservation_id: int, *, spent_micro: int = 0) -> None:
        """End a reservation; `spent_micro` micro-dollars of it were used. Repeating it has no effect."""
        await self._pool.execute(
            *spend_sql.RELEASE_RESERVATION(
                reservation_id=reservation_id,
                spent_micro=spent_micro,
            )
        )

    @store_method
    async def record_playground(self, spent: Sequence[Spending]) -> None:
        """Insert the calls into the ledger under the purpose `playground`."""
        await self._pool.execute(*_PLAYED(spent=build_usage_rows(spent)))


_PLAYED = Named("""
INSERT INTO usage (session_id, contact_id, purpose, status, model, input_tokens, output_tokens,
                   cache_read_tokens, cache_write_tokens, known, cost_micro, request_id)
SELECT 0, 0, 'playground', x.status, x.model, x.input_tokens, x.output_tokens,
       x.cache_read_tokens, x.cache_write_tokens, x.known, x.cost_micro, x.request_id
  FROM jsonb_to_recordset(:spent::jsonb) AS
       x(status text, model text, input_tokens bigint, output_tokens bigint, cache_read_tokens bigint,
         cache_write_tokens bigint, known bool, cost_micro bigint, request_id text)
""")
"""Insert calls of the playground into the ledger; they belong to no conversation."""
