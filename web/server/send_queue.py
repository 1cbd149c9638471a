"""Bounded queue of the frames to one client, and the text of a running answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from shared.core.session.turns import Delta, utf16_units
from web.protocol import wire

MAX_FRAMES = 256
"""Maximum frames in a queue."""
MAX_BYTES = 256 * 1024
"""Maximum bytes in a queue."""
SEND_SECONDS = 10.0
"""Seconds that sending one frame may take."""
CLOSE_SECONDS = 5.0
"""Seconds that closing the connection may take."""

Spawn = Callable[[Coroutine[Any, Any, None]], object]
"""Function that runs a coroutine as a task which its owner keeps."""


class FrameSink(Protocol):
    """Methods of a WebSocket that a send queue uses."""

    async def send_str(self, data: str) -> None: ...
    async def close(self, *, code: int = 1000, message: bytes = b"") -> bool: ...


class SendQueue:
    """Queue of the frames to one client.

    When it is full, droppable frames are discarded first, then the connection is closed with code 1013.
    """

    __slots__ = (
        "_abort",
        "_bytes",
        "_close_reason",
        "_closed_event",
        "_frames",
        "_sending",
        "_sink",
        "_spawn",
        "is_closed",
    )

    def __init__(self, sink: FrameSink, *, spawn: Spawn, abort: Callable[[], None]) -> None:
        self._sink = sink
        self._spawn = spawn
        self._abort = abort
        self._frames: list[tuple[str, bool, int]] = []  # a deque is 760 bytes even when empty
        self._bytes = 0
        self._sending = False
        self._close_reason: tuple[int, str] | None = None
        self._closed_event: asyncio.Event | None = None
        self.is_closed = False
        """Whether the connection was closed or cut."""

    def put(self, text: str, *, droppable: bool = False, free: bool = False) -> None:
        """Queue a frame for sending; ignored after `close` or `cut`.

        A `droppable` frame may be lost when the queue is full. The bytes of a `free` frame, such as the
        welcome, do not count.
        """
        if self._close_reason is not None:
            return
        size = 0 if free else len(text) if text.isascii() else len(text.encode())
        if self._full(size):
            self._drop_droppable()
            if self._full(size):
                if not droppable:
                    self._give_up()
                return
        self._frames.append((text, droppable, size))
        self._bytes += size
        self._go()

    def close(self, code: int, reason: str) -> None:
        """Close the connection after the waiting frames are sent; a second call has no effect."""
        if self._close_reason is None:
            self._close_reason = (code, reason)
            self._go()

    def cut(self) -> None:
        """Discard the waiting frames and count the connection as closed, because the client has
        disconnected.
        """
        self._close_reason = self._close_reason or (wire.CLOSE_GONE, "gone")
        self._frames.clear()
        self._bytes = 0
        self._mark_closed()

    async def wait_closed(self) -> None:
        """Wait until the connection is closed or cut."""
        if not self.is_closed:
            self._closed_event = self._closed_event or asyncio.Event()
            await self._closed_event.wait()

    @property
    def closing(self) -> bool:
        """Whether the connection is being closed."""
        return self._close_reason is not None

    @property
    def crowded(self) -> bool:
        """Whether senders should pause until some frames are sent."""
        return len(self._frames) >= MAX_FRAMES // 4

    def _mark_closed(self) -> None:
        """Record that the connection is closed or cut, and wake who waits for it."""
        self.is_closed = True
        if self._closed_event is not None:
            self._closed_event.set()

    def _full(self, size: int) -> bool:
        return len(self._frames) >= MAX_FRAMES or (bool(self._frames) and self._bytes + size > MAX_BYTES)

    def _drop_droppable(self) -> None:
        self._frames = [frame for frame in self._frames if not frame[1]]
        self._bytes = sum(size for _, _, size in self._frames)

    def _give_up(self) -> None:
        """Close the connection of a client that reads too slowly."""
        self._frames.clear()
        self._bytes = 0
        self.close(wire.CLOSE_SLOW, "too slow; come back and resume")

    def _go(self) -> None:
        # A task runs only while frames wait, so an idle connection costs none.
        if not self._sending:
            self._sending = True
            self._spawn(self._send_waiting())

    async def _send_waiting(self) -> None:
        """Send the waiting frames, then close the connection if that was requested."""
        try:
            while self._frames:
                text, _, size = self._frames.pop(0)
                self._bytes -= size
                async with asyncio.timeout(SEND_SECONDS):
                    await self._sink.send_str(text)
            if self._close_reason is not None:
                async with asyncio.timeout(CLOSE_SECONDS):
                    code, reason = self._close_reason
                    await self._sink.close(code=code, message=reason.encode()[:120])
                self._mark_closed()
        except (OSError, TimeoutError, RuntimeError):
            # The client is gone or did not read in time; after reconnecting it asks again for what it missed.
            self._close_reason = self._close_reason or (wire.CLOSE_SLOW, "")
            self._frames.clear()
            self._abort()
            self._mark_closed()
        finally:
            self._sending = False
        if self._frames:
            self._go()


MAX_UNITS = 400_000
"""Maximum UTF-16 units of a draft.

