"""How much of a day's money is used, for whoever looks after an installation."""

from __future__ import annotations

from shared.adapters.postgres.db.connecting import connect
from shared.adapters.postgres.turns.slice_sql import SPENT_OF_OPEN

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
