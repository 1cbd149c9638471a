"""How pages of the dashboard read: one statement that Postgres answers as one JSON text, in bounded time."""

from __future__ import annotations

import json
from typing import Any

from shared.adapters.postgres.db.pool import store_method
from shared.adapters.postgres.db.store import Pool

SECONDS = 9.0
MAX_LIMIT = 200
"""Rows of a page at most."""


@store_method
async def read_page(pool: Pool, statement: str, *arguments: object, seconds: float = SECONDS) -> Any:
    """None where there is no row, or nothing in it. Raises StorageUnavailable."""
    text = await pool.fetchval(statement, *arguments, timeout=seconds)
    return None if text is None else json.loads(text)


def page_size(limit: int) -> int:
    return max(1, min(limit, MAX_LIMIT))
