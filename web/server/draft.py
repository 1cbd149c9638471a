"""The answer that is being written: what a screen that comes now must see, and pieces put together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from shared.core.session.events import Delta, utf16_units
from web.protocol import wire

MAX_UNITS = 400_000
"""A draft longer than any answer is no longer kept; the whole text comes with the final message."""


class Draft:
    """The visible text of one turn so far."""

    __slots__ = ("_parts", "attempt", "subject", "tool", "turn", "units", "whole")

    def __init__(self, *, turn: int, attempt: int) -> None:
        self.turn = turn
        self.attempt = attempt
        self.tool: str | None = None
        self.subject = ""
        """What the tool is about."""
        self.units = 0
        self.whole = True
        """False when a piece was missed."""
        self._parts: list[str] = []

    @classmethod
    def of(cls, *, turn: int, attempt: int, text: str) -> Draft:
        """As another process has it."""
        draft = cls(turn=turn, attempt=attempt)
        draft.add(Delta(turn=turn, attempt=attempt, offset=0, text=text))
        return draft

    def add(self, delta: Delta) -> None:
        """A piece with a hole before it, or of an older attempt, is left out."""
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
        if len(self._parts) > 1:
            self._parts = ["".join(self._parts)]
        return self._parts[0] if self._parts else ""

    def state(self) -> dict[str, Any]:
        """The `run` of a welcome."""
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
    """Collects deltas and lets them go at most once per interval, the first one at once."""

    __slots__ = ("_first", "_parts", "_seconds", "_sent", "_timer", "_units")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._first: Delta | None = None
        self._parts: list[str] = []
        self._units = 0
        self._sent = float("-inf")
        self._timer: asyncio.TimerHandle | None = None

    def add(self, delta: Delta, flush: Callable[[], None]) -> None:
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
        """What was collected, as a frame."""
        first, self._first = self._first, None
        self._cancel()
        if first is None:
            return None
        self._sent = asyncio.get_running_loop().time()
        text = "".join(self._parts)
        return wire.delta(turn=first.turn, attempt=first.attempt, offset=first.offset, text=text)

    def clear(self) -> None:
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
