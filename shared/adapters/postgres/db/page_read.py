"""How pages of the dashboard read: one statement that Postgres answers as one JSON text, in bounded time."""

from __future__ import annotations

import json
from typing import Any

import asyncpg

from shared.adapters.postgres.db.pool import Pool, store_method

SECONDS = 9.0
MAX_LIMIT = 200
"""Limit of rows per page."""
COUNTED_TO = 10_000
"""Rows that are counted for the total of a list; beyond it the list says that there are more."""
COUNT_SECONDS = 1.0


@store_method
async def read_page(pool: Pool, statement: str, *arguments: object, seconds: float = SECONDS) -> Any:
    """None where there is no row, or nothing in it. Raises StorageUnavailable."""
    text = await pool.fetchval(statement, *arguments, timeout=seconds)
    return None if text is None else json.loads(text)


async def count_rows(pool: Pool, rows: str, *arguments: object) -> dict[str, Any] | None:
    """Return `{count, more}` of a `SELECT` up to `COUNTED_TO`; None if counting takes over a second."""
    statement = f"SELECT count(*) FROM (SELECT FROM ({rows}) r LIMIT {COUNTED_TO + 1}) x"
    try:
        found: int = await pool.fetchval(statement, *arguments, timeout=COUNT_SECONDS)
    except (TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
        return None
    return {"count": min(found, COUNTED_TO), "more": found > COUNTED_TO}


def page_size(limit: int) -> int:
    return max(1, min(limit, MAX_LIMIT))
