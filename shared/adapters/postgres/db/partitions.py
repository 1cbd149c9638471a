"""Month partitions of the tables that only grow, made before they are needed."""

from __future__ import annotations

from shared.adapters.postgres.db.connecting import open_connection
from shared.adapters.postgres.db.pool import store_method

PARTITIONED = {"usage": "at", "audit_rows": "created_at"}
"""Table and the column it is split by."""
MONTHS_OF = {"usage": "usage", "audit_rows": "turn_context_audit"}
"""Prefix of the names of monthly partitions, by table."""
MONTHS_AHEAD = 2


@store_method
async def ensure_month_partitions(database_url: str) -> None:
    """By a function that has its owner's rights, for the program itself need own no table.

    Rows that came before their partition stay in the default one; nothing is refused for want of a month.
    Raises StorageUnavailable.
    """
    async with open_connection(database_url, timeout=30) as connection, connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock(hashtext('evertalk.partitions'))")
        await connection.execute("SELECT make_months($1)", MONTHS_AHEAD)
