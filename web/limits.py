"""How much one browser, one session and one client address may do, and how long to wait after too much."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

_KEYS_BEFORE_TIDYING = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Counts per window; `local` holds for a person's own machine, where the only client is that person."""

    frames: int = 30
    frames_seconds: float = 3.0
    messages: int = 20
    messages_seconds: float = 60.0
    sockets_per_session: int = 5
    sockets_per_address: int = 50
    strikes: int = 60
    """Frames refused on one socket before it is closed."""


LOCAL = Limits(frames=6_000, messages=60_000, sockets_per_session=50, sockets_per_address=10_000, strikes=600)


class Window:
    """At most `count` in any `seconds`."""

    __slots__ = ("_clock", "_count", "_seconds", "_times")

    def __init__(self, count: int, seconds: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._count = count
        self._seconds = seconds
        self._clock = clock
        self._times: list[float] = []  # an empty deque holds 760 bytes, and most sockets are idle

    def take(self) -> float:
        """0 when it is allowed (and counted), else the seconds until it would be."""
        now = self._clock()
        self._forget(now)
        if len(self._times) >= self._count:
            return max(0.1, self._times[0] + self._seconds - now)
        self._times.append(now)
        return 0.0

    @property
    def empty(self) -> bool:
        self._forget(self._clock())
        return not self._times

    def _forget(self, now: float) -> None:
        old = 0
        while old < len(self._times) and self._times[old] <= now - self._seconds:
            old += 1
        if old:
            del self._times[:old]


class Windows:
    """One window per key; keys that have been quiet are forgotten."""

    def __init__(self, seconds: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._windows: dict[str, Window] = {}

    def take(self, key: str, count: int) -> float:
        window = self._windows.get(key)
        if window is None:
            if len(self._windows) >= _KEYS_BEFORE_TIDYING:
                self._tidy()
            window = self._windows[key] = Window(count, self._seconds, clock=self._clock)
        return window.take()

    def _tidy(self) -> None:
        self._windows = {key: window for key, window in self._windows.items() if not window.empty}


class Places:
    """Counts what is open per key."""

    def __init__(self) -> None:
        self._open: dict[str, int] = {}

    def take(self, key: str, most: int) -> bool:
        taken = self._open.get(key, 0)
        if taken >= most:
            return False
        self._open[key] = taken + 1
        return True

    def leave(self, key: str) -> None:
        left = self._open.get(key, 0) - 1
        if left > 0:
            self._open[key] = left
        else:
            self._open.pop(key, None)
