"""A PostgreSQL as somebody else runs it: with passwords, certificates, and nobody let in without TLS."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import asyncpg

from tests.integration.external_servers.certificates import Authority
from tests.integration.external_servers.system_programs import as_nobody, own, postgres_programs, running
from tests.kit.free_ports import free_port

OWNER, PASSWORD = "evertalk", "a pass/word: with @ signs?"
_QUOTED = "a%20pass%2Fword%3A%20with%20%40%20signs%3F"
ADMIN_PASSWORD = "admin"


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnPostgres:
    port: int
    folder: Path
    authority: Authority
    process: subprocess.Popen[bytes]
    options: Mapping[str, str]
    """Configuration of the server, which a standby shares."""

    def url(self, database: str = "evertalk", *, host: str = "localhost", query: str | None = None) -> str:
        asked = f"sslmode=verify-full&sslrootcert={self.authority.file}" if query is None else query
        return f"postgresql://{OWNER}:{_QUOTED}@{host}:{self.port}/{database}?{asked}"

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    async def execute(self, *statements: str, database: str = "postgres") -> None:
        connection = await asyncpg.connect(
            host=str(self.folder), port=self.port, user="postgres", password=ADMIN_PASSWORD,
            database=database, timeout=30,
        )  # fmt: skip
        try:
            for statement in statements:
                await connection.execute(statement, timeout=60)
        finally:
            await connection.close(timeout=10)

    async def create(self, database: str) -> str:
        """Owned by the account of the addresses; its usual one."""
        await self.execute(f'CREATE DATABASE "{database}" OWNER {OWNER} TEMPLATE template0 ENCODING UTF8')
        return self.url(database)


@contextlib.asynccontextmanager
async def own_postgres(folder: Path, *, plain_too: bool = False) -> AsyncIterator[OwnPostgres]:
    """Who comes without TLS is refused, unless `plain_too`."""
    programs, authority, port = postgres_programs(), Authority(folder), free_port()
    signed = authority.sign("db", hosts=("localhost",))
    own(folder, signed.key, signed.certificate)
    data = folder / "data"
    await asyncio.to_thread(_make, programs, data)
    (data / "pg_hba.conf").write_text(
        "local all postgres trust\n"
        "local replication postgres trust\n"
        f"{'host' if plain_too else 'hostssl'} all all 127.0.0.1/32 scram-sha-256\n"
        f"{'host' if plain_too else 'hostssl'} all all ::1/128 scram-sha-256\n"
    )
    options = {
        "listen_addresses": "127.0.0.1,::1", "port": str(port), "unix_socket_directories": str(folder),
        "ssl": "on", "ssl_cert_file": str(signed.certificate), "ssl_key_file": str(signed.key),
        "fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "shared_buffers": "32MB",
        "max_connections": "60", "timezone": "UTC",
    }  # fmt: skip
    command: list[str | Path] = [programs / "postgres", "-D", data]
    command += [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
    async with running(command, log=_log(folder), ports=[port]) as process:
        server = OwnPostgres(port=port, folder=folder, authority=authority, process=process, options=options)
        await _until_ready(server)
        await server.execute(f"CREATE ROLE {OWNER} LOGIN PASSWORD '{PASSWORD}'")
        yield server


def _make(programs: Path, data: Path) -> None:
    command: list[str | Path] = [
        programs / "initdb",
        "-D",
        data,
        "-U",
        "postgres",
        "--auth=trust",
        "--encoding=UTF8",
    ]
    made = subprocess.run(
        [*command, "--no-locale", "--no-sync"],
        capture_output=True, text=True, timeout=120, cwd="/", **as_nobody(),
    )  # fmt: skip
    assert made.returncode == 0, made.stderr


def _log(folder: Path) -> Path:
    log = folder / "log"
    log.touch()
    return log


async def _until_ready(server: OwnPostgres) -> None:
    async with asyncio.timeout(30):
        while True:
            with contextlib.suppress(asyncpg.CannotConnectNowError, OSError):
                await server.execute("SELECT 1")
                return
            await asyncio.sleep(0.05)
