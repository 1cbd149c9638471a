"""A PostgreSQL that follows another one at a distance, and is promoted when that one falls."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg

from shared.adapters.embedded.binaries import Binaries, make_reachable
from shared.adapters.embedded.folders import socket_folder
from shared.adapters.embedded.postgres import build_postgres_url
from shared.adapters.embedded.process import spawn, stop, tail, wait_until
from shared.adapters.embedded.process_user import ProcessUser, find_account
from tests.kit.deployment.breakable_servers import Plant
from tests.kit.deployment.person import PATIENCE_SECONDS

STOP_SECONDS = 20.0


@dataclass(slots=True, kw_only=True)
class Standby:
    """Asynchronous: what it has not received when its primary falls, nobody has any more."""

    plant: Plant
    folder: Path
    account: ProcessUser
    binaries: Binaries
    sockets: Path
    process: subprocess.Popen[bytes] | None = None
    _senders: list[int] = field(default_factory=list)

    @property
    def socket(self) -> Path:
        return self.sockets / ".s.PGSQL.5432"

    def url(self, name: str) -> str:
        return build_postgres_url(self.sockets, name)

    async def value(self, sql: str, database: str) -> Any:
        """As it is there."""
        connection = await asyncpg.connect(self.url(database), timeout=PATIENCE_SECONDS)
        try:
            return await connection.fetchval(sql, timeout=PATIENCE_SECONDS)
        finally:
            await connection.close(timeout=PATIENCE_SECONDS)

    async def hears(self, sql: str, database: str) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not await self.value(sql, database):
                await asyncio.sleep(0.02)

    async def lag(self) -> None:
        """From now on it hears of nothing, as over a line that is too slow."""
        connection = await asyncpg.connect(self.plant.database_url("postgres"), timeout=PATIENCE_SECONDS)
        try:
            rows = await connection.fetch("SELECT pid FROM pg_stat_replication")
        finally:
            await connection.close(timeout=PATIENCE_SECONDS)
        self._senders = [row["pid"] for row in rows]
        assert self._senders, "nobody follows"
        for pid in self._senders:
            os.kill(pid, signal.SIGSTOP)

    async def take_over(self) -> None:
        """The primary falls as with its machine, and this one is promoted with what it has."""
        primary = self.plant.servers.postgres
        assert primary is not None
        assert primary.process is not None
        primary.process.kill()
        for pid in self._senders:
            os.kill(pid, signal.SIGKILL)
        assert await wait_until(lambda: not primary.alive, timeout_seconds=PATIENCE_SECONDS)
        connection = await asyncpg.connect(self.url("postgres"), timeout=PATIENCE_SECONDS)
        try:
            assert await connection.fetchval("SELECT pg_promote()", timeout=PATIENCE_SECONDS)
        finally:
            await connection.close(timeout=PATIENCE_SECONDS)


TRUSTED = "local all all trust\nlocal replication all trust\n"
"""Both servers stand in folders that nobody else can enter; the primary's own rules know no standby."""


@asynccontextmanager
async def followed(plant: Plant) -> AsyncIterator[Standby]:
    """A standby of the plant's PostgreSQL, up to date when entered."""
    folder = plant.folder / "standby"
    folder.mkdir()
    folder.chmod(0o711)
    account = find_account(folder)
    standby = Standby(
        plant=plant, folder=folder, account=account, sockets=socket_folder(folder, account),
        binaries=make_reachable(account, plant.folder / "servers"),
    )  # fmt: skip
    rules = folder / "pg_hba.conf"
    rules.write_text(TRUSTED)
    rules.chmod(0o644)
    await _admits_standbys(plant)
    await _copied(standby)
    standby.process = spawn(
        [
            standby.binaries.postgres, "-D", folder / "pg", "-c", f"hba_file={rules}",
            "-c", f"unix_socket_directories={standby.sockets}",
            "-c", "listen_addresses=", "-c", "port=5432", "-c", "max_connections=200", "-c", "timezone=UTC",
        ],
        log=folder / "postgres.log", account=account, death_signal=signal.SIGKILL,
    )  # fmt: skip
    try:
        await _follows(standby)
        yield standby
    finally:
        await stop(standby.process, signal.SIGQUIT, timeout_seconds=STOP_SECONDS)


async def _admits_standbys(plant: Plant) -> None:
    connection = await asyncpg.connect(plant.database_url("postgres"), timeout=PATIENCE_SECONDS)
    try:
        Path(await connection.fetchval("SHOW hba_file")).write_text(TRUSTED)
        await connection.execute("SELECT pg_reload_conf()")
    finally:
        await connection.close(timeout=PATIENCE_SECONDS)


async def _copied(standby: Standby) -> None:
    target = standby.account.folder(standby.folder / "pg")
    source = standby.plant.database_url("postgres").partition("host=")[2]
    made = await asyncio.create_subprocess_exec(
        standby.binaries.postgres_bin / "pg_basebackup", "--pgdata", target, "--host", source,
        "--username", "postgres", "--write-recovery-conf", "--checkpoint", "fast", "--no-sync",
        cwd="/", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        **standby.account.spawn_options(),
    )  # fmt: skip
    output, _ = await asyncio.wait_for(made.communicate(), PATIENCE_SECONDS)
    assert made.returncode == 0, output.decode(errors="replace")


async def _follows(standby: Standby) -> None:
    connection = await asyncpg.connect(standby.plant.database_url("postgres"), timeout=PATIENCE_SECONDS)
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not await connection.fetchval(
                "SELECT EXISTS (SELECT FROM pg_stat_replication WHERE state = 'streaming')"
            ):
                assert standby.process is not None
                assert standby.process.poll() is None, tail(standby.folder / "postgres.log")
                await asyncio.sleep(0.1)
    finally:
        await connection.close(timeout=PATIENCE_SECONDS)
