"""Waits and retries of model calls; many short waits share one timer."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from shared.core.values.errors import ModelUnavailable

_T = TypeVar("_T")


def _full_jitter(seconds: float) -> float:
    return random.uniform(0, seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Waits and number of attempts of one call; tests shorten them."""

    first_byte_seconds: float = 120.0
    """Seconds to wait for the first event; a local server first reads a long prompt."""
    silence_seconds: float = 60.0
    """Maximum seconds between two events of a stream; pings and comments count as events."""
    total_seconds: float = 600.0
    """Maximum seconds for all attempts together."""
    attempts: int = 2
    """Maximum attempts at an unavailable provider."""
    backoff_seconds: float = 1.0
    """Seconds of the first wait after a failed attempt."""
    overload_backoff_seconds: float = 4.0
    """Seconds of the first wait after an attempt that an overloaded provider refused."""
    longest_wait_seconds: float = 10.0
    """Maximum seconds to wait if a busy provider names a wait; a longer one is reported as an error."""
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    """Function that waits for a number of seconds."""
    jitter: Callable[[float], float] = _full_jitter
    """Function that returns the random wait for a maximum, both in seconds."""


class Watch:
    """Deadlines for consecutive waits of one task with a single timer.

    The timer is moved only when it fires early, so a deadline that moves with each event costs nothing. Time
    between two waits is not limited.
    """

    __slots__ = ("_cancelling", "_deadline", "_expired", "_loop", "_task", "_timer", "_timer_at")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._cancelling = self._task.cancelling() if self._task is not None else 0
        self._deadline: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._expired = False

    async def wait(self, deadline: float, otherwise: str, awaited: Awaitable[_T]) -> _T:
        """Await `awaited` until `deadline` (loop time).

        Raises ModelUnavailable with the text `otherwise` after that.
        """
        self._deadline = deadline
        if self._timer is None or deadline < self._timer_at:
            self._arm(deadline)
        try:
            return await awaited
        except asyncio.CancelledError as error:
            if not self._has_expired():
                raise
            raise ModelUnavailable(otherwise) from error
        except TimeoutError as error:
            raise ModelUnavailable(otherwise) from error
        finally:
            self._deadline = None
            self._has_expired()

    def close(self) -> None:
        """Cancel the timer; must be called when no wait follows."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, at: float) -> None:
        self.close()
        self._timer_at = at
        self._timer = self._loop.call_at(at, self._ring)

    def _ring(self) -> None:
        self._timer = None
        if self._deadline is None:
            return
        if self._loop.time() < self._deadline:
            self._arm(self._deadline)
        elif self._task is not None:
            self._expired = True
            self._task.cancel()

    def _has_expired(self) -> bool:
        """Return whether the timer, and no other canceller, has cancelled the task; reset that."""
        expired, self._expired = self._expired, False
        return expired and self._task is not None and self._task.uncancel() <= self._cancelling
