"""Clock of the fake: it can be sped up or moved ahead, and sleepers notice."""

from __future__ import annotations

import asyncio
import time


class Clock:
    def __init__(self) -> None:
        self.speed = 1.0
        self._changed = asyncio.Event()
        self._restart(time.time())

    def reset(self) -> None:
        self.speed = 1.0
        self._restart(time.time())

    def now(self) -> float:
        return self._start + (time.monotonic() - self._real_start) * self.speed

    def date(self) -> int:
        return int(self.now())

    def advance(self, seconds: float) -> None:
        self._restart(self.now() + seconds)

    def set_speed(self, speed: float) -> None:
        """Set the speed: 1 is real time, at 60 a minute passes in a second."""
        if not speed > 0:
            raise ValueError(f"time cannot pass at speed {speed:g}")
        self._restart(self.now())
        self.speed = speed

    async def sleep(self, seconds: float) -> None:
        await self.wait_until(self.now() + seconds)

    async def wait_until(self, moment: float) -> None:
        while (left := moment - self.now()) > 0:
            changed = self._changed
            try:
                await asyncio.wait_for(changed.wait(), left / self.speed)
            except TimeoutError:
                continue

    def _restart(self, now: float) -> None:
        self._start, self._real_start = now, time.monotonic()
        waiting, self._changed = self._changed, asyncio.Event()
        waiting.set()
