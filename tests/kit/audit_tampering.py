"""What somebody does who owns the tables: takes away the guard of the audit, and puts it back."""

from __future__ import annotations

import asyncpg


async def forge(pool: asyncpg.Pool[asyncpg.Record], statement: str, *arguments: object) -> None:
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute("ALTER TABLE audit DISABLE TRIGGER audit_is_only_added")
        await connection.execute(statement, *arguments)
        await connection.execute("ALTER TABLE audit ENABLE ALWAYS TRIGGER audit_is_only_added")
