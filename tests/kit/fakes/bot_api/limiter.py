"""Telegram's sending limits, off at the start; a bot that does not wait must wait longer."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

from tests.kit.fakes.bot_api.clock import Clock
from tests.kit.fakes.bot_api.refusals import too_many

MAX_DOUBLINGS = 7


@dataclass(slots=True, kw_only=True)
class _Window:
    """Window that allows `most` calls in `seconds`."""

    most: int
    seconds: float
    moments: deque[float] = field(default_factory=deque)

    def wait(self, now: float) -> float:
        while self.moments and self.moments[0] <= now - self.seconds:
            self.moments.popleft()
        return self.moments[0] + self.seconds - now if len(self.moments) >= self.most else 0.0


@dataclass(slots=True, kw_only=True)
class _Penalty:
    until: float = 0.0
    strikes: int = 0


class Limiter:
    """Limiter of sends and edits: 1 a second in a private chat, 20 a minute in a group, 30 a second in
    all.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.reset()

    def reset(self) -> None:
        self.on = False
        self.burst = 3
        self._windows: dict[object, _Window] = {}
        self._penalties: dict[object, _Penalty] = {}

    def switch(self, *, on: bool, burst: int = 3) -> None:
        """Switch the limits on or off.

        `burst` is the number of calls in as many seconds that a private chat allows.
        """
        self.reset()
        self.on, self.burst = on, burst

    def admit(self, bot: int, chat: int) -> None:
        if not self.on:
            return
        now = self._clock.now()
        penalty = self._penalties.setdefault((bot, chat), _Penalty())
        if now < penalty.until:
            raise too_many(math.ceil(penalty.until - now))
        windows = (self._window((bot, chat), chat), self._window(bot, None))
        wait = max(window.wait(now) for window in windows)
        if wait > 0:
            seconds = math.ceil(wait) * 2 ** min(penalty.strikes, MAX_DOUBLINGS)
            penalty.strikes += 1
            penalty.until = now + seconds
            raise too_many(seconds)
        penalty.strikes = 0
        for window in windows:
            window.moments.append(now)

    def _window(self, key: object, chat: int | None) -> _Window:
        if key not in self._windows:
            if chat is None:
                most, seconds = 30, 1.0
            elif chat < 0:
                most, seconds = 20, 60.0
            else:
                most, seconds = self.burst, float(self.burst)
            self._windows[key] = _Window(most=most, seconds=seconds)
        return self._windows[key]
