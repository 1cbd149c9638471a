"""Outcomes of calls to Telegram, and the queue that keeps the rate limits of each chat."""

from __future__ import annotations

import asyncio
import random
import re
import time
from bisect import insort
from collections import deque
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import IntEnum
from math import inf
from typing import Any, TypeAlias

from aiogram import exceptions
from aiohttp import ClientConnectorError, ConnectionTimeoutError


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSent:
    """Outcome: Telegram sent the message, which has the id `message_id` in its chat."""

    message_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CallDone:
    """Outcome: Telegram processed the call, or found nothing left to change."""

    result: Any = None
    """Result of a call that asks for data, as aiogram's type; None for other calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallNotSent:
    """Outcome: Telegram did not process the call.

    It can be retried after `retry_after` seconds; None if that time is unknown.
    """

    reason: str
    retry_after: float | None = None
    is_final: bool = field(default=False, compare=False)
    """True if the middlewares must not retry the call: the queue was full, or the deadline passed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallUnknown:
    """Outcome: Telegram may have processed the call or not."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatUnreachable:
    """Outcome: the chat does not exist or is deactivated, or the bot was blocked or removed."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatClosed:
    """Outcome: the chat accepts no messages now: a closed topic, missing rights or a restriction."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatMoved:
    """Outcome: the group became the supergroup `new_chat_id`; the call was not processed."""

    new_chat_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRejected:
    """Outcome: Telegram refuses the call and would refuse it again; `status` is HTTP 400, 404 or 413."""

    reason: str
    status: int = 400


CallOutcome: TypeAlias = (
    MessageSent
    | CallDone
    | CallNotSent
    | CallUnknown
    | ChatUnreachable
    | ChatClosed
    | ChatMoved
    | CallRejected
)
"""Outcome of one call, which the caller must handle by its class."""

_UNREACHABLE = re.compile(
    r"chat not found|user is deactivated|group chat was deactivated|PEER_ID_INVALID|USER_IS_BLOCKED"
    r"|INPUT_USER_DEACTIVATED|CHANNEL_PRIVATE",
    re.IGNORECASE,
)
_FILES_FORBIDDEN = re.compile(
    r"rights to send (?:documents|photos|voice|audios|videos|media)"
    r"|CHAT_SEND_(?:DOCS|PHOTOS|VOICES|AUDIOS|VIDEOS|MEDIA)_FORBIDDEN|VOICE_MESSAGES_FORBIDDEN",
    re.IGNORECASE,
)
_CLOSED = re.compile(
    r"not enough rights to send|have no rights to send|need administrator rights in the channel"
    r"|TOPIC_CLOSED|CHAT_WRITE_FORBIDDEN|CHAT_RESTRICTED|CHAT_ADMIN_REQUIRED|CHAT_SEND_PLAIN_FORBIDDEN"
    r"|CHAT_GUEST_SEND_FORBIDDEN|USER_RESTRICTED|USER_BANNED_IN_CHANNEL|PAYMENT_REQUIRED",
    re.IGNORECASE,
)
_NOT_THE_AUTHOR = "MESSAGE_AUTHOR_REQUIRED"
_UNMODIFIED = "message is not modified"
_ALREADY_DELETED = "message to delete not found"
_ENTITIES = re.compile(r"can't parse (?:message )?entit|ENTIT(?:Y|IES)_|unsupported entity", re.IGNORECASE)
_NO_THREAD = re.compile(r"message thread not found|TOPIC_DELETED|TOPIC_ID_INVALID", re.IGNORECASE)
_NO_MESSAGE = re.compile(
    r"message to edit not found|message can't be edited|MESSAGE_ID_INVALID|no text in the message to edit",
    re.IGNORECASE,
)
_TOO_MANY = re.compile(r"too many requests(?:: retry after (\d+))?", re.IGNORECASE)
_USUAL_WAIT_SECONDS = 5.0
"""Seconds to wait after a 429 that names no time."""


def is_refused(outcome: CallOutcome) -> bool:
    """Return whether Telegram refused the call; False if it processed or postponed it, or did not answer."""
    return isinstance(outcome, CallRejected | ChatUnreachable | ChatClosed | ChatMoved)


def is_undecided(outcome: CallOutcome) -> bool:
    """Return whether the call was not sent or its result is unknown: neither processed nor refused."""
    return isinstance(outcome, CallNotSent | CallUnknown)


def is_entity_error(outcome: CallOutcome) -> bool:
    """Return whether Telegram refused only the formatting; the text without entities may pass."""
    return isinstance(outcome, CallRejected) and _ENTITIES.search(outcome.reason) is not None


def is_missing_thread(outcome: CallOutcome) -> bool:
    """Return whether the call failed because the topic no longer exists in the chat."""
    return isinstance(outcome, CallRejected) and _NO_THREAD.search(outcome.reason) is not None


def is_missing_message(outcome: CallOutcome) -> bool:
    """Return whether the call failed because the message to edit is gone or cannot be edited."""
    return isinstance(outcome, CallRejected) and _NO_MESSAGE.search(outcome.reason) is not None


def classify_error(error: Exception) -> CallOutcome:
    """Return the outcome that matches an exception of aiogram.

    Its reason contains no URL, because the URL contains the token.
    """
    if isinstance(error, exceptions.TelegramRetryAfter):
        return CallNotSent(reason="too many requests", retry_after=float(error.retry_after))
    if isinstance(error, exceptions.TelegramMigrateToChat):
        return ChatMoved(new_chat_id=error.migrate_to_chat_id)
    if isinstance(error, exceptions.TelegramEntityTooLarge):
        return CallRejected(reason=error.message, status=413)
    if isinstance(error, exceptions.TelegramNetworkError):
        return _classify_connection_error(error)
    if isinstance(error, exceptions.TelegramForbiddenError):
        outcome = _classify_bad_request(error.message)
        return ChatUnreachable(reason=error.message) if _is_of_the_chat(outcome) else outcome
    if isinstance(error, exceptions.TelegramBadRequest):
        return _classify_bad_request(error.message)
    if isinstance(error, exceptions.TelegramNotFound):
        return CallRejected(reason=error.message, status=404)
    if isinstance(error, exceptions.TelegramUnauthorizedError | exceptions.TelegramConflictError):
        return CallNotSent(reason=error.message)
    if isinstance(error, exceptions.TelegramServerError):
        return CallUnknown(reason=error.message)
    if isinstance(error, exceptions.TelegramAPIError):
        return _classify_other(error.message)
    return CallUnknown(reason=f"an unreadable answer: {type(error).__name__}")


def _classify_bad_request(message: str) -> CallOutcome:
    """Return the outcome for Telegram's error text; CallDone if the wanted state already exists."""
    if _UNMODIFIED in message or _ALREADY_DELETED in message:
        return CallDone()
    if _FILES_FORBIDDEN.search(message):
        return CallRejected(reason=message)
    if _CLOSED.search(message):
        return ChatClosed(reason=message)
    if _UNREACHABLE.search(message):
        return ChatUnreachable(reason=message)
    return CallRejected(reason=message)


