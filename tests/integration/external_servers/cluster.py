"""A cluster of several hosts, as the document of clusters says to set it up."""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit

from redis.asyncio import Redis

from tests.integration.external_servers.certificates import Authority
from tests.integration.external_servers.cluster_document import placed, written
from tests.integration.external_servers.own_postgres import PASSWORD, OwnPostgres
from tests.integration.external_servers.pgbouncer import CARRIES_FROM, pgbouncer
from tests.integration.external_servers.system_programs import program, running, version_of
from tests.integration.external_servers.tls_front import tls_front
from tests.kit.free_ports import free_port

ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(ROOT), "EVERTALK_ENV_FILE": str(self.folder / ".env")}

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-P", "-m", "shared", *arguments],
            env=self.environment, capture_output=True, text=True, timeout=150, cwd="/",
        )  # fmt: skip

    @asynccontextmanager
    async def up(self) -> AsyncIterator[asyncio.subprocess.Process]:
        with (self.folder / "up.log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-P", "-m", "shared", "up",
                env=self.environment, cwd="/", stdout=log, stderr=log, stdin=asyncio.subprocess.DEVNULL,
            )  # fmt: skip
        try:
            yield process
        finally:
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)
                await asyncio.wait_for(process.wait(), 60)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    hosts: tuple[Host, Host]
    port: int
    """Of the balancer."""
    tls: ssl.SSLContext
    direct: str
    """The database past the pooler."""


async def build_cluster(
    stack: AsyncExitStack,
    folder: Path,
    server: OwnPostgres,
    database: str,
    redis_url: str,
    *,
    name_port: int = 0,
    standby_port: int = 1,
) -> Cluster:
    """Start what the document's files describe; `name_port` is where the name of the primary leads."""
    authority, webs, port, pooler = Authority(folder), [free_port(), free_port()], free_port(), free_port()
    redis = await stack.enter_async_context(_redis(redis_url, authority))
    primary = f"localhost port={name_port or server.port}"
    places = {
        "db.example.org port=5432 dbname=evertalk": f"{primary} dbname={database}",
        "db1.example.org:5432": f"localhost:{standby_port}",
        "db2.example.org:5432/evertalk?": f"localhost:{server.port}/{database}?",
        "/etc/evertalk/db-ca.pem": str(server.authority.file),
        "redis.example.org:6380/0": redis,
        "/etc/evertalk/redis-ca.pem": str(authority.file),
        "/etc/pgbouncer/users.txt": str(folder / "users.txt"),
        "127.0.0.1:6432": f"127.0.0.1:{pooler}",
        "listen_port = 6432": f"listen_port = {pooler}",
        "PASSWORD": quote(PASSWORD, safe=""),
        "what-openssl-rand-base64-48-prints": "k" * 64,
        "https://chat.example.org": f"https://127.0.0.1:{port}",
        "10.0.0.10:443": f"127.0.0.1:{port}",
        "10.0.0.11:8080": f"127.0.0.1:{webs[0]}",
        "10.0.0.12:8080": f"127.0.0.1:{webs[1]}",
        "10.0.0.11:8081": f"127.0.0.1:{free_port()}",
        "10.0.0.12:8081": f"127.0.0.1:{free_port()}",
        "EVERTALK_TRUSTED_PROXIES=10.0.0.10": "EVERTALK_TRUSTED_PROXIES=127.0.0.1",
        "EVERTALK_HTTP_HOST=10.0.0.11": "EVERTALK_HTTP_HOST=127.0.0.1",
        "/etc/haproxy/chat.pem": str(_for_balancer(authority, folder)),
    }
    roles = written("sql").replace("ROLE evertalk ", "ROLE evertalk IN DATABASE " + f'"{database}" ')
    await server.execute(*filter(str.strip, roles.split(";")))
    config = placed(written("ini"), places)
    if version_of(program("pgbouncer", package="pgbouncer"))[:2] < CARRIES_FROM:
        config = config.replace("max_prepared_statements = 200\n", "")
    await stack.enter_async_context(pgbouncer(folder, server, config=config, port=pooler))
    hosts = _hosts(folder, placed_env(places, webs))
    return Cluster(
        hosts=hosts, port=await stack.enter_async_context(_haproxy(folder, places, port)),
        tls=ssl.create_default_context(cafile=str(authority.file)), direct=server.url(database),
    )  # fmt: skip


def placed_env(places: dict[str, str], webs: list[int]) -> list[str]:
    """What stands last in it is each host's own."""
    env = written("sh", "EVERTALK_SECRET_KEY")
    return [
        placed(
            env.replace("EVERTALK_HTTP_PORT=8080", f"EVERTALK_HTTP_PORT={port}").replace(
                "EVERTALK_DATA_DIR=/var/lib/evertalk", "EVERTALK_DATA_DIR=HERE"
            ),
            places,
        )
        for port in webs
    ]


def _hosts(folder: Path, env: list[str]) -> tuple[Host, Host]:
    made = []
    for name, text in zip("ab", env, strict=True):
        host = Host(folder=folder / name)
        host.folder.mkdir()
        (host.folder / ".env").write_text(text.replace("=HERE", f"={host.folder / 'data'}"))
        (host.folder / ".env").chmod(0o600)
        made.append(host)
    return made[0], made[1]


@asynccontextmanager
async def _redis(url: str, authority: Authority) -> AsyncIterator[str]:
    """Host, port and database of a Valkey behind TLS that knows the account of the document."""
    parts, admin = urlsplit(url), Redis.from_url(url)
    account = ("on", f">{PASSWORD}", "~*", "&*", "+@all")
    await admin.execute_command("ACL", "SETUSER", "evertalk", *account)
    try:
        async with tls_front(Path(parts.path), authority.sign("redis", hosts=("localhost",))) as port:
            yield f"localhost:{port}/{parts.query.removeprefix('db=')}"
    finally:
        await admin.execute_command("ACL", "DELUSER", "evertalk")
        await admin.aclose()


def _for_balancer(authority: Authority, folder: Path) -> Path:
    signed, both = authority.sign("chat"), folder / "chat.pem"
    both.write_text(signed.certificate.read_text() + signed.key.read_text())
    both.chmod(0o644)
    return both


@asynccontextmanager
async def _haproxy(folder: Path, places: dict[str, str], port: int) -> AsyncIterator[int]:
    config, log = folder / "haproxy.cfg", folder / "haproxy.log"
    config.write_text(placed(written("", "haproxy.cfg"), places))
    async with running([program("haproxy", package="haproxy"), "-db", "-f", config], log=log, ports=[port]):
        yield port
