"""Shows that an answer is being written: again and again while a turn runs, whatever becomes of each call."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Protocol

from bot.telegram.client.call_queue import ScaledClock
from bot.telegram.client.outcomes import CallNotSent, CallOutcome, ChatUnreachable
from bot.telegram.client.sender import ChatTarget

TYPING_INTERVAL_SECONDS = 4.0
"""Telegram shows it for five."""
TYPING_DELAY_SECONDS = 0.2
"""An answer that is there sooner needs no sign that it is coming."""
LAST_CALL_SECONDS = 5.0


class TypingSender(Protocol):
    async def send_typing(self, where: ChatTarget) -> CallOutcome: ...


class TaskStarter(Protocol):
    """Owns the tasks."""

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]: ...


class TypingIndicator:
    """One place of one bot; `stop` returns when nothing of it is on its way any more."""

    def __init__(
        self,
        sender: TypingSender,
        where: ChatTarget,
        *,
        tasks: TaskStarter,
        clock: ScaledClock,
        every: float = TYPING_INTERVAL_SECONDS,
        after: float = TYPING_DELAY_SECONDS,
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
            outcome = await self._sender.send_typing(self._where)
            if isinstance(outcome, ChatUnreachable):
                return
            wanted = outcome.retry_after if isinstance(outcome, CallNotSent) else None
            await self._pause(max(self._every, wanted or 0.0))

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._clock.real(seconds)):
                await self._stopped.wait()
