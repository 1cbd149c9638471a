"""Runs the answers of a process: one per session at a time, orphans included, and the heartbeat."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Protocol

import structlog

from shared.core.session.turns import Emit, ReplyEvent
from shared.core.values.errors import EvertalkError
from shared.runtime import BackgroundTasks

log = structlog.get_logger(__name__)

BEAT_SECONDS = 1.0
ORPHAN_POLL_SECONDS = 1.0
MIN_POLL_SECONDS = 0.05
"""Between two looks, however many turns are announced."""
STEP_SECONDS = 10.0


class SessionAnswerer(Protocol):
    async def answer(self, session_id: int, emit: Emit) -> None: ...
    async def list_unanswered(self, channel: str, *, accounts: Sequence[str] | None = None) -> list[int]: ...
    async def heartbeat(self) -> None: ...


class ReplySink(Protocol):
    """Where the answers of one session are shown, from the first claim until nothing more is due."""

    async def __call__(self, event: ReplyEvent) -> None: ...

    async def mark_idle(self) -> None:
        """Note that no more turns are due at the moment."""

    async def close(self) -> None: ...


OpenReplySink = Callable[[], ReplySink]
ServedAccounts = Callable[[], Sequence[str] | None]
"""Accounts of the channel that this process serves; None is all."""
ResolveOrphan = Callable[[int], Awaitable[OpenReplySink | None]]
"""Function that finds where a session without a local caller is answered; None if unknown."""


class TurnDispatcher:
    """Dispatcher of turns; `answer` runs again if a message arrived while it ran."""

    def __init__(
        self,
        sessions: SessionAnswerer,
        *,
        channel: str,
        orphan: ResolveOrphan,
        accounts: ServedAccounts = lambda: None,
    ) -> None:
        self._sessions = sessions
        self._channel = channel
        self._orphan = orphan
        self._accounts = accounts
        self._answers = BackgroundTasks()
        self._loops = BackgroundTasks()
        self._running: set[int] = set()
        self._again: set[int] = set()
        self._closing = False
        self._due = asyncio.Event()

    def start(self) -> None:
        self._loops.run_forever(self._beat)
        # Whoever died may have left turns that are free already: the first look does not wait for its round.
        self.wake()
        self._loops.run_forever(self._pick_up_orphans)

    def dispatch(self, session_id: int, open_screen: OpenReplySink) -> None:
        """Soon; several calls are one."""
        if self._closing:
            return
        if session_id in self._running:
            self._again.add(session_id)
        else:
            self._running.add(session_id)
            self._answers.start(self._answer(session_id, open_screen))

    def wake(self) -> None:
        """Somewhere a turn is due that may be ours: do not wait for the next round."""
        self._due.set()

    @property
    def is_closing(self) -> bool:
        return self._closing

    def stop_accepting(self) -> None:
        """No new answers; those that run may end."""
        self._closing = True

    async def close(self, *, drain_seconds: float) -> None:
        """Answers that are nearly there may end; the others are put back for the next process."""
        self._closing = True
        # The heart beats until the last answer is stored: without it they would be fenced off.
        await self._answers.drain(drain_seconds)
        await self._loops.cancel()

    async def _answer(self, session_id: int, open_screen: OpenReplySink) -> None:
        screen = open_screen()
        try:
            while True:
                self._again.discard(session_id)
                await self._sessions.answer(session_id, screen)
                if session_id not in self._again and not self._closing:
                    await screen.mark_idle()
                if session_id not in self._again or self._closing:
                    return
        except EvertalkError as error:
            # Its turn is still due: the look for orphans finds it.
            log.warning("answer_deferred", session_id=session_id, code=error.code, reason=str(error))
        finally:
            self._running.discard(session_id)
            self._again.discard(session_id)
            await screen.close()

    async def _beat(self) -> None:
        while True:
            try:
                async with asyncio.timeout(STEP_SECONDS):
                    await self._sessions.heartbeat()
            except (EvertalkError, TimeoutError) as error:
                log.warning("lease_renewal_failed", reason=str(error))
            await asyncio.sleep(BEAT_SECONDS)

    async def _pick_up_orphans(self) -> None:
        """Pick up turns that no process answers."""
        while True:
            await self._next_round()
            accounts = self._accounts()
            if self._closing or (accounts is not None and not accounts):
                continue
            try:
                async with asyncio.timeout(STEP_SECONDS):
                    waiting = await self._sessions.list_unanswered(self._channel, accounts=accounts)
                for session_id in waiting:
                    await self._pick_up(session_id)
            except (EvertalkError, TimeoutError) as error:
                log.warning("orphan_lookup_failed", reason=str(error))

    async def _next_round(self) -> None:
        """Wait a second, or until a turn is announced; never shorter than the minimum."""
        await asyncio.sleep(MIN_POLL_SECONDS)
        with suppress(TimeoutError):
            async with asyncio.timeout(ORPHAN_POLL_SECONDS - MIN_POLL_SECONDS):
                await self._due.wait()
        self._due.clear()

    async def _pick_up(self, session_id: int) -> None:
        if session_id in self._running:
            return
        async with asyncio.timeout(STEP_SECONDS):
            open_screen = await self._orphan(session_id)
        if open_screen is not None:
            self.dispatch(session_id, open_screen)
