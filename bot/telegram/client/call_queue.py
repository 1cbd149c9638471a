"""When which call may go out: Telegram's limits as sliding windows, the most important one first."""

from __future__ import annotations

import asyncio
import random
import time
from bisect import insort
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from enum import IntEnum
from math import inf

from bot.telegram.client.outcomes import CallDone, CallNotSent, CallOutcome


class ScaledClock:
    """Monotonic seconds; tests let them pass faster."""

    def __init__(self, *, speed: float = 1.0) -> None:
        self._speed = speed

    def now(self) -> float:
        return time.monotonic() * self._speed

    def real(self, seconds: float) -> float:
        """How long that is for those who cannot hurry: timers and sockets."""
        return max(0.0, seconds) / self._speed

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(self.real(seconds))


class Priority(IntEnum):
    """Smaller goes first."""

    CALLBACK = 0
    FINAL = 1
    NOTICE = 2
    EDIT = 3
    TYPING = 4
    TIDYING = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """At most so many in any so many seconds; `spared` of them are not for edits of unfinished answers."""

    most: int
    seconds: float
    spared: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimits:
    """Telegram's own are 30 a second, 1 a second in a private chat, 20 a minute in a group.

    The windows are a little longer than Telegram's: clocks differ.
    """

    overall: Rate = Rate(most=25, seconds=1.0)
    private: tuple[Rate, ...] = (Rate(most=3, seconds=3.2, spared=1),)
    group: tuple[Rate, ...] = (Rate(most=3, seconds=3.2), Rate(most=20, seconds=61.0, spared=2))
    waiting: int = 1_000
    """Calls in the queue; more are refused."""


@dataclass(slots=True, kw_only=True, eq=False)
class QueuedCall:
    """A call that waits. Only what is seen in a chat `counts` towards the chat's limits."""

    chat_id: int | None
    priority: Priority
    deadline: float = inf
    counts: bool = True
    message: Hashable = None
    """Of the calls for one message only one at a time is on its way."""
    number: int = field(default=0, init=False)
    taken_at: float = field(default=-inf, init=False)

    def __lt__(self, other: QueuedCall) -> bool:
        return (self.priority, self.number) < (other.priority, other.number)


class _RateWindow:
    def __init__(self, rate: Rate) -> None:
        self._rate = rate
        self._moments: deque[float] = deque(maxlen=rate.most)

    def ready_at(self, priority: Priority) -> float:
        most = max(1, self._rate.most - self._spared(priority))
        if len(self._moments) < most:
            return -inf
        return self._moments[-most] + self._rate.seconds

    def _spared(self, priority: Priority) -> int:
        """What tidies leaves one more, so that an edit that somebody waits for never stands behind it."""
        if priority < Priority.EDIT:
            return 0
        return self._rate.spared + (priority is Priority.TIDYING)

    def take(self, now: float) -> None:
        self._moments.append(now)

    def move(self, taken_at: float, now: float) -> None:
        """Telegram counts a call when it gets there, at the latest when it answers."""
        if taken_at in self._moments:
            self._moments.remove(taken_at)
        self._moments.append(now)

    def is_idle(self, now: float) -> bool:
        return not self._moments or self._moments[-1] + self._rate.seconds < now


_SWEEP_ABOVE = 1_000


