"""A TCP proxy between a process and a server whose connections a test may cut, slow down, or rob of
replies.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

CHUNK = 64 * 1024
CONNECT_SECONDS = 5.0
DONE_WITH_A_TRANSACTION = b"Z\x00\x00\x00\x05I"
"""End of a reply of Postgres outside of a transaction; all that was asked before it is committed."""


Upstream = tuple[str, int] | Path
"""A host and a port, or the path of a Unix socket."""


class Cut(Exception):
    """Raised by a hook to break a connection on both sides, after the bytes `last` have been passed on."""

    def __init__(self, last: bytes = b"") -> None:
        super().__init__(f"cut after {len(last)} more bytes")
        self.last = last


@dataclass(slots=True, kw_only=True, eq=False)
class Link:
    """One connection through the proxy, with the bytes passed on in each direction."""

    number: int
    asked: int = 0
    replied: int = 0
    lines: list[asyncio.StreamWriter] = field(default_factory=list)

    def cut(self) -> None:
        for line in self.lines:
            line.transport.abort()


Hook = Callable[[Link, bytes], Awaitable[bytes]]
"""Function that gets the bytes that arrived, and returns the bytes to pass on (`b""` drops them).

It may wait, and may raise Cut.
"""


async def everything(_link: Link, data: bytes) -> bytes:
    """Pass everything on, as the hook of an undisturbed connection."""
    return data


@dataclass(slots=True, kw_only=True)
class TcpProxy:
    """The proxy; used as `async with TcpProxy(upstream=…) as proxy`.

    Clients connect to `127.0.0.1:{proxy.port}`. Its hooks may be replaced at any time.
    """

    upstream: Upstream
    others: Sequence[Upstream] = ()
    """Servers that take turns with `upstream`, one connection each."""
    replies: Hook = everything
    requests: Hook = everything
    refuses: bool = False
    """Whether new connections are closed at once; open ones stay."""
    port: int = 0
    connections: int = 0
    links: set[Link] = field(default_factory=set)
    _server: asyncio.Server | None = None
    _talks: set[asyncio.Task[None]] = field(default_factory=set)

    async def __aenter__(self) -> TcpProxy:
        self._server = await asyncio.start_server(self._came, "127.0.0.1", self.port, limit=CHUNK)
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        for talk in self._talks:
            talk.cancel()
        if self._talks:
            await asyncio.wait(self._talks, timeout=5)

    def cut(self) -> int:
        """Break every open connection, and return how many there were."""
        broken = list(self.links)
        for link in broken:
            link.cut()
        return len(broken)

    def heal(self) -> None:
        self.replies = self.requests = everything
        self.refuses = False

    def _came(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talk = asyncio.ensure_future(self._between(reader, writer))
        self._talks.add(talk)
        talk.add_done_callback(self._talks.discard)
        # a task that is cancelled before it began has closed nothing
        talk.add_done_callback(lambda _: writer.transport.abort())

    async def _between(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        link = Link(number=self.connections, lines=[writer])
        with contextlib.suppress(OSError, TimeoutError):
            try:
                if not self.refuses:
                    server, to_server = await self._connected(link)
                    link.lines.append(to_server)
                    self.links.add(link)
                    await self._pump(link, (reader, writer), (server, to_server))
            finally:
                self.links.discard(link)
                link.cut()

    async def _connected(self, link: Link) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        async with asyncio.timeout(CONNECT_SECONDS):
            servers = (self.upstream, *self.others)
            server = servers[link.number % len(servers)]
            if isinstance(server, Path):
                return await asyncio.open_unix_connection(server, limit=CHUNK)
            return await asyncio.open_connection(*server, limit=CHUNK)

    async def _pump(
        self,
        link: Link,
        client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        server: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        """Pass bytes on in both directions until either side ends."""
        ways = [
            asyncio.ensure_future(self._requests(link, client[0], server[1])),
            asyncio.ensure_future(self._replies(link, server[0], client[1])),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    async def _requests(self, link: Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(CHUNK):
            if not await _passed(self.requests, link, data, writer):
                return
            link.asked += len(data)

    async def _replies(self, link: Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(CHUNK):
            if not await _passed(self.replies, link, data, writer):
                return
            link.replied += len(data)


async def _passed(hook: Hook, link: Link, data: bytes, writer: asyncio.StreamWriter) -> bool:
    try:
        onwards, cut = await hook(link, data), False
    except Cut as error:
        onwards, cut = error.last, True
    if onwards:
        writer.write(onwards)
        await writer.drain()
    return not cut


def cut_after(number: int, *, times: int = 1) -> Hook:
    """Return a hook that breaks a connection after `number` bytes of replies.

    It does so on the next `times` connections that reach that number.
    """
    left = [times]

    async def hook(link: Link, data: bytes) -> bytes:
        if link.replied + len(data) <= number or left[0] <= 0:
            return data
        left[0] -= 1
        raise Cut(data[: max(0, number - link.replied)])

    return hook


def delayed(seconds: float) -> Hook:
    """Return a hook that passes each piece on `seconds` later, in order."""

    async def hook(_link: Link, data: bytes) -> bytes:
        await asyncio.sleep(seconds)
        return data

    return hook


def dripping(seconds: float, *, size: int = 1) -> Hook:
    """Return a hook that passes on at most `size` bytes every `seconds`.

    Suited to small answers only, since all bytes wait in the hook.
    """
    held: dict[Link, bytearray] = {}

    async def hook(link: Link, data: bytes) -> bytes:
        waiting = held.setdefault(link, bytearray())
        waiting += data
        writer = link.lines[0]
        while waiting:
            await asyncio.sleep(seconds)
            writer.write(bytes(waiting[:size]))
            await writer.drain()
            del waiting[:size]
        return b""

    return hook


@dataclass(slots=True, kw_only=True)
class LostReplies:
    """A hook for Postgres that loses some replies after the server has done the work, and breaks the
    connection.

    The client cannot know whether its change was committed. The first `skip` replies of a connection, those
    of the login, are passed on.
    """

    share: float
    seed: int = 1
    skip: int = 6
    lost: int = 0
    _random: Random = field(init=False)
    _told: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._random = Random(self.seed)

    async def __call__(self, link: Link, data: bytes) -> bytes:
        if not data.endswith(DONE_WITH_A_TRANSACTION):
            return data
        self._told[link.number] = told = self._told.get(link.number, 0) + 1
        if told <= self.skip or self._random.random() >= self.share:
            return data
        self.lost += 1
        raise Cut
