"""Changes the audit log like an owner of the table: disables its trigger, and enables it again."""

from __future__ import annotations

import asyncpg


async def forge(pool: asyncpg.Pool[asyncpg.Record], statement: str, *arguments: object) -> None:
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute("ALTER TABLE audit DISABLE TRIGGER audit_is_only_added")
        await connection.execute(statement, *arguments)
        await connection.execute("ALTER TABLE audit ENABLE ALWAYS TRIGGER audit_is_only_added")
