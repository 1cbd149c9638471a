"""What the doctor says of a pooler before PostgreSQL: what it does not keep, and what has to go past it."""

from __future__ import annotations

from collections.abc import Sequence

from shared.config.settings import Settings
from shared.core.values.errors import StorageUnavailable
from shared.diagnostics.findings import Finding

_SETTINGS = "ALTER ROLE {role} SET statement_timeout = '9s'; ALTER ROLE {role} SET jit = off"


async def check_pooler(settings: Settings, database_url: str) -> Sequence[Finding]:
    """Says nothing where none stands in between."""
    from shared.adapters.postgres.db.connecting import connect
    from shared.adapters.postgres.db.pooler import between

    connection = await connect(database_url)
    try:
        found = await between(connection)
        timeout = await connection.fetchval("SELECT current_setting('statement_timeout')")
        role = await connection.fetchval("SELECT session_user")
    finally:
        await connection.close(timeout=5)
    if not found.pooler:
        return []
    findings = [Finding(level="ok", what="a pooler stands before PostgreSQL")]
    if not found.keeps_prepared:
        findings.append(_NO_PREPARED_STATEMENTS)
    if timeout == "0":
        what = "the pooler keeps no settings of ours: a statement may take for ever"
        findings.append(
            Finding(level="warn", what=what, advice=f"As administrator: {_SETTINGS.format(role=role)}")
        )
    return [*findings, *await _check_direct_url(settings, database_url)]


async def _check_direct_url(settings: Settings, database_url: str) -> Sequence[Finding]:
    from shared.adapters.postgres.db.pooler import lends_by_the_transaction

    try:
        if not await lends_by_the_transaction(settings.direct_url(database_url)):
            return []
    except StorageUnavailable as error:
        return [Finding(level="fail", what=f"past the pooler: {error}", advice=error.advice)]
    return [
        Finding(
            level="warn",
            what="backups and restores need a session, and the pooler lends one for a transaction",
            advice="Set EVERTALK_DIRECT_DATABASE_URL to the address of PostgreSQL itself.",
        )
    ]


_NO_PREPARED_STATEMENTS = Finding(
    level="warn",
    what="the pooler carries no prepared statements: each is read and planned anew, which costs time",
    advice="PgBouncer 1.21 or newer with max_prepared_statements = 200.",
)
