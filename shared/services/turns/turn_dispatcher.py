"""Scheduler of a process's answers: one per session at a time, turns left by other processes, and the check
of leases.
"""

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
"""Seconds between two checks of this process's leases."""
ORPHAN_POLL_SECONDS = 1.0
"""Seconds between two searches for due turns while none is announced."""
MIN_POLL_SECONDS = 0.05
"""Least seconds between two searches for due turns, however often turns are announced."""
STEP_SECONDS = 10.0
"""Timeout in seconds of one check of leases, one search for due turns, or one look for a sink."""


class SessionAnswerer(Protocol):
    """Service that answers the turns of a channel's sessions, as `SessionService` does.

    `list_unanswered` also makes turns due before it lists them, such as reminders whose time has come.
    """

    async def answer(self, session_id: int, emit: Emit) -> None: ...
    async def list_unanswered(self, channel: str, *, accounts: Sequence[str] | None = None) -> list[int]: ...
    async def check_leases(self) -> None: ...


class ReplySink(Protocol):
    """Receiver of one session's events, from the first claim until no turn is due; `close` ends it."""

    async def __call__(self, event: ReplyEvent) -> None: ...

    async def mark_idle(self) -> None:
        """Note that this process answers no turn of the session now; one may still wait.

        Returns at once, since the next answer waits for it.
        """

    async def close(self) -> None: ...


OpenReplySink = Callable[[], ReplySink]
"""Function that makes the receiver of a session's events when its answer starts."""
ServedAccounts = Callable[[], Sequence[str] | None]
"""Function that returns the accounts of the channel that this process serves; None means all, empty none."""
ResolveOrphan = Callable[[int], Awaitable[OpenReplySink | None]]
"""Function that returns how to open the sink of a session (by id) whose turn another process left; None if
unshown.
"""


class TurnDispatcher:
    """Scheduler of answers. A message that arrives while its session is answered causes another round."""

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
        """Start two background loops: the check of leases, and the search for due turns, which begins at
        once.
        """
        self._loops.run_forever(self._beat)
        # A stopped process may have left free turns, so the first search begins at once.
        self.wake()
        self._loops.run_forever(self._pick_up_orphans)

    def dispatch(self, session_id: int, open_sink: OpenReplySink) -> None:
        """Start answering a session in the background; during an answer, have one more round follow it.

        `open_sink` is used only if no answer is running. Without effect once the process is closing.
        """
        if self._closing:
            return
        if session_id in self._running:
            self._again.add(session_id)
        else:
            self._running.add(session_id)
            self._answers.start(self._answer(session_id, open_sink))

    def wake(self) -> None:
        """Search for due turns now instead of at the next interval."""
        self._due.set()

    @property
    def is_closing(self) -> bool:
        """True once `stop_accepting` or `close` was called."""
        return self._closing

    def stop_accepting(self) -> None:
        """Let later calls of `dispatch` have no effect; running answers continue."""
        self._closing = True

    async def close(self, *, drain_seconds: float) -> None:
        """Wait up to `drain_seconds` for running answers, then cancel the others, whose turns other processes
        continue.

        No new answers are started.
        """
        self._closing = True
        # Leases are checked until the last answer is stored, so that a person can still stop it.
        await self._answers.drain(drain_seconds)
        await self._loops.cancel()

    async def _answer(self, session_id: int, open_sink: OpenReplySink) -> None:
        sink = open_sink()
        try:
            while True:
                self._again.discard(session_id)
                await self._sessions.answer(session_id, sink)
                if session_id not in self._again and not self._closing:
                    await sink.mark_idle()
                # A message may have arrived meanwhile, so both are asked again.
                if session_id not in self._again or self._closing:
                    return
        except EvertalkError as error:
            # The turn is still due; the search for due turns finds it.
            log.warning("answer_deferred", session_id=session_id, code=error.code, reason=str(error))
        finally:
            self._running.discard(session_id)
            self._again.discard(session_id)
            await sink.close()

    async def _beat(self) -> None:
        while True:
            try:
                async with asyncio.timeout(STEP_SECONDS):
                    await self._sessions.check_leases()
            except (EvertalkError, TimeoutError) as error:
                log.warning("lease_renewal_failed", reason=str(error))
            await asyncio.sleep(BEAT_SECONDS)

    async def _pick_up_orphans(self) -> None:
        """Start answers for due turns that no process answers, until cancelled."""
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
        """Wait for a second or until a turn is announced, at least `MIN_POLL_SECONDS`."""
        await asyncio.sleep(MIN_POLL_SECONDS)
        with suppress(TimeoutError):
            async with asyncio.timeout(ORPHAN_POLL_SECONDS - MIN_POLL_SECONDS):
                await self._due.wait()
        self._due.clear()

    async def _pick_up(self, session_id: int) -> None:
        if session_id in self._running:
            return
        async with asyncio.timeout(STEP_SECONDS):
            open_sink = await self._orphan(session_id)
        if open_sink is not None:
            self.dispatch(session_id, open_sink)
