"""Stores of administration: SQLModel over our pool, with our errors, our pooler and our retries."""

from __future__ import annotations

import asyncio
import sys
from urllib.parse import urlsplit

import asyncpg
import pytest

from shared.adapters.postgres.people.agents import PostgresAgents
from shared.adapters.postgres.people.sites import PostgresSites
from shared.bootstrap.stores import build_stores
from shared.core.values.errors import StorageUnavailable


@pytest.fixture
def pool_size() -> int:
    return 1


async def test_a_transaction_uses_the_one_connection_and_leaves_nothing_on_it(pool: asyncpg.Pool) -> None:
    agents, before = PostgresAgents(pool), await pool.fetchval("SELECT pg_backend_pid()")
    assert await agents.create("ada", {"caps": {"day": 1.5}, "ü": [None, True]}, by="test")
    found = await agents.find("ada")
    assert found is not None
    assert found.config == {"caps": {"day": 1.5}, "ü": [None, True]}
    assert await pool.fetchval("SELECT pg_backend_pid()") == before
    assert await pool.fetchval("SELECT config FROM agents WHERE name = 'ada'") == found.config
    prepared = await pool.fetch("SELECT statement FROM pg_prepared_statements")
    assert not [row for row in prepared if "agents." in row["statement"]], "a pooler gives it to another"


async def test_what_cannot_be_put_on_record_is_not_done(pool: asyncpg.Pool) -> None:
    await pool.execute("ALTER TABLE audit ADD CHECK (action <> 'agent.made')")
    agents = PostgresAgents(pool)
    with pytest.raises(asyncpg.CheckViolationError):
        await agents.create("ada", {}, by="test")
    assert await agents.find("ada") is None


async def test_second_of_two_changes_to_one_version_is_refused(pool: asyncpg.Pool) -> None:
    agents = PostgresAgents(pool)
    await agents.create("ada", {}, by="test")
    assert await agents.change("ada", {"a": 1}, seen=1, by="test") == 2
    assert await agents.change("ada", {"b": 1}, seen=1, by="test") is None
    assert await pool.fetchval("SELECT config FROM agents WHERE name = 'ada'") == {"a": 1}


async def test_admin_store_reports_unavailable_storage_like_every_store(
    pool: asyncpg.Pool, database_url: str
) -> None:
    sites = PostgresSites(pool)
    await sites.list_all()
    name = urlsplit(database_url).path.removeprefix("/")
    other = await asyncpg.connect(database_url)
    await other.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
    await other.execute(
        """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
            WHERE datname = $1 AND pid <> pg_backend_pid()""",
        name,
    )
    await other.close()
    with pytest.raises(StorageUnavailable):
        for _ in range(3):
            await sites.assign_agent("default", "default", by="test")


async def test_process_without_admin_stores_loads_no_sqlalchemy(pool: asyncpg.Pool) -> None:
    program = (
        "import sys\n"
        "from shared.bootstrap.stores import build_stores\n"
        "build_stores(None)\n"
        "sys.exit('sqlalchemy' in sys.modules)\n"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program)
    assert await asyncio.wait_for(process.wait(), 60) == 0
    assert [site.name for site in await build_stores(pool).sites.list_all()] == ["default"]
