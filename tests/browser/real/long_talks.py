"""A conversation that went on for long, without waiting for its answers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import asyncpg

from tests.kit.web.long_talk import talk_long_ago


async def talk_on(database_url: str, *, turns: int) -> None:
    """Store turns after the first one, as if they had been typed."""
    async with asyncpg.create_pool(database_url, min_size=1, max_size=1) as pool:
        row = await pool.fetchrow("SELECT session_id, id FROM addresses WHERE channel = 'web'")
        assert row is not None
        apart = timedelta(milliseconds=1)
        await talk_long_ago(
            pool, row["session_id"], row["id"], turns=turns, apart=apart, began=datetime.now(UTC), since=2
        )
