"""TLS in front of a server that has none: as stunnel or a provider's balancer ends it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from tests.integration.external_servers.certificates import Signed
from tests.kit.fakes.tcp_proxy import TcpProxy


@contextlib.asynccontextmanager
async def tls_front(upstream: Path, signed: Signed) -> AsyncIterator[int]:
    """The port where TLS is spoken; what it says goes on to the socket."""
    async with TcpProxy(upstream=upstream) as plain:

        async def came(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                there, back = await asyncio.open_connection("127.0.0.1", plain.port)
                await asyncio.wait(
                    [asyncio.ensure_future(_pour(reader, back)), asyncio.ensure_future(_pour(there, writer))]
                )
            finally:
                writer.close()

        server = await asyncio.start_server(came, "127.0.0.1", 0, ssl=signed.for_servers())
        try:
            yield int(server.sockets[0].getsockname()[1])
        finally:
            server.close()


async def _pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while some := await reader.read(65_536):
            writer.write(some)
            await writer.drain()
    writer.close()
