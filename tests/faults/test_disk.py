"""The disk of the log is full, for a real PostgreSQL: what is acknowledged is stored, and it comes back."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import asyncpg
import pytest

from shared.adapters.embedded import EmbeddedServers
from shared.adapters.embedded.binaries import make_reachable
from shared.adapters.embedded.process_user import ProcessUser, find_account
from shared.adapters.embedded.servers import EmbeddedChoice
from shared.adapters.postgres.db.migrate import migrate
from tests.faults.house import told
from tests.faults.small_disk import NoSmallDisk, SmallDisk, small_disk
from tests.kit.deployment.breakable_servers import Case, Plant, Recovery
from tests.kit.deployment.person import Person
from tests.kit.free_ports import free_port

MEGABYTES = 32
SEGMENT_MEGABYTES = 1
"""Of the log: it asks the disk for room each time that one is full."""
NO_SPACE = "No space left on device"
DATABASE = "full"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cramped:
    """A PostgreSQL whose log is on a small disk, and somebody who starts it again when it falls."""

    plant: Plant
    disk: SmallDisk
    log: Path

    def words(self) -> str:
        return self.log.read_text(errors="replace")


@pytest.fixture
async def cramped(plant: Plant, tmp_path: Path) -> AsyncIterator[Cramped]:
    folder = plant.folder / "cramped"
    servers = EmbeddedServers(folder / "servers", wanted=EmbeddedChoice(redis=False))
    await servers.start()
    await servers.stop()
    account = find_account(folder / "servers")
    with contextlib.ExitStack() as mounted:
        try:
            disk = mounted.enter_context(
                small_disk(folder / "servers" / "wal", megabytes=MEGABYTES, account=account)
            )
        except NoSmallDisk as error:
            pytest.skip(f"no small disk can be made here: {error}")
        _log_goes_to(disk, folder / "servers", account)
        await servers.start()
        watching = asyncio.create_task(servers.watch())
        small = Plant(servers=servers, folder=folder, hatchery=plant.hatchery)
        await small.admin(f'create database "{DATABASE}"')
        await migrate(small.database_url(DATABASE))
        yield Cramped(plant=small, disk=disk, log=folder / "servers" / "postgres.log")
        watching.cancel()
        await asyncio.wait([watching])
        await servers.stop()
    shutil.rmtree(folder, ignore_errors=True)


def _log_goes_to(disk: SmallDisk, servers: Path, account: ProcessUser) -> None:
    cluster = servers / "pg"
    programs = make_reachable(account, servers).postgres_bin
    commands: tuple[Sequence[str | Path], ...] = (
        ["rm", "-r", cluster / "pg_wal"],
        ["mkdir", disk.folder / "archive_status", disk.folder / "summaries"],
        ["ln", "-s", disk.folder, cluster / "pg_wal"],
        [programs / "pg_resetwal", "--force", f"--wal-segsize={SEGMENT_MEGABYTES}", "-D", cluster],
    )
    for command in commands:
        subprocess.run(
            command, cwd="/", check=True, timeout=30, capture_output=True, **account.spawn_options()
        )
    with (cluster / "postgresql.conf").open("a") as more:
        more.write(f"min_wal_size = '{2 * SEGMENT_MEGABYTES}MB'\nmax_wal_size = '{MEGABYTES // 4}MB'\n")


@pytest.mark.row("F30")
async def test_full_log_disk_loses_nothing_acknowledged_and_recovers(
    plant: Plant, cramped: Cramped, recovery: Recovery
) -> None:
    redis_url = f"{plant.servers.redis_url}?db=15"
    case = Case(plant=cramped.plant, database=DATABASE, redis_url=redis_url, port=free_port())
    async with case.queue() as redis:
        await redis.flushdb()
    async with (
        case.web() as web, case.worker() as worker,
        Person(case.port, name="one") as one, Person(case.port, name="two") as two,
    ):  # fmt: skip
        await asyncio.gather(one.ask("Is there room for me?"), two.ask("And for me?"))
        async with cramped.disk.full():
            await _log_grows(case, cramped)
            await asyncio.gather(*(told(person, "Said onto a full disk.") for person in (one, two)))
            await asyncio.sleep(1.0)
            assert [len(person.acks) for person in (one, two)] == [1, 1]
        since = time.monotonic()
        await asyncio.gather(one.answered(), two.answered())
        recovery.note("answered after the log's disk was full", since)
        await one.ask("Is all as it was?")
        await case.promises_hold(one, two)
        assert (web.exits, worker.exits) == ([], [])
    assert "PANIC" in cramped.words(), "Postgres itself fell"


async def _log_grows(case: Case, cramped: Cramped) -> None:
    """Until a segment of it is full, and there is no room for the next."""
    while NO_SPACE not in cramped.words():
        await asyncio.sleep(0.05)
        with contextlib.suppress(asyncpg.PostgresError, OSError, asyncpg.InterfaceError):
            await case.value("SELECT pg_logical_emit_message(false, 'more', repeat('x', 1024 * 1024))")
