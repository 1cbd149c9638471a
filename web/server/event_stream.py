"""Server-sent events as the response to one request, with a time limit for each write."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from web.protocol.answers import to_json
from web.server.http_server import HEADERS

MEDIA_TYPE = "text/event-stream"
HEARTBEAT_SECONDS = 15.0
"""Seconds without an event after which a heartbeat is sent."""
SEND_SECONDS = 10.0
"""Seconds that one write may take."""


def wants_events(request: web.Request) -> bool:
    """Return whether the client accepts server-sent events."""
    accepted = request.headers.get("Accept", "").lower()
    return any(part.partition(";")[0].strip() == MEDIA_TYPE for part in accepted.split(","))


class EventStream:
    """Response of server-sent events.

    Once the client has disconnected, writing has no effect, so that the work can continue.
    """

    def __init__(self, request: web.Request, *, request_id: str, headers: Mapping[str, str]) -> None:
        self._request = request
        self._response = web.StreamResponse(
            headers={
                **HEADERS,
                **headers,
                "Content-Type": f"{MEDIA_TYPE}; charset=utf-8",
                "Cache-Control": "no-store",
                "X-Accel-Buffering": "no",
                "X-Request-Id": request_id,
            }
        )
        self._gone = False

    @property
    def gone(self) -> bool:
        """Whether the client has disconnected."""
        transport = self._request.transport
        return self._gone or transport is None or transport.is_closing()

    async def open(self) -> None:
        """Send the headers. Raises TimeoutError or ConnectionError if the client does not accept them."""
        async with asyncio.timeout(SEND_SECONDS):
            await self._response.prepare(self._request)

    async def send(self, event: str, data: Any) -> None:
        """Send an event with its data as JSON; `data` is a mapping, or the dataclass of an answer."""
        await self._write(f"event: {event}\ndata: {to_json(data)}\n\n")

    async def beat(self) -> None:
        """Send a comment as heartbeat; clients skip it, and proxies keep the connection open."""
        await self._write(": \n\n")

    async def end(self) -> web.StreamResponse:
        """End the stream and return the response."""
        if not self.gone:
            try:
                async with asyncio.timeout(SEND_SECONDS):
                    await self._response.write_eof()
            except (ConnectionError, TimeoutError):
                self._gone = True
        return self._response

    async def _write(self, text: str) -> None:
        if self.gone:
            return
        try:
            async with asyncio.timeout(SEND_SECONDS):
                await self._response.write(text.encode())
        except (ConnectionError, TimeoutError):
            self._gone = True
