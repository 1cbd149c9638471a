"""Runs the lanes of a bot: each wakes when its messages are due and hands them on in order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial

import structlog

from bot.telegram.client.call_queue import Backoff
from bot.telegram.inbound.message_batching import (
    BatchTimeouts,
    MessageBatch,
    ReleasedBatch,
    SenderBuffer,
)
from bot.telegram.inbound.updates import IncomingMessage
from shared.core.values.errors import LeaseLost, StorageUnavailable
from shared.ports import StorageLimiter

log = structlog.get_logger(__name__)

IMMEDIATE_COMMANDS = frozenset({"stop", "help", "status", "context", "usage", "budget"})
"""Commands that stop or inform: they wait for nothing, not even for what came before them."""
CLOSE_SECONDS = 10.0
_ALL_SENDERS = 0

OnBatch = Callable[[MessageBatch], Awaitable[None]]
OnLate = Callable[[IncomingMessage, int], Awaitable[None]]
"""With the earlier message that it belongs to."""
ChatKey = tuple[int, int]


@dataclass(slots=True, kw_only=True)
class _ChatQueue:
    """One chat or topic: a lane for each person, one way out."""

    lanes: dict[int, SenderBuffer] = field(default_factory=dict)
    ready: deque[MessageBatch] = field(default_factory=deque)
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    busy: bool = False
    """Something is being handed on; what bypasses does not wait for it."""

    def next_due(self) -> datetime | None:
        dues = [due for lane in self.lanes.values() if (due := lane.next_due) is not None]
        return min(dues, default=None)


class MessageBatcher:
    """`on_gathered` gets everything of one place in order, one after the other; other places do not wait.

    It is called again, for ever, when it raises StorageUnavailable: nothing newer of its place passes it.
    When it raises Fenced, another process has handled some of these updates: all that waits in this place is
    let go, to be read again in order. Any other error ends with `on_failed`, for which the place waits, too.
    `on_late` hears at once of what comes late and still waits for its fellows.
    Nothing is handed on before `sure` returns: nobody else is at it then. An update is known from `put` until
    its callback is done: put again meanwhile, it is not taken twice.
    """

    def __init__(
        self,
        on_gathered: OnBatch,
        *,
        now: Callable[[], datetime],
        on_failed: Callable[[MessageBatch, Exception], Awaitable[None]] | None = None,
        on_late: OnLate | None = None,
        patience: BatchTimeouts | None = None,
        is_command: Callable[[IncomingMessage], bool] | None = None,
        bypassing: frozenset[str] = IMMEDIATE_COMMANDS,
        sure: Callable[[], Awaitable[None]] | None = None,
        storage_limiter: StorageLimiter = nullcontext,
    ) -> None:
        self._storage_limiter = storage_limiter
        self._on_gathered = on_gathered
        self._on_failed = on_failed
        self._on_late = on_late
        self._now = now
        fresh = SenderBuffer(patience=patience or BatchTimeouts())
        self._fresh = (
            fresh if is_command is None else SenderBuffer(patience=fresh.patience, is_command=is_command)
        )
        self._bypassing = bypassing
        self._sure = sure
        self._places: dict[ChatKey, _ChatQueue] = {}
        self._tasks: set[asyncio.Future[None]] = set()
        self._held: set[int] = set()

    @property
    def pending_updates(self) -> frozenset[int]:
        """Updates that wait here or are being handed on."""
        return frozenset(self._held)

    def put(self, messages: Iterable[IncomingMessage]) -> None:
        """What arrived together; messages that belong together are then found without waiting."""
        now = self._now()
        touched: dict[ChatKey, _ChatQueue] = {}
        for message in messages:
            if message.update_id in self._held:
                continue
            self._held.add(message.update_id)
            key = (message.chat.chat_id, message.chat.thread_id)
            touched[key] = self._arrived(key, message, now)
        for place in touched.values():
            _release_due(place, now)
            if place.busy:
                self._overtake(place)
            place.woken.set()

    async def wait_until_idle(self) -> None:
        """Returns when nothing waits and nothing is being handed on."""
        while self._held and self._tasks:
            await asyncio.wait(tuple(self._tasks), timeout=0.02, return_when=asyncio.FIRST_COMPLETED)

    async def close(self) -> None:
        """What still waits is let go; its updates are not handled and will come again. May be filled anew."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSE_SECONDS)
        self._places.clear()
        self._held.clear()

    def _bypasses(self, message: IncomingMessage) -> bool:
        command = message.command
        return command is not None and not message.is_edited and command.name in self._bypassing

    def _arrived(self, key: ChatKey, message: IncomingMessage, now: datetime) -> _ChatQueue:
        place = self._places.get(key)
        if place is None:
            place = self._places[key] = _ChatQueue()
            self._start(self._serve(key, place))
        if self._bypasses(message):
            place.ready.append(MessageBatch(messages=(message,)))
            return place
        number = self._lane_of(place, message, now)
        lane, out = place.lanes.get(number, self._fresh).add(message, now)
        place.lanes[number] = lane
        place.ready += out
        group = lane.pending
        if self._on_late is not None and group is not None and group.late_for is not None:
            self._start(self._tell_late(self._on_late, message, group.late_for))
        return place

    async def _tell_late(self, on_late: OnLate, message: IncomingMessage, late_for: int) -> None:
        try:
            await on_late(message, late_for)
        except StorageUnavailable as error:
            log.warning("late_part_not_told", update=message.update_id, reason=str(error))

    def _lane_of(self, place: _ChatQueue, message: IncomingMessage, now: datetime) -> int:
        """What is old, and what comes while old things wait, is one turn, whoever wrote it."""
        everybody = place.lanes.get(_ALL_SENDERS)
        waiting = everybody is not None and everybody.pending is not None
        old = now - message.sent_at > timedelta(seconds=self._fresh.patience.stale_after)
        return _ALL_SENDERS if waiting or old else message.sender.user_id

    async def _serve(self, key: ChatKey, place: _ChatQueue) -> None:
        """Lives as long as something of this place waits."""
        try:
            while True:
                place.woken.clear()
                _release_due(place, self._now())
                while place.ready:
                    await self._next(place)
                    _release_due(place, self._now())
                if place.woken.is_set():
                    continue
                due = place.next_due()
                if due is None and not self._remembers(place):
                    return
                await _wait_for_wake(place, self._seconds_until(due))
        finally:
            if self._places.get(key) is place:
                del self._places[key]

    async def _next(self, place: _ChatQueue) -> None:
        """One is handed on and waited for; what bypasses is begun right behind it."""
        task = self._start(self._hand_on(place, place.ready.popleft()))
        self._overtake(place)
        place.busy = True
        try:
            await asyncio.wait([task])
        finally:
            place.busy = False

    def _overtake(self, place: _ChatQueue) -> None:
        quick = [one for one in place.ready if self._bypasses(one.first)]
        for one in quick:
            place.ready.remove(one)
            self._start(self._hand_on(place, one))

    def _remembers(self, place: _ChatQueue) -> bool:
        """Whether a straggler could still come; the lanes are kept as long."""
        patience, now = self._fresh.patience, self._now()
        return any(
            (now - past.at).total_seconds() < _seconds_remembered(past, patience)
            for lane in place.lanes.values()
            for past in lane.released
        )

    def _seconds_until(self, due: datetime | None) -> float:
        if due is None:
            return self._fresh.patience.forward
        return max(0.0, (due - self._now()).total_seconds())

    async def _hand_on(self, place: _ChatQueue, gathered: MessageBatch) -> None:
        try:
            await self._until_stored(gathered, partial(self._on_gathered, gathered))
        except LeaseLost as fenced:
            log.info("batch_lease_lost", updates=gathered.update_ids, reason=str(fenced))
            self._let_go(place)
        except Exception as error:
            log.exception("batch_failed", updates=gathered.update_ids)
            if self._on_failed is not None:
                await self._until_stored(gathered, partial(self._on_failed, gathered, error))
        finally:
            self._held.difference_update(gathered.update_ids)

    async def _until_stored(self, gathered: MessageBatch, work: Callable[[], Awaitable[None]]) -> None:
        """For as long as Postgres is away: what is newer waits behind it."""
        backoff = Backoff(first=0.2, most=5.0)
        while True:
            try:
                async with self._storage_limiter():
                    if self._sure is not None:
                        await self._sure()
                    await work()
                return
            except StorageUnavailable as error:
                log.warning("chat_storage_unavailable", updates=gathered.update_ids, reason=str(error))
                await asyncio.sleep(backoff.next())

    def _let_go(self, place: _ChatQueue) -> None:
        groups = [lane.pending for lane in place.lanes.values() if lane.pending is not None]
        for group in groups:
            self._held.difference_update(group.superseded, (one.update_id for one in group.messages))
        for gathered in place.ready:
            self._held.difference_update(gathered.update_ids)
        place.lanes.clear()
        place.ready.clear()

    def _start(self, work: Awaitable[None]) -> asyncio.Future[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Future[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("message_batcher_failed", exc_info=error)


def _seconds_remembered(past: ReleasedBatch, patience: BatchTimeouts) -> float:
    if past.album:
        return patience.album_most
    return patience.late if past.open_ended else patience.forward


def _release_due(place: _ChatQueue, now: datetime) -> None:
    for number, lane in place.lanes.items():
        place.lanes[number], out = lane.release_due(now)
        place.ready += out


async def _wait_for_wake(place: _ChatQueue, seconds: float) -> None:
    try:
        await asyncio.wait_for(place.woken.wait(), seconds)
    except TimeoutError:
        return
