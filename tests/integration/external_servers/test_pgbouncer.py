"""Behind a pooler that lends a server for a transaction, everything works that does not need a session."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import asyncpg
import pytest

from shared.adapters.postgres.db.connecting import connect
from shared.adapters.postgres.db.migrate import migrate
from shared.adapters.postgres.db.pool import open_pool
from shared.adapters.postgres.db.pooler import probe_pooler_at
from shared.adapters.postgres.operations.invariants import check_invariants
from shared.bootstrap.stores import Stores, open_stores
from shared.config.settings import Settings, load_settings
from shared.core.values.errors import StorageUnavailable
from shared.diagnostics.server_checks import check_pooler
from tests.integration.external_servers.operator_commands import KEY, environment, run
from tests.integration.external_servers.own_postgres import OwnPostgres
from tests.integration.external_servers.pgbouncer import PgBouncer, pgbouncer
from tests.kit.app_driver import Visit, running_app, settings_for, visit
from tests.kit.temp_folders import short_folder

PEOPLE, TURNS = 6, 4
_COUNT = "SELECT count(*) FROM entries WHERE session_id = $1"
_SAID = "SELECT count(*) FROM entries WHERE session_id = $1 AND blocks::text LIKE '%Words%'"


@pytest.fixture(scope="module", params=["carries nothing", "carries statements"])
async def pooler(own_server: OwnPostgres, request: pytest.FixtureRequest) -> AsyncIterator[PgBouncer]:
    folder = short_folder("evp-")
    try:
        async with pgbouncer(
            folder, own_server, prepared=100 if request.param == "carries statements" else 0, servers=5
        ) as found:
            if request.param == "carries statements" and not found.carries_prepared:
                pytest.skip("this PgBouncer is older than 1.21: it carries no prepared statements")
            yield found
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
async def pooled_url(pooler: PgBouncer, own_server: OwnPostgres, own_database: str) -> str:
    return pooler.url(own_server, own_database)


async def test_what_stands_between_is_found(
    pooler: PgBouncer, own_server: OwnPostgres, own_database: str, pooled_url: str
) -> None:
    found = await probe_pooler_at(pooled_url)
    assert found.pooler
    assert found.keeps_prepared == pooler.carries_prepared
    assert not (await probe_pooler_at(own_server.url(own_database))).pooler


async def test_operators_change_rows_in_parallel_through_it(pooled_url: str) -> None:
    """More sessions than servers: a statement that one had prepared would meet another's of the same name."""
    await migrate(pooled_url)
    async with open_stores(pooled_url, size=8) as stores, asyncio.TaskGroup() as all_at_once:
        for number in range(PEOPLE):
            all_at_once.create_task(_make_and_change(stores, f"agent {number}"))


async def _make_and_change(stores: Stores, name: str) -> None:
    assert await stores.agents.create(name, {"workspace": name}, by="test")
    assert await stores.agents.change(name, {"workspace": "other"}, seen=1, by="test") == 2
    assert await stores.agents.change(name, {}, seen=1, by="test") is None
    found = await stores.agents.find(name)
    assert found is not None
    assert found.config == {"workspace": "other"}
    assert await stores.agents.delete(name, by="test")


async def test_people_talk_in_parallel_through_it(
    pooler: PgBouncer, own_server: OwnPostgres, own_database: str, pooled_url: str, redis_url: str
) -> None:
    await migrate(pooled_url)
    await migrate(pooled_url)
    settings = settings_for(pooled_url, redis_url)
    async with running_app(settings) as one, running_app(settings) as other:
        guests = [await visit(one if number % 2 else other) for number in range(PEOPLE)]
        async with asyncio.TaskGroup() as all_at_once:
            for guest in guests:
                all_at_once.create_task(_talk(guest))
        for guest in guests:
            assert await guest.one(_COUNT, guest.session_id) == 2 * TURNS
        await one.erasure.erase_everything(guests[0].session_id, "person")
        assert not await guests[0].one(_SAID, guests[0].session_id)
    connection = await connect(own_server.url(own_database))
    try:
        assert [str(line) for line in await check_invariants(connection)] == []
    finally:
        await connection.close()
    await _left_nothing(pooler, pooled_url)


