"""Lets the calls of one bot out, each in its turn, without a task of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from math import inf

from bot.telegram.client.call_queue import CallQueue, QueuedCall, RateLimits, ScaledClock
from bot.telegram.client.outcomes import CallDone, CallNotSent, CallOutcome


class RateLimiter:
    """The queue with real waiting: who entered has to `leave`."""

    def __init__(self, clock: ScaledClock, limits: RateLimits) -> None:
        self._clock = clock
        self._queue = CallQueue(limits)
        self._turns: dict[QueuedCall, asyncio.Future[bool]] = {}
        self._edits: dict[Hashable, QueuedCall] = {}
        self._timer: asyncio.TimerHandle | None = None

    async def acquire(self, ticket: QueuedCall, *, replaceable: bool) -> CallOutcome | None:
        """None when the call may go out now; a waiting call for the same message may be replaced."""
        if replaceable:
            self._replace(ticket)
        turn = self._turns[ticket] = asyncio.get_running_loop().create_future()
        try:
            if not self._queue.add(ticket):
                return CallNotSent(reason="too many calls wait")
            self._pump()
            if await turn:
                return None
        except asyncio.CancelledError:
            self._queue.remove(ticket)
            if turn.done() and not turn.cancelled() and turn.result():
                self._queue.finished(ticket, self._clock.now())
            self._pump()
            raise
        finally:
            self._turns.pop(ticket, None)
            if self._edits.get(ticket.message) is ticket:
                del self._edits[ticket.message]
        if ticket.deadline == -inf:
            return CallDone()
        held = self.get_hold_seconds(ticket.chat_id)
        return CallNotSent(reason="no turn in time", retry_after=held or None)

    def release(self, ticket: QueuedCall) -> None:
        self._queue.finished(ticket, self._clock.now())
        self._pump()

    def hold(self, chat_id: int | None, seconds: float) -> float:
        """Nothing of that chat goes out for so long; says until when."""
        until = self._clock.now() + seconds
        self._queue.hold(chat_id, until)
        self._pump()
        return until

    def get_hold_seconds(self, chat_id: int | None) -> float:
        return max(0.0, self._queue.held_until(chat_id) - self._clock.now())

    def close(self) -> None:
        """Whoever still waits is told that nothing was sent."""
        if self._timer is not None:
            self._timer.cancel()
        for turn in self._turns.values():
            if not turn.done():
                turn.set_result(False)

    def _replace(self, ticket: QueuedCall) -> None:
        older = self._edits.get(ticket.message)
        self._edits[ticket.message] = ticket
        if older is not None and older in self._turns and not self._turns[older].done():
            older.deadline = -inf
            self._queue.remove(older)
            self._turns[older].set_result(False)

    def _pump(self) -> None:
        """Lets everybody go whose turn it is, and comes back when the next one may."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = self._clock.now()
        for ticket in self._queue.due(now):
            self._tell(ticket, go=True)
        for ticket in self._queue.expired(now):
            self._tell(ticket, go=False)
        at = self._queue.next_at()
        if at is not None:
            delay = self._clock.real(at - now)
            self._timer = asyncio.get_running_loop().call_later(delay, self._pump)

    def _tell(self, ticket: QueuedCall, *, go: bool) -> None:
        turn = self._turns.get(ticket)
        if turn is not None and not turn.done():
            turn.set_result(go)
        elif go:
            self._queue.finished(ticket, self._clock.now())
