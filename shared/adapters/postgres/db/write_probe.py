"""Trial writes that leave nothing behind, and the reasons why a database refuses writes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import asyncpg

from shared.adapters.postgres.db.pool import Named

WriteState = Literal["ok", "read-only", "disk full", "unreachable"]
"""State of the database in the answer of `/readyz`."""
RefusalKind = Literal["standby", "read_only", "disk_full", "forbidden", "no_schema", "commit_waits", "other"]
"""Kind of reason for which a database refuses to write.

`commit_waits` means that a synchronous standby is absent; `forbidden` that the role lacks the right;
`no_schema` that a table or column is missing.
"""
PROBE_SECONDS = 8.0
"""Seconds for each statement of the probe; the doctor has 30 for the whole check."""
SPACE_BYTES = 1024 * 1024
"""Bytes of the trial table; more than fits into blocks that a full disk still has."""
_READS = """
SELECT pg_is_in_recovery() AS standby, current_setting('transaction_read_only') = 'on' AS read_only,
       (SELECT source FROM pg_settings WHERE name = 'default_transaction_read_only') AS source,
       current_setting('synchronous_standby_names') AS awaited
"""
_ROW = "INSERT INTO workers (role, pid, stopped_at) VALUES ('web', 0, now())"
_TABLE = Named(
    """
CREATE TEMPORARY TABLE evertalk_write_probe ON COMMIT DROP AS
SELECT repeat('x', 1000) AS filling FROM generate_series(1, :rows)
""",
    rows=SPACE_BYTES // 1000,
)
_COMMIT = "SELECT pg_logical_emit_message(true, 'evertalk', 'write probe')"
"""Write a message to the write-ahead log that no table holds; its commit waits as any commit does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteRefusal:
    """Refusal of a test write, with its reason for operators."""

    kind: RefusalKind
    words: str
    """Reason in the server's own text."""
    source: str = ""
    """Origin of the setting `default_transaction_read_only`, such as `database` or `configuration file`."""
    awaited: str = ""
    """Names of the standbys for which a commit waits."""


def classify_refusal(error: BaseException) -> WriteState:
    """Return the state of the database that an exception of a write shows.

    The exceptions that caused it are examined too. Returns "unreachable" if none shows a full disk or a read-
    only server; never "ok".
    """
    found: BaseException | None = error
    while found is not None:
        if isinstance(found, asyncpg.ReadOnlySQLTransactionError | asyncpg.TargetServerAttributeNotMatched):
            return "read-only"
        if isinstance(found, asyncpg.DiskFullError):
            return "disk full"
        found = found.__cause__
    return "unreachable"


async def probe_writes(connection: asyncpg.Connection[asyncpg.Record]) -> WriteRefusal | None:
    """Return why the server does not store data; None if it does.

    Inserts a row and fills a temporary table, both rolled back, then commits a message to the write-ahead log
    that no table holds. Raises exceptions of asyncpg if the connection breaks.
    """
    reads = await connection.fetchrow(_READS, timeout=PROBE_SECONDS)
    assert reads is not None
    refused = await _write_and_roll_back(connection, reads)
    return refused or await _commit(connection, reads)


async def _write_and_roll_back(
    connection: asyncpg.Connection[asyncpg.Record], reads: asyncpg.Record
) -> WriteRefusal | None:
    transaction = connection.transaction()
    await transaction.start()
    try:
        await connection.execute(_ROW, timeout=PROBE_SECONDS)
        await _fill(connection)
    except asyncpg.PostgresError as error:
        return WriteRefusal(kind=_kind_of(error, reads), words=str(error), source=reads["source"] or "")
    finally:
        await transaction.rollback()
    return None


async def _fill(connection: asyncpg.Connection[asyncpg.Record]) -> None:
    """Write enough to need new blocks of the disk, if the role may create temporary tables."""
    try:
        async with connection.transaction():
            await connection.execute(*_TABLE(), timeout=PROBE_SECONDS)
    except asyncpg.InsufficientPrivilegeError:
        return


async def _commit(
    connection: asyncpg.Connection[asyncpg.Record], reads: asyncpg.Record
) -> WriteRefusal | None:
    """Return a refusal if a commit waits too long for an absent standby; else None."""
    try:
        await connection.execute(_COMMIT, timeout=PROBE_SECONDS)
    except (asyncpg.InsufficientPrivilegeError, asyncpg.UndefinedFunctionError):
        return None
    except TimeoutError:
        words = f"a commit did not end within {PROBE_SECONDS:.0f} s"
        return WriteRefusal(kind="commit_waits", words=words, awaited=reads["awaited"])
    except asyncpg.PostgresError as error:
        return WriteRefusal(kind=_kind_of(error, reads), words=str(error))
    return None


def _kind_of(error: asyncpg.PostgresError, reads: asyncpg.Record) -> RefusalKind:
    match error:
        case asyncpg.ReadOnlySQLTransactionError():
            return "standby" if reads["standby"] else "read_only"
        case asyncpg.DiskFullError():
            return "disk_full"
        case asyncpg.InsufficientPrivilegeError():
            return "forbidden"
        case asyncpg.UndefinedTableError() | asyncpg.UndefinedColumnError():
            return "no_schema"
    return "other"
