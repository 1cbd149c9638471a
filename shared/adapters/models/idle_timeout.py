"""Bounds many short waits by one timer: each event of a stream may be the last one for a while."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from shared.core.values.errors import ModelUnavailable

_T = TypeVar("_T")


class Watch:
    """For one task. A deadline that moves with every event costs no timer each: the loop hears of it when
    the one before is over. What happens between two waits is not bounded.
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
        """Raises ModelUnavailable with `otherwise` when it is not there by then."""
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
        """Whether it was we who cancelled, and nobody else did so, too."""
        expired, self._expired = self._expired, False
        return expired and self._task is not None and self._task.uncancel() <= self._cancelling
