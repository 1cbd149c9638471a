"""Migration of a database to the newest schema; concurrent starts migrate one after the other."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.util import CommandError
from sqlalchemy import Connection, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from shared.adapters.postgres.db.bridge import build_config, cross_bridge
from shared.adapters.postgres.db.connecting import connect, open_connection
from shared.adapters.postgres.db.partitions import ensure_month_partitions
from shared.adapters.postgres.db.readiness import (
    VERSIONS,
    SchemaState,
    Standing,
    build_schema_state,
    load_schema_state,
)
from shared.core.values.errors import EvertalkError, StorageUnavailable
from shared.runtime import read_version

MIGRATION_LOCK = 0x45564552  # "EVER": any number will do, as long as all starts use the same
"""Number of the advisory lock that migrations hold."""
_PATIENCE_SECONDS = 300.0
_FAILED = (
    SQLAlchemyError, CommandError, asyncpg.PostgresError, StorageUnavailable, OSError, TimeoutError,
)  # fmt: skip


class MigrationFailed(EvertalkError):
    """The migration failed, and the schema is unchanged.

    If only the partitions for the next months could not be created, the schema is migrated.
    """

    sentence = "The schema is as far as it was."
    code = "migration_failed"
    advice = "Is DATABASE_URL right, and does that server run? ./evertalk doctor tells more."


def build_alembic_config() -> Config:
    """Return the Alembic settings for the migrations from 0044 on."""
    return build_config(VERSIONS)


def create_engine(database_url: str) -> AsyncEngine:
    """Return SQLAlchemy's engine for migrations, which opens a new connection each time.

    Asyncpg reads the address, and no statement stays prepared.
    """

    async def open_plain(**_: Any) -> asyncpg.Connection[asyncpg.Record]:
        return await connect(database_url)

    return create_async_engine(
        "postgresql+asyncpg://",
        poolclass=NullPool,
        connect_args={
            "async_creator_fn": open_plain,
            "prepared_statement_cache_size": 0,
            "prepared_statement_name_func": str,
        },
    )


async def migrate(database_url: str, *, revision: str = "head") -> None:
    """Migrate to `revision` in one transaction under an advisory lock.

    For "head" it then creates the month partitions for the next months; a schema that is already as new, or
    newer, is left as it is. Raises SchemaRefused for a schema that this program cannot upgrade, TimeoutError
    after 300 seconds, and errors of Alembic and the driver.
    """
    engine = create_engine(database_url)
    try:
        async with asyncio.timeout(_PATIENCE_SECONDS), engine.begin() as connection:
            await connection.run_sync(_upgrade, revision)
    finally:
        await engine.dispose()
    if revision == "head":
        await ensure_month_partitions(database_url)


async def migrate_or_explain(database_url: str) -> None:
    """Migrate to the newest schema as `migrate` does.

    Raises SchemaRefused for a schema that this program cannot upgrade, and MigrationFailed for any other
    error.
    """
    try:
        await migrate(database_url)
    except _FAILED as error:
        raise MigrationFailed(str(error).splitlines()[0] if str(error) else type(error).__name__) from error


async def read_schema_state(database_url: str) -> SchemaState:
    """Connect and return the state of the schema; changes nothing. Raises StorageUnavailable."""
    async with asyncio.timeout(_PATIENCE_SECONDS), open_connection(database_url) as connection:
        return await load_schema_state(connection)


def _upgrade(connection: Connection, revision: str) -> None:
    # The role may have a statement timeout, which is meant for statements of answers.
    connection.execute(text("SET LOCAL statement_timeout = 0"))
    connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": MIGRATION_LOCK})
    found = MigrationContext.configure(connection).get_current_revision()
    state = build_schema_state(found)
    state.refuse()
    if revision == "head" and state.standing in (Standing.NEWER, Standing.SAME):
        return
    if found is not None:
        cross_bridge(connection, found)
    config = build_alembic_config()
    config.attributes["connection"] = connection
    command.upgrade(config, revision)
    if revision == "head":
        connection.execute(text(_MIGRATED), {"version": read_version()})


_MIGRATED = "UPDATE deployment SET migrated_by = :version, migrated_at = clock_timestamp()"
"""Store which version has migrated, so that an older program can name it."""
