"""Embedded PostgreSQL and Valkey: started together, restarted when they end, stopped together."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from shared.adapters.embedded.atomic_swap import finish_swap
from shared.adapters.embedded.binaries import Binaries, ServerConfig, make_reachable
from shared.adapters.embedded.errors import EmbeddedServerFailed
from shared.adapters.embedded.folders import FolderLock, find_socket_folder, is_held, socket_folder
from shared.adapters.embedded.postgres import EmbeddedPostgres, build_postgres_url
from shared.adapters.embedded.process_user import SHARED, find_account
from shared.adapters.embedded.valkey import EmbeddedValkey, build_valkey_url

_log = logging.getLogger(__name__)

_WATCH_SECONDS = 0.3
_LONGEST_PAUSE_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedChoice:
    """Choice of the servers to run embedded; a server set to False is not started."""

    postgres: bool = True
    redis: bool = True


class EmbeddedServers:
    """PostgreSQL and Valkey in one folder, locked by one process.

    >>> async with EmbeddedServers(data_dir / "servers") as servers:
    ...     servers.database_url, servers.redis_url
    """

    def __init__(
        self,
        folder: Path,
        *,
        wanted: EmbeddedChoice = EmbeddedChoice(),
        durable: bool = True,
        binaries: Binaries | None = None,
        account: str = SHARED,
    ) -> None:
        """Configure the servers without starting them.

        `binaries` may be of an older version whose data is to be converted; None means the installed ones. As
        root, servers run as the folder's owner, or as `account` if root owns the folder.
        """
        self._folder = folder.expanduser().absolute()
        self._wanted = wanted
        self._durable = durable
        self._binaries = binaries
        self._account = account
        self._lock = FolderLock(self._folder / "lock")
        self.postgres: EmbeddedPostgres | None = None
        self.valkey: EmbeddedValkey | None = None

    @property
    def database_url(self) -> str:
        """URL of the embedded PostgreSQL; AssertionError if it is not configured."""
        assert self.postgres is not None
        return self.postgres.url()

    @property
    def redis_url(self) -> str:
        """URL of the embedded Valkey; AssertionError if it is not configured."""
        assert self.valkey is not None
        return self.valkey.url

    async def __aenter__(self) -> EmbeddedServers:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Lock the data folder, complete an interrupted restore and start the servers.

        If one does not start, all are stopped and its exception is raised.
        """
        self._open_folder()
        self._lock.take()
        try:
            # Complete a restore that was interrupted between two renames.
            finish_swap(self._folder.parent)
            self._prepare()
            for server in self._servers():
                await server.start()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop the servers and release the lock of the data folder; no effect if nothing runs."""
        for server in self._servers():
            await server.stop()
        self._lock.release()

    async def watch(self) -> None:
        """Restart servers that have ended, with growing pauses, until cancelled. Cancel it before `stop`."""
        pause_seconds = _WATCH_SECONDS
        while True:
            await asyncio.sleep(pause_seconds)
            fallen = [server for server in self._servers() if not server.alive]
            pause_seconds = min(pause_seconds * 2, _LONGEST_PAUSE_SECONDS) if fallen else _WATCH_SECONDS
            for server in fallen:
                _log.warning("%s fell and is started again", type(server).__name__)
                try:
                    await server.start()
                except (EmbeddedServerFailed, OSError) as error:
                    _log.error("%s did not come back: %s", type(server).__name__, error)

    def _servers(self) -> tuple[EmbeddedValkey | EmbeddedPostgres, ...]:
        """Return the configured servers in the order in which they are started and stopped.

        PostgreSQL is last.
        """
        return tuple(server for server in (self.valkey, self.postgres) if server is not None)

    def _open_folder(self) -> None:
        try:
            self._folder.parent.mkdir(parents=True, exist_ok=True)
            self._folder.mkdir(exist_ok=True)
            # Root's servers run under another account, which must be able to pass through this folder.
            find_account(self._folder, self._account).let_through(self._folder)
        except OSError as error:
            raise EmbeddedServerFailed(
                f"the data folder {self._folder} cannot be used: {error.strerror}",
                advice="Set EVERTALK_DATA_DIR to a folder that you may write to.",
            ) from None

    def _prepare(self) -> None:
        account = find_account(self._folder, self._account)
        if not account.can_run(self._folder):
            raise EmbeddedServerFailed(
                f"running as root, and the servers' account {account.uid} cannot reach {self._folder}",
                advice="Set EVERTALK_DATA_DIR to a folder outside private homes, such as /var/lib/evertalk.",
            )
        binaries = self._binaries or make_reachable(account, self._folder)
        sockets = socket_folder(self._folder, account)
        place = ServerConfig(
            folder=self._folder, sockets=sockets, binaries=binaries, account=account, durable=self._durable
        )
        self.valkey = EmbeddedValkey(place) if self._wanted.redis else None
        self.postgres = EmbeddedPostgres(place) if self._wanted.postgres else None


def are_running(folder: Path) -> bool:
    """Return whether a process runs the servers of this folder."""
    return is_held(folder / "lock")


def build_urls(folder: Path) -> tuple[str, str]:
    """Return the database URL and the Redis URL of a folder's servers, whichever process started them.

    Raises EmbeddedServerFailed if the sockets' folder belongs to a foreign account.
    """
    folder = folder.expanduser().absolute()
    sockets = find_socket_folder(folder)
    return build_postgres_url(sockets), build_valkey_url(sockets)
