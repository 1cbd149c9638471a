"""Reads lines from a terminal, a pipe or a file without blocking the event loop."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Iterator

READ_BYTES = 4_096


class LineReader:
    """Reader of lines; `line` waits for the next one, and returns None after the last."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self.is_terminal = os.isatty(descriptor)
        # A thread, because a file cannot be awaited; it holds no lock, so it may keep reading at the end.
        threading.Thread(target=self._read, daemon=True, name="keyboard").start()

    @classmethod
    def of_terminal(cls) -> LineReader:
        return cls(sys.stdin.fileno())

    async def line(self) -> str | None:
        return await self._lines.get()

    def _read(self) -> None:
        for line in self._cut():
            self._hand_over(line)
        self._hand_over(None)

    def _cut(self) -> Iterator[str]:
        rest = b""
        while piece := self._piece():
            *lines, rest = (rest + piece).split(b"\n")
            yield from (line.decode(errors="replace") for line in lines)
        if rest:
            yield rest.decode(errors="replace")

    def _piece(self) -> bytes:
        try:
            return os.read(self._descriptor, READ_BYTES)
        except OSError:
            return b""

    def _hand_over(self, line: str | None) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._lines.put_nowait, line)
