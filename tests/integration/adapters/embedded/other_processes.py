"""Embedded servers that another process has started, and rows that show whether they keep data."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import asyncpg
from redis.asyncio import Redis

from shared.adapters.embedded import EmbeddedServers

ROOT = Path(__file__).resolve().parents[4]
STARTED_BY_ANOTHER_PROCESS = """
import asyncio, sys
from pathlib import Path
from shared.adapters.embedded import EmbeddedServers

async def main():
    servers = EmbeddedServers(Path(sys.argv[1]))
    await servers.start()
    print(servers.postgres.process.pid, servers.valkey.process.pid, flush=True)
    await asyncio.sleep(120)

asyncio.run(main())
"""


def start_elsewhere(folder: Path) -> tuple[subprocess.Popen[str], list[int]]:
    process = subprocess.Popen(
        [sys.executable, "-c", STARTED_BY_ANOTHER_PROCESS, str(folder)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert process.stdout is not None
    pids = [int(word) for word in process.stdout.readline().split()]
    return process, pids


def end_process(process: subprocess.Popen[str], how: signal.Signals) -> None:
    process.send_signal(how)
    process.wait(60)
    assert process.stdout is not None
    process.stdout.close()


async def add_one(servers: EmbeddedServers) -> tuple[int, int]:
    connection = await asyncpg.connect(servers.database_url)
    try:
        await connection.execute("create table if not exists kept (id int generated always as identity)")
        await connection.execute("insert into kept default values")
        rows = await connection.fetchval("select count(*) from kept")
    finally:
        await connection.close()
    redis = Redis.from_url(servers.redis_url)
    try:
        return rows, await redis.incr("kept")
    finally:
        await redis.aclose()
