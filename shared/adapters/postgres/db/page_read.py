"""Reading of dashboard pages: one statement that Postgres answers as one JSON text, in limited time."""

from __future__ import annotations

import json
from typing import Any

import asyncpg

from shared.adapters.postgres.db.pool import Pool, store_method

SECONDS = 9.0
"""Seconds that a statement of a dashboard page may take."""
MAX_LIMIT = 200
"""Maximum rows per page."""
COUNTED_TO = 10_000
"""Rows up to which the total of a list is counted; above it, the list says that there are more."""
COUNT_SECONDS = 1.0
"""Seconds that counting a list may take."""


@store_method
async def read_page(pool: Pool, statement: str, *arguments: object, seconds: float = SECONDS) -> Any:
    """Return the parsed JSON of a statement's single value; None if there is no row or the value is NULL.

    `arguments` are the values of `$1`, `$2` …; `seconds` is the time limit. Raises StorageUnavailable, also
    after that time.
    """
    text = await pool.fetchval(statement, *arguments, timeout=seconds)
    return None if text is None else json.loads(text)


async def count_rows(pool: Pool, rows: str, *arguments: object) -> dict[str, Any] | None:
    """Return `{count, more}` for the `SELECT` text `rows`, counted up to `COUNTED_TO`.

    `more` says that there are more than `count`. `arguments` are the values of `$1`, `$2` …. Returns None if
    counting takes over COUNT_SECONDS or fails; raises nothing for that.
    """
    statement = f"SELECT count(*) FROM (SELECT FROM ({rows}) r LIMIT {COUNTED_TO + 1}) x"
    try:
        found: int = await pool.fetchval(statement, *arguments, timeout=COUNT_SECONDS)
    except (TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
        return None
    return {"count": min(found, COUNTED_TO), "more": found > COUNTED_TO}


def page_size(limit: int) -> int:
    """Return `limit`, but at least 1 and at most MAX_LIMIT."""
    return max(1, min(limit, MAX_LIMIT))
