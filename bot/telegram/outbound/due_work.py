"""Loop that finds due deliveries in the database and runs each of them once at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import structlog

from bot.telegram.client.sender import Sender
from shared.core.values.errors import StorageUnavailable
from shared.runtime import BackgroundTasks

log = structlog.get_logger(__name__)

STORE_RETRY_SECONDS = 0.5
"""Seconds between two tries to store an outcome."""


class DueWork:
    """Finds due deliveries of held bots, and runs each of them once at a time.

    `look` gets the ids of held bots, calls `start` for each due delivery, and returns the seconds until the
    next look. `what` names the deliveries in the log.
    """

    def __init__(
        self,
        what: str,
        look: Callable[[Sequence[int]], Awaitable[float]],
        *,
        senders: Mapping[int, Sender],
        list_held_bots: Callable[[], list[int]],
        tasks: BackgroundTasks,
        retry_seconds: float,
    ) -> None:
        self._what = what
        self._look = look
        self._senders = senders
        self._list_held_bots = list_held_bots
        self._tasks = tasks
        self._retry_seconds = retry_seconds
        self._running: set[Hashable] = set()
        self._woken = asyncio.Event()
        self._swept_at: float | None = None

    def wake(self) -> None:
        """Make `run` look now, because a delivery was stored."""
        self._woken.set()

    async def run(self) -> None:
        """Look for due deliveries until cancelled: after each wake-up and after the pause that `look`
        returned.
        """
        pause = 0.0
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._woken.wait()
            self._woken.clear()
            try:
                pause = await self._look(self._list_held_bots())
            except StorageUnavailable as error:
                log.warning("deliveries_unavailable", what=self._what, reason=str(error))
                pause = self._retry_seconds

    def list_ready(self, held: Sequence[int]) -> list[int]:
        """Return the bots among `held` that have a sender."""
        return [bot_id for bot_id in held if bot_id in self._senders]

    def start(self, key: Hashable, deliver: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run `deliver` in the background; ignored while a delivery with the same key runs.

        After StorageUnavailable the key is free again `retry_seconds` later, and the next look can start it
        again.
        """
        if key not in self._running:
            self._running.add(key)
            self._tasks.start(self._run_one(key, deliver))

    def is_sweep_due(self, seconds: float) -> bool:
        """Return True at most once per `seconds`, for work that is done less often than each look."""
        now = asyncio.get_running_loop().time()
        if self._swept_at is not None and now - self._swept_at <= seconds:
            return False
        self._swept_at = now
        return True

    async def _run_one(self, key: Hashable, deliver: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await deliver()
        except StorageUnavailable as error:
            log.warning("delivery_deferred", what=self._what, key=key, reason=str(error))
            await asyncio.sleep(self._retry_seconds)
        finally:
            self._running.discard(key)
            self._woken.set()  # deliveries that became due meanwhile were not started


async def keep_storing(store: Callable[[], Awaitable[None]]) -> None:
    """Call `store` until it succeeds, every STORE_RETRY_SECONDS while it raises StorageUnavailable."""
    while True:
        try:
            await store()
            return
        except StorageUnavailable as error:
            log.warning("delivery_outcome_deferred", reason=str(error))
            await asyncio.sleep(STORE_RETRY_SECONDS)
