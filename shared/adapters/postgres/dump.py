"""A whole database out of and into PostgreSQL's own archive, by the programs that come with the servers."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

import asyncpg

from shared.adapters.embedded.binaries import find_binaries
from shared.adapters.embedded.errors import EmbeddedServerFailed
from shared.adapters.postgres.urls import asyncpg_url
from shared.core.errors import EvertalkError

_PATIENCE_SECONDS = 6 * 3600.0
_STOP_SECONDS = 10.0
_LIST_SECONDS = 120.0
_OPTIONS = {
    "host": "PGHOST", "port": "PGPORT", "user": "PGUSER", "password": "PGPASSWORD", "sslmode": "PGSSLMODE",
    "sslrootcert": "PGSSLROOTCERT", "sslcert": "PGSSLCERT", "sslkey": "PGSSLKEY",
}  # fmt: skip


class DumpFailed(EvertalkError):
    """The database could not be written to a file, or read from one."""

    code = "dump_failed"
    advice = "Look at the reason above; ./evertalk doctor tells about room and the database."


async def dump(database_url: str, target: Path) -> None:
    """All of it as of one moment, while everybody goes on writing; raises DumpFailed."""
    await _run(
        "pg_dump", ["--format=custom", "--compress=6", "--no-owner", "--no-privileges", f"--file={target}"],
        database_url,
    )  # fmt: skip


async def read_through(dumped: Path) -> None:
    """Every byte unpacked and thrown away; raises DumpFailed for what could not be restored."""
    await _run("pg_restore", ["--file=/dev/null", str(dumped)], None)


async def restore(dumped: Path, database_url: str) -> None:
    """Into an empty database, in one transaction; raises DumpFailed."""
    await _run(
        "pg_restore",
        [
            "--no-owner", "--no-privileges", "--single-transaction", "--exit-on-error",
            f"--dbname={_environment(database_url)['PGDATABASE']}", str(dumped),
        ],
        database_url,
    )  # fmt: skip


async def facts_of(database_url: str) -> tuple[str, str | None, int]:
    """The server's version, the schema's revision (None: none yet), `log_epoch`; raises DumpFailed."""
    try:
        return await _facts_of(database_url)
    except (asyncpg.PostgresError, OSError) as error:
        raise DumpFailed(f"the database cannot be read: {error}") from error


async def _facts_of(database_url: str) -> tuple[str, str | None, int]:
    connection = await asyncpg.connect(asyncpg_url(database_url), timeout=10)
    try:
        version = str(await connection.fetchval("SHOW server_version", timeout=10)).split(" ", 1)[0]
        if not await connection.fetchval("SELECT to_regclass('deployment') IS NOT NULL", timeout=10):
            return version, None, 0
        revision = await connection.fetchval("SELECT version_num FROM alembic_version", timeout=10)
        return version, revision, await connection.fetchval("SELECT log_epoch FROM deployment", timeout=10)
    finally:
        await connection.close(timeout=5)


async def counts_of(database_url: str) -> dict[str, int]:
    """A few numbers that tell a person which state this is."""
    connection = await asyncpg.connect(asyncpg_url(database_url), timeout=10)
    try:
        row = await connection.fetchrow(_COUNTS, timeout=_LIST_SECONDS)
    finally:
        await connection.close(timeout=5)
    assert row is not None
    return dict(row)


async def is_empty(database_url: str) -> bool:
    """Whether nobody has put a table into it yet."""
    connection = await asyncpg.connect(asyncpg_url(database_url), timeout=10)
    try:
        tables = await connection.fetchval(
            """SELECT count(*) FROM pg_class
                WHERE relkind IN ('r', 'p') AND relnamespace = 'public'::regnamespace""",
            timeout=10,
        )
        return bool(tables == 0)
    finally:
        await connection.close(timeout=5)


def _program(name: str) -> Path:
    try:
        return find_binaries().postgres_bin / name
    except EmbeddedServerFailed:
        found = shutil.which(name)
        if found is None:
            raise DumpFailed(
                f"{name} is not installed",
                advice="Install PostgreSQL's client programs (Debian: apt-get install postgresql-client).",
            ) from None
        return Path(found)


async def _run(name: str, arguments: Sequence[str], database_url: str | None) -> None:
    process = await asyncio.create_subprocess_exec(
        _program(name), *arguments, cwd="/",
        env={} if database_url is None else _environment(database_url),
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            _, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await asyncio.wait_for(process.wait(), _STOP_SECONDS)
    if process.returncode:
        said = errors.decode(errors="replace").strip()[-800:]
        raise DumpFailed(f"{name}: {said or f'exit code {process.returncode}'}")


def _environment(database_url: str) -> Mapping[str, str]:
    """As libpq reads it: a password on the command line could be seen by everybody on the machine."""
    parts = urlsplit(asyncpg_url(database_url))
    given = {
        "host": parts.hostname, "port": str(parts.port) if parts.port else None,
        "user": unquote(parts.username) if parts.username else None,
        "password": unquote(parts.password) if parts.password else None,
    }  # fmt: skip
    wanted = {**{name: value for name, value in given.items() if value}, **dict(parse_qsl(parts.query))}
    environment = {_OPTIONS[name]: value for name, value in wanted.items() if name in _OPTIONS}
    home = {"HOME": os.environ["HOME"]} if "HOME" in os.environ else {}
    database = unquote(parts.path.removeprefix("/")) or environment.get("PGUSER", "")
    return {**home, **environment, "PGDATABASE": database, "PGCONNECT_TIMEOUT": "10", "LC_ALL": "C"}


_COUNTS = """
SELECT (SELECT count(*) FROM sessions) AS conversations, (SELECT count(*) FROM entries) AS messages,
       (SELECT count(*) FROM notes WHERE forgotten_at IS NULL) AS notes,
       (SELECT count(*) FROM attachments) AS files
"""
