"""Reads tables and columns from the catalogue of a migrated database."""

from __future__ import annotations

import asyncpg


async def load_columns(database_url: str) -> dict[str, dict[str, str]]:
    """Return the type of each column by table, without partitions, views and the table of Alembic."""
    connection = await asyncpg.connect(database_url)
    rows = await connection.fetch(
        """SELECT c.relname AS "table", a.attname AS "column", format_type(a.atttypid, a.atttypmod) AS "type"
             FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
            WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
              AND c.relname <> 'alembic_version'
            ORDER BY c.relname, a.attnum"""
    )
    await connection.close()
    found: dict[str, dict[str, str]] = {}
    for row in rows:
        found.setdefault(row["table"], {})[row["column"]] = row["type"]
    return found
