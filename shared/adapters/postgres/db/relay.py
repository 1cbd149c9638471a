"""Private socket through which pg_dump, pg_restore and psql reach a server that requires TLS.

The embedded programs lack TLS. The relay encrypts and checks the certificate as for all connections; only
this account may enter the socket's folder.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import tempfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import structlog

from shared.adapters.postgres.db.connecting import (
    NoHostAnswered,
    ServerRoute,
    build_unavailable,
    find_route,
)
from shared.core.values.errors import EvertalkError

log = structlog.get_logger(__name__)

_PORT = 5432
_TLS_WANTED = struct.pack("!ii", 8, 80877103)
_AUTHENTICATION, _ERROR = b"R", b"E"
_BY_MECHANISM = (10).to_bytes(4)
_CONNECT_SECONDS = 10.0
_CHUNK = 256 * 1024


@contextlib.asynccontextmanager
async def reachable_by_libpq(database_url: str) -> AsyncIterator[Mapping[str, str]]:
    """Provide environment variables for pg_dump, pg_restore and psql to connect with, while the block runs.

    They name the server's own socket, or that of a relay in a private folder, which is removed after the
    block. The password is in the environment, since all accounts can read a command line. Raises
    StorageUnavailable if the server cannot be reached.
    """
    way = await find_route(database_url)
    if way.port is None:
        socket = Path(way.host)  # …/.s.PGSQL.5432
        yield _environment(way, socket.parent, int(socket.name.rpartition(".")[2]))
        return
    with tempfile.TemporaryDirectory(prefix="evertalk-") as folder:
        socket = Path(folder) / f".s.PGSQL.{_PORT}"
        relay = _Relay(way)
        server = await asyncio.start_unix_server(relay.carry, socket, limit=_CHUNK)
        async with server:
            try:
                yield _environment(way, socket.parent, _PORT)
            except EvertalkError as error:
                if relay.failure is not None:
                    raise build_unavailable(database_url, relay.failure) from error
                raise


class _Relay:
    def __init__(self, way: ServerRoute) -> None:
        self._way = way
        self.failure: OSError | None = None
        """Reason why the server was not reached.

        None if it was. The program only sees that the socket closes.
        """

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Connect to the server and copy bytes both ways until an end; store a failure in `failure`."""
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                there, back = await _open_route(self._way)
        except OSError as error:
            self.failure = NoHostAnswered([(self._way.place, error)])
            log.warning("database_unreachable", reason=f"{type(error).__name__}: {error}")
            writer.close()
            return
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(_pour(reader, back))
                both.create_task(_answer(there, writer))
        finally:
            back.close()
            writer.close()


async def _open_route(way: ServerRoute) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to the server, with the request for TLS that precedes it unless TLS begins at once.

    Raises OSError.
    """
    if way.tls is not None and way.direct_tls:
        return await asyncio.open_connection(way.host, way.port, ssl=way.tls, limit=_CHUNK)
    reader, writer = await asyncio.open_connection(way.host, way.port, limit=_CHUNK)
    if way.tls is None:
        return reader, writer
    try:
        writer.write(_TLS_WANTED)
        await writer.drain()
        answer = await reader.read(1)
        if answer == b"S":
            await writer.start_tls(way.tls, server_hostname=way.host)
        elif not way.plain_too:
            raise ConnectionError("the server does not speak TLS")
    except BaseException:
        writer.close()
        raise
    return reader, writer


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy the server's answers to the client; first remove the login method that is bound to TLS.

    The client sees an unencrypted connection and would fail with that method.
    """
    with contextlib.suppress(OSError, asyncio.IncompleteReadError):
        kind = b""
        while kind not in (_AUTHENTICATION, _ERROR):
            kind = await reader.readexactly(1)
            size = int.from_bytes(await reader.readexactly(4))
            body = _without_binding(kind, await reader.readexactly(size - 4))
            writer.write(kind + (len(body) + 4).to_bytes(4) + body)
    await _pour(reader, writer)


def _without_binding(kind: bytes, body: bytes) -> bytes:
    if kind != _AUTHENTICATION or not body.startswith(_BY_MECHANISM):
        return body
    return body.replace(b"SCRAM-SHA-256-PLUS\0", b"")


async def _pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy bytes until one side closes, then close the other."""
    with contextlib.suppress(OSError):
        while some := await reader.read(_CHUNK):
            writer.write(some)
            await writer.drain()
    writer.close()


def _environment(way: ServerRoute, folder: Path, port: int) -> Mapping[str, str]:
    known = {"PGPASSWORD": way.password} if way.password else {}
    return {
        **known, "PGHOST": str(folder), "PGPORT": str(port), "PGUSER": way.user, "PGDATABASE": way.database,
        "PGCONNECT_TIMEOUT": "15", "LC_ALL": "C",
    }  # fmt: skip
