"""The servers we bring along: they start, come back, keep what they acknowledged, and leave no trace."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import subprocess
import sys
from itertools import count
from pathlib import Path

import asyncpg
import pytest
from redis.asyncio import Redis

from shared.adapters.embedded import EmbeddedChoice, EmbeddedServerFailed, EmbeddedServers
from shared.adapters.embedded.binaries import POSTGRES_MAJOR, Binaries, ServerConfig
from shared.adapters.embedded.errors import FolderInUse
from shared.adapters.embedded.folders import LONGEST_SOCKET_BYTES, FolderLock, is_held, socket_folder
from shared.adapters.embedded.postgres import EmbeddedPostgres
from shared.adapters.embedded.process import rotate, stop_leftover
from shared.adapters.embedded.process_user import ProcessUser, find_account
from shared.adapters.embedded.servers import are_running
from tests.integration.adapters.embedded.other_processes import add_one, end_process, start_elsewhere

_numbers = count(1)


@pytest.fixture
def home(run_folder: Path) -> Path:
    path = run_folder / f"e{next(_numbers)}"
    path.mkdir(mode=0o755)
    return path / "servers"


@pytest.mark.control("S38", "S39")
async def test_both_servers_answer_on_private_sockets_and_nowhere_else(
    servers: EmbeddedServers,
) -> None:
    connection = await asyncpg.connect(servers.database_url)
    assert await connection.fetchval("show listen_addresses") == ""
    assert await connection.fetchval("show timezone") == "UTC"
    assert await connection.fetchval("show unix_socket_permissions") == "0700"
    sorted_by = await connection.fetchval(
        "select datlocale from pg_database where datname = current_database()"
    )
    assert sorted_by == "C.UTF-8"
    await connection.close()
    redis = Redis.from_url(servers.redis_url)
    assert (await redis.config_get("port"))["port"] == "0"
    await redis.aclose()
    sockets = Path(servers.redis_url.removeprefix("unix://")).parent
    assert stat.S_IMODE(sockets.stat().st_mode) == 0o700


async def test_a_clean_stop_and_a_second_start_keep_everything(home: Path) -> None:
    async with EmbeddedServers(home) as first:
        assert await add_one(first) == (1, 1)
    async with EmbeddedServers(home) as second:
        assert await add_one(second) == (2, 2)


@pytest.mark.faults
async def test_acknowledged_writes_survive_kill_9_of_everything(home: Path) -> None:
    async with EmbeddedServers(home) as servers:
        await add_one(servers)
    process, pids = await asyncio.to_thread(start_elsewhere, home)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    await asyncio.to_thread(end_process, process, signal.SIGKILL)
    async with EmbeddedServers(home) as servers:
        assert await add_one(servers) == (2, 2)


@pytest.mark.faults
async def test_servers_whose_parent_was_shot_do_not_stand_in_the_way(home: Path) -> None:
    process, _ = await asyncio.to_thread(start_elsewhere, home)
    await asyncio.to_thread(end_process, process, signal.SIGKILL)
    async with EmbeddedServers(home) as servers:
        assert await add_one(servers) == (1, 1)


@pytest.mark.faults
async def test_a_server_that_falls_is_started_again(home: Path) -> None:
    async with EmbeddedServers(home) as servers:
        await add_one(servers)
        watching = asyncio.create_task(servers.watch())
        assert servers.postgres is not None
        assert servers.valkey is not None
        for server in (servers.postgres, servers.valkey):
            assert server.process is not None
            server.process.kill()
            server.process.wait(5)
        async with asyncio.timeout(90):
            while not (servers.postgres.alive and servers.valkey.alive):
                await asyncio.sleep(0.05)
            while (await _try_to_add_one(servers)) is None:
                await asyncio.sleep(0.05)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


_LINGERING = """#!/bin/sh
echo run >> "{runs}"
if [ "$(wc -l < "{runs}")" = 1 ]; then
    echo 'FATAL:  pre-existing shared memory block (key 2150, ID 32815) is still in use'
    for number in $(seq 60); do echo 'FATAL:  terminating connection, unexpected postmaster exit'; done
else
    echo 'FATAL:  something else'
