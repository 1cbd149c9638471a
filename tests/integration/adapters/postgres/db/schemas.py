"""Schemas as text, and the way back."""

from __future__ import annotations

import asyncio
import os
import re
from typing import Any
from urllib.parse import parse_qs, urlsplit

import asyncpg
from alembic import command
from sqlalchemy import Connection

from shared.adapters.embedded.binaries import find_binaries
from shared.adapters.postgres.db.migrate import (
    build_alembic_config,
    create_engine,
)


async def downgrade(database_url: str, revision: str) -> None:
    def down(connection: Connection) -> None:
        config = build_alembic_config()
        config.attributes["connection"] = connection
        command.downgrade(config, revision)

    engine = create_engine(database_url)
    async with engine.begin() as connection:
        await connection.run_sync(down)
    await engine.dispose()


class FormerNames:
    """A pool whose statements reach tables and columns by their names before 0095."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool

    async def fetchval(self, statement: str, *values: object) -> Any:
        return await self._pool.fetchval(self._rename(statement), *values)

    async def execute(self, statement: str, *values: object) -> Any:
        return await self._pool.execute(self._rename(statement), *values)

    def _rename(self, statement: str) -> str:
        return statement.replace("contacts", "parties").replace("contact_id", "party_id")


async def add_contact(connection: asyncpg.Connection, name: str) -> None:
    """Store a contact in a database of any schema; before 0095 their table was called parties."""
    table = await connection.fetchval(
        "SELECT coalesce(to_regclass('contacts'), to_regclass('parties'))::text"
    )
    await connection.execute(f"INSERT INTO {table} (display_name) VALUES ($1)", name)


async def schema_of(database_url: str) -> str:
    """`pg_dump -s` without what a machine adds: comments, settings, month partitions, Alembic's own table."""
    address = urlsplit(database_url)
    process = await asyncio.create_subprocess_exec(
        find_binaries().postgres_bin / "pg_dump",
        "--schema-only", "--no-owner", "--no-comments",
        "--exclude-table=alembic_version", "--exclude-table=*_20[0-9][0-9]_[0-9][0-9]",
        "--host", parse_qs(address.query)["host"][0], "--username", address.username or "postgres",
        address.path.removeprefix("/"),
        stdout=asyncio.subprocess.PIPE, env={**os.environ, "LC_ALL": "C"},
    )  # fmt: skip
    out, _ = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode == 0
    return re.sub(
        r"^(--.*|SET .*|SELECT pg_catalog.*|\\(un)?restrict .*)?\n", "", out.decode(), flags=re.MULTILINE
    )
