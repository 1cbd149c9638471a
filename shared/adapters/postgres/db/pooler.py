"""Checks for a connection pooler in front of PostgreSQL, and for prepared statements behind it.

A pooler in transaction mode gives a connection another server for each transaction. Settings of a session
would then reach the next client, and a prepared statement may be missing. PgBouncer supports prepared
statements from 1.21 on, if `max_prepared_statements` is above 0.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass

import asyncpg

from shared.adapters.postgres.db.connecting import open_connection


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolerProbe:
    """Result of the check for a pooler between this process and the server."""

    pooler: bool
    keeps_prepared: bool
    """Whether a statement that was prepared once runs on every server that the pooler chooses."""


NO_POOLER = PoolerProbe(pooler=False, keeps_prepared=True)
"""Result if there is no pooler."""
_SERVER = "SELECT pg_backend_pid()"
_LOOKS = 3
_PROBE = "SELECT name FROM pg_prepared_statements WHERE statement LIKE '%FROM pg_prepared_statements%'"


async def probe_pooler_at(database_url: str, *, timeout: float = 5.0) -> PoolerProbe:
    """Open a connection for the check of `probe_pooler`, and return its result.

    Raises StorageUnavailable if no connection opens within `timeout` seconds.
    """
    async with open_connection(database_url, timeout=timeout) as connection:
        return await probe_pooler(connection)


async def probe_pooler(connection: asyncpg.Connection[asyncpg.Record]) -> PoolerProbe:
    """Return whether this connection goes through a pooler, and whether that keeps prepared statements.

    A server reports its own process id at login; a pooler reports an id that no server has.
    """
    if await connection.fetchval(_SERVER) == connection.get_server_pid():
        return NO_POOLER
    return PoolerProbe(pooler=True, keeps_prepared=await _keeps_prepared(connection))


async def _keeps_prepared(connection: asyncpg.Connection[asyncpg.Record]) -> bool:
    """Return whether prepared statements survive; poolers that keep them rename them to avoid collisions."""
    async with connection.transaction():
        ours = f"evertalk_{secrets.token_hex(4)}"
        statement = await connection.prepare(_PROBE, name=ours)
        there = [row["name"] for row in await statement.fetch()]
        del statement
        # With the next statement the driver closes unused prepared statements: this server must not keep it.
        await connection.fetchval("SELECT 1")
    return bool(there) and ours not in there


async def has_transaction_pooling(database_url: str) -> bool:
    """Return whether two connections shared a server, as behind a pooler in transaction mode.

    Settings that a program makes for its session would then reach other clients. Raises StorageUnavailable.
    """
    async with open_connection(database_url) as one:
        if not (await probe_pooler(one)).pooler:
            return False
        async with open_connection(database_url) as other:
            return await _share_servers(one, other)


async def _share_servers(
    one: asyncpg.Connection[asyncpg.Record], other: asyncpg.Connection[asyncpg.Record]
) -> bool:
    """Return whether the pooler changes servers between transactions, shown by the server's process id.

    Without that, a connection keeps its server, and no other connection gets it.
    """
    first = [await one.fetchval(_SERVER) for _ in range(_LOOKS)]
    async with other.transaction():
        taken = await other.fetchval(_SERVER)
        later = await one.fetchval(_SERVER)
    return len({*first, later}) > 1 or taken in first
