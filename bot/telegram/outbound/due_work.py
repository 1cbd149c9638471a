"""Loop of deliveries that are stored before they are sent, and whose outcome only this process knows."""

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


class DueWork:
    """Looks for due deliveries of held bots, and runs each of them once at a time.

    `look` starts them for the bots that it is given, and returns the seconds until the next look.
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
        """Make `run` look at once, since something was stored."""
        self._woken.set()

    async def run(self) -> None:
        """Look until cancelled: at each wake-up, and after each pause."""
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
        """Return the bots that can send."""
        return [bot_id for bot_id in held if bot_id in self._senders]

    def start(self, key: Hashable, deliver: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a delivery, unless it runs already; after an outage a later look starts it again."""
        if key not in self._running:
            self._running.add(key)
            self._tasks.start(self._run_one(key, deliver))

    def is_sweep_due(self, seconds: float) -> bool:
        """Return True if the last True is longer than `seconds` ago."""
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
            self._woken.set()  # what became due meanwhile was not started


async def keep_storing(store: Callable[[], Awaitable[None]]) -> None:
    """Call `store` every STORE_RETRY_SECONDS until storage is available."""
    while True:
        try:
            await store()
            return
        except StorageUnavailable as error:
            log.warning("delivery_outcome_deferred", reason=str(error))
            await asyncio.sleep(STORE_RETRY_SECONDS)
