"""Figures of one conversation for the people in it, read in one statement."""

from __future__ import annotations

import asyncpg

from shared.adapters.postgres.db.pool import Named, PoolStore, store_method
from shared.core.ops.session_stats import DaySpending, ScopeSpending, SessionFigures
from shared.core.session.turns import Caps
from shared.core.values.errors import UnknownSession


class PostgresSessionStats(PoolStore):
    """Read-only queries of a session's figures. They raise StorageUnavailable."""

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record], *, timezone: str = "UTC") -> None:
        super().__init__(pool)
        self._timezone = timezone

    @store_method
    async def load_stats(self, session_id: int) -> SessionFigures:
        """Return figures for the whole life of a session: turns, tokens, and costs in micro-dollars.

        A cost is None if the price of one of its calls is unknown. Today's cost begins at midnight in the
        time zone of this object. Raises UnknownSession.
        """
        row = await self._pool.fetchrow(*_FIGURES(session_id=session_id, timezone=self._timezone))
        if row is None:
            raise UnknownSession(f"session {session_id}")
        return SessionFigures(**dict(row))

    @store_method
    async def load_spending(self, session_id: int, *, caps: Caps) -> DaySpending:
        """Return today's micro-dollars of a session and of each scope whose cap applies to it.

        The day begins at midnight in `caps.timezone`. Raises UnknownSession.
        """
        rows = await self._pool.fetch(
            *_SPENDING(
                session_id=session_id,
                timezone=caps.timezone,
                limits=caps.limits,
            )
        )
        if not rows:
            raise UnknownSession(f"session {session_id}")
        scopes = tuple(
            ScopeSpending(
                scope=row["scope"].partition(":")[0],
                spent_micro=row["spent"],
                held_micro=row["held"],
                cap_micro=row["cap"],
            )
            for row in rows
            if row["cap"] is not None
        )
        return DaySpending(
            scopes=scopes,
            session_micro=rows[0]["ledger"],
            unknown_calls=rows[0]["unknown"],
            anew_at=rows[0]["anew_at"],
            timezone=rows[0]["timezone"],
        )


_SPENDING = Named("""
WITH cost AS (
  SELECT (now() AT TIME ZONE :timezone)::date AS day, s.id, s.contact_id, p.anonymous, p.timezone, a.config
    FROM sessions s JOIN contacts p ON p.id = s.contact_id JOIN agents a ON a.id = s.agent_id
   WHERE s.id = :session_id
), want AS (
  SELECT x.scope, c.day, x.cap
    FROM cost c CROSS JOIN LATERAL
         spending_caps(:limits::bigint[], c.config, c.contact_id, c.id, c.anonymous, NULL, NULL) x
), ledger AS (
  SELECT coalesce(sum(u.cost_micro), 0)::bigint AS ledger,
         count(u.id) FILTER (WHERE u.cost_micro IS NULL) AS unknown
    FROM cost c LEFT JOIN usage u ON u.session_id = c.id AND u.at >= c.day::timestamp AT TIME ZONE :timezone
)
SELECT w.scope, w.cap, coalesce(d.spent_micro, 0)
         + CASE w.scope WHEN 'total' THEN spent_of_open_slices(w.day) ELSE 0 END AS spent,
       coalesce(d.reserved_micro, 0) AS held,
       (c.day + 1)::timestamp AT TIME ZONE :timezone AS anew_at, c.timezone, l.ledger, l.unknown
  FROM want w CROSS JOIN cost c CROSS JOIN ledger l
  LEFT JOIN spend_days d ON d.scope = w.scope AND d.day = w.day ORDER BY w.scope
""")
"""Caps that apply to a session today, with the micro-dollars spent and reserved under each."""

_FIGURES = Named("""
WITH spent AS (
  SELECT sum(u.cost_micro) FILTER (WHERE u.purpose NOT IN ('chat', 'delegate')) AS upkeep,
         bool_or(u.cost_micro IS NULL) FILTER (WHERE u.purpose NOT IN ('chat', 'delegate')) AS upkeep_unknown,
         sum(u.cost_micro) FILTER (WHERE u.at >= d.midnight) AS today,
         bool_or(u.cost_micro IS NULL) FILTER (WHERE u.at >= d.midnight) AS today_unknown
    FROM (SELECT date_trunc('day', now() AT TIME ZONE :timezone) AT TIME ZONE :timezone AS midnight) d
    LEFT JOIN usage u ON u.session_id = :session_id
)
SELECT s.answered_turn AS answered_turns, s.base_turn AS hidden_turns,
       t.compaction_count AS summaries,
       (SELECT count(*) FROM pins p WHERE p.session_id = s.id) AS pins,
       t.input_tokens + t.cache_read_tokens + t.cache_write_tokens AS input_tokens, t.output_tokens,
       t.cache_read_tokens,
       (SELECT round(100.0 * u.cache_read_tokens / nullif(u.input_tokens + u.cache_read_tokens
                                                          + u.cache_write_tokens, 0))::int
          FROM usage u WHERE u.session_id = s.id AND u.purpose = 'chat' AND u.status = 'done' AND u.known
         ORDER BY u.id DESC LIMIT 1) AS last_cached_percent,
       CASE WHEN t.cost_unknown_calls = 0 THEN t.cost_micro END AS cost_micro,
       CASE WHEN NOT coalesce(x.upkeep_unknown, false) THEN coalesce(x.upkeep, 0)::bigint END AS upkeep_micro,
       CASE WHEN NOT coalesce(x.today_unknown, false) THEN coalesce(x.today, 0)::bigint END AS today_micro
  FROM sessions s JOIN session_totals t ON t.session_id = s.id, spent x WHERE s.id = :session_id
""")
"""Lifetime figures of a session; a cost is NULL if the price of one of its calls is unknown."""
