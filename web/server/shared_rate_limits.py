"""Rate limits over all web processes, which exchange their counts by Redis every second.

Requests do not wait for the exchange. Without Redis each process counts alone, and counts of others expire.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from web.server.rate_limits import RateWindows

EVERY_SECONDS = 1.0
"""Seconds between two exchanges."""
SLICES = 6
"""Number of slices of a window; counts expire slice by slice."""
MOST_KEYS = 2_000
"""Maximum keys in one exchange; those with the most uses."""


class Counts(Protocol):
    """Store of the counts of all processes, by kind of window, slice and key."""

    async def add(
        self,
        kind: str,
        added: Mapping[str, int],
        *,
        slices: Sequence[int],
        asked: Sequence[str],
        seconds: float,
    ) -> Mapping[str, int] | None:
        """Add this process's new uses by key to the newest of `slices`; return the uses of all processes.

        The result has the sum over all slices for the keys `asked`, without zeros; None if Redis does not
        answer. `seconds` is the length of the window.
        """
        ...


class CommonCounts:
    """Exchange of the counts of this process with those of others; `windows` are the windows by kind."""

    def __init__(
        self, counts: Counts, windows: Mapping[str, RateWindows], *, clock: Callable[[], float] = time.time
    ) -> None:
        self._counts = counts
        self._windows = windows
        self._clock = clock
        self._told: dict[str, dict[int, Counter[str]]] = {kind: {} for kind in windows}

    async def watch(self) -> None:
        """Exchange counts every `EVERY_SECONDS` until cancelled."""
        while True:
            await asyncio.sleep(EVERY_SECONDS)
            await self.exchange()

    async def exchange(self) -> None:
        """Add the new counts to those of all processes, and set the counts of others in the windows."""
        for kind, windows in self._windows.items():
            await self._exchange(kind, windows)

    async def _exchange(self, kind: str, windows: RateWindows) -> None:
        now = int(self._clock() * SLICES / windows.seconds)
        slices = range(now - SLICES + 1, now + 1)
        added = dict(windows.take_new_counts().most_common(MOST_KEYS))
        told = {one: counts for one, counts in self._told[kind].items() if one in slices}
        told.setdefault(now, Counter()).update(added)
        self._told[kind] = told
        ours = sum(told.values(), Counter[str]())
        if not ours:
            return
        asked = list(ours)
        found = await self._counts.add(kind, added, slices=slices, asked=asked, seconds=windows.seconds)
        if found is not None:
            windows.set_remote_counts(
                {key: found.get(key, 0) - ours[key] for key in asked if found.get(key, 0) > ours[key]}
            )
