"""Takes what waits in a bot's inbox, in order: messages go to the lanes, everything else is done beside."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import nullcontext
from typing import Protocol

import structlog

from bot.telegram.client.call_queue import Backoff
from bot.telegram.inbound.batching_driver import MessageBatcher
from bot.telegram.inbound.update_parser import parse_update
from bot.telegram.inbound.updates import (
    BotIdentity,
    ChatMigration,
    IgnoredUpdate,
    IncomingMessage,
    IncomingUpdate,
    MembershipChange,
)
from shared.adapters.postgres.telegram.inbox import StoredUpdate
from shared.core.values.errors import LeaseLost, StorageUnavailable
from shared.ports import StorageLimiter

log = structlog.get_logger(__name__)

BATCH_SIZE = 200
INBOX_POLL_SECONDS = 5.0
"""How often the inbox is looked into without a ring, for what another process has stored."""
CLOSE_SECONDS = 10.0

OnUpdate = Callable[[IncomingUpdate], Awaitable[None]]


class UpdateQueue(Protocol):
    async def waiting(
        self, bot_id: int, *, limit: int = BATCH_SIZE, known: Collection[int] = ()
    ) -> list[StoredUpdate]: ...

    async def handled(self, bot_id: int, update_ids: Sequence[int], *, error: str = "") -> int: ...


class InboxReader:
    """For one bot; only the holder of its lease runs it.

    `on_other` gets each update that is no message, beside the lanes, so that a button never waits. Its row is
    marked as handled when it returns; it is called again when it raises StorageUnavailable. The rows of
    messages are marked by who accepts them (`Lanes`' callback), with the acceptance; those of a failed one
    by its `on_failed`, or they come again.
    """

    def __init__(
        self,
        inbox: UpdateQueue,
        lanes: MessageBatcher,
        *,
        bot: BotIdentity,
        on_other: OnUpdate,
        look_seconds: float = INBOX_POLL_SECONDS,
        storage_limiter: StorageLimiter = nullcontext,
    ) -> None:
        self._storage_limiter = storage_limiter
        self._inbox = inbox
        self._lanes = lanes
        self._bot = bot
        self._on_other = on_other
        self._look_seconds = look_seconds
        self._rung = asyncio.Event()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._memberships: dict[int, asyncio.Task[None]] = {}
        """By chat, the newest."""

    def ring(self) -> None:
        """There is something in the inbox."""
        self._rung.set()

    async def run(self) -> None:
        """Until cancelled; what is under way is then let go and comes again."""
        backoff = Backoff(first=0.2, most=5.0)
        try:
            while True:
                self._rung.clear()
                try:
                    more = await self.read()
                    backoff.reset()
                except StorageUnavailable as error:
                    log.warning("inbox_unavailable", bot=self._bot.bot_id, reason=str(error))
                    await asyncio.sleep(backoff.next())
                    continue
                if not more:
                    await self._wait()
        finally:
            await self._close()

    async def read(self) -> bool:
        """One look into the inbox; True when there may be more. Raises StorageUnavailable."""
        known = self._lanes.pending_updates | self._tasks.keys()
        rows = await self._inbox.waiting(self._bot.bot_id, limit=BATCH_SIZE, known=known)
        said: list[IncomingMessage] = []
        useless: dict[str, list[int]] = {}
        for row in rows:
            match parse_update(row.body, bot=self._bot):
                case IncomingMessage() as message:
                    said.append(message)
                case IgnoredUpdate(update_id=number, reason=reason):
                    useless.setdefault(reason, []).append(number)
                case ChatMigration() as moved:
                    self._lanes.put(said)
                    said = []
                    await self._other(moved)  # what follows belongs to the new chat already
                case other:
                    self._start(other)
        self._lanes.put(said)
        for reason, numbers in useless.items():
            await self._inbox.handled(self._bot.bot_id, numbers, error=reason)
        return len(rows) == BATCH_SIZE

    async def _wait(self) -> None:
        try:
            await asyncio.wait_for(self._rung.wait(), self._look_seconds)
        except TimeoutError:
            return

    def _start(self, other: IncomingUpdate) -> None:
        before = self._before(other)
        task = asyncio.create_task(self._after(before, other))
        self._tasks[other.update_id] = task
        task.add_done_callback(lambda _: self._tasks.pop(other.update_id, None))
        if isinstance(other, MembershipChange):
            self._memberships[other.chat.chat_id] = task
            task.add_done_callback(lambda ended: self._forget(other.chat.chat_id, ended))

    def _before(self, other: IncomingUpdate) -> asyncio.Task[None] | None:
        """Blocked and unblocked, added and removed: only their order tells how it is now."""
        return self._memberships.get(other.chat.chat_id) if isinstance(other, MembershipChange) else None

    def _forget(self, chat_id: int, ended: asyncio.Future[None]) -> None:
        if self._memberships.get(chat_id) is ended:
            del self._memberships[chat_id]

    async def _after(self, before: asyncio.Task[None] | None, other: IncomingUpdate) -> None:
        if before is not None:
            await asyncio.wait([before])
        await self._other(other)

    async def _other(self, other: IncomingUpdate) -> None:
        backoff = Backoff(first=0.2, most=5.0)
        error = ""
        while True:
            try:
                if not error:
                    async with self._storage_limiter():
                        await self._on_other(other)
                await self._inbox.handled(self._bot.bot_id, [other.update_id], error=error)
                return
            except StorageUnavailable:
                await asyncio.sleep(backoff.next())
            except LeaseLost:
                log.info("update_lease_lost", bot=self._bot.bot_id, update=other.update_id)
                return
            except Exception as failure:
                log.exception("update_failed", bot=self._bot.bot_id, update=other.update_id)
                error = type(failure).__name__

    async def _close(self) -> None:
        tasks = tuple(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSE_SECONDS)