def _is_of_the_chat(outcome: CallOutcome) -> bool:
    """Return whether a 403, first classified as `outcome`, means that the whole chat is unreachable.

    False if only files are forbidden there, or if another sender wrote the message.
    """
    if not isinstance(outcome, CallRejected):
        return isinstance(outcome, ChatUnreachable)
    return _FILES_FORBIDDEN.search(outcome.reason) is None and _NOT_THE_AUTHOR not in outcome.reason


def _classify_connection_error(error: exceptions.TelegramNetworkError) -> CallOutcome:
    """Return CallNotSent if no connection was made, else CallUnknown, since Telegram may have got the
    call.
    """
    if isinstance(error.__cause__, ClientConnectorError | ConnectionTimeoutError):
        return CallNotSent(reason=f"no connection: {error.message}")
    return CallUnknown(reason=f"connection lost: {error.message}")


def _classify_other(message: str) -> CallOutcome:
    found = _TOO_MANY.search(message)
    if found is None:
        return CallUnknown(reason=message)
    return CallNotSent(reason=message, retry_after=float(found[1] or _USUAL_WAIT_SECONDS))


class ScaledClock:
    """Monotonic clock in seconds; tests set `speed` above 1 to shorten waits."""

    def __init__(self, *, speed: float = 1.0) -> None:
        self._speed = speed

    def now(self) -> float:
        """Return the monotonic time in seconds of this clock."""
        return time.monotonic() * self._speed

    def to_real_seconds(self, seconds: float) -> float:
        """Convert seconds of this clock to real seconds, for timers and sockets."""
        return max(0.0, seconds) / self._speed

    async def sleep(self, seconds: float) -> None:
        """Wait for `seconds` of this clock."""
        await asyncio.sleep(self.to_real_seconds(seconds))


