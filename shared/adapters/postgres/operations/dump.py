"""Dump and restore of a whole database by the programs that come with PostgreSQL."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import asyncpg

from shared.adapters.embedded.binaries import POSTGRES_MAJOR, find_binaries
from shared.adapters.embedded.errors import EmbeddedServerFailed
from shared.adapters.postgres.db.connecting import open_connection
from shared.adapters.postgres.db.pooler import has_transaction_pooling
from shared.adapters.postgres.db.relay import reachable_by_libpq
from shared.core.values.errors import EvertalkError, StorageUnavailable

_PATIENCE_SECONDS = 6 * 3600.0
_STOP_SECONDS = 10.0
_LIST_SECONDS = 120.0
_CHUNK = 256 * 1024
_HEAD_BYTES = 2_000
_AS_SCRIPT = ("--no-owner", "--no-privileges", "--exit-on-error", "--file=-")
_WHOLE_OR_NOT = (
    "--no-psqlrc", "--quiet", "--output=/dev/null", "--single-transaction", "--set=ON_ERROR_STOP=1",
    "--file=-",
)  # fmt: skip
_UNKNOWN_BEFORE_17 = b"\nSET transaction_timeout = 0;"
_VERSION_SECONDS = 10


class DumpFailed(EvertalkError):
    """The database could not be dumped, read or restored, or a dump is damaged."""

    sentence = "The database could not be written to a file, or read from one."
    code = "dump_failed"
    advice = "Look at the reason above; ./evertalk doctor tells about room and the database."


async def dump(database_url: str, target: Path) -> None:
    """Write a compressed dump of the database's state at one moment to `target`, while others write.

    Raises DumpFailed, and TimeoutError after 6 hours.
    """
    major = await _load_major(database_url)
    async with _environment(database_url) as environment:
        await _run(
            _program("pg_dump", major),
            ["--format=custom", "--compress=6", "--no-owner", "--no-privileges", f"--file={target}"],
            environment,
        )


async def verify_dump(dumped: Path, *, major: int = POSTGRES_MAJOR) -> None:
    """Decompress a dump completely and discard the output; no database is touched.

    `major` is the version of the server that wrote it. Raises DumpFailed if the dump is damaged, and
    TimeoutError after 6 hours.
    """
    await _run(_program("pg_restore", major), ["--file=/dev/null", str(dumped)], {})


async def restore(dumped: Path, database_url: str) -> None:
    """Restore a dump into an empty database in one transaction; after a failure the database is still empty.

    Raises DumpFailed, and TimeoutError after 6 hours.
    """
    major = await _load_major(database_url)
    async with (
        asyncio.timeout(_PATIENCE_SECONDS),
        _environment(database_url) as environment,
        _start(_program("pg_restore", major), [*_AS_SCRIPT, str(dumped)], {}, writes=True) as reading,
        _start(_program("psql"), _WHOLE_OR_NOT, environment, reads=True) as filling,
    ):
        await _hand_over(reading, filling)


async def load_facts(database_url: str) -> tuple[str, str | None, int]:
    """Return (server version, schema revision, `log_epoch`) of a database.

    The revision is None and the epoch 0 if the database has no schema. Raises DumpFailed if it cannot be
    read.
    """
    try:
        return await _load_facts(database_url)
    except (StorageUnavailable, asyncpg.PostgresError, OSError) as error:
        raise DumpFailed(f"the database cannot be read: {error}") from error


async def _load_facts(database_url: str) -> tuple[str, str | None, int]:
    async with open_connection(database_url) as connection:
        version = str(await connection.fetchval("SHOW server_version", timeout=10)).split(" ", 1)[0]
        if not await connection.fetchval("SELECT to_regclass('deployment') IS NOT NULL", timeout=10):
            return version, None, 0
        revision = await connection.fetchval("SELECT version_num FROM alembic_version", timeout=10)
        return version, revision, await connection.fetchval("SELECT log_epoch FROM deployment", timeout=10)


async def load_counts(database_url: str) -> dict[str, int]:
    """Return `{conversations, messages, notes, files}`: counts by which a person recognises a state.

    Forgotten notes are not counted. Raises StorageUnavailable, or asyncpg's error if a table is missing.
    """
    async with open_connection(database_url) as connection:
        row = await connection.fetchrow(_COUNTS, timeout=_LIST_SECONDS)
    assert row is not None
    return dict(row)


async def is_empty(database_url: str) -> bool:
    """Return whether the database has no table in the schema `public`. Raises StorageUnavailable."""
    async with open_connection(database_url) as connection:
        tables = await connection.fetchval(
            """SELECT count(*) FROM pg_class
                WHERE relkind IN ('r', 'p') AND relnamespace = 'public'::regnamespace""",
            timeout=10,
        )
        return bool(tables == 0)


async def _load_major(database_url: str) -> int:
    version, _, _ = await load_facts(database_url)
    return int(version.split(".", 1)[0])


def _program(name: str, major: int = POSTGRES_MAJOR) -> Path:
    """Return the path of a program whose version fits a server of `major`.

    Raises DumpFailed if none is installed.
    """
    for program in _programs(name, major):
        return program
    raise DumpFailed(
        f"{name} of PostgreSQL {major} or newer is not installed",
        advice=f"Install PostgreSQL's client programs (Debian: apt-get install postgresql-client-{major}).",
    )


def _programs(name: str, major: int) -> Iterator[Path]:
    if major <= POSTGRES_MAJOR:
        with contextlib.suppress(EmbeddedServerFailed):
            yield find_binaries().postgres_bin / name
    yield from sorted(Path("/usr/lib/postgresql").glob(f"{major}/bin/{name}"))
    found = shutil.which(name)
    if found is not None and _find_version(found) >= major:
        yield Path(found)


def _find_version(program: str) -> int:
    """Return the major version of a program; 0 if it does not tell one."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired, ValueError, IndexError):
        shown = subprocess.run(
            [program, "--version"], capture_output=True, text=True, timeout=_VERSION_SECONDS, cwd="/"
        )
        return int(shown.stdout.split(") ", 1)[1].split(".", 1)[0])
    return 0


