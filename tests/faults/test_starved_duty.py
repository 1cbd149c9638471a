"""A duty that cannot reach its table fails alone: every other duty of the workers goes on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from shared.core.ops.duties import DUTY_NAMES
from tests.kit.deployment.breakable_servers import Case
from tests.kit.deployment.inner_faults import CONSTANTS
from tests.kit.deployment.person import PATIENCE_SECONDS

HASTE = "shared.adapters.postgres.db.pool.STATEMENT_SECONDS=2"
"""Seconds after which a statement gives up waiting for the lock."""
NEXT_MONTH = "SELECT to_char(now() AT TIME ZONE 'UTC' + interval '1 month', '\"usage_\"YYYY_MM')"


@pytest.mark.row("F58")
@pytest.mark.parametrize(
    ("duty", "table"),
    [("hourly_stats", "hour_marks"), ("reservations", "reservations"), ("consolidation", "note_lists")],
)
async def test_other_duties_continue_when_one_is_starved(case: Case, duty: str, table: str) -> None:
    month = await case.value(NEXT_MONTH)
    await case.value(f"DROP TABLE {month}")
    # Retention sweeps nearly every table, so it fails with any of them, and says which.
    starved = {duty, "retention"} if duty != "hourly_stats" else {duty}
    others = f"name NOT IN ({', '.join(repr(name) for name in sorted(starved))})"
    async with locked(case, table), case.worker(**{CONSTANTS: HASTE}) as worker:
        await case.until(f"SELECT failures > 0 AND last_error <> '' FROM duties WHERE name = '{duty}'")
        rest = len(DUTY_NAMES) - len(starved)
        await case.until(f"SELECT count(*) = {rest} FROM duties WHERE succeeded_at IS NOT NULL AND {others}")
        await case.until(f"SELECT min(runs - failed_runs) >= 3 FROM duties WHERE seconds <= 5 AND {others}")
        assert await case.value(f"SELECT to_regclass('{month}') IS NOT NULL")
        assert await case.value(f"SELECT succeeded_at IS NULL FROM duties WHERE name = '{duty}'")
        assert await case.value(f"SELECT max(failures) = 0 FROM duties WHERE {others}")
        assert worker.exits == []
    async with case.worker():
        await case.value(f"UPDATE duties SET due_at = now() WHERE name = '{duty}'")
        await case.until(
            f"SELECT succeeded_at IS NOT NULL AND last_error = '' FROM duties WHERE name = '{duty}'"
        )


@asynccontextmanager
async def locked(case: Case, table: str) -> AsyncIterator[None]:
    connection = await case.connect()
    try:
        await connection.execute(
            f"BEGIN; LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE", timeout=PATIENCE_SECONDS
        )
        yield
    finally:
        await connection.close(timeout=PATIENCE_SECONDS)
