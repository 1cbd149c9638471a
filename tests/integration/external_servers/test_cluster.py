"""Two hosts, set up as docs/cluster.md has it word for word: one dies, and nobody loses a word."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest
from redis.asyncio import Redis

from shared.adapters.postgres.db.connecting import connect
from shared.adapters.postgres.operations.invariants import check_invariants
from tests.integration.external_servers.certificates import Authority
from tests.integration.external_servers.cluster_document import placed, written
from tests.integration.external_servers.own_postgres import PASSWORD, OwnPostgres
from tests.integration.external_servers.pgbouncer import CARRIES_FROM, pgbouncer
from tests.integration.external_servers.system_programs import program, running, version_of
from tests.integration.external_servers.tls_front import tls_front
from tests.kit.deployment.person import Person
from tests.kit.free_ports import free_port
from tests.kit.temp_folders import short_folder

ROOT = Path(__file__).resolve().parents[3]
PEOPLE, TURNS = 3, 2
"""From one address twenty messages in a minute are let in, by both hosts together."""


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


@pytest.fixture
async def cluster(own_server: OwnPostgres, own_database: str, redis_url: str) -> AsyncIterator[Cluster]:
    folder = short_folder("evc-")
    try:
        async with AsyncExitStack() as stack:
            yield await build_cluster(stack, folder, own_server, own_database, redis_url)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


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


@pytest.mark.faults
@pytest.mark.timeout(400)
async def test_death_of_a_database_host_loses_no_message(cluster: Cluster) -> None:
    one, other = cluster.hosts
    migrated = await asyncio.to_thread(one.run, "migrate")
    assert migrated.returncode == 0, migrated.stderr
    async with other.up(), one.up() as dying, AsyncExitStack() as stack:
        await _until(cluster, _SERVING, 2)
        people = [
            await stack.enter_async_context(Person(cluster.port, name=f"p{n}", tls=cluster.tls))
            for n in range(PEOPLE)
        ]
        await _talk(people)
        await _until(cluster, _WITH_SCREENS, 2)
        looked = await asyncio.to_thread(other.run, "doctor")
        assert looked.returncode == 0, looked.stdout
        assert "2 hosts, set up alike" in looked.stdout
        assert "a pooler stands before PostgreSQL" in looked.stdout
        talking = [asyncio.ensure_future(_talk([person])) for person in people]
        dying.send_signal(signal.SIGKILL)
        await dying.wait()
        await asyncio.gather(*talking)
        await _talk(people)
        for person in people:
            assert person.contradictions == []
            assert len(person.finals) == len(person.said) == 3 * TURNS
        saved = await asyncio.to_thread(other.run, "backup")
        assert saved.returncode == 0, saved.stderr
        await _until(cluster, _SERVING, 1)
    connection = await connect(cluster.direct)
    try:
        assert [str(line) for line in await check_invariants(connection)] == []
    finally:
        await connection.close()


async def _talk(people: list[Person]) -> None:
    for _ in range(TURNS):
        for person in people:
            await person.say("Let us go on.")
        for person in people:
            await person.answered()


async def _until(cluster: Cluster, count: str, wanted: int) -> None:
    connection = await connect(cluster.direct)
    try:
        async with asyncio.timeout(90):
            while await connection.fetchval(count) != wanted:
                await asyncio.sleep(0.2)
    except TimeoutError:
        logs = [(host.folder / "up.log").read_text()[-2000:] for host in cluster.hosts]
        raise AssertionError(f"{count} is not {wanted}\n" + "\n".join(logs)) from None
    finally:
        await connection.close()


_LIVES = "role = 'web' AND stopped_at IS NULL AND beat > now() - interval '4 seconds'"
_SERVING = f"SELECT count(*) FROM workers WHERE {_LIVES}"
_WITH_SCREENS = f"SELECT count(*) FROM workers WHERE {_LIVES} AND health ? 'screens'"