class CallQueue:
    """Holds the tickets of one bot; time comes from outside."""

    def __init__(self, limits: RateLimits) -> None:
        self._limits = limits
        self._overall = _RateWindow(limits.overall)
        self._chats: dict[int, tuple[_RateWindow, ...]] = {}
        self._held: dict[int | None, float] = {}
        self._tickets: list[QueuedCall] = []
        self._busy: set[Hashable] = set()
        self._next = 1

    def __len__(self) -> int:
        return len(self._tickets)

    def add(self, ticket: QueuedCall) -> bool:
        """False when too many wait already."""
        if len(self._tickets) >= self._limits.waiting:
            return False
        ticket.number, self._next = self._next, self._next + 1
        insort(self._tickets, ticket)
        return True

    def remove(self, ticket: QueuedCall) -> None:
        if ticket in self._tickets:
            self._tickets.remove(ticket)

    def hold(self, chat_id: int | None, until: float) -> None:
        """Nothing of that chat goes out before; without a chat, nothing that belongs to none."""
        self._held[chat_id] = max(until, self.held_until(chat_id))

    def held_until(self, chat_id: int | None) -> float:
        return self._held.get(chat_id, -inf)

    def due(self, now: float) -> list[QueuedCall]:
        """Those that may go now; they have taken their places in the windows."""
        found = []
        for ticket in tuple(self._tickets):
            if ticket.message in self._busy or self._ready_at(ticket) > now:
                continue
            self._tickets.remove(ticket)
            self._take(ticket, now)
            found.append(ticket)
        return found

    def expired(self, now: float) -> list[QueuedCall]:
        """Those that cannot go in time any more; they are out."""
        found = [
            ticket for ticket in self._tickets if max(now, self.held_until(ticket.chat_id)) >= ticket.deadline
        ]
        for ticket in found:
            self._tickets.remove(ticket)
        return found

    def finished(self, ticket: QueuedCall, now: float) -> None:
        """Its answer is there: the next call for the same message may go."""
        if ticket.message is not None:
            self._busy.discard(ticket.message)
        if ticket.counts and ticket.chat_id is not None:
            for window in self._windows(ticket.chat_id):
                window.move(ticket.taken_at, now)

    def next_at(self) -> float | None:
        """When to look again; None when nothing waits for time alone."""
        moments = [min(self._ready_at(t), t.deadline) for t in self._tickets if t.message not in self._busy]
        moments += [t.deadline for t in self._tickets if t.message in self._busy and t.deadline < inf]
        return min(moments, default=None)

    def _ready_at(self, ticket: QueuedCall) -> float:
        moments = [self.held_until(ticket.chat_id)]
        if ticket.priority != Priority.CALLBACK:
            moments.append(self._overall.ready_at(ticket.priority))
        if ticket.counts and ticket.chat_id is not None:
            moments += [window.ready_at(ticket.priority) for window in self._windows(ticket.chat_id)]
        return max(moments)

    def _take(self, ticket: QueuedCall, now: float) -> None:
        if ticket.message is not None:
            self._busy.add(ticket.message)
        ticket.taken_at = now
        self._overall.take(now)
        if ticket.counts and ticket.chat_id is not None:
            for window in self._windows(ticket.chat_id):
                window.take(now)
        if len(self._chats) > _SWEEP_ABOVE:
            self._sweep(now)

    def _windows(self, chat_id: int) -> tuple[_RateWindow, ...]:
        found = self._chats.get(chat_id)
        if found is None:
            rates = self._limits.private if chat_id > 0 else self._limits.group
            found = self._chats[chat_id] = tuple(map(_RateWindow, rates))
        return found

    def _sweep(self, now: float) -> None:
        """Chats at rest need no memory."""
        self._chats = {c: ws for c, ws in self._chats.items() if not all(w.is_idle(now) for w in ws)}
        self._held = {chat_id: until for chat_id, until in self._held.items() if until > now}


@dataclass(slots=True, kw_only=True)
class Backoff:
    """Seconds; `most` is never exceeded, `reset` begins anew after a success."""

    first: float = 1.0
    most: float = 15.0
    factor: float = 2.0
    _tries: int = field(default=0, init=False)

    def next(self) -> float:
        """Between half and the whole of what this try may wait, at least `first`."""
        whole = min(self.most, self.first * self.factor ** min(self._tries, 32))
        self._tries += 1
        return max(min(self.first, self.most), random.uniform(whole / 2, whole))

    def reset(self) -> None:
        self._tries = 0


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