class Priority(IntEnum):
    """Priority of a call in the queue; calls with smaller values are sent first."""

    CALLBACK = 0
    """Priority of answers to button presses, which Telegram waits for only a few seconds."""
    FINAL = 1
    """Priority of complete answers."""
    SETTLE = 2
    """Priority of notices about answers that may not have arrived, and of searches for those answers."""
    NOTICE = 3
    """Priority of results of commands and other notices."""
    EDIT = 4
    """Priority of edits that show a growing answer."""
    TYPING = 5
    """Priority of typing indicators."""
    CLEANUP = 6
    """Priority of removing buttons and old messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """Limit of `limit` calls per `seconds`.

    Calls of priority EDIT and below leave `reserved` of them free for more urgent calls.
    """

    limit: int
    seconds: float
    reserved: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimits:
    """Rate limits of one bot.

    Telegram allows 30 calls a second, 1 a second in a chat and 20 a minute in a group. The windows are a
    little longer than Telegram's, since its clock differs.
    """

    overall: Rate = Rate(limit=28, seconds=1.1, reserved=5)
    typing: Rate = Rate(limit=5, seconds=1.0)
    """Limit for typing indicators of all chats together."""
    private: tuple[Rate, ...] = (Rate(limit=3, seconds=3.2, reserved=1),)
    group: tuple[Rate, ...] = (Rate(limit=3, seconds=3.2), Rate(limit=20, seconds=61.0, reserved=2))
    waiting: int = 1_000
    """Maximum calls in the queue; further calls are refused."""


@dataclass(slots=True, kw_only=True, eq=False)
class QueuedCall:
    """Call in the queue.

    `counts` says whether it counts towards the limits of its chat. `taken_at` is the time at which it was
    started, -inf before.
    """

    chat_id: int | None
    priority: Priority
    deadline: float = inf
    counts: bool = True
    message: Hashable = None
    """Key of the message that the call changes; only one call per key runs at a time. None for no such limit.
    """
    number: int = field(default=0, init=False)
    taken_at: float = field(default=-inf, init=False)

    def __lt__(self, other: QueuedCall) -> bool:
        return (self.priority, self.number) < (other.priority, other.number)


class _RateWindow:
    """Times of the newest calls under one `Rate`."""

    def __init__(self, rate: Rate) -> None:
        self._rate = rate
        self._moments: deque[float] = deque(maxlen=rate.limit)

    def get_ready_time(self, priority: Priority, *, expected: int = 0) -> float:
        """Return the time from which a call of this priority may start; -inf if it may start now.

        `expected` calls are left free in addition to the reserved ones.
        """
        limit = max(1, self._rate.limit - self._get_reserved(priority) - expected)
        if len(self._moments) < limit:
            return -inf
        return self._moments[-limit] + self._rate.seconds

    def _get_reserved(self, priority: Priority) -> int:
        """Return how many calls this priority must leave free.

        CLEANUP leaves a fifth of the limit more than EDIT.
        """
        if priority < Priority.EDIT:
            return 0
        more = max(1, self._rate.limit // 5) if priority is Priority.CLEANUP else 0
        return self._rate.reserved + more

    def add(self, now: float) -> None:
        self._moments.append(now)

    def move(self, taken_at: float, now: float) -> None:
        """Replace the start of a call by `now`, the time of its response, since Telegram may count it that
        late.

        If the start is no longer among the times, `now` is added nevertheless.
        """
        if taken_at in self._moments:
            self._moments.remove(taken_at)
        self._moments.append(now)

    def is_idle(self, now: float) -> bool:
        return not self._moments or self._moments[-1] + self._rate.seconds < now


_SWEEP_ABOVE = 1_000


class CallQueue:
    """Queue of one bot's calls with the rate limits of each chat.

    It reads no clock: the caller passes each time, in seconds of one clock.
    """

    def __init__(self, limits: RateLimits) -> None:
        self._limits = limits
        self._overall = _RateWindow(limits.overall)
        self._typing = _RateWindow(limits.typing)
        self._chats: dict[int, tuple[_RateWindow, ...]] = {}
        self._held_until: dict[int | None, float] = {}
        self._queued: list[QueuedCall] = []
        self._busy: set[Hashable] = set()
        self._next = 1
        self.expected = 0
        """Number of answers in progress; typing indicators leave room for them."""

    def __len__(self) -> int:
        return len(self._queued)

    def add(self, call: QueuedCall) -> bool:
        """Add a call; return False without adding it if the queue is full."""
        if len(self._queued) >= self._limits.waiting:
            return False
        call.number, self._next = self._next, self._next + 1
        insort(self._queued, call)
        return True

    def remove(self, call: QueuedCall) -> None:
        """Remove a waiting call; no effect if it does not wait."""
        if call in self._queued:
            self._queued.remove(call)

    def hold(self, chat_id: int | None, until: float) -> None:
        """Start no call of a chat before the time `until`.

        `chat_id` None means calls that belong to no chat.
        """
        self._held_until[chat_id] = max(until, self.get_hold_until(chat_id))

    def get_hold_until(self, chat_id: int | None) -> float:
        """Return the time until which calls of a chat are held back; -inf without a hold."""
        return self._held_until.get(chat_id, -inf)

    def take_due(self, now: float) -> list[QueuedCall]:
        """Remove and return the calls that may start now, and count them in the rate limits."""
        found = []
        for call in tuple(self._queued):
            if call.message in self._busy or self._get_ready_time(call) > now:
                continue
            self._queued.remove(call)
            self._start_call(call, now)
            found.append(call)
        return found

    def take_expired(self, now: float) -> list[QueuedCall]:
        """Remove and return the calls whose deadline has passed or will pass during a hold of their chat."""
        found = [
            call for call in self._queued if max(now, self.get_hold_until(call.chat_id)) >= call.deadline
        ]
        for call in found:
            self._queued.remove(call)
        return found

    def finish(self, call: QueuedCall, now: float) -> None:
        """Count a call at the time of its response, and allow the next call for the same message."""
        if call.message is not None:
            self._busy.discard(call.message)
        self._overall.move(call.taken_at, now)
        if call.counts and call.chat_id is not None:
            for window in self._get_windows(call.chat_id):
                window.move(call.taken_at, now)

    def get_next_time(self) -> float | None:
        """Return the earliest time at which a call can start or expires; None if no call has such a time."""
        moments = [
            min(self._get_ready_time(t), t.deadline) for t in self._queued if t.message not in self._busy
        ]
        moments += [t.deadline for t in self._queued if t.message in self._busy and t.deadline < inf]
        return min(moments, default=None)

    def _get_ready_time(self, call: QueuedCall) -> float:
        moments = [self.get_hold_until(call.chat_id)]
        if call.priority != Priority.CALLBACK:
            expected = self.expected if call.priority is Priority.TYPING else 0
            moments.append(self._overall.get_ready_time(call.priority, expected=expected))
        if call.priority is Priority.TYPING:
            moments.append(self._typing.get_ready_time(call.priority))
        if call.counts and call.chat_id is not None:
            moments += [window.get_ready_time(call.priority) for window in self._get_windows(call.chat_id)]
        return max(moments)

    def _start_call(self, call: QueuedCall, now: float) -> None:
        if call.message is not None:
            self._busy.add(call.message)
        call.taken_at = now
        self._overall.add(now)
        if call.priority is Priority.TYPING:
            self._typing.add(now)
        if call.counts and call.chat_id is not None:
            for window in self._get_windows(call.chat_id):
                window.add(now)
        if len(self._chats) > _SWEEP_ABOVE:
            self._sweep(now)

    def _get_windows(self, chat_id: int) -> tuple[_RateWindow, ...]:
        found = self._chats.get(chat_id)
        if found is None:
            rates = self._limits.private if chat_id > 0 else self._limits.group
            found = self._chats[chat_id] = tuple(map(_RateWindow, rates))
        return found

    def _sweep(self, now: float) -> None:
        """Delete the rate windows and ended holds of chats without recent calls, to free memory."""
        self._chats = {c: ws for c, ws in self._chats.items() if not all(w.is_idle(now) for w in ws)}
        self._held_until = {chat_id: until for chat_id, until in self._held_until.items() if until > now}


@dataclass(slots=True, kw_only=True)
class Backoff:
    """Random delays in seconds that double up to `max_seconds`; `reset` starts again at `min_seconds`."""

    min_seconds: float = 1.0
    max_seconds: float = 15.0
    _tries: int = field(default=0, init=False)

    def next(self) -> float:
        """Return the next delay in seconds: random between half and all of a time that doubles with each
        call.
        """
        whole = min(self.max_seconds, self.min_seconds * 2.0 ** min(self._tries, 32))
        self._tries += 1
        return max(min(self.min_seconds, self.max_seconds), random.uniform(whole / 2, whole))

    def reset(self) -> None:
        """Make the next delay the shortest one again; called after a success."""
        self._tries = 0


class RateLimiter:
    """Queue in which callers wait until the rate limits allow their call.

    After `acquire` returned None, the caller must call `release`.
    """

    def __init__(self, clock: ScaledClock, limits: RateLimits) -> None:
        self._clock = clock
        self._queue = CallQueue(limits)
        self._waiters: dict[QueuedCall, asyncio.Future[bool]] = {}
        self._replaceable: dict[Hashable, QueuedCall] = {}
        self._timer: asyncio.TimerHandle | None = None

    async def acquire(self, call: QueuedCall, *, replaceable: bool) -> CallOutcome | None:
        """Wait until a call may start, then return None; otherwise return its outcome.

        The outcome is CallNotSent if the queue is full or the deadline passes. A later call for the same
        message replaces a waiting `replaceable` call, which returns CallDone.
        """
        if replaceable:
            self._replace(call)
        waiter = self._waiters[call] = asyncio.get_running_loop().create_future()
        try:
            if not self._queue.add(call):
                return CallNotSent(reason="too many calls wait", is_final=True)
            self._pump()
            if await waiter:
                return None
        except asyncio.CancelledError:
            self._queue.remove(call)
            if waiter.done() and not waiter.cancelled() and waiter.result():
                self._queue.finish(call, self._clock.now())
            self._pump()
            raise
        finally:
            self._waiters.pop(call, None)
            if self._replaceable.get(call.message) is call:
                del self._replaceable[call.message]
        if call.deadline == -inf:
            return CallDone()
        held = self.get_hold_seconds(call.chat_id)
        return CallNotSent(reason="no turn in time", retry_after=held or None, is_final=True)

    @contextmanager
    def expect_answer(self) -> Iterator[None]:
        """Leave room for one answer while the context is open: typing indicators wait until more calls are
        free.
        """
        self._queue.expected += 1
        try:
            yield
        finally:
            self._queue.expected -= 1

    def release(self, call: QueuedCall) -> None:
        """Report that an acquired call has got its response, and start the calls that are due."""
        self._queue.finish(call, self._clock.now())
        self._pump()

    def hold(self, chat_id: int | None, seconds: float) -> float:
        """Start no call of a chat for `seconds`; return the end of the hold on the clock.

        `chat_id` None means calls that belong to no chat.
        """
        until = self._clock.now() + seconds
        self._queue.hold(chat_id, until)
        self._pump()
        return until

    def get_hold_seconds(self, chat_id: int | None) -> float:
        """Return the seconds for which a chat's calls are held back, else 0; None is calls of no chat."""
        return max(0.0, self._queue.get_hold_until(chat_id) - self._clock.now())

    def close(self) -> None:
        """Stop the queue; all waiting calls return CallNotSent."""
        if self._timer is not None:
            self._timer.cancel()
        for waiter in self._waiters.values():
            if not waiter.done():
                waiter.set_result(False)

    def _replace(self, call: QueuedCall) -> None:
        """Make `call` the replaceable call of its message, and end an earlier one that still waits."""
        older = self._replaceable.get(call.message)
        self._replaceable[call.message] = call
        if older is not None and older in self._waiters and not self._waiters[older].done():
            older.deadline = -inf
            self._queue.remove(older)
            self._waiters[older].set_result(False)

    def _pump(self) -> None:
        """Start the calls that are due, end those past their deadline, and schedule the next run."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = self._clock.now()
        for call in self._queue.take_due(now):
            self._resolve(call, go=True)
        for call in self._queue.take_expired(now):
            self._resolve(call, go=False)
        at = self._queue.get_next_time()
        if at is not None:
            delay = self._clock.to_real_seconds(at - now)
            self._timer = asyncio.get_running_loop().call_later(delay, self._pump)

    def _resolve(self, call: QueuedCall, *, go: bool) -> None:
        """Wake the caller of `call`: `go` True means that the call may start, False that it must not.

        If the caller no longer waits, the place that the call got in the queue is freed.
        """
        waiter = self._waiters.get(call)
        if waiter is not None and not waiter.done():
            waiter.set_result(go)
        elif go:
            self._queue.finish(call, self._clock.now())
