"""A hot standby of a PostgreSQL with TLS, made by pg_basebackup, that can be promoted."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import asyncpg

from tests.integration.external_servers.own_postgres import ADMIN_PASSWORD, OWNER, OwnPostgres
from tests.integration.external_servers.system_programs import as_nobody, own, postgres_programs, running
from tests.kit.free_ports import free_port

COPY_SECONDS = 120


@contextlib.asynccontextmanager
async def standby_of(primary: OwnPostgres, folder: Path) -> AsyncIterator[OwnPostgres]:
    """Follow `primary` synchronously until promoted: what is acknowledged is on both servers."""
    own(folder)
    data, log, port = folder / "data", folder / "log", free_port()
    await asyncio.to_thread(_copy, primary, data)
    log.touch()
    own(log)
    options = {**primary.options, "port": str(port), "unix_socket_directories": str(folder)}
    command: list[str | Path] = [postgres_programs() / "postgres", "-D", data]
    command += [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
    async with running(command, log=log, ports=[port]) as process:
        standby = replace(primary, port=port, folder=folder, process=process)
        await _until_streaming(primary)
        await primary.execute(
            # The server of the tests does not wait for its disk; its synchronous standby is waited for.
            f"ALTER ROLE {OWNER} SET synchronous_commit = on",
            "ALTER SYSTEM SET synchronous_standby_names = '*'",
            "SELECT pg_reload_conf()",
        )
        yield standby


async def promote(standby: OwnPostgres) -> None:
    """Make the standby the primary, and wait until it is."""
    await standby.execute("SELECT pg_promote()")


def _copy(primary: OwnPostgres, data: Path) -> None:
    command = [
        postgres_programs() / "pg_basebackup", "--pgdata", data, "--host", primary.folder,
        "--port", str(primary.port), "--username", "postgres", "--write-recovery-conf",
        "--checkpoint", "fast", "--no-sync",
    ]  # fmt: skip
    made = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, timeout=COPY_SECONDS, cwd="/",
        **as_nobody(),
    )  # fmt: skip
    assert made.returncode == 0, made.stderr


async def _until_streaming(primary: OwnPostgres) -> None:
    connection = await asyncpg.connect(
        host=str(primary.folder), port=primary.port, user="postgres", password=ADMIN_PASSWORD,
        database="postgres", timeout=30,
    )  # fmt: skip
    try:
        async with asyncio.timeout(60):
            while not await connection.fetchval(
                "SELECT EXISTS (SELECT FROM pg_stat_replication WHERE state = 'streaming')"
            ):
                await asyncio.sleep(0.1)
    finally:
        await connection.close(timeout=10)
