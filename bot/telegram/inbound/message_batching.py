"""Groups incoming messages into turns, and passes the batches on in order.

Parts of long pastes, albums and forwards wait for each other; other messages are passed on at once. A
`SenderBuffer` decides for each chat and person as a pure value, and each chat's queue wakes when one of its
buffers is due.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Literal

import structlog

from bot.telegram.client.calls import Backoff
from bot.telegram.inbound.updates import IncomingMessage, build_prompt
from shared.core.session.turns import utf16_units
from shared.core.values.errors import LeaseLost, StorageUnavailable
from shared.ports import StorageLimiter

log = structlog.get_logger(__name__)

IMMEDIATE_COMMANDS = frozenset({"stop", "help", "status", "context", "usage", "budget"})
"""Commands that stop or inform; they are handled at once, even before earlier messages."""
CLOSE_SECONDS = 10.0
"""Seconds to wait for running handlers when the batcher closes."""
_ALL_SENDERS = 0
"""Key of the buffer that collects messages of all senders."""

OnLate = Callable[[IncomingMessage, int], Awaitable[None]]
"""Callback for a late part, with the id of the earlier message that it belongs to."""
ChatKey = tuple[int, int]
"""Chat id and thread id."""
BatchKind = Literal["plain", "paste", "album", "forward", "stale"]
"""Reason why messages make one batch; `stale` are messages older than `stale_after`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchTimeouts:
    """Rules of waiting: how long a message waits for others of its batch, in seconds, and what makes it
    wait.
    """

    paste_units: int = 3_800
    """Minimum UTF-16 units of a message that may be the beginning of a long paste."""
    paste_tail_units: int = 2_048
    """Units below which a message ends a paste: apps cut a text after the middle of a message."""
    paste: float = 1.5
    """Seconds to wait for the next part; names with `_max` limit the wait of the whole batch."""
    paste_max: float = 8.0
    album: float = 1.5
    album_max: float = 10.0
    forward: float = 0.3
    forward_max: float = 8.0
    late: float = 5.0
    """Seconds after a paste within which a further part gets the id of its beginning as `late_for`."""
    comment: float = 0.0
    """Seconds for which an ordinary message waits for a forward.

    Apps send the comment before the forwarded messages. Waiting would delay every message, so only messages
    that arrive together are joined; a forward up to `forward` seconds later gets the comment's id as
    `late_for`.
    """
    stale_after: float = 600.0
    """Age in seconds from which messages are old, and those of all senders make one turn."""
    stale: float = 0.5
    stale_max: float = 8.0
    max_units: int = 100_000
    """Maximum UTF-16 units of a turn; further messages make the next turn."""
    max_messages: int = 100
    """Maximum messages of a turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageBatch:
    """Messages that make one turn or one command.

    `late_for` is the id of an earlier message they belong to, or None.
    """

    messages: tuple[IncomingMessage, ...]
    late_for: int | None = None
    superseded: tuple[int, ...] = ()
    """Ids of updates that were replaced before they were handled, by an edit or because they are not for the
    bot.
    """

    @property
    def first(self) -> IncomingMessage:
        """First message of the batch."""
        return self.messages[0]

    @property
    def addressed_message(self) -> IncomingMessage:
        """Message that is addressed to the bot, else the first.

        Only one part of a paste can mention the bot.
        """
        return next((one for one in self.messages if one.is_addressed), self.first)

    @property
    def update_ids(self) -> tuple[int, ...]:
        """Ids of all updates of the batch, including superseded ones; they are marked as handled together."""
        return (*self.superseded, *(one.update_id for one in self.messages))

    @property
    def message_ids(self) -> tuple[int, ...]:
        """Ids of the messages, in order."""
        return tuple(one.message_id for one in self.messages)

    @property
    def text(self) -> str:
        """Text of the batch as the model reads it."""
        return build_prompt(self.messages)


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingBatch:
    """Messages that wait for others of their batch, until `due` or at most until `latest`."""

    kind: BatchKind
    messages: tuple[IncomingMessage, ...]
    due: datetime
    latest: datetime
    album: str = ""
    late_for: int | None = None
    superseded: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasedBatch:
    """Batch that was released, remembered so that a late part finds its beginning."""

    kind: BatchKind
    message_id: int
    at: datetime
    album: str = ""
    open_ended: bool = False
    """True for a paste whose last part was long enough to be followed by another."""


def _has_command(message: IncomingMessage) -> bool:
    return message.command is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderBuffer:
    """Waiting messages of one person in one chat, or of all senders if they are old.

    Immutable: methods return the next buffer, and the batches that are complete.
    """

    timeouts: BatchTimeouts = field(default_factory=BatchTimeouts)
    is_command: Callable[[IncomingMessage], bool] = _has_command
    pending: PendingBatch | None = None
    released: tuple[ReleasedBatch, ...] = ()

    @property
    def next_due(self) -> datetime | None:
        """Time from which `release_due` releases the waiting batch; None if no message waits."""
        return None if self.pending is None else min(self.pending.due, self.pending.latest)

    def add(self, message: IncomingMessage, now: datetime) -> tuple[SenderBuffer, tuple[MessageBatch, ...]]:
        """Add a message; return the next buffer and the complete batches.

        A batch that is due at `now` still accepts the message, since both may have arrived together.
        """
        buffer, out = self._release_overdue(now)
        if message.is_edited:
            return buffer._add_edit(message, out)
        if self.is_command(message):
            return buffer._add_command(message, out, now)
        if buffer.pending is not None:
            joined = _join_batch(buffer.pending, message, now, self.timeouts)
            if joined is not None:
                return replace(buffer, pending=joined), out
            buffer, more = buffer._release(now)
            out += more
        return replace(buffer, pending=buffer._open_batch(message, now)), out

    def release_due(self, now: datetime) -> tuple[SenderBuffer, tuple[MessageBatch, ...]]:
        """Return the waiting batch if it is due at `now`."""
        due = self.next_due
        return (self, ()) if due is None or now < due else self._release(now)

    def _release_overdue(self, now: datetime) -> tuple[SenderBuffer, tuple[MessageBatch, ...]]:
        due = self.next_due
        return self._release(now) if due is not None and due < now else (self, ())

    def _add_command(
        self, message: IncomingMessage, out: tuple[MessageBatch, ...], now: datetime
    ) -> tuple[SenderBuffer, tuple[MessageBatch, ...]]:
        """Return a command as a separate batch; a waiting batch of single messages is released before it."""
        buffer = self
        if buffer.pending is not None and buffer.pending.kind in ("plain", "stale"):
            buffer, more = buffer._release(now)
            out += more
        return buffer, (*out, MessageBatch(messages=(message,)))

    def _add_edit(
        self, message: IncomingMessage, out: tuple[MessageBatch, ...]
    ) -> tuple[SenderBuffer, tuple[MessageBatch, ...]]:
        """Put an edit in place of the waiting message; an edit of another message is a separate batch."""
        pending = self.pending
        if pending is None or message.message_id not in {one.message_id for one in pending.messages}:
            return self, (*out, MessageBatch(messages=(message,)))
        old = next(one for one in pending.messages if one.message_id == message.message_id)
        newer = replace(message, is_edited=False)
        messages = tuple(newer if one is old else one for one in pending.messages)
        changed = replace(pending, messages=messages, superseded=(*pending.superseded, old.update_id))
        return replace(self, pending=changed), out

    def _release(self, now: datetime) -> tuple[SenderBuffer, tuple[MessageBatch, ...]]:
        """Return the waiting batch, and remember it for late parts."""
        pending = self.pending
        if pending is None:
            return self, ()
        messages = tuple(sorted(pending.messages, key=lambda one: one.message_id))
        batch = MessageBatch(messages=messages, late_for=pending.late_for, superseded=pending.superseded)
        anchor = pending.late_for if pending.late_for is not None else messages[0].message_id
        released = ReleasedBatch(
            kind=pending.kind,
            message_id=anchor,
            at=now,
            album=pending.album,
            open_ended=pending.kind == "paste"
            and utf16_units(messages[-1].text) >= self.timeouts.paste_tail_units,
        )
        return replace(self, pending=None, released=(*self.released, released)[-4:]), (batch,)

    def _open_batch(self, message: IncomingMessage, now: datetime) -> PendingBatch:
        """Return a new batch with this message, and with the deadlines of its kind."""
        kind = _classify(message, now, self.timeouts)
        wait, max_wait = _get_wait_seconds(kind, self.timeouts)
        return PendingBatch(
            kind=kind,
            messages=(message,),
            due=now + timedelta(seconds=wait),
            latest=now + timedelta(seconds=max_wait),
            album=message.media_group_id,
            late_for=self._find_earlier_part(message, kind, now),
        )

    def _find_earlier_part(self, message: IncomingMessage, kind: BatchKind, now: datetime) -> int | None:
        """Return the id of the released message that a late part belongs to; None if there is none."""
        if self.released and self.released[-1].open_ended and kind in ("plain", "paste"):
            earlier = self.released[-1]
            if message.media is None and (now - earlier.at).total_seconds() <= self.timeouts.late:
                return earlier.message_id
        for earlier in reversed(self.released):
            age = (now - earlier.at).total_seconds()
            if message.media_group_id and earlier.album == message.media_group_id:
                return earlier.message_id
            if message.forward_origin and earlier.kind == "plain" and age <= self.timeouts.forward:
                return earlier.message_id
        return None


def _classify(message: IncomingMessage, now: datetime, timeouts: BatchTimeouts) -> BatchKind:
    """Return the kind of batch that a message begins."""
    if (now - message.sent_at).total_seconds() > timeouts.stale_after:
        return "stale"
    if message.media_group_id:
        return "album"
    if message.forward_origin is not None:
        return "forward"
    return "paste" if message.media is None and utf16_units(message.text) >= timeouts.paste_units else "plain"


def _get_wait_seconds(kind: BatchKind, timeouts: BatchTimeouts) -> tuple[float, float]:
    """Return the seconds to wait after each message, and those for the whole batch."""
    match kind:
        case "plain":
            return timeouts.comment, timeouts.comment
        case "paste":
            return timeouts.paste, timeouts.paste_max
        case "album":
            return timeouts.album, timeouts.album_max
        case "forward":
            return timeouts.forward, timeouts.forward_max
        case "stale":
            return timeouts.stale, timeouts.stale_max


def _join_batch(
    pending: PendingBatch, message: IncomingMessage, now: datetime, timeouts: BatchTimeouts
) -> PendingBatch | None:
    """Return the batch with one more message; None if the message does not belong to it or it is full."""
    room = timeouts.max_units - sum(utf16_units(one.text) for one in pending.messages)
    if utf16_units(message.text) > room or len(pending.messages) >= timeouts.max_messages:
        return None
    new_kind = _classify_joined(pending, message, _classify(message, now, timeouts))
    return None if new_kind is None else _extend_batch(pending, message, new_kind, now, timeouts)


def _classify_joined(pending: PendingBatch, message: IncomingMessage, kind: BatchKind) -> BatchKind | None:
    """Return the kind of the batch with this message; None if the message does not belong to it."""
    match pending.kind:
        case "stale":
            return "stale"
        case "album":
            return "album" if message.media_group_id == pending.album else None
        case "paste":
            return "paste" if kind in ("paste", "plain") and message.media is None else None
        case "forward":
            return "forward" if kind in ("forward", "plain") else None
        case "plain":
            return "forward" if kind == "forward" else None


def _extend_batch(
    pending: PendingBatch, message: IncomingMessage, kind: BatchKind, now: datetime, timeouts: BatchTimeouts
) -> PendingBatch:
    """Return the batch with one more message and new deadlines; the last part of a paste makes it due now."""
    wait, max_wait = _get_wait_seconds(kind, timeouts)
    last = kind == "paste" and utf16_units(message.text) < timeouts.paste_tail_units
    latest = now + timedelta(seconds=max_wait) if kind != pending.kind else pending.latest
    return replace(
        pending,
        kind=kind,
        messages=(*pending.messages, message),
        due=now if last else now + timedelta(seconds=wait),
        latest=latest,
    )


@dataclass(slots=True, kw_only=True)
class _ChatQueue:
    """Queue of one chat or topic: a buffer for each person, and the complete batches in order."""

    buffers: dict[int, SenderBuffer] = field(default_factory=dict)
    ready: deque[MessageBatch] = field(default_factory=deque)
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    busy: bool = False
    """True while a batch is being handled; immediate commands do not wait for it."""

    def get_next_due(self) -> datetime | None:
        dues = [due for buffer in self.buffers.values() if (due := buffer.next_due) is not None]
        return min(dues, default=None)


class MessageBatcher:
    """Passes the messages of each chat to `on_batch` in batches and in order.

    Chats do not wait for each other. While `on_batch` raises StorageUnavailable it is repeated, and the chat
    waits. After LeaseLost another process has handled some of these updates, so the chat's waiting messages
    are dropped and read from the inbox again. After any other error `on_failed` is called. `on_late` is
    called with a late part as soon as it arrives. `wait_for_lease` is awaited before each batch. An update is
    ignored while an earlier call with it is being handled.
    """

    def __init__(
        self,
        on_batch: Callable[[MessageBatch], Awaitable[None]],
        *,
        now: Callable[[], datetime],
        on_failed: Callable[[MessageBatch, Exception], Awaitable[None]] | None = None,
        on_late: OnLate | None = None,
        timeouts: BatchTimeouts | None = None,
        is_command: Callable[[IncomingMessage], bool] = _has_command,
        wait_for_lease: Callable[[], Awaitable[None]] | None = None,
        storage_limiter: StorageLimiter = nullcontext,
    ) -> None:
        self._storage_limiter = storage_limiter
        self._on_batch = on_batch
        self._on_failed = on_failed
        self._on_late = on_late
        self._now = now
        self._empty_buffer = SenderBuffer(timeouts=timeouts or BatchTimeouts(), is_command=is_command)
        self._wait_for_lease = wait_for_lease
        self._queues: dict[ChatKey, _ChatQueue] = {}
        self._tasks: set[asyncio.Future[None]] = set()
        self._known_ids: set[int] = set()
        self.dropped = 0
        """Number of times that waiting messages were dropped, to be read from the inbox again."""

    @property
    def pending_updates(self) -> frozenset[int]:
        """Ids of updates that wait here or are being handled."""
        return frozenset(self._known_ids)

    def put(self, messages: Iterable[IncomingMessage]) -> None:
        """Add messages that arrived together, so that those of one batch are joined without waiting."""
        now = self._now()
        touched: dict[ChatKey, _ChatQueue] = {}
        for message in messages:
            if message.update_id in self._known_ids:
                continue
            self._known_ids.add(message.update_id)
            key = (message.chat.chat_id, message.chat.thread_id)
            touched[key] = self._enqueue(key, message, now)
        for queue in touched.values():
            _release_due(queue, now)
            if queue.busy:
                self._start_immediate(queue)
            queue.woken.set()

    async def close(self) -> None:
        """Cancel running handlers and drop waiting messages; their updates stay unhandled in the inbox.

        The batcher can be used again.
        """
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSE_SECONDS)
        self._queues.clear()
        self._known_ids.clear()

    def _is_immediate(self, message: IncomingMessage) -> bool:
        command = message.command
        return command is not None and not message.is_edited and command.name in IMMEDIATE_COMMANDS

    def _enqueue(self, key: ChatKey, message: IncomingMessage, now: datetime) -> _ChatQueue:
        """Add a message to its chat's queue, which is started if needed."""
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = _ChatQueue()
            self._start(self._run_queue(key, queue))
        if self._is_immediate(message):
            queue.ready.append(MessageBatch(messages=(message,)))
            return queue
        sender_key = self._choose_buffer(queue, message, now)
        buffer, out = queue.buffers.get(sender_key, self._empty_buffer).add(message, now)
        queue.buffers[sender_key] = buffer
        queue.ready += out
        pending = buffer.pending
        if self._on_late is not None and pending is not None and pending.late_for is not None:
            self._start(self._report_late(self._on_late, message, pending.late_for))
        return queue

    async def _report_late(self, on_late: OnLate, message: IncomingMessage, late_for: int) -> None:
        try:
            await on_late(message, late_for)
        except StorageUnavailable as error:
            log.warning("late_part_notice_failed", update=message.update_id, reason=str(error))

    def _choose_buffer(self, queue: _ChatQueue, message: IncomingMessage, now: datetime) -> int:
        """Return the key of the buffer for a message: its sender, or that of all senders.

        Old messages, and those that arrive while old ones wait, make one turn for all senders.
        """
        everybody = queue.buffers.get(_ALL_SENDERS)
        waiting = everybody is not None and everybody.pending is not None
        old = now - message.sent_at > timedelta(seconds=self._empty_buffer.timeouts.stale_after)
        return _ALL_SENDERS if waiting or old else message.sender.user_id

    async def _run_queue(self, key: ChatKey, queue: _ChatQueue) -> None:
        """Handle the batches of a chat in order; return when none is left and no late part can follow."""
        try:
            while True:
                queue.woken.clear()
                _release_due(queue, self._now())
                while queue.ready:
                    await self._handle_next(queue)
                    _release_due(queue, self._now())
                if queue.woken.is_set():
                    continue
                due = queue.get_next_due()
                if due is None and not self._expects_late_part(queue):
                    return
                await _wait_for_wake(queue, self._get_seconds_until(due))
        finally:
            if self._queues.get(key) is queue:
                del self._queues[key]

    async def _handle_next(self, queue: _ChatQueue) -> None:
        """Handle one batch and wait until it is done; immediate commands start at the same time."""
        task = self._start(self._handle_batch(queue, queue.ready.popleft()))
        self._start_immediate(queue)
        queue.busy = True
        try:
            await asyncio.wait([task])
        finally:
            queue.busy = False

    def _start_immediate(self, queue: _ChatQueue) -> None:
        quick = [one for one in queue.ready if self._is_immediate(one.first)]
        for one in quick:
            queue.ready.remove(one)
            self._start(self._handle_batch(queue, one))

    def _expects_late_part(self, queue: _ChatQueue) -> bool:
        """Return whether a late part may still arrive; the chat's buffers are kept until then."""
        timeouts, now = self._empty_buffer.timeouts, self._now()
        return any(
            (now - earlier.at).total_seconds() < _get_late_seconds(earlier, timeouts)
            for buffer in queue.buffers.values()
            for earlier in buffer.released
        )

    def _get_seconds_until(self, due: datetime | None) -> float:
        if due is None:
            return self._empty_buffer.timeouts.forward
        return max(0.0, (due - self._now()).total_seconds())

    async def _handle_batch(self, queue: _ChatQueue, batch: MessageBatch) -> None:
        try:
            await self._retry_while_unavailable(batch, partial(self._on_batch, batch))
        except LeaseLost as lost:
            log.info("batch_lease_lost", updates=batch.update_ids, reason=str(lost))
            self._drop_waiting(queue)
        except Exception as error:
            log.exception("batch_failed", updates=batch.update_ids)
            if self._on_failed is not None:
                await self._retry_while_unavailable(batch, partial(self._on_failed, batch, error))
        finally:
            self._known_ids.difference_update(batch.update_ids)

    async def _retry_while_unavailable(
        self, batch: MessageBatch, work: Callable[[], Awaitable[None]]
    ) -> None:
        """Run `work`, repeated while Postgres is unavailable; later batches of the chat wait."""
        backoff = Backoff(min_seconds=0.2, max_seconds=5.0)
        while True:
            try:
                async with self._storage_limiter():
                    if self._wait_for_lease is not None:
                        await self._wait_for_lease()
                    await work()
                return
            except StorageUnavailable as error:
                log.warning("chat_storage_unavailable", updates=batch.update_ids, reason=str(error))
                await asyncio.sleep(backoff.next())

    def _drop_waiting(self, queue: _ChatQueue) -> None:
        """Forget the waiting messages of a chat, so that the reader reads them from the inbox again."""
        self.dropped += 1
        groups = [buffer.pending for buffer in queue.buffers.values() if buffer.pending is not None]
        for pending in groups:
            self._known_ids.difference_update(pending.superseded, (one.update_id for one in pending.messages))
        for batch in queue.ready:
            self._known_ids.difference_update(batch.update_ids)
        queue.buffers.clear()
        queue.ready.clear()

    def _start(self, work: Awaitable[None]) -> asyncio.Future[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)
        return task

    def _on_task_done(self, task: asyncio.Future[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("message_batcher_failed", exc_info=error)


def _get_late_seconds(earlier: ReleasedBatch, timeouts: BatchTimeouts) -> float:
    """Return the seconds after its release in which a late part can follow a batch."""
    if earlier.album:
        return timeouts.album_max
    return timeouts.late if earlier.open_ended else timeouts.forward


def _release_due(queue: _ChatQueue, now: datetime) -> None:
    for sender_key, buffer in queue.buffers.items():
        queue.buffers[sender_key], out = buffer.release_due(now)
        queue.ready += out


async def _wait_for_wake(queue: _ChatQueue, seconds: float) -> None:
    try:
        await asyncio.wait_for(queue.woken.wait(), seconds)
    except TimeoutError:
        return
