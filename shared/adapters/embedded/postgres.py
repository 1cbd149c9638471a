"""Embedded PostgreSQL: its data folder is made once, and it listens on a unix socket only."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import asyncpg

from shared.adapters.embedded.binaries import ServerConfig
from shared.adapters.embedded.errors import EmbeddedServerFailed
from shared.adapters.embedded.process import (
    read_log_since,
    size_of,
    spawn,
    stop,
    stop_leftover,
    tail,
    wait_until,
)
from shared.adapters.embedded.process_user import ProcessUser

DATABASE = "evertalk"
"""Name of the database that the program uses."""
_START_SECONDS = 60.0
_STOP_SECONDS = 8.0
_ATTEMPTS = 20
_MOST_CONNECTIONS = "200"
"""Maximum connections: ten for each process, and twice that while a killed process's connections remain open.
"""
_MAPS_TO_ALL = 16
"""First major version of PostgreSQL whose user map may name all roles at once."""
_PASSING_TROUBLES = ("pre-existing shared memory block", "already exists", "is still in use")
"""Parts of the server's log that mean: an earlier server is still ending; start again."""


class EmbeddedPostgres:
    """PostgreSQL server in the data folder, as a child of this process."""

    def __init__(self, place: ServerConfig) -> None:
        self._place = place
        self._cluster = place.folder / "pg"
        self._fresh = place.folder / "pg.new"
        self._log = place.folder / "postgres.log"
        # The servers' account must not be able to write these two files.
        self._access = place.folder / "pg_hba.conf"
        self._names = place.folder / "pg_ident.conf"
        self._sockets = place.sockets
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def process(self) -> subprocess.Popen[bytes] | None:
        """The running or ended server process; None before the first start."""
        return self._process

    @property
    def alive(self) -> bool:
        """Whether the server process runs."""
        return self._process is not None and self._process.poll() is None

    def url(self, database: str = DATABASE) -> str:
        """Return the URL of a database of this server, through its unix socket."""
        return build_postgres_url(self._sockets, database)

    async def start(self) -> None:
        """Create the data folder if needed, end a server left there, start one, and create the database."""
        self._make_cluster()
        self._refuse_other_major()
        marks = ("postgres", str(self._cluster))
        await stop_leftover(self._cluster / "postmaster.pid", marks, signal.SIGINT)
        self._place.account.take(self._cluster)
        self._write_access()
        for _ in range(_ATTEMPTS):
            if await self._start_server():
                break
            # After kill -9 the children of the old server need a moment to notice and leave.
            await asyncio.sleep(0.25)
        else:
            raise self._failure("does not start")
        await self._ensure_database()

    async def stop(self) -> None:
        """Stop the server by a fast shutdown, which does not wait for its clients."""
        if self._process is not None:
            # SIGINT is PostgreSQL's fast shutdown: it does not wait for clients to leave.
            await stop(self._process, signal.SIGINT, timeout_seconds=_STOP_SECONDS)

    def _make_cluster(self) -> None:
        """Create the data folder with initdb unless it exists.

        It is created under another name and renamed, so that a crash leaves no incomplete one.
        """
        if (self._cluster / "PG_VERSION").exists():
            return
        shutil.rmtree(self._fresh, ignore_errors=True)
        self._place.account.folder(self._fresh)
        made = subprocess.run(
            [
                self._place.binaries.initdb, "--pgdata", self._fresh, "--username", "postgres",
                # The built-in locale sorts alike on every system and through every upgrade of it.
                "--locale-provider", "builtin", "--builtin-locale", "C.UTF-8", "--locale", "C",
                "--encoding", "UTF8", "--auth-local", "peer", "--auth-host", "reject",
                "--no-instructions",
                *(() if self._place.durable else ("--no-sync",)),
            ],
            cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, timeout=120, **self._place.account.spawn_options(),
        )  # fmt: skip
        if made.returncode != 0:
            raise EmbeddedServerFailed(
                f"PostgreSQL could not make its files: {made.stdout.strip()[-800:]}",
                advice="Check free space and rights of the data folder; ./evertalk doctor tells more.",
            )
        self._fresh.rename(self._cluster)

    def _write_access(self) -> None:
        """Write `pg_hba.conf` and `pg_ident.conf`, which admit this account, the servers' and root."""
        names = list_clients(self._place.account)
        whom = "all" if self._place.binaries.major >= _MAPS_TO_ALL else "postgres"
        # Accounts without a name cannot be mapped; the sockets' folder is closed to all other accounts.
        way = "peer map=evertalk" if names else "trust"
        self._access.write_text(f"local all all {way}\n")
        self._names.write_text("".join(f'evertalk "{name}" {whom}\n' for name in names))
        for file in (self._access, self._names):
            file.chmod(0o644)

    def _refuse_other_major(self) -> None:
        found = (self._cluster / "PG_VERSION").read_text().strip()
        major = self._place.binaries.major
        if found != str(major):
            raise EmbeddedServerFailed(
                f"{self._cluster} was made by PostgreSQL {found}, this is {major}",
                advice="./evertalk upgrade makes a backup and carries the data over.",
            )

    async def _start_server(self) -> bool:
        before = size_of(self._log)
        process = self._process = spawn(
            [self._place.binaries.postgres, "-D", self._cluster, *_as_options(self._options())],
            log=self._log,
            account=self._place.account,
            death_signal=signal.SIGINT,
        )
        settled = await wait_until(
            lambda: process.poll() is not None or self._says_ready(process.pid),
            timeout_seconds=_START_SECONDS,
        )
        if not settled:
            await stop(process, signal.SIGINT, timeout_seconds=_STOP_SECONDS)
            raise self._failure(f"was not ready after {_START_SECONDS:.0f} s")
        if process.poll() is None:
            return True
        # Processes of the killed server write lines of their own: the last lines may be only those.
        said = read_log_since(self._log, before)
        if not any(trouble in said for trouble in _PASSING_TROUBLES):
            raise self._failure("ended at once")
        return False

    def _says_ready(self, pid: int) -> bool:
        """Return whether the server `pid` reports "ready" in the eighth line of its pid file."""
        with contextlib.suppress(OSError, IndexError, ValueError):
            lines = (self._cluster / "postmaster.pid").read_text().splitlines()
            return int(lines[0]) == pid and lines[7].strip() == "ready"
        return False

    def _options(self) -> Mapping[str, str]:
        options = {
            "listen_addresses": "",
            "unix_socket_directories": str(self._sockets),
            "unix_socket_permissions": "0700",
            "hba_file": str(self._access),
            "ident_file": str(self._names),
            "port": "5432",
            "max_connections": _MOST_CONNECTIONS,
            "shared_buffers": "64MB",
            "timezone": "UTC",
            "log_timezone": "UTC",
            "log_destination": "stderr",
            "logging_collector": "off",
            "log_min_messages": "warning",
            # A recycled WAL segment would keep erased data on the disk for weeks.
            "wal_recycle": "off",
            "idle_in_transaction_session_timeout": "60s",
        }
        if sys.platform.startswith("linux"):
            options["recovery_init_sync_method"] = "syncfs"
        if not self._place.durable:
            options |= {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
        return options

    async def _ensure_database(self) -> None:
        connection = await asyncpg.connect(self.url("postgres"), timeout=10)
        try:
            exists = await connection.fetchval(f"select true from pg_database where datname = '{DATABASE}'")
            if not exists:
                await connection.execute(f'create database "{DATABASE}"')
        finally:
            await connection.close(timeout=5)

    def _failure(self, what: str) -> EmbeddedServerFailed:
        return EmbeddedServerFailed(
            f"the embedded PostgreSQL {what}:\n{tail(self._log)}",
            advice=f"The whole log is {self._log}; a full disk is the usual cause.",
        )


def list_clients(account: ProcessUser) -> list[str]:
    """Return names of the accounts that may connect; empty if an account has no name on this system."""
    uids = {os.geteuid(), 0} | ({account.uid} if account.uid is not None and not account.is_shared else set())
    try:
        return sorted(pwd.getpwuid(uid).pw_name for uid in uids)
    except KeyError:
        return []


def build_postgres_url(sockets: Path, database: str = DATABASE) -> str:
    """Return the URL of a database of the server whose socket is in this folder; no password is needed."""
    return f"postgresql://postgres@/{database}?host={sockets}"


def _as_options(options: Mapping[str, str]) -> list[str]:
    return [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
