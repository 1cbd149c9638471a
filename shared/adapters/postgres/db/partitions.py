"""Month partitions of the tables that only grow, created before they are needed."""

from __future__ import annotations

from shared.adapters.postgres.db.connecting import open_connection
from shared.adapters.postgres.db.pool import store_method

PARTITIONED = {"usage": "at", "audit_rows": "created_at"}
"""Partitioned tables, and the column by which each is partitioned."""
MONTHS_OF = {"usage": "usage", "audit_rows": "turn_context_audit"}
"""Prefix of the names of month partitions, by table."""
MONTHS_AHEAD = 2
"""Number of months after the current one for which partitions exist."""


@store_method
async def ensure_month_partitions(database_url: str) -> None:
    """Create the missing partitions of the current and the next MONTHS_AHEAD months.

    Raises StorageUnavailable.

    Opens a separate connection and works in one transaction under an advisory lock. A database function with
    its owner's rights creates the partitions, since the program's role need not own tables. Rows without a
    partition are stored in the default one.
    """
    async with open_connection(database_url, timeout=30) as connection, connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock(hashtext('evertalk.partitions'))")
        await connection.execute("SELECT make_months($1)", MONTHS_AHEAD)
