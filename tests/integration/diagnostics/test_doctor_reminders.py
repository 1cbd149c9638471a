"""The doctor tells of reminders whose time has come where nobody serves their channel."""

from __future__ import annotations

import asyncpg

from shared.adapters.postgres.db.pool import open_pool
from shared.adapters.postgres.people.visitors import PostgresVisitors, generate_token
from shared.config.settings import load_settings
from shared.diagnostics.row_checks import check_reminders

_KEPT = """
INSERT INTO reminders (key, contact_id, session_id, address_id, text, due_at, tell_at)
SELECT $1, contact_id, session_id, id, 'call Anna', now() - interval '1 day',
       now() - make_interval(mins => $2)
  FROM addresses
"""


async def test_late_reminders_are_reported_and_others_are_not(database_url: str) -> None:
    pool: asyncpg.Pool[asyncpg.Record] = await open_pool(database_url, size=1)
    try:
        await PostgresVisitors(pool).create(generate_token(), site="default")
        await pool.execute(_KEPT, "soon", 9)
        assert await check_reminders(load_settings(), database_url) == []
        await pool.execute(_KEPT, "late", 11)
        (finding,) = await check_reminders(load_settings(), database_url)
        assert (finding.level, finding.what) == ("warn", "reminders overdue by more than 10 minutes: 1")
        await pool.execute("UPDATE reminders SET state = 'cancelled', ended_at = now()")
        assert await check_reminders(load_settings(), database_url) == []
    finally:
        await pool.close()
