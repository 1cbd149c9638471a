"""Month partitions of the tables that only grow, made before they are needed."""

from __future__ import annotations

import asyncpg

from shared.adapters.postgres.urls import asyncpg_url

PARTITIONED = {"usage": "at", "turn_context_audit": "created_at"}
"""Table and the column it is split by."""
MONTHS_AHEAD = 2

_MAKE = """
DO $$
DECLARE start date; name text;
BEGIN
  FOR ahead IN 0..{months} LOOP
    start := (date_trunc('month', now() AT TIME ZONE 'UTC') + make_interval(months => ahead))::date;
    name := '{table}_' || to_char(start, 'YYYY_MM');
    IF to_regclass(name) IS NULL AND NOT EXISTS (
         SELECT 1 FROM {table}_other WHERE {column} >= start AND {column} < start + interval '1 month') THEN
      EXECUTE format('CREATE TABLE %I PARTITION OF {table} FOR VALUES FROM (%L) TO (%L)',
                     name, start || ' 00:00+00', (start + interval '1 month')::date || ' 00:00+00');
    END IF;
  END LOOP;
END $$
"""
"""Rows that came before their partition stay in the default one; nothing is refused for want of a month."""


async def ensure_month_partitions(database_url: str) -> None:
    connection = await asyncpg.connect(asyncpg_url(database_url), timeout=30)
    try:
        async with connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock(hashtext('evertalk.partitions'))")
            for table, column in PARTITIONED.items():
                await connection.execute(_MAKE.format(table=table, column=column, months=MONTHS_AHEAD))
    finally:
        await connection.close()
