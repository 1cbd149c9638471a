"""Port of the fake's Bot API, which can be closed, so that connections are refused, and opened again."""

from __future__ import annotations

import asyncio
import socket

from aiohttp import web

HOST = "127.0.0.1"
BACKLOG = 512
CLOSING_SECONDS = 0.01


class Door:
    def __init__(self, runner: web.AppRunner, port: int) -> None:
        self._runner = runner
        self._socket = _bound(port)
        self.port = int(self._socket.getsockname()[1])
        self._site: web.SockSite | None = None
        self._reopening: asyncio.Task[None] | None = None

    async def open(self) -> None:
        if self._site is None:
            self._site = web.SockSite(self._runner, self._socket, backlog=BACKLOG)
            await self._site.start()

    async def shut(
        self, seconds: float | None = None, *, sparing: asyncio.BaseTransport | None = None
    ) -> None:
        """Refuse connections and cut all existing ones, except that of `sparing`; the port stays bound.

        `seconds` opens it again after that time; None leaves it closed.
        """
        self._forget_reopening()
        if seconds is not None:
            self._reopening = asyncio.create_task(self._reopen(seconds))
        site, self._site = self._site, None
        if site is None:
            return
        await site.stop()
        self._socket = _bound(self.port)
        server = self._runner.server
        for connection in list(server.connections) if server is not None else ():
            transport = connection.transport
            if transport is not None and transport is not sparing:
                transport.abort()
        # A transport closes in later rounds of the loop; the caller must not continue before.
        await asyncio.sleep(CLOSING_SECONDS)

    def close(self) -> None:
        self._forget_reopening()
        self._socket.close()

    def _forget_reopening(self) -> None:
        if self._reopening is not None and self._reopening is not asyncio.current_task():
            self._reopening.cancel()
        self._reopening = None

    async def _reopen(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self.open()


def _bound(port: int) -> socket.socket:
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind((HOST, port))
    return made
