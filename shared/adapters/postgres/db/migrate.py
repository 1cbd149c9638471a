"""Brings a database to the newest schema, in this process, one at a time however many start at once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import asyncpg
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from shared.adapters.postgres.db.connecting import connect
from shared.adapters.postgres.db.partitions import ensure_month_partitions
from shared.adapters.postgres.db.readiness import find_newest_revision, is_newer, refuse_unknown
from shared.core.values.errors import EvertalkError, StorageUnavailable

MIGRATIONS = Path(__file__).resolve().parents[4] / "migrations"
MIGRATION_LOCK = 0x45564552  # "EVER": any number will do, as long as all starts use the same
_PATIENCE_SECONDS = 300.0
_FAILED = (
    SQLAlchemyError, CommandError, asyncpg.PostgresError, StorageUnavailable, OSError, TimeoutError,
)  # fmt: skip


class MigrationFailed(EvertalkError):
    """The schema is as far as it was."""

    code = "migration_failed"
    advice = "Is DATABASE_URL right, and does that server run? ./evertalk doctor tells more."


def build_alembic_config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    return config


def create_engine(database_url: str) -> AsyncEngine:
    """For migrations; SQLAlchemy never reads the address, and prepares nothing that outlives a statement."""

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
    """Upgrade under an advisory lock, then make the month partitions that will be needed soon.

    The schema of a newer version stays as it is. Raises SchemaUnknown.
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
    """To the newest schema; raises SchemaUnknown, and MigrationFailed for whatever else kept it from that."""
    try:
        await migrate(database_url)
    except _FAILED as error:
        raise MigrationFailed(str(error).splitlines()[0] if str(error) else type(error).__name__) from error


async def load_current_revision(database_url: str) -> tuple[str | None, str]:
    """What the database is at, and what this program would bring it to."""
    engine = create_engine(database_url)
    try:
        async with asyncio.timeout(_PATIENCE_SECONDS), engine.connect() as connection:
            found = await connection.run_sync(lambda c: MigrationContext.configure(c).get_current_revision())
    finally:
        await engine.dispose()
    return found, find_newest_revision()


def list_revisions() -> frozenset[str]:
    """Every schema that this program can bring up to date."""
    return frozenset(
        one.revision for one in ScriptDirectory.from_config(build_alembic_config()).walk_revisions()
    )


def _upgrade(connection: Connection, revision: str) -> None:
    # The role may have a limit for statements that people wait for.
    connection.execute(text("SET LOCAL statement_timeout = 0"))
    connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": MIGRATION_LOCK})
    found = MigrationContext.configure(connection).get_current_revision()
    refuse_unknown(found)
    if revision == "head" and is_newer(found, find_newest_revision()):
        return
    config = build_alembic_config()
    config.attributes["connection"] = connection
    command.upgrade(config, revision)
