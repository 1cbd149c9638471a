"""PgBouncer as it stands before a PostgreSQL of many processes: it lends a server for a transaction."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from tests.integration.external_servers.own_postgres import OWNER, PASSWORD, OwnPostgres
from tests.integration.external_servers.system_programs import own, program, running, version_of
from tests.kit.free_ports import free_port

CARRIES_FROM = (1, 21)


@dataclass(frozen=True, slots=True, kw_only=True)
class PgBouncer:
    port: int
    carries_prepared: bool
    process: subprocess.Popen[bytes]

    def url(self, server: OwnPostgres, database: str, *, more: str = "sslmode=disable") -> str:
        return server.url(database, query=more).replace(f":{server.port}/", f":{self.port}/")


@contextlib.asynccontextmanager
async def pgbouncer(
    folder: Path,
    server: OwnPostgres,
    *,
    config: str | None = None,
    port: int = 0,
    prepared: int = 100,
    servers: int = 12,
) -> AsyncIterator[PgBouncer]:
    """Its own pool of a few servers; towards PostgreSQL it speaks TLS and checks the certificate."""
    found, port = program("pgbouncer", package="pgbouncer"), port or free_port()
    carries = version_of(found)[:2] >= CARRIES_FROM
    users, ini, log = folder / "users.txt", folder / f"pgbouncer-{port}.ini", folder / f"pgbouncer-{port}.log"
    users.write_text(f'"{OWNER}" "{PASSWORD}"\n')
    ini.write_text(config or _config(server, port, users, servers, prepared if carries else None))
    log.touch()
    own(folder, users, ini, log)
    async with running([found, ini], log=log, ports=[port]) as process:
        yield PgBouncer(port=port, carries_prepared=carries and prepared > 0, process=process)


def _config(server: OwnPostgres, port: int, users: Path, servers: int, prepared: int | None) -> str:
    lines = [
        "[databases]",
        f"* = host=localhost port={server.port}",
        "[pgbouncer]",
        "listen_addr = 127.0.0.1",
        f"listen_port = {port}",
        "unix_socket_dir =",
        "pool_mode = transaction",
        f"default_pool_size = {servers}",
        "max_client_conn = 200",
        "auth_type = scram-sha-256",
        f"auth_file = {users}",
        "server_tls_sslmode = verify-full",
        f"server_tls_ca_file = {server.authority.file}",
        # The next transaction has another server than the last one: nothing may hang on having the same.
        "server_round_robin = 1",
    ]
    if prepared is not None:
        lines.append(f"max_prepared_statements = {prepared}")
    return "\n".join(lines) + "\n"
