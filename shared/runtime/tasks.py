"""Owns every background task of the process: none is forgotten, none dies unheard."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import structlog

log = structlog.get_logger(__name__)

RESTART_SECONDS = 1.0


class BackgroundTasks:
    """Short ones may finish when the process ends; loops are cancelled."""

    def __init__(self) -> None:
        self._short: set[asyncio.Task[None]] = set()
        self._loops: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._short.add(task)
        task.add_done_callback(self._ended)
        return task

    def run_forever(self, loop: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Begun again whenever it fails."""
        task = asyncio.get_running_loop().create_task(_run_and_restart(loop))
        self._loops.add(task)
        task.add_done_callback(self._loops.discard)

    async def drain(self, seconds: float) -> None:
        """Wait for the short ones, then cancel what is left."""
        if self._short:
            await asyncio.wait(tuple(self._short), timeout=seconds)
        await self.cancel()

    async def cancel(self) -> None:
        left = [*self._short, *self._loops]
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=10)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._short.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("task_failed", exc_info=error)


@contextmanager
def keep_cancellation() -> Iterator[None]:
    """Around a call into a client of Redis, which loses a cancellation that comes together with its answer.

    It waits by `asyncio.wait_for`, and before Python 3.12 that one returns what was ready in the same round.
    """
    task = asyncio.current_task()
    before = task.cancelling() if task else 0
    try:
        yield
    finally:
        if task and task.cancelling() > before:
            raise asyncio.CancelledError


async def _run_and_restart(loop: Callable[[], Coroutine[Any, Any, None]]) -> None:
    while True:
        try:
            await loop()
        except asyncio.CancelledError:
            raise
        except Exception:
            log.exception("loop_failed", loop=getattr(loop, "__qualname__", "loop"))
        await asyncio.sleep(RESTART_SECONDS)
