"""What operators did and what was erased stays on record, whoever asks the database to change it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TypeAlias

import asyncpg
import pytest

from shared.adapters.postgres.db.partitions import ensure_month_partitions
from shared.adapters.postgres.people.operator_auth import append_audit
from shared.adapters.postgres.privacy.retention import RULES, Sweep

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

ERASURE = """
INSERT INTO erasures (contact_hash, actor, scope, state, at, work, finished_at)
VALUES ('\\x01', 'ada', 'everything', $1, now() - make_interval(days => $2),
        CASE WHEN $1 = 'running' THEN '{}'::jsonb END, CASE WHEN $1 = 'done' THEN now() END)
"""


@pytest.fixture
async def owner(database_url: str) -> AsyncIterator[Connection]:
    """Who may do everything in this server."""
    connection = await asyncpg.connect(database_url)
    yield connection
    await connection.close()


@pytest.mark.control("S14")
@pytest.mark.parametrize("role", ["origin", "replica"])
@pytest.mark.parametrize(
    "change",
    [
        "UPDATE audit SET actor = 'eve'",
        "UPDATE audit SET actor = 'eve' WHERE false",
        "DELETE FROM audit",
        "TRUNCATE audit",
        """INSERT INTO audit (id, at, actor, action, object, detail, prev_hash, hash)
           OVERRIDING SYSTEM VALUE SELECT * FROM audit ON CONFLICT (id) DO UPDATE SET actor = 'eve'""",
    ],
)
async def test_audit_lines_cannot_be_changed(owner: Connection, change: str, role: str) -> None:
    await append_audit(owner, actor="ada", action="login")
    before = await owner.fetch("SELECT * FROM audit")
    async with owner.transaction():
        # Of replication, and of whoever would switch off triggers of a whole session.
        await owner.execute(f"SET LOCAL session_replication_role = '{role}'")
        with pytest.raises(asyncpg.IntegrityConstraintViolationError, match="only ever added to"):
            async with owner.transaction():
                await owner.execute(change)
    assert await owner.fetch("SELECT * FROM audit") == before


@pytest.mark.control("S14", "S40")
async def test_an_erasure_that_was_done_stays_on_record_for_its_time(owner: Connection) -> None:
    await owner.execute(ERASURE, "done", 1094)
    for change in ("UPDATE erasures SET counts = '{}'", "DELETE FROM erasures", "TRUNCATE erasures"):
        with pytest.raises(asyncpg.IntegrityConstraintViolationError, match="stays on record"):
            await owner.execute(change)
    await owner.execute(ERASURE, "done", 1096)
    await owner.execute("DELETE FROM erasures WHERE at < now() - interval '1095 days'")
    assert await owner.fetchval("SELECT count(*) FROM erasures") == 1
    rule = RULES["erasures"]
    assert isinstance(rule, Sweep)
    assert rule.days == 1095, "the guard knows the same number"


@pytest.mark.control("S14", "S40")
async def test_an_erasure_at_work_ends_and_stays_whose_it_is(owner: Connection) -> None:
    await owner.execute(ERASURE, "running", 0)
    for change in ("actor = 'eve'", "contact_hash = '\\x02'", "scope = 'messages'", "at = now()",
                   "about = '{}'"):  # fmt: skip
        with pytest.raises(asyncpg.IntegrityConstraintViolationError, match="stays on record"):
            await owner.execute(f"UPDATE erasures SET {change}")
    await owner.execute("UPDATE erasures SET step = 3, state = 'done', work = NULL, finished_at = now()")


@pytest.mark.control("S14")
async def test_months_are_made_and_dropped_by_name_and_none_that_is_young(
    owner: Connection, database_url: str
) -> None:
    await ensure_month_partitions(database_url)
    months = "SELECT count(*) FROM pg_class WHERE relname ~ '^(usage|turn_context_audit)_\\d{4}_\\d{2}$'"
    assert await owner.fetchval(months) == 6
    for wrong in (("usage", 5), ("audit", 12), ("entries", 12), ("erasures", 36)):
        with pytest.raises(asyncpg.IntegrityConstraintViolationError, match="these months stay"):
            await owner.execute("SELECT drop_months($1, $2)", *wrong)
    assert await owner.fetchval("SELECT drop_months('usage', 24)") == 0
    assert await owner.fetchval(months) == 6
