"""What waits to be sent to one socket: bounded, so that a reader who sleeps costs nobody anything."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from web.protocol import wire

MAX_FRAMES = 256
MAX_BYTES = 256 * 1024
SEND_SECONDS = 10.0
CLOSE_SECONDS = 5.0

Spawn = Callable[[Coroutine[Any, Any, None]], object]
"""Runs a coroutine as a task that somebody owns."""


class FrameSink(Protocol):
    """The part of a WebSocket that an outbox needs."""

    async def send_str(self, data: str) -> None: ...
    async def close(self, *, code: int = 1000, message: bytes = b"") -> bool: ...


class SendQueue:
    """Sends in order. When full, deltas are dropped first; full without them, the socket is closed (1013)."""

    __slots__ = (
        "_abort",
        "_bytes",
        "_closed",
        "_closing",
        "_frames",
        "_line",
        "_sending",
        "_spawn",
        "is_closed",
    )

    def __init__(self, line: FrameSink, *, spawn: Spawn, abort: Callable[[], None]) -> None:
        self._line = line
        self._spawn = spawn
        self._abort = abort
        self._frames: list[tuple[str, bool, int]] = []  # a deque is 760 bytes even when empty
        self._bytes = 0
        self._sending = False
        self._closing: tuple[int, str] | None = None
        self._closed: asyncio.Event | None = None
        self.is_closed = False

    def put(self, text: str, *, passing: bool = False, free: bool = False) -> None:
        """`passing` frames may be lost; a `free` one (the welcome) does not count."""
        if self._closing is not None:
            return
        size = 0 if free else len(text) if text.isascii() else len(text.encode())
        if self._full(size):
            self._drop_passing()
            if self._full(size):
                if not passing:
                    self._give_up()
                return
        self._frames.append((text, passing, size))
        self._bytes += size
        self._go()

    def close(self, code: int, reason: str) -> None:
        """After everything that waits."""
        if self._closing is None:
            self._closing = (code, reason)
            self._go()

    def cut(self) -> None:
        """The other side is gone: nothing that waits can be sent."""
        self._closing = self._closing or (wire.CLOSE_GONE, "gone")
        self._frames.clear()
        self._bytes = 0
        self._is_over()

    async def closed(self) -> None:
        """Returns when the socket was closed or cut off."""
        if not self.is_closed:
            self._closed = self._closed or asyncio.Event()
            await self._closed.wait()

    @property
    def closing(self) -> bool:
        return self._closing is not None

    @property
    def crowded(self) -> bool:
        """Whoever goes on putting should let some of it get away first."""
        return len(self._frames) >= MAX_FRAMES // 4

    def _is_over(self) -> None:
        self.is_closed = True
        if self._closed is not None:
            self._closed.set()

    def _full(self, size: int) -> bool:
        return len(self._frames) >= MAX_FRAMES or (bool(self._frames) and self._bytes + size > MAX_BYTES)

    def _drop_passing(self) -> None:
        self._frames = [frame for frame in self._frames if not frame[1]]
        self._bytes = sum(size for _, _, size in self._frames)

    def _give_up(self) -> None:
        self._frames.clear()
        self._bytes = 0
        self.close(wire.CLOSE_SLOW, "too slow; come back and resume")

    def _go(self) -> None:
        # A task only while there is something to send: an idle socket costs none.
        if not self._sending:
            self._sending = True
            self._spawn(self._drain())

    async def _drain(self) -> None:
        try:
            while self._frames:
                text, _, size = self._frames.pop(0)
                self._bytes -= size
                async with asyncio.timeout(SEND_SECONDS):
                    await self._line.send_str(text)
            if self._closing is not None:
                async with asyncio.timeout(CLOSE_SECONDS):
                    code, reason = self._closing
                    await self._line.close(code=code, message=reason.encode()[:120])
                self._is_over()
        except (OSError, TimeoutError, RuntimeError):
            # Gone, or asleep for too long: what is not confirmed is asked for again after the resume.
            self._closing = self._closing or (wire.CLOSE_SLOW, "")
            self._frames.clear()
            self._abort()
            self._is_over()
        finally:
            self._sending = False
        if self._frames:
            self._go()
