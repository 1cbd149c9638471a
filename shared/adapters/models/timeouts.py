"""How long to wait for a model, and how often to try."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass


def _full_jitter(seconds: float) -> float:
    return random.uniform(0, seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """All waits of one call; tests shorten them."""

    first_byte_seconds: float = 90.0
    silence_seconds: float = 30.0
    """Longest time between two events of a stream; pings count as events."""
    total_seconds: float = 600.0
    attempts: int = 2
    backoff_seconds: float = 1.0
    overload_backoff_seconds: float = 4.0
    longest_wait_seconds: float = 10.0
    """A busy provider that asks for more is reported instead of waited for."""
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    jitter: Callable[[float], float] = _full_jitter
