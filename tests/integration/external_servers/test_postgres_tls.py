"""With a server that wants TLS and has an authority of its own, everything works: up to a backup and back."""

from __future__ import annotations

import time
from pathlib import Path

import asyncpg
import pytest

from shared.adapters.postgres.db.connecting import connect
from shared.adapters.postgres.db.migrate import migrate
from shared.adapters.postgres.db.pool import open_pool
from shared.adapters.postgres.operations.dump import DumpFailed, dump, is_empty, restore
from shared.config.settings import load_settings
from shared.core.values.errors import StorageUnavailable
from tests.integration.external_servers.certificates import Authority
from tests.integration.external_servers.operator_commands import KEY, environment, run
from tests.integration.external_servers.own_postgres import OwnPostgres
from tests.kit.app_driver import running_app, settings_for, visit
from tests.kit.fakes.tcp_proxy import TcpProxy
from tests.kit.suite.time_limit import count_times


@pytest.mark.timeout(400)
async def test_a_life_over_tls_with_a_backup_and_back(
    own_server: OwnPostgres, own_database: str, redis_url: str, tmp_path: Path
) -> None:
    url = own_server.url(own_database)
    here = environment(tmp_path, url, redis_url)
    migrated = await run("migrate", said_by=here)
    assert migrated.returncode == 0, migrated.stderr
    async with running_app(settings_for(url, redis_url, data_dir=tmp_path, secret_key=KEY)) as app:
        guest = await visit(app)
        assert await guest.ask("Hello Over-The-Wire-77")
    looked = await run("doctor", said_by=here)
    assert looked.returncode == 0, looked.stdout + looked.stderr
    assert "all invariants of stored conversations hold" in looked.stdout
    reviewed = await run("doctor", "--security", said_by=here)
    assert "encryption" not in reviewed.stdout, reviewed.stdout
    made = await run("backup", "--to", str(tmp_path / "copies"), said_by=here)
    assert made.returncode == 0, made.stderr
    shell = await run("psql", "--tuples-only", "--command=SELECT count(*) FROM entries", said_by=here)
    assert shell.stdout.strip() == "2", shell.stderr
    upgraded = await run("upgrade", said_by=here)
    assert upgraded.returncode == 0, upgraded.stderr + upgraded.stdout
    await _restored(own_server, f"{own_database}_again", tmp_path, redis_url)


async def _restored(server: OwnPostgres, database: str, data: Path, redis_url: str) -> None:
    url = await server.create(database)
    (archive,) = (data / "copies").glob("evertalk-*")
    done = await run("restore", str(archive), said_by=environment(data, url, redis_url))
    assert done.returncode == 0, done.stdout + done.stderr
    connection = await connect(url)
    try:
        words = await connection.fetchval("SELECT string_agg(blocks::text, ' ') FROM entries")
    finally:
        await connection.close()
    assert "Over-The-Wire-77" in words


async def test_a_dump_that_breaks_off_leaves_nothing(
    own_server: OwnPostgres, own_database: str, database_url: str, tmp_path: Path
) -> None:
    await dump(database_url, tmp_path / "whole")
    whole = (tmp_path / "whole").read_bytes()
    url = own_server.url(own_database)
    for share in (0.5, 0.9, 0.99):
        (tmp_path / "half").write_bytes(whole[: int(len(whole) * share)])
        with pytest.raises(DumpFailed):
            await restore(tmp_path / "half", url)
        assert await is_empty(url)
    await restore(tmp_path / "whole", url)
    assert not await is_empty(url)


async def test_up_speaks_tls_from_its_first_statement(
    own_server: OwnPostgres, own_database: str, redis_url: str, tmp_path: Path
) -> None:
    from shared.cli.startup.steps import migrate_with_backup

    url = own_server.url(own_database)
    settings = load_settings(database_url=url, redis_url=redis_url, data_dir=tmp_path, secret_key=KEY)
    await migrate_with_backup(settings, url, say=print)
    connection = await connect(url)
    try:
        assert await connection.fetchval("SELECT version_num FROM alembic_version")
    finally:
        await connection.close()


async def test_postgres_refuses_connections_without_tls(own_server: OwnPostgres, own_database: str) -> None:
    with pytest.raises(StorageUnavailable, match="no encryption"):
        await connect(own_server.url(own_database, query="sslmode=disable"))
    for insists in ("sslmode=require", "", f"sslmode=verify-ca&sslrootcert={own_server.authority.file}"):
        connection = await connect(own_server.url(own_database, query=insists))
        assert await connection.fetchval("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()")
        await connection.close()


@pytest.mark.parametrize("way", ["a rival's authority", "another name", "the system's authorities"])
async def test_an_impostor_is_refused_by_everyone_and_named(
    own_server: OwnPostgres, own_database: str, redis_url: str, tmp_path: Path, way: str
) -> None:
    file = own_server.authority.file
    url = {
        "a rival's authority": own_server.url(
            own_database, query=f"sslmode=verify-full&sslrootcert={Authority(tmp_path, 'rival').file}"
        ),
        "another name": own_server.url(
            own_database, host="127.0.0.1", query=f"sslmode=verify-full&sslrootcert={file}"
        ),
        "the system's authorities": own_server.url(own_database, query="sslmode=verify-full"),
    }[way]
    for opens in (connect, open_pool, migrate):
        with pytest.raises(StorageUnavailable, match="certificate") as raised:
            await opens(url)
        assert "sslrootcert" in raised.value.advice
    here = environment(tmp_path, url, redis_url)
    for verb in ("migrate", "backup", "doctor"):
        told = await run(verb, said_by=here)
        assert told.returncode == 1
        assert "certificate" in told.stderr + told.stdout, told.stderr + told.stdout
        assert "Traceback" not in told.stderr + told.stdout


async def test_a_file_that_is_not_there_is_named(own_server: OwnPostgres) -> None:
    url = own_server.url(query="sslmode=verify-full&sslrootcert=/nowhere/ca.pem")
    with pytest.raises(StorageUnavailable) as raised:
        await open_pool(url)
    assert "sslrootcert" in raised.value.advice


async def test_words_for_libpq_alone_are_no_settings_of_the_server(
    own_server: OwnPostgres, own_database: str
) -> None:
    query = f"{own_server.url().partition('?')[2]}&connect_timeout=10&keepalives=1&channel_binding=prefer"
    connection = await connect(own_server.url(own_database, query=query))
    await connection.close()
    with pytest.raises(StorageUnavailable, match="channel_binding"):
        await connect(own_server.url(own_database, query="sslmode=require&channel_binding=require"))


async def silence(_link: object, _data: bytes) -> bytes:
    """As a host that the network has lost: it takes what comes, and nothing comes back."""
    return b""


async def test_the_first_host_that_writes_is_taken(own_server: OwnPostgres, own_database: str) -> None:
    port = own_server.port
    url = own_server.url(own_database).replace(f"@localhost:{port}", f"@localhost:1,localhost:{port}")
    url += "&target_session_attrs=primary"
    pool = await open_pool(url, size=1)
    assert await pool.fetchval("SELECT NOT pg_is_in_recovery()")
    await pool.close()
    async with TcpProxy(upstream=("127.0.0.1", port), replies=silence) as dumb:
        began = time.monotonic()
        pool = await open_pool(url.replace("localhost:1,", f"localhost:{dumb.port},"), size=1)
        await pool.close()
        assert dumb.connections
        assert time.monotonic() - began < 8 * count_times()
    with pytest.raises((StorageUnavailable, asyncpg.PostgresError), match="standby"):
        await open_pool(url.replace("attrs=primary", "attrs=standby"), size=1)
