"""Growth of work with the length of its input, measured on a machine that may be busy."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

TIMES = 4
"""How many times as long the larger input is."""
MOST_TIMES = 7.0
"""Most times the CPU time that it may take: linear work takes 4 times as long, quadratic work 16 times."""
LEAST_ATTEMPTS, MOST_ATTEMPTS = 3, 8
"""Measurements of each size before work may pass, and before it fails."""
_NOISE_SECONDS = 0.01


async def grows_linearly(work: Callable[[int], Awaitable[object]], size: int) -> bool:
    """Return whether `work(4 * size)` takes at most seven times the CPU time of `work(size)`.

    Other programs disturb single measurements: the best of three to eight of each size counts.
    """
    small = large = float("inf")
    for attempt in range(1, MOST_ATTEMPTS + 1):
        small = min(small, await _measure_cpu(work, size))
        large = min(large, await _measure_cpu(work, TIMES * size))
        if attempt >= LEAST_ATTEMPTS and large <= MOST_TIMES * small + _NOISE_SECONDS:
            return True
    return False


async def _measure_cpu(work: Callable[[int], Awaitable[object]], size: int) -> float:
    began = time.process_time()
    await work(size)
    return time.process_time() - began
