"""Whether a pooler stands between us and Postgres, and what may be asked of it.

One that lends a server for a transaction keeps nothing of a session: settings would be the next one's, and
a statement that was prepared may be gone. PgBouncer carries prepared statements from 1.21 on, where
`max_prepared_statements` is above 0.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass

import asyncpg

from shared.adapters.postgres.db.connecting import open_connection


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolerProbe:
    """Findings about a pooler between this process and the server."""

    pooler: bool
    keeps_prepared: bool
    """Whether a statement may be prepared once and run on whichever server comes."""


NOTHING = PoolerProbe(pooler=False, keeps_prepared=True)
_SERVER = "SELECT pg_backend_pid()"
_LOOKS = 3
_PROBE = "SELECT name FROM pg_prepared_statements WHERE statement LIKE '%FROM pg_prepared_statements%'"


async def probe_pooler_at(database_url: str, *, timeout: float = 5.0) -> PoolerProbe:
    """Asks once; raises StorageUnavailable."""
    async with open_connection(database_url, timeout=timeout) as connection:
        return await probe_pooler(connection)


async def probe_pooler(connection: asyncpg.Connection[asyncpg.Record]) -> PoolerProbe:
    """A server tells its own number when it lets us in; a pooler told one that no server has."""
    if await connection.fetchval(_SERVER) == connection.get_server_pid():
        return NOTHING
    return PoolerProbe(pooler=True, keeps_prepared=await _keeps_prepared(connection))


async def _keeps_prepared(connection: asyncpg.Connection[asyncpg.Record]) -> bool:
    """Return whether statements can be prepared; such poolers rename them, so that clients do not collide."""
    async with connection.transaction():
        ours = f"evertalk_{secrets.token_hex(4)}"
        statement = await connection.prepare(_PROBE, name=ours)
        there = [row["name"] for row in await statement.fetch()]
        del statement
        # With the next statement the driver closes what nobody holds: this server must not keep it.
        await connection.fetchval("SELECT 1")
    return bool(there) and ours not in there


async def has_transaction_pooling(database_url: str) -> bool:
    """True when two of our connections were seen to share a server; raises StorageUnavailable.

    Programs that set up a session would leave their settings to the next client.
    """
    async with open_connection(database_url) as one:
        if not (await probe_pooler(one)).pooler:
            return False
        async with open_connection(database_url) as other:
            return await _share_servers(one, other)


async def _share_servers(
    one: asyncpg.Connection[asyncpg.Record], other: asyncpg.Connection[asyncpg.Record]
) -> bool:
    """A session keeps a server for itself; who is lent one changes it, or takes that of another."""
    first = [await one.fetchval(_SERVER) for _ in range(_LOOKS)]
    async with other.transaction():
        taken = await other.fetchval(_SERVER)
        later = await one.fetchval(_SERVER)
    return len({*first, later}) > 1 or taken in first