async def _run(program: Path, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
    async with asyncio.timeout(_PATIENCE_SECONDS), _start(program, arguments, environment) as running:
        await _wait_for_end(running)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Running:
    name: str
    process: asyncio.subprocess.Process


@contextlib.asynccontextmanager
async def _start(
    program: Path, arguments: Sequence[str], environment: Mapping[str, str], *,
    reads: bool = False, writes: bool = False,
) -> AsyncIterator[_Running]:  # fmt: skip
    pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(
        program, *arguments, cwd="/", env=dict(environment),
        stdin=pipe if reads else nothing, stdout=pipe if writes else nothing, stderr=pipe,
    )  # fmt: skip
    try:
        yield _Running(name=program.name, process=process)
    finally:
        if process.returncode is None:
            process.kill()
            await asyncio.wait_for(process.wait(), _STOP_SECONDS)


async def _wait_for_end(running: _Running) -> None:
    assert running.process.stderr is not None
    errors = await running.process.stderr.read()
    if code := await running.process.wait():
        said = errors.decode(errors="replace").strip()[-800:]
        raise DumpFailed(f"{running.name}: {said or f'exit code {code}'}")


async def _hand_over(reading: _Running, filling: _Running) -> None:
    """Feed the script of pg_restore to psql.

    Psql gets its end, and so commits, only if pg_restore succeeded.
    """
    source, target = reading.process.stdout, filling.process.stdin
    assert source is not None
    assert target is not None
    try:
        target.write((await _head(source)).replace(_UNKNOWN_BEFORE_17, b"", 1))
        while some := await source.read(_CHUNK):
            target.write(some)
            await target.drain()
    except OSError:
        await _wait_for_end(filling)
        raise
    await _wait_for_end(reading)
    target.close()
    await _wait_for_end(filling)


async def _head(source: asyncio.StreamReader) -> bytes:
    """Return the first bytes of a script, with the settings before its data."""
    head = b""
    while len(head) < _HEAD_BYTES and (some := await source.read(_CHUNK)):
        head += some
    return head


@contextlib.asynccontextmanager
async def _environment(database_url: str) -> AsyncIterator[Mapping[str, str]]:
    try:
        if await has_transaction_pooling(database_url):
            raise DumpFailed(
                "a pooler that lends servers for a transaction stands in between, and a copy needs a session",
                advice="Set EVERTALK_DIRECT_DATABASE_URL to the address of PostgreSQL itself.",
            )
        async with reachable_by_libpq(database_url) as environment:
            yield environment
    except (StorageUnavailable, OSError) as error:
        raise DumpFailed(f"the database cannot be reached: {error}") from error


_COUNTS = """
SELECT (SELECT count(*) FROM sessions) AS conversations, (SELECT count(*) FROM entries) AS messages,
       (SELECT count(*) FROM notes WHERE forgotten_at IS NULL) AS notes,
       (SELECT count(*) FROM attachments) AS files
"""
