"""Lines of clients that poll: frames wait here for the client's next request."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from web.protocol import wire
from web.server.send_queue import Spawn

Frame = Mapping[str, Any]

KEPT_SECONDS = 30.0
"""Seconds without a request after which a line is closed."""
GATHER_SECONDS = 0.05
"""Seconds for which frames are collected into one response."""
DRAFT_SECONDS = 0.4
"""Minimum seconds between two responses that only have a longer draft."""
MAX_WAITING_FRAMES = 500
"""Maximum frames kept for the next request; a line with more is closed, and its client starts again."""
MAX_LINES = 2_000
"""Maximum lines of one process."""

CurrentDraft = Callable[[int], Frame | None]
"""Function from a turn to the frame with the whole text of its draft; None if it is unknown or ended."""


class PollBox:
    """Sink of a send queue that keeps frames for the client's next request.

    Of the pieces of a draft it keeps only the last one.
    """

    def __init__(self) -> None:
        self._frames: list[Frame] = []
        self._piece: Frame | None = None
        self._reader: asyncio.Event | None = None
        self.closing: tuple[int, str] | None = None
        """Code and reason with which the server closed the line; None while it is open."""

    @property
    def empty(self) -> bool:
        """Whether neither a frame nor a close waits."""
        return not self._frames and self._piece is None and self.closing is None

    @property
    def has_only_draft(self) -> bool:
        """Whether nothing waits but a piece of a draft."""
        return not self._frames and self.closing is None

    @property
    def is_read(self) -> bool:
        """Whether a request of the client waits for frames."""
        return self._reader is not None

    async def send_str(self, data: str) -> None:
        """Keep a frame for the next request; a newer piece of a draft replaces the one before.

        Raises ConnectionError if MAX_WAITING_FRAMES wait already.
        """
        frame: Frame = json.loads(data)
        if frame["t"] in ("delta", "stream"):
            self._piece = frame
        elif len(self._frames) < MAX_WAITING_FRAMES:
            self._frames.append(frame)
        else:
            raise ConnectionError("too many frames wait for the next request")
        self._wake()

    async def close(self, *, code: int = 1000, message: bytes = b"") -> bool:
        """Close the line; the client gets code and message with its next request."""
        self.closing = code, message.decode(errors="replace")
        self._wake()
        return True

    def abort(self) -> None:
        """Close the line because its client is too slow."""
        self.closing = self.closing or (wire.CLOSE_SLOW, "too slow; come back and resume")
        self._wake()

    async def wait(self, seconds: float) -> bool:
        """Wait up to `seconds` for frames or the close of the line; return False if there is neither.

        Also False if a newer request of the client has taken over.
        """
        self._wake()
        mine = self._reader = asyncio.Event()
        if self.empty:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await mine.wait()
        if self._reader is mine and not self.empty:
            await asyncio.sleep(DRAFT_SECONDS if self.has_only_draft else GATHER_SECONDS)
        if self._reader is not mine:
            return False
        self._reader = None
        return not self.empty

    def take(self, draft: CurrentDraft) -> list[Frame]:
        """Return the waiting frames and remove them.

        If a piece of a draft waited, the last frame has the whole draft; an unknown or ended draft is left
        out.
        """
        frames, self._frames = self._frames, []
        piece, self._piece = self._piece, None
        if piece is not None and (shown := draft(int(piece["turn"]))) is not None:
            frames.append(shown)
        return frames

    def _wake(self) -> None:
        if self._reader is not None:
            self._reader.set()


class PollLine:
    """Line of one client that polls; `leave` frees its places in the limits of this process."""

    def __init__(
        self, name: str, session_id: int, box: PollBox, leave: Callable[[], Awaitable[None]]
    ) -> None:
        self.name = name
        self.session_id = session_id
        self.box = box
        self.leave = leave
        self.used_at = 0.0
        self._mark = secrets.token_hex(6)
        self._number = 0

    @property
    def batch(self) -> str:
        """Name of the last response; a client that states another one has missed something."""
        return f"{self._mark}-{self._number}"

    def take(self, draft: CurrentDraft) -> list[Frame]:
        """Return the waiting frames as the next batch."""
        self._number += 1
        return self.box.take(draft)


class PollLines:
    """Lines of this process by session id and name."""

    def __init__(self, *, spawn: Spawn, kept_seconds: float = KEPT_SECONDS, most: int = MAX_LINES) -> None:
        self._spawn = spawn
        self._kept_seconds = kept_seconds
        self._most = most
        self._lines: dict[tuple[int, str], PollLine] = {}
        self._timers: dict[PollLine, asyncio.TimerHandle] = {}

    def __len__(self) -> int:
        return len(self._lines)

    @property
    def full(self) -> bool:
        """Whether no further line can be opened."""
        return len(self._lines) >= self._most

    def find(self, session_id: int, name: str, batch: str) -> PollLine | None:
        """Return an open line if `batch` is its last response; None otherwise."""
        line = self._lines.get((session_id, name))
        return line if line is not None and line.batch == batch and line.box.closing is None else None

    def add(self, line: PollLine) -> None:
        """Add a line, in place of one with the same name."""
        self._lines[line.session_id, line.name] = line

    def use(self, line: PollLine) -> None:
        """Keep the line open while a request waits."""
        self._stop_timer(line)

    def rest(self, line: PollLine) -> None:
        """Close the line after `kept_seconds` unless its client polls again."""
        self._stop_timer(line)
        if self._lines.get((line.session_id, line.name)) is not line:
            return
        loop = asyncio.get_running_loop()
        line.used_at = loop.time()
        self._timers[line] = loop.call_later(self._kept_seconds, lambda: self._spawn(self.end(line)))

    async def end_named(self, session_id: int, name: str) -> None:
        """Close the line with this name, if there is one."""
        if (line := self._lines.get((session_id, name))) is not None:
            await self.end(line)

    async def end_idle(self, session_id: int) -> None:
        """Close the line of a session that has been idle longest; its tab may be closed."""
        idle = [line for line in self._timers if line.session_id == session_id]
        if idle:
            await self.end(min(idle, key=lambda line: line.used_at))

    async def end(self, line: PollLine) -> None:
        """Close a line; repeating the call has no effect."""
        self._stop_timer(line)
        if self._lines.get((line.session_id, line.name)) is line:
            del self._lines[line.session_id, line.name]
            await line.leave()

    def _stop_timer(self, line: PollLine) -> None:
        if (timer := self._timers.pop(line, None)) is not None:
            timer.cancel()
