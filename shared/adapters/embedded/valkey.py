"""Embedded Valkey on a unix socket, with its append-only file on."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path

from shared.adapters.embedded.binaries import ServerConfig
from shared.adapters.embedded.errors import EmbeddedServerFailed
from shared.adapters.embedded.process import spawn, stop, stop_leftover, tail, wait_until

_SOCKET = "valkey.sock"
_START_SECONDS = 30.0
_STOP_SECONDS = 5.0


class EmbeddedValkey:
    """Valkey server on a Unix socket, as a child of this process."""

    def __init__(self, place: ServerConfig) -> None:
        self._place = place
        self._data = place.folder / "valkey"
        self._log = place.folder / "valkey.log"
        self._socket = place.sockets / _SOCKET
        self._pid_file = place.sockets / "valkey.pid"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def process(self) -> subprocess.Popen[bytes] | None:
        """The running or ended server process; None before the first start."""
        return self._process

    @property
    def alive(self) -> bool:
        """Whether the server process runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def url(self) -> str:
        """URL of the server's unix socket."""
        return build_valkey_url(self._socket.parent)

    async def start(self) -> None:
        """Stop a server that an earlier run left, start a new one, and wait until it answers.

        Raises EmbeddedServerFailed with the end of the log after 30 seconds.
        """
        await stop_leftover(self._pid_file, ("valkey-server", str(self._socket)), signal.SIGTERM)
        self._place.account.folder(self._data)
        process = self._process = spawn(
            [self._place.binaries.valkey_server, *_as_options(self._options())],
            log=self._log,
            account=self._place.account,
            death_signal=signal.SIGTERM,
        )
        await wait_until(
            lambda: process.poll() is not None or self._answers(), timeout_seconds=_START_SECONDS
        )
        if process.poll() is not None or not self._answers():
            await self.stop()
            raise EmbeddedServerFailed(
                f"the embedded Valkey does not start:\n{tail(self._log)}",
                advice=f"The whole log is {self._log}; a full disk is the usual cause.",
            )

    async def stop(self) -> None:
        """Stop the server; kill it if it does not end within 5 seconds."""
        if self._process is not None:
            await stop(self._process, signal.SIGTERM, timeout_seconds=_STOP_SECONDS)

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(1)
            connection.connect(str(self._socket))
            connection.sendall(b"PING\r\n")
            return connection.recv(64).startswith(b"+PONG")
        return False

    def _options(self) -> Mapping[str, str]:
        return {
            "port": "0",
            # The command line shows the socket only as an option; a leftover process is recognised by it.
            "unixsocket": str(self._socket),
            "unixsocketperm": "700",
            "pidfile": str(self._pid_file),
            "dir": str(self._data),
            "appendonly": "yes" if self._place.durable else "no",
            "appendfsync": "everysec",
            "aof-load-truncated": "yes",
            "save": "",
            "maxmemory-policy": "noeviction",
            "daemonize": "no",
        }


def build_valkey_url(sockets: Path) -> str:
    """Return the URL of the Valkey server whose socket is in this folder."""
    return f"unix://{sockets / _SOCKET}"


def _as_options(options: Mapping[str, str]) -> list[str]:
    return [part for name, value in options.items() for part in (f"--{name}", value)]
