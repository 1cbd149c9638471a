"""Migrations that give tables and columns other names keep the rows, the names in them, and the way back."""

from __future__ import annotations

import asyncpg
import pytest

from shared.adapters.postgres.db.migrate import migrate
from shared.adapters.postgres.operations.invariants import check_invariants
from tests.integration.adapters.postgres.db.schemas import downgrade, schema_of

_SPENDING = """
INSERT INTO parties (id, display_name) OVERRIDING SYSTEM VALUE VALUES (7, 'Ada');
INSERT INTO spend_days (scope, day, spent_micro)
VALUES ('party:7', current_date, 5), ('total', current_date, 5);
INSERT INTO reservations (session_id, party_id, day, amount_micro, settled_micro, state, scopes, ended_at)
VALUES (1, 7, current_date, 5, 5, 'settled', '{party:7,total}', now());
INSERT INTO alerts (kind, key, detail)
VALUES ('spend_source', 'party:7', '{"source": "party:7", "used_micro": 5}');
INSERT INTO erasures (party_hash, actor, scope, work)
VALUES (sha256('x'), 'person', 'everything', '{"parties": [7], "sessions": [], "place": 0, "cursor": 0}');
"""


@pytest.fixture
async def former_connection(empty_database_url: str) -> asyncpg.Connection:
    await migrate(empty_database_url, revision="0094")
    return await asyncpg.connect(empty_database_url)


async def test_stored_scopes_name_contacts_after_an_upgrade(
    former_connection: asyncpg.Connection, empty_database_url: str
) -> None:
    await former_connection.execute(_SPENDING)
    await migrate(empty_database_url)
    await former_connection.reload_schema_state()
    assert await former_connection.fetchval("SELECT array_agg(scope ORDER BY scope) FROM spend_days") == [
        "contact:7", "total",
    ]  # fmt: skip
    assert await former_connection.fetchval("SELECT scopes FROM reservations") == ["contact:7", "total"]
    assert await former_connection.fetchval("SELECT key || ' ' || (detail ->> 'source') FROM alerts") == (
        "contact:7 contact:7"
    )
    assert await former_connection.fetchval("SELECT work ->> 'contacts' FROM erasures") == "[7]"
    assert await former_connection.fetchval("SELECT contact_family(7)") == 7
    assert [str(line) for line in await check_invariants(former_connection)] == []
    await former_connection.close()


async def test_marks_and_counts_name_compactions_after_an_upgrade(
    former_connection: asyncpg.Connection, empty_database_url: str
) -> None:
    await former_connection.execute(
        """INSERT INTO erasures (party_hash, actor, scope, work, counts)
           VALUES (sha256('x'), 'person', 'everything', '{}', '{"links": 3, "notes": 1}')"""
    )
    await former_connection.execute("INSERT INTO hour_marks (source) VALUES ('links') ON CONFLICT DO NOTHING")
    await migrate(empty_database_url)
    await former_connection.reload_schema_state()
    assert await former_connection.fetchval("SELECT counts ->> 'compactions' FROM erasures") == "3"
    assert await former_connection.fetchval("SELECT counts ? 'links' FROM erasures") is False
    assert (
        await former_connection.fetchval("SELECT count(*) FROM hour_marks WHERE source = 'compactions'") == 1
    )
    await former_connection.close()


_JOBS = """
INSERT INTO contacts (id, display_name) OVERRIDING SYSTEM VALUE VALUES (1, 'Ada');
INSERT INTO sessions (id, contact_id, agent_id) OVERRIDING SYSTEM VALUE SELECT 1, 1, min(id) FROM agents;
INSERT INTO jobs (kind, session_id, key, state, trigger, outcome, payload) VALUES
('compact', 1, 'a', 'due', 'limit', '{"resting": "breaker"}', '{}'),
('flush', 1, 'b', 'due', 'limit', '{"resting": "cooldown"}', '{"link": 4}'),
('compact', 1, 'c', 'done', 'limit', '{"resting": true, "link": 3, "kind": "digest"}', '{}'),
('compact', 1, 'd', 'done', 'limit', '{"nothing": "hook"}', '{}')
"""
_READ_JOBS = "SELECT outcome::text || payload::text FROM jobs ORDER BY key"


async def test_words_of_jobs_follow_upgrade_and_downgrade(
    empty_database_url: str,
) -> None:
    await migrate(empty_database_url, revision="0097")
    connection = await asyncpg.connect(empty_database_url)
    await connection.execute("SET session_replication_role = replica")
    await connection.execute(_JOBS)
    before = [row[0] for row in await connection.fetch(_READ_JOBS)]
    await migrate(empty_database_url)
    assert [row[0] for row in await connection.fetch(_READ_JOBS)] == [
        '{"deferred": "backoff"}{}', '{"deferred": "cooldown"}{"compaction": 4}',
        '{"kind": "digest", "compaction": 3, "in_backoff": true}{}', '{"nothing": "hook"}{}',
    ]  # fmt: skip
    await downgrade(empty_database_url, "0097")
    assert [row[0] for row in await connection.fetch(_READ_JOBS)] == before
    await connection.close()


async def test_downgrade_restores_the_former_names(
    former_connection: asyncpg.Connection, empty_database_url: str
) -> None:
    await former_connection.execute(_SPENDING)
    before = await schema_of(empty_database_url), await _read_rows(former_connection)
    await migrate(empty_database_url)
    await downgrade(empty_database_url, "0094")
    await former_connection.reload_schema_state()
    assert sorted((await schema_of(empty_database_url)).splitlines()) == sorted(before[0].splitlines())
    assert await _read_rows(former_connection) == before[1]
    await former_connection.close()


async def _read_rows(connection: asyncpg.Connection) -> list[list[asyncpg.Record]]:
    return [
        await connection.fetch(f"SELECT * FROM {table} ORDER BY 1")
        for table in ("parties", "spend_days", "reservations", "alerts", "erasures")
    ]
