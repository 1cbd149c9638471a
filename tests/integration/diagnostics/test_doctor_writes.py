"""The doctor finds a database and a Redis that answer and take no writes, and says what to do."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest
from redis.asyncio import Redis

from shared.adapters.embedded import EmbeddedChoice, EmbeddedServers
from shared.adapters.postgres.db.connecting import open_connection
from shared.adapters.postgres.db.write_probe import probe_writes
from shared.config.settings import load_settings
from shared.diagnostics.checks import Finding
from shared.diagnostics.write_checks import check_database_writes, check_redis_writes
from tests.kit.temp_folders import short_folder

_LEFT = "SELECT count(*) FROM workers WHERE pid = 0"


@pytest.fixture(scope="module")
async def own_redis_url() -> AsyncIterator[str]:
    folder = short_folder("evd-")
    servers = EmbeddedServers(folder / "servers", wanted=EmbeddedChoice(postgres=False, redis=True))
    await servers.start()
    try:
        yield servers.redis_url
    finally:
        await servers.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
async def redis(own_redis_url: str) -> AsyncIterator[Any]:
    client = Redis.from_url(own_redis_url)
    yield client
    await client.aclose()


async def _redis_finding(url: str) -> Finding:
    (found,) = await check_redis_writes(load_settings(), url)
    return found


async def _database_finding(url: str) -> Finding:
    (found,) = await check_database_writes(load_settings(), url)
    return found


async def test_trial_write_leaves_nothing(database_url: str) -> None:
    found = await _database_finding(database_url)
    assert (found.level, found.what) == ("ok", "PostgreSQL accepts writes")
    async with open_connection(database_url) as connection:
        assert await connection.fetchval(_LEFT) == 0
        assert await connection.fetchval("SELECT to_regclass('evertalk_write_probe')") is None


async def test_read_only_database_is_reported_with_its_source(database_url: str) -> None:
    name = urlsplit(database_url).path.lstrip("/")
    async with open_connection(database_url) as connection:
        await connection.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
        found = await _database_finding(database_url)
        await connection.execute(f'ALTER DATABASE "{name}" RESET default_transaction_read_only')
    assert found.level == "fail"
    assert found.what == ("PostgreSQL rejects writes: cannot execute INSERT in a read-only transaction")
    assert "set by: database" in found.advice
    assert "ALTER DATABASE … RESET" in found.advice
    assert "disk is full" in found.advice


async def test_missing_rights_are_reported_as_the_server_says(database_url: str) -> None:
    async with open_connection(database_url) as connection:
        await connection.execute("CREATE ROLE reads_only_here LOGIN")
        await connection.execute("SET ROLE reads_only_here")
        refused = await probe_writes(connection)
        await connection.execute("RESET ROLE")
        await connection.execute("DROP ROLE reads_only_here")
    assert refused is not None
    assert (refused.kind, refused.words) == ("forbidden", "permission denied for table workers")


async def test_database_without_a_schema_is_left_to_the_check_of_the_schema(database_url: str) -> None:
    async with open_connection(database_url) as connection:
        await connection.execute("ALTER TABLE workers RENAME TO workers_of_before")
        assert await check_database_writes(load_settings(), database_url) == []
        await connection.execute("ALTER TABLE workers_of_before RENAME TO workers")


async def test_full_disk_is_reported(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real full disk is in the fault suite; here the server says the same."""
    async with open_connection(database_url) as connection:
        await connection.execute(
            """CREATE FUNCTION is_full() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                 RAISE EXCEPTION 'could not extend file "base/5/1": No space left on device'
                   USING ERRCODE = 'disk_full'; END $$"""
        )
        await connection.execute(
            "CREATE TRIGGER is_full BEFORE INSERT ON workers FOR EACH ROW EXECUTE FUNCTION is_full()"
        )
        found = await _database_finding(database_url)
    assert found.level == "fail"
    assert "No space left on device" in found.what
    assert "free space" in found.advice


async def test_address_without_a_primary_is_named(database_url: str) -> None:
    query = "&" if "?" in database_url else "?"
    with pytest.raises(Exception, match="cannot be used") as caught:
        async with open_connection(f"{database_url}{query}target_session_attrs=standby"):
            raise AssertionError
    assert "promote one" in getattr(caught.value, "advice", "")


async def test_redis_that_takes_everything_is_well(own_redis_url: str, redis: Any) -> None:
    before = await redis.dbsize()
    assert (await _redis_finding(own_redis_url)).level == "ok"
    assert await redis.dbsize() == before


async def test_redis_at_its_memory_limit_is_found(own_redis_url: str, redis: Any) -> None:
    await redis.config_set("maxmemory", "1")
    found = await _redis_finding(own_redis_url)
    await redis.config_set("maxmemory", "0")
    assert found.level == "fail"
    assert "command not allowed when used memory > 'maxmemory'" in found.what
    assert "Raise maxmemory" in found.advice


async def test_replica_of_redis_is_found(own_redis_url: str, redis: Any) -> None:
    await redis.execute_command("REPLICAOF", "127.0.0.1", "1")
    found = await _redis_finding(own_redis_url)
    await redis.execute_command("REPLICAOF", "NO", "ONE")
    assert found.level == "fail"
    assert "name the primary" in found.advice


async def test_redis_that_waits_for_replicas_is_found(own_redis_url: str, redis: Any) -> None:
    await redis.config_set("min-replicas-to-write", "1")
    found = await _redis_finding(own_redis_url)
    await redis.config_set("min-replicas-to-write", "0")
    assert found.level == "fail"
    assert "min-replicas-to-write" in found.advice


async def test_redis_account_without_channels_is_found(own_redis_url: str, redis: Any) -> None:
    await redis.execute_command("ACL", "SETUSER", "narrow", "on", ">secret", "~*", "resetchannels", "+@all")
    found = await _redis_finding(own_redis_url.replace("unix://", "unix://narrow:secret@"))
    await redis.execute_command("ACL", "DELUSER", "narrow")
    assert found.level == "fail"
    assert "Redis rejects announcements" in found.what
    assert "ACL SETUSER" in found.advice


async def test_probe_reports_its_own_words_for_a_lost_connection(database_url: str) -> None:
    async with open_connection(database_url) as connection:
        connection.terminate()
        with pytest.raises(asyncpg.InterfaceError):
            await probe_writes(connection)
