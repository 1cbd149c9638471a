"""Opening of database connections.

All parts of the program use this module, so that all read an address alike.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast

import asyncpg
from asyncpg import connect_utils

from shared.adapters.certificates import find_certificate_fault
from shared.adapters.postgres.db.urls import HostAddress, build_driver_url, format_location, parse_hosts
from shared.core.values.errors import StorageUnavailable

_PORT = 5432
UNANSWERED_SECONDS = 4
"""Seconds without acknowledgement after which a peer counts as gone; no longer than a lease lasts."""
_KEEPALIVE = {"TCP_KEEPIDLE": UNANSWERED_SECONDS, "TCP_KEEPINTVL": 1, "TCP_KEEPCNT": 3}
"""TCP keepalive: seconds of rest before the first probe, seconds between probes, unanswered probes."""
CANNOT_CONNECT = (
    asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError,
)  # fmt: skip
"""Classes of the exceptions that opening a connection may raise."""
_ASK_THE_NEXT = (
    asyncpg.CannotConnectNowError,
    asyncpg.ConnectionDoesNotExistError,
    asyncpg.TargetServerAttributeNotMatched,
    OSError,
    TimeoutError,
)
"""Exceptions after which the next host of the address is tried."""


class NoHostAnswered(ConnectionError):
    """No host of the address can be used.

    `failed` has the exception of each host that was tried, in order.
    """

    def __init__(self, failed: Sequence[tuple[HostAddress, BaseException]]) -> None:
        reasons = [f"{place}: {_describe_error(error)}" for place, error in failed]
        super().__init__("; ".join(reasons) or "no host is named")
        self.failed = tuple(failed)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerRoute:
    """Address, account and TLS settings of one server, as the driver reads them from a database URL.

    `password` is None if none is needed; `tls` is None for a connection without TLS.
    """

    host: str
    port: int | None
    """TCP port; None if `host` is the path of a Unix socket."""
    user: str
    password: str | None
    database: str
    tls: ssl.SSLContext | None
    plain_too: bool
    """Whether a server without TLS is accepted."""
    direct_tls: bool
    """Whether TLS begins at once, without a request in plain text before."""

    @property
    def place(self) -> HostAddress:
        """Host and port without the credentials."""
        return HostAddress(host=self.host, port=self.port)


class HostConnector:
    """Connector that tries the hosts of one URL in turn, the last good one first.

    A call opens one connection; the hosts share its `timeout` in seconds equally. The next host is tried if
    one is unreachable, starts up or has the wrong role, but not after a refused login. Raises NoHostAnswered,
    or the driver's own error if the URL has one host.
    """

    def __init__(self, database_url: str) -> None:
        self._places: Sequence[HostAddress] = parse_hosts(database_url)

    async def __call__(
        self, url: str, *, timeout: float, **options: Any
    ) -> asyncpg.Connection[asyncpg.Record]:
        if len(self._places) == 1:
            return _limit_silence(await asyncpg.connect(url, timeout=timeout, **options))
        failed: list[tuple[HostAddress, BaseException]] = []
        for place in self._places:
            try:
                opened: asyncpg.Connection[asyncpg.Record] = await asyncpg.connect(
                    url, host=place.host, port=place.port or _PORT,
                    timeout=timeout / len(self._places), **options,
                )  # fmt: skip
            except CANNOT_CONNECT as error:
                failed.append((place, error))
                if isinstance(error, _ASK_THE_NEXT):
                    continue
                raise NoHostAnswered(failed) from error
            self._places = [place, *(other for other in self._places if other != place)]
            return _limit_silence(opened)
        raise NoHostAnswered(failed) from (failed[-1][1] if failed else None)


def _limit_silence(
    connection: asyncpg.Connection[asyncpg.Record],
) -> asyncpg.Connection[asyncpg.Record]:
    """Set TCP timeouts for a vanished host and return the connection; a Unix socket stays unchanged.

    By default the system retries for a quarter of an hour, and the driver waits for its own cancellation over
    the same dead network.
    """
    sock = cast("Any", connection)._transport.get_extra_info("socket")
    if sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return connection
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (*_KEEPALIVE.items(), ("TCP_USER_TIMEOUT", UNANSWERED_SECONDS * 1000)):
        if (option := getattr(socket, name, None)) is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
    return connection


async def connect(database_url: str, *, timeout: float = 10.0) -> asyncpg.Connection[asyncpg.Record]:
    """Open a connection for a few statements within `timeout` seconds; raises StorageUnavailable.

    The caller closes it. No statement is kept prepared, so a pooler in between may give each to another
    server.
    """
    try:
        return await HostConnector(database_url)(
            build_driver_url(database_url), timeout=timeout, statement_cache_size=0
        )
    except CANNOT_CONNECT as error:
        raise build_unavailable(database_url, error) from error


@asynccontextmanager
async def open_connection(
    database_url: str, *, timeout: float = 10.0
) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    """Open a connection as `connect` does, and close it after the block; raises StorageUnavailable."""
    connection = await connect(database_url, timeout=timeout)
    try:
        yield connection
    finally:
        await connection.close(timeout=5)


def build_unavailable(database_url: str, error: BaseException) -> StorageUnavailable:
    """Return a StorageUnavailable with the failure of each host, and advice on the first known failure."""
    errors = [one for _, one in error.failed] if isinstance(error, NoHostAnswered) else [error]
    advice = next(filter(None, map(_find_advice, errors)), _USUAL_ADVICE)
    return StorageUnavailable(
        f"PostgreSQL at {format_location(database_url)} cannot be used: {_describe_error(error)}",
        advice=advice,
    )


def _describe_error(error: BaseException) -> str:
    if isinstance(error, NoHostAnswered):
        return str(error)
    if (fault := find_certificate_fault(error)) is not None:
        return fault.reason
    if isinstance(error, TimeoutError):
        return str(error) or "no answer in time"
    return str(error) or type(error).__name__


def _find_advice(error: BaseException) -> str:
    if (fault := find_certificate_fault(error)) is not None:
        if fault.kind in ("host", "authority", "other"):
            return _CERTIFICATE_ADVICE
        return fault.advice
    if isinstance(error, asyncpg.TargetServerAttributeNotMatched):
        return "No host of DATABASE_URL is a primary that takes writes: promote one, or name it there."
    if isinstance(error, FileNotFoundError):
        return "A socket or file that DATABASE_URL names is not there: look at host and sslrootcert."
    return ""


_USUAL_ADVICE = "Is DATABASE_URL right, and does that server run? ./evertalk doctor tells more."
_CERTIFICATE_ADVICE = (
    "Its certificate must name the host of DATABASE_URL, and be signed by an authority in the "
    "file of sslrootcert (without one: that this system trusts)."
)


async def find_route(database_url: str) -> ServerRoute:
    """Connect once, and return address, account and TLS settings of the server that the driver chose.

    It is for the relay of pg_dump, pg_restore and psql. Raises StorageUnavailable.
    """
    async with open_connection(database_url) as connection:
        address = cast("Any", connection)._addr
    parameters = await asyncio.to_thread(_parameters, build_driver_url(database_url))
    host, port = (address, None) if isinstance(address, str) else address
    return ServerRoute(
        host=host, port=port, user=parameters.user, password=parameters.password or None,
        database=parameters.database, tls=parameters.ssl or None,
        plain_too=parameters.sslmode.name in ("allow", "prefer"),
        direct_tls=parameters.ssl_negotiation.value == "direct",
    )  # fmt: skip


def _parameters(url: str) -> Any:
    """Return the driver's reading of a URL, including certificates and passfile.

    Its function is private to asyncpg, whose version is pinned by hash.
    """
    nothing = dict.fromkeys(
        ("host", "port", "user", "password", "passfile", "database", "ssl", "service", "servicefile",
         "direct_tls", "server_settings", "target_session_attrs", "krbsrvname", "gsslib")
    )  # fmt: skip
    _, parameters = cast("Any", connect_utils)._parse_connect_dsn_and_args(dsn=url, **nothing)
    return parameters