Beyond that no text is added, and the stored message brings the whole text.
"""


class Draft:
    """Text of a running answer so far."""

    __slots__ = ("_parts", "attempt", "subject", "tool", "turn", "units", "whole")

    def __init__(self, *, turn: int, attempt: int) -> None:
        self.turn = turn
        self.attempt = attempt
        self.tool: str | None = None
        self.subject = ""
        """Subject of the running tool, such as a search text; empty if none."""
        self.units = 0
        """Length of the text in UTF-16 units."""
        self.whole = True
        """Whether no piece of the text is missing."""
        self._parts: list[str] = []

    @classmethod
    def from_text(cls, *, turn: int, attempt: int, text: str) -> Draft:
        """Return a draft with the text that another process has."""
        draft = cls(turn=turn, attempt=attempt)
        draft.add(Delta(turn=turn, attempt=attempt, offset=0, text=text))
        return draft

    def add(self, delta: Delta) -> None:
        """Append a piece of text; a piece of a newer attempt replaces all text before it.

        A piece of an older attempt, a repeated one, and one after a gap are ignored.
        """
        if delta.attempt < self.attempt:
            return
        if delta.attempt > self.attempt:
            self.attempt, self.units, self.whole = delta.attempt, 0, True
            self._parts.clear()
        if delta.offset != self.units or self.units > MAX_UNITS:
            self.whole = self.whole and delta.offset < self.units
            return
        self.tool = None
        self._parts.append(delta.text)
        self.units += utf16_units(delta.text)

    @property
    def text(self) -> str:
        """Text that has arrived so far."""
        if len(self._parts) > 1:
            self._parts = ["".join(self._parts)]
        return self._parts[0] if self._parts else ""

    def state(self) -> dict[str, Any]:
        """Return the field `run` of the welcome frame."""
        shown: dict[str, Any] = {
            "turn": self.turn,
            "state": "tool" if self.tool else "started",
            "attempt": self.attempt,
            "text": self.text,
            "off": self.units,
        }
        if not self.tool:
            return shown
        return {**shown, "tool": self.tool, **({"subject": self.subject} if self.subject else {})}


class Pieces:
    """Collector of pieces of text, which releases them at most once per interval, the first at once."""

    __slots__ = ("_first", "_parts", "_seconds", "_sent", "_timer", "_units")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._first: Delta | None = None
        self._parts: list[str] = []
        self._units = 0
        self._sent = float("-inf")
        self._timer: asyncio.TimerHandle | None = None

    def add(self, delta: Delta, flush: Callable[[], None]) -> None:
        """Add a piece of text; `flush` is called when the collected pieces are due, at once or later.

        `flush` gets them by `take`. They are due at once if this piece does not continue them.
        """
        if self._first is not None and not self._continues(delta):
            same_turn = self._first.turn == delta.turn and delta.attempt == self._first.attempt
            if same_turn:
                self._cancel()
                flush()
            self._first = None
        if self._first is None:
            self._first, self._parts, self._units = delta, [], 0
        self._parts.append(delta.text)
        self._units += utf16_units(delta.text)
        if self._timer is None:
            self._schedule(flush)

    def take(self) -> dict[str, Any] | None:
        """Return the collected pieces as one frame; None if there are none."""
        first, self._first = self._first, None
        self._cancel()
        if first is None:
            return None
        self._sent = asyncio.get_running_loop().time()
        text = "".join(self._parts)
        return wire.delta(turn=first.turn, attempt=first.attempt, offset=first.offset, text=text)

    def clear(self) -> None:
        """Discard the collected pieces."""
        self._first = None
        self._cancel()

    def _continues(self, delta: Delta) -> bool:
        first = self._first
        return (
            first is not None
            and first.turn == delta.turn
            and first.attempt == delta.attempt
            and delta.offset == first.offset + self._units
        )

    def _schedule(self, flush: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        wait = self._sent + self._seconds - loop.time()
        if wait <= 0:
            flush()
        else:
            self._timer = loop.call_later(wait, self._fire, flush)

    def _fire(self, flush: Callable[[], None]) -> None:
        self._timer = None
        flush()

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
