"""Shows that an answer is being written: again and again while a turn runs, whatever becomes of each call."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Protocol

from bot.telegram.outcomes import Gone, NotSent, Outcome
from bot.telegram.pacing import Clock
from bot.telegram.sender import Where

EVERY_SECONDS = 4.0
"""Telegram shows it for five."""
AFTER_SECONDS = 0.2
"""An answer that is there sooner needs no sign that it is coming."""
LAST_CALL_SECONDS = 5.0


class Actions(Protocol):
    async def typing(self, where: Where) -> Outcome: ...


class Starts(Protocol):
    """Owns the tasks."""

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]: ...


class Typing:
    """One place of one bot; `stop` returns when nothing of it is on its way any more."""

    def __init__(
        self,
        sender: Actions,
        where: Where,
        *,
        tasks: Starts,
        clock: Clock,
        every: float = EVERY_SECONDS,
        after: float = AFTER_SECONDS,
    ) -> None:
        self._sender = sender
        self._where = where
        self._clock = clock
        self._every = every
        self._after = after
        self._stopped = asyncio.Event()
        self._task = tasks.start(self._run())

    async def stop(self) -> None:
        self._stopped.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_CALL_SECONDS):
                await asyncio.wait([self._task])

    async def _run(self) -> None:
        await self._pause(self._after)
        while not self._stopped.is_set():
            outcome = await self._sender.typing(self._where)
            if isinstance(outcome, Gone):
                return
            wanted = outcome.retry_after if isinstance(outcome, NotSent) else None
            await self._pause(max(self._every, wanted or 0.0))

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._clock.real(seconds)):
                await self._stopped.wait()
