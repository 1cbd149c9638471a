"""Restore of a dump: migrates it, repeats erasures, starts a new log epoch and checks the invariants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import asyncpg

from shared.adapters.postgres.db.connecting import open_connection
from shared.adapters.postgres.db.migrate import migrate
from shared.adapters.postgres.db.pool import open_pool
from shared.adapters.postgres.operations.dump import load_facts, restore
from shared.adapters.postgres.operations.invariants import check_invariants
from shared.adapters.postgres.people.operator_auth import append_audit
from shared.adapters.postgres.privacy.erasure_log import PostgresErasureLog
from shared.core.identity.operators import COMMAND_LINE
from shared.core.privacy.erasures import Erased


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredDump:
    """Report of a restore.

    `erased_again` is the number of erasures that were repeated, `log_epoch` the new epoch, and `revision` the
    schema after migration. `broken` has a sentence for each violated invariant.
    """

    erased_again: int
    log_epoch: int
    revision: str
    broken: Sequence[str]


async def restore_dump(
    database_url: str, dumped: Path, logged: Sequence[Erased], *, about: str
) -> RestoredDump:
    """Restore a dump into an empty database, migrate it, and make it a state that no screen has seen.

    Repeats the erasures in `logged`, raises the log epoch, logs all operators out, deletes their push
    subscriptions, and appends `about`, the name of the backup, to the audit log. These are several
    transactions. Raises DumpFailed, SchemaRefused, StorageUnavailable, and errors of the migration.
    """
    await restore(dumped, database_url)
    await migrate(database_url)
    pool = await open_pool(database_url, size=2)
    try:
        erased_again = await PostgresErasureLog(pool).reapply(logged)
    finally:
        await pool.close()
    async with open_connection(database_url) as connection:
        await _begin_afresh(connection, about)
        broken = await _check(connection)
    _, revision, epoch = await load_facts(database_url)
    return RestoredDump(erased_again=erased_again, log_epoch=epoch, revision=revision or "", broken=broken)


async def migrate_dump(database_url: str, dumped: Path) -> Sequence[str]:
    """Restore and migrate a dump of the present state in an empty database; return violated invariants.

    Unlike `restore_dump`, keeps logins and log epoch. Raises DumpFailed, SchemaRefused, StorageUnavailable,
    and errors of the migration.
    """
    await restore(dumped, database_url)
    await migrate(database_url)
    async with open_connection(database_url) as connection:
        return await _check(connection)


async def find_violations(database_url: str) -> Sequence[str]:
    """Return a sentence for each violated invariant of a database. Raises StorageUnavailable.

    Renews the planner's statistics before, which is its only write.
    """
    async with open_connection(database_url) as connection:
        return await _check(connection)


async def _check(connection: asyncpg.Connection[asyncpg.Record]) -> list[str]:
    await connection.execute("SET statement_timeout = 0", timeout=10)
    await connection.execute("ANALYZE", timeout=600)
    return [str(violation) for violation in await check_invariants(connection)]


async def _begin_afresh(connection: asyncpg.Connection[asyncpg.Record], about: str) -> None:
    async with connection.transaction():
        epoch: int = await connection.fetchval(_NEW_EPOCH, timeout=10)
        for statement in _LOGGED_OUT:
            await connection.execute(statement, timeout=60)
        await append_audit(
            connection, actor=COMMAND_LINE, action="backup.restored", about=about,
            detail={"log_epoch": epoch},
        )  # fmt: skip


_NEW_EPOCH = """
UPDATE deployment SET log_epoch = greatest(log_epoch + 1, extract(epoch FROM clock_timestamp())::bigint)
RETURNING log_epoch
"""
"""Set a log epoch higher than any that screens have seen before a backup was restored."""

_LOGGED_OUT = (
    "DELETE FROM operator_sessions",
    "DELETE FROM login_links",
    "DELETE FROM push_subscriptions WHERE operator_id IS NOT NULL",
)
"""Deletion of logins, so that no old cookie admits an operator who was locked later."""