fi
exit 1
"""


async def test_a_killed_server_is_waited_for_however_much_its_processes_say(home: Path) -> None:
    """Sixty connections write their last lines below the one that says why the new server did not start."""
    cluster, programs, runs = home / "pg", home / "bin", home / "runs"
    for made in (cluster, programs, home / "sockets"):
        made.mkdir(parents=True)
    (cluster / "PG_VERSION").write_text(f"{POSTGRES_MAJOR}\n")
    (programs / "postgres").write_text(_LINGERING.format(runs=runs))
    (programs / "postgres").chmod(0o755)
    server = EmbeddedPostgres(
        ServerConfig(
            folder=home, sockets=home / "sockets", account=ProcessUser(),
            binaries=Binaries(postgres_bin=programs, valkey_server=programs),
        )
    )  # fmt: skip
    with pytest.raises(EmbeddedServerFailed, match="something else"):
        await server.start()
    assert runs.read_text().split() == ["run", "run"], "it was tried again"


async def _try_to_add_one(servers: EmbeddedServers) -> tuple[int, int] | None:
    try:
        return await add_one(servers)
    except (OSError, asyncpg.PostgresError, ConnectionError):
        return None


async def test_one_folder_serves_one_process(home: Path) -> None:
    async with EmbeddedServers(home, wanted=EmbeddedChoice(postgres=False), durable=False):
        assert are_running(home)
        with pytest.raises(FolderInUse, match="already in use"):
            await EmbeddedServers(home).start()
    assert not are_running(home)


async def test_a_folder_name_with_spaces_works(home: Path) -> None:
    async with EmbeddedServers(home.parent / "Application Support", durable=False) as servers:
        assert " " not in servers.redis_url
        assert await add_one(servers) == (1, 1)


async def test_a_very_long_folder_name_works(home: Path) -> None:
    deep = home.parent / ("long" * 20) / ("path" * 20)
    async with EmbeddedServers(deep, durable=False) as servers:
        assert len(servers.redis_url.removeprefix("unix://")) <= LONGEST_SOCKET_BYTES
        assert await add_one(servers) == (1, 1)


async def test_files_of_another_major_version_are_refused_with_advice(home: Path) -> None:
    async with EmbeddedServers(home, durable=False):
        pass
    (home / "pg" / "PG_VERSION").write_text("12\n")
    with pytest.raises(EmbeddedServerFailed, match="PostgreSQL 12") as refusal:
        await EmbeddedServers(home, durable=False).start()
    assert "./evertalk upgrade" in refusal.value.advice
    assert not are_running(home)


async def test_a_half_made_cluster_is_never_used(home: Path) -> None:
    (home / "pg.new").mkdir(parents=True)
    (home / "pg.new" / "PG_VERSION").write_text("18\n")
    async with EmbeddedServers(home, durable=False) as servers:
        assert await add_one(servers) == (1, 1)


async def test_a_process_that_merely_reuses_the_number_is_left_alone(tmp_path: Path) -> None:
    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    pid_file = tmp_path / "postmaster.pid"
    pid_file.write_text(f"{bystander.pid}\n")
    await stop_leftover(pid_file, ("postgres", str(tmp_path)), signal.SIGINT)
    assert bystander.poll() is None
    bystander.kill()
    bystander.wait(5)


async def test_a_file_in_place_of_the_folder_is_refused_with_advice(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(EmbeddedServerFailed) as refusal:
        await EmbeddedServers(tmp_path / "taken" / "servers").start()
    assert "EVERTALK_DATA_DIR" in refusal.value.advice


@pytest.mark.control("S38")
def test_a_socket_folder_of_someone_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").symlink_to("/tmp")
    with pytest.raises(EmbeddedServerFailed, match="someone else"):
        socket_folder(tmp_path, ProcessUser())


def test_the_lock_tells_what_its_holder_wrote(tmp_path: Path) -> None:
    with FolderLock(tmp_path / "lock") as held:
        held.write_note("http://127.0.0.1:8080")
        with pytest.raises(FolderInUse) as refusal:
            FolderLock(tmp_path / "lock").take()
        assert refusal.value.note == "http://127.0.0.1:8080"
    assert not is_held(tmp_path / "lock")


def test_a_log_is_turned_over_when_it_is_full(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("x" * 100)
    rotate(log, limit_bytes=50)
    assert not log.exists()
    assert (tmp_path / "a.log.1").exists()


@pytest.mark.control("S44")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root has rights to give up")
async def test_root_gives_up_its_rights_and_opens_no_other_folder(home: Path) -> None:
    before = Path("/root").stat().st_mode
    accounts = Path("/etc/passwd").read_bytes()
    async with EmbeddedServers(home, durable=False) as servers:
        assert servers.postgres is not None
        assert servers.postgres.process is not None
        status = Path(f"/proc/{servers.postgres.process.pid}/status").read_text()
        uid = next(line.split()[1] for line in status.splitlines() if line.startswith("Uid:"))
        assert uid != "0"
    assert Path("/root").stat().st_mode == before
    assert Path("/etc/passwd").read_bytes() == accounts


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make folders of others")
def test_root_uses_the_owner_of_the_folder(tmp_path: Path) -> None:
    os.chown(tmp_path, 12_345, 12_345)
    assert find_account(tmp_path) == ProcessUser(uid=12_345, gid=12_345)