async def _talk(guest: Visit) -> None:
    for turn in range(TURNS):
        assert await guest.ask(f"Words number {turn}")


async def _left_nothing(pooler: PgBouncer, url: str) -> None:
    """No statement stays on a server under a name of ours: the next client's would have the same."""
    pool = await open_pool(url, size=5)
    try:
        for _ in range(20):
            names = await pool.fetch("SELECT name FROM pg_prepared_statements")
            assert not [row["name"] for row in names if row["name"].startswith(("__asyncpg", "evertalk"))]
    finally:
        await pool.close()


async def test_rivals_with_the_same_names_do_not_meet(pooled_url: str) -> None:
    """Each process numbers its statements from 1 on."""
    pools = [await open_pool(pooled_url, size=4) for _ in range(3)]
    try:
        async with asyncio.TaskGroup() as all_at_once:
            for number, pool in enumerate(pools):
                for _ in range(40):
                    all_at_once.create_task(_asked(pool, number))
    finally:
        for pool in pools:
            await pool.close()


async def _asked(pool: asyncpg.Pool[asyncpg.Record], number: int) -> None:
    assert await pool.fetchval(f"SELECT $1::int + {number}", 1) == number + 1


async def test_doctor_tells_what_it_does_not_keep(
    pooler: PgBouncer, own_server: OwnPostgres, own_database: str, pooled_url: str
) -> None:
    bare = await _said(load_settings(database_url=pooled_url, secret_key=KEY), pooled_url)
    assert "ALTER ROLE evertalk SET statement_timeout" in bare
    assert "EVERTALK_DIRECT_DATABASE_URL" in bare
    assert ("max_prepared_statements" in bare) == (not pooler.carries_prepared)
    direct = own_server.url(own_database)
    set_up = load_settings(database_url=pooled_url, direct_database_url=direct, secret_key=KEY)
    assert "EVERTALK_DIRECT_DATABASE_URL" not in await _said(set_up, pooled_url)
    assert await check_pooler(load_settings(database_url=direct, secret_key=KEY), direct) == []
    away = own_server.url("nowhere")
    away_settings = load_settings(database_url=pooled_url, direct_database_url=away, secret_key=KEY)
    assert "past the pooler" in await _said(away_settings, pooled_url)


async def _said(settings: Settings, url: str) -> str:
    return "\n".join(map(str, await check_pooler(settings, url)))


async def test_a_backup_goes_past_it_or_is_refused(
    own_server: OwnPostgres, own_database: str, pooled_url: str, redis_url: str, tmp_path: Path
) -> None:
    """What pg_dump sets in its session would be the next client's: every table would be gone for it."""
    here = {**environment(tmp_path, pooled_url, redis_url)}
    assert (await run("migrate", said_by=here)).returncode == 0
    refused = await run("backup", said_by=here)
    assert refused.returncode == 1
    assert "EVERTALK_DIRECT_DATABASE_URL" in refused.stderr
    assert "Traceback" not in refused.stderr
    direct = {"EVERTALK_DIRECT_DATABASE_URL": own_server.url(own_database)}
    made = await run("backup", said_by=here | direct)
    assert made.returncode == 0, made.stderr
    again = await own_server.create(f"{own_database}_again")
    (archive,) = (tmp_path / "backups").glob("evertalk-*")
    filled = await run(
        "restore", str(archive),
        said_by=here | {"DATABASE_URL": pooled_url.replace(own_database, f"{own_database}_again"),
                        "EVERTALK_DIRECT_DATABASE_URL": again},
    )  # fmt: skip
    assert filled.returncode == 0, filled.stderr


async def test_it_may_fall_and_come_back(own_server: OwnPostgres, own_database: str, redis_url: str) -> None:
    folder = short_folder("evp-")
    try:
        async with AsyncExitStack() as poolers:
            first = await poolers.enter_async_context(pgbouncer(folder, own_server))
            url = first.url(own_server, own_database)
            await migrate(url)
            async with running_app(settings_for(url, redis_url)) as app:
                guest = await visit(app)
                assert await guest.ask("Before")
                first.process.kill()
                first.process.wait(10)
                with pytest.raises(StorageUnavailable):
                    await guest.say("While it is away")
                await poolers.enter_async_context(pgbouncer(folder, own_server, port=first.port))
                assert await guest.ask("After")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
