"""HTTP listener with limits that aiohttp lacks: time for headers, and number of connections per address."""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import structlog
from aiohttp import web

from web.server.origins import network_key
from web.server.rate_limits import Places

log = structlog.get_logger(__name__)

CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; manifest-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
    "worker-src 'self'; require-trusted-types-for 'script'; trusted-types evertalk"
)
"""Content-Security-Policy of all responses."""
HEADERS: Mapping[str, str] = {
    "Server": "Evertalk",
    "Content-Security-Policy": CSP,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(self)",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""Security headers of every response; a handler may replace some, as for files used by other sites."""

HEADER_SECONDS = 15.0
"""Seconds until the headers of a request must be complete, from its first byte or from connecting."""
KEEPALIVE_SECONDS = 75.0
"""Seconds for which an idle connection stays open."""
MAX_CONNECTIONS = 4_096
"""Maximum open connections of the process."""
MAX_OF_ONE_ADDRESS = 256
"""Maximum open connections of one address; trusted proxies and the local machine are not counted."""
MAX_HEADER_BYTES = 8 * 1024
"""Maximum bytes of a request line and of a header field."""
BACKLOG = 256
"""Maximum connections that wait to be accepted, as while the process restarts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimit:
    """Open connections per address; `is_counted` returns whether an address is limited."""

    is_counted: Callable[[str], bool]
    places: Places = field(default_factory=Places)


class Connection(web.RequestHandler):
    """Client connection that is aborted if the headers of a request take longer than `HEADER_SECONDS`."""

    __slots__ = ("_busy", "_deadline", "_limit", "_peer", "on_lost")

    def __init__(self, manager: web.Server, *, limit: ConnectionLimit, **kwargs: Any) -> None:
        super().__init__(manager, **kwargs)
        self._limit = limit
        self._peer: str | None = None
        """Address that this connection counts for; None if it is not counted."""
        self._busy = 0
        self._deadline: asyncio.TimerHandle | None = None
        self.on_lost: Callable[[], None] | None = None
        """Called if the client disconnects during a response; None between responses."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count the connection for its address, or abort it if the address has too many.

        A first request must arrive within HEADER_SECONDS.
        """
        peer = transport.get_extra_info("peername")
        peer = str(peer[0]) if isinstance(peer, tuple) and peer else ""
        super().connection_made(transport)
        if not self._limit.is_counted(peer):
            self._start_deadline()
        elif self._limit.places.take(key := network_key(peer), MAX_OF_ONE_ADDRESS):
            self._peer = key
            self._start_deadline()
        else:
            self.force_close()
            cast("asyncio.Transport", transport).abort()

    def data_received(self, data: bytes) -> None:
        """Read data; the first data after a response starts the deadline for the rest of the request."""
        if not self._busy and self._deadline is None:
            self._start_deadline()
        super().data_received(data)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Count one connection less for the address, and call `on_lost` if a response was under way."""
        self._stop_deadline()
        if self._peer is not None:
            self._limit.places.leave(self._peer)
            self._peer = None
        if self.on_lost is not None:
            self.on_lost()
        super().connection_lost(exc)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Return a JSON error for an invalid HTTP request or an unexpected error, and close the connection.

        Raises ConnectionError if a response has already begun.
        """
        del message
        if status >= 500:
            log.error("connection_failed", exc_info=exc)
        if request.writer.output_size > 0:
            raise ConnectionError("a response was begun already")
        code, words = ("bad_request", "The request could not be read.")
        if status >= 500:
            code, words = ("internal_error", "Something went wrong on our side.")
        body = {"code": code, "message": words, "request_id": secrets.token_hex(8)}
        response = web.json_response(body, status=status, headers=HEADERS)
        response.force_close()
        return response

    def mark_busy(self) -> None:
        """Mark a request as received, which ends its deadline; the handler has a separate time limit."""
        self._busy += 1
        self._stop_deadline()

    def mark_idle(self) -> None:
        """Mark the response as sent, so that the next request on this connection gets a deadline."""
        self._busy -= 1

    def _start_deadline(self) -> None:
        self._deadline = asyncio.get_running_loop().call_later(HEADER_SECONDS, self._cut)

    def _stop_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _cut(self) -> None:
        self._deadline = None
        if self.transport is not None and not self._busy:
            self.transport.abort()


class _Refused(asyncio.Protocol):
    """Protocol that aborts a connection beyond the limit."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.abort()


class Listener:
    """Listening socket of an application; its runner must be set up."""

    def __init__(self, runner: web.AppRunner, *, is_counted: Callable[[str], bool] | None = None) -> None:
        """Create a listener.

        `is_counted` returns whether an address has a connection limit; None means that no address has one.
        """
        self._runner = runner
        self._connection_limit = ConnectionLimit(is_counted=is_counted or (lambda address: False))
        self._servers: list[asyncio.Server] = []

    async def start(self, host: str, port: int, *, sockets: Sequence[socket.socket] = ()) -> int:
        """Listen on the inherited `sockets`, else at the address; return the port.

        Raises OSError if the address cannot be used.
        """
        loop = asyncio.get_running_loop()
        for one in sockets:
            self._servers.append(await loop.create_server(self._connection, sock=one, backlog=BACKLOG))
        if not sockets:
            server = await loop.create_server(self._connection, host or None, port, backlog=BACKLOG)
            self._servers.append(server)
        bound: socket.socket = self._servers[0].sockets[0]
        return int(bound.getsockname()[1])

    def list_sockets(self) -> Sequence[int]:
        """Return the file descriptors of the listening sockets."""
        return [one.fileno() for server in self._servers for one in server.sockets]

    async def stop_listening(self) -> None:
        """Close the listening sockets; open connections stay."""
        for server in self._servers:
            server.close()

    def _connection(self) -> asyncio.Protocol:
        """Return the protocol for a new connection."""
        server = self._runner.server
        if server is None or len(server.connections) >= MAX_CONNECTIONS:
            return _Refused()
        return Connection(
            server,
            limit=self._connection_limit,
            loop=asyncio.get_running_loop(),
            auto_decompress=False,  # compressed bodies are refused before they could expand
            access_log=None,
            keepalive_timeout=KEEPALIVE_SECONDS,
            max_line_size=MAX_HEADER_BYTES,
            max_field_size=MAX_HEADER_BYTES,
            max_headers=64,
        )
