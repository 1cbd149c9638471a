"""Inbox of a bot: the poller stores updates before it acknowledges them, and the reader passes them on."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

import structlog
from aiogram import Bot
from aiogram.exceptions import (
    AiogramError,
    TelegramConflictError,
    TelegramNotFound,
    TelegramUnauthorizedError,
)
from aiogram.types import Message, Update

from bot.telegram.client.calls import Backoff
from bot.telegram.client.session import (
    GetRawUpdates,
    InvalidBotToken,
    describe_call_error,
    get_retry_seconds,
    get_session,
)
from bot.telegram.client.update_json import is_shallow, is_update
from bot.telegram.inbound.message_batching import MessageBatcher
from bot.telegram.inbound.update_parser import ALLOWED_UPDATES, find_lane, parse_update
from bot.telegram.inbound.updates import (
    BotIdentity,
    IgnoredUpdate,
    IncomingMessage,
    IncomingUpdate,
)
from shared.adapters.postgres.telegram.inbox import PostgresTelegramInbox, StoredUpdate
from shared.core.values.errors import LeaseLost, StorageUnavailable
from shared.core.values.messages import storable_json
from shared.ports import StorageLimiter
from shared.work_marks import mark_work

log = structlog.get_logger(__name__)

CONFLICTING_POLLER = (
    "Another program polls this bot with the same token. Stop it, or give one of the two a bot of its own."
)
"""Problem for operators if Telegram reports another poller."""
WEBHOOK_RETURNED = (
    "A webhook was set for this bot again while it is polled. Stop what sets it, or use webhook mode."
)
"""Problem for operators if Telegram reports a webhook again after it was deleted."""
RATE_LIMITED = "Telegram asks this bot to wait before it fetches messages again."
"""Problem for operators if Telegram demands a long pause between polls."""
UPDATES_PER_READ = 200
"""Maximum updates of one read of the inbox."""
INBOX_POLL_SECONDS = 5.0
"""Default seconds between two reads of the inbox without a wake-up; a running bot reads more often."""
CLOSE_SECONDS = 10.0
"""Seconds to wait for running handlers when the reader closes."""
CALL_SECONDS = 20
"""Timeout in seconds of short calls to Telegram."""
T = TypeVar("T")


class UpdateStore(Protocol):
    """Store of the updates of all bots."""

    async def store(self, bot_id: int, updates: Sequence[Mapping[str, Any]]) -> int:
        """Store updates, and return how many are new. Raises StorageUnavailable."""
        ...

    async def load_next_offset(self, bot_id: int) -> int:
        """Return the offset to poll from: the newest stored update id plus one; 0 without recent ones."""
        ...


class ProblemReporter(Protocol):
    """Store of a bot's current problem, which the dashboard shows."""

    async def record_problem(self, bot_id: int, problem: str) -> None:
        """Store the current problem of a bot; empty for none. Raises StorageUnavailable."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PollTimeouts:
    """Timeouts and delays of polling Telegram, in seconds; tests use shorter ones."""

    poll: int = 30
    """Seconds for which Telegram holds a poll open when there is no update."""
    answer: float = 15.0
    """Seconds by which the response to a poll may exceed the poll."""
    first_wait: float = 1.0
    """Seconds before the first retry of a failed poll."""
    max_wait: float = 15.0
    """Most seconds before a retry."""
    conflict_wait: float = 10.0
    """Seconds before the next poll after another program polled with the same token."""
    watchdog: float = 120.0
    """Seconds without a completed poll after which connections are replaced."""
    idle: float = 3_600.0
    """Seconds without an update after which the offset is loaded again, since ids may restart after a quiet
    week.
    """
    report_after: float = 60.0
    """Delay above which a rate limit is reported to operators."""


async def fetch_bot_identity(bot: Bot, *, backoff: Backoff | None = None) -> BotIdentity:
    """Return the identity of a bot from Telegram; retries until Telegram answers.

    Raises InvalidBotToken if Telegram refuses the token.
    """
    backoff = backoff or Backoff()
    while True:
        try:
            me = await bot.get_me(request_timeout=CALL_SECONDS)
            return BotIdentity(
                bot_id=me.id,
                username=me.username or "",
                reads_all_messages=bool(me.can_read_all_group_messages),
                has_topics=bool(me.has_topics_enabled),
            )
        except (TelegramUnauthorizedError, TelegramNotFound) as refused:
            raise InvalidBotToken(f"getMe: {refused.message}") from None
        except AiogramError as error:
            log.warning("telegram_unreachable", bot=bot.id, reason=describe_call_error(error))
            await asyncio.sleep(max(get_retry_seconds(error), backoff.next()))


class Poller:
    """Long poller of one bot; only the holder of the bot's lease may run it."""

    def __init__(
        self,
        bot: Bot,
        *,
        inbox: UpdateStore,
        problems: ProblemReporter,
        on_stored: Callable[[], None],
        hand_over: Callable[[Sequence[StoredUpdate]], None] = lambda _: None,
        on_poll: Callable[[], None] = lambda: None,
        allowed: Sequence[str] = ALLOWED_UPDATES,
        times: PollTimeouts | None = None,
    ) -> None:
        """Create the poller.

        `on_stored` is called after updates were stored. Before that, `hand_over` gets those that no other
        process has stored. `on_poll` is called before each poll.
        """
        self._hand_over = hand_over
        self._has_stored = False
        self._bot = bot
        self._inbox = inbox
        self._problems = problems
        self._on_stored = on_stored
        self._on_poll = on_poll
        self._allowed = tuple(allowed)
        self._times = times or PollTimeouts()
        self._backoff = Backoff(min_seconds=self._times.first_wait, max_seconds=self._times.max_wait)
        self._problem: str | None = None
        self._webhook_deleted = False
        self.completed_at: float | None = None
        """Time of the last completed poll on the event loop's clock, in seconds; None before the first."""

    async def run(self) -> None:
        """Poll until cancelled, through outages of Telegram and Postgres. Raises InvalidBotToken."""
        clock = asyncio.get_running_loop()
        offset = await self._retry_while_unavailable(lambda: self._inbox.load_next_offset(self._bot.id))
        last_update_at = connected_at = clock.time()
        while True:
            try:
                updates = await self._poll(offset)
            except TelegramUnauthorizedError as refused:
                await self._report_problem(InvalidBotToken.advice)
                raise InvalidBotToken(f"getUpdates: 401 {refused.message}") from None
            except TelegramConflictError as conflict:
                log.warning("polling_rejected", bot=self._bot.id, reason=conflict.message)
                await self._handle_conflict("webhook" in conflict.message.lower())
            except AiogramError as error:
                log.warning("telegram_unreachable", bot=self._bot.id, reason=describe_call_error(error))
                await self._wait(get_retry_seconds(error))
            else:
                self.completed_at = connected_at = clock.time()
                await self._record_success()
                if updates:
                    last_update_at = clock.time()
                    offset = await self._store_updates(updates, offset)
                elif clock.time() - last_update_at > self._times.idle:
                    last_update_at = clock.time()
                    offset = await self._retry_while_unavailable(
                        lambda: self._inbox.load_next_offset(self._bot.id)
                    )
            if clock.time() - connected_at > self._times.watchdog:
                connected_at = clock.time()
                log.warning("telegram_reconnect", bot=self._bot.id)
                await get_session(self._bot).reconnect()

    async def _poll(self, offset: int) -> list[Any]:
        method = GetRawUpdates(
            offset=offset, limit=100, timeout=self._times.poll, allowed_updates=list(self._allowed)
        )
        self._on_poll()
        found = await self._bot(method, request_timeout=math.ceil(self._times.poll + self._times.answer))
        return list(found)

    async def _store_updates(self, updates: Sequence[Any], offset: int) -> int:
        """Store the valid updates and return the next offset; invalid ones are logged and dropped."""
        good = sorted((_make_storable(one) for one in updates if is_update(one)), key=_get_update_id)
        if len(good) < len(updates):
            log.error("invalid_updates_received", bot=self._bot.id, count=len(updates) - len(good))
        if not good:
            await asyncio.sleep(self._backoff.next())
            return offset
        stored = await self._retry_while_unavailable(lambda: self._inbox.store(self._bot.id, good))
        if stored == len(good) and self._has_stored:
            self._hand_over(
                [StoredUpdate(update_id=_get_update_id(one), body=storable_json(one)) for one in good]
            )
        # Updates of the first poll may follow updates of another process, so they are read from the inbox.
        self._has_stored = True
        if stored:
            self._on_stored()
        return max(offset, _get_update_id(good[-1]) + 1)

    async def _wait(self, least: float) -> None:
        wait = max(least, self._backoff.next())
        if wait > self._times.report_after:
            await self._report_problem(RATE_LIMITED)
        await asyncio.sleep(wait)

    async def _handle_conflict(self, webhook: bool) -> None:
        """After a conflict, delete a foreign webhook, once; otherwise report the problem and wait."""
        if webhook and not self._webhook_deleted:
            self._webhook_deleted = await self._delete_webhook()
            if self._webhook_deleted:
                return
        await self._report_problem(WEBHOOK_RETURNED if webhook else CONFLICTING_POLLER)
        await asyncio.sleep(max(self._times.conflict_wait, self._backoff.next()))

    async def _delete_webhook(self) -> bool:
        try:
            await self._bot.delete_webhook(drop_pending_updates=False, request_timeout=CALL_SECONDS)
        except AiogramError as error:
            log.warning("webhook_delete_failed", bot=self._bot.id, reason=describe_call_error(error))
            return False
        log.info("webhook_deleted", bot=self._bot.id)
        return True

    async def _record_success(self) -> None:
        """Reset the delays, and clear the reported problem."""
        self._backoff.reset()
        if self._problem != "":
            await self._report_problem("")

    async def _report_problem(self, problem: str) -> None:
        """Store the problem for operators, empty for none; after a failure the next poll tries again."""
        if problem == self._problem:
            return
        try:
            await self._problems.record_problem(self._bot.id, problem)
            self._problem = problem
        except StorageUnavailable as error:
            log.warning("problem_report_failed", bot=self._bot.id, reason=str(error))

    async def _retry_while_unavailable(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Return the result of `ask`.

        Repeat it while Postgres is unavailable, since Telegram keeps the updates.
        """
        backoff = Backoff(min_seconds=min(0.5, self._times.first_wait), max_seconds=5.0)
        while True:
            try:
                return await ask()
            except StorageUnavailable as error:
                log.warning("inbox_unavailable", bot=self._bot.id, reason=str(error))
                await asyncio.sleep(backoff.next())


def _get_update_id(update: Mapping[str, Any]) -> int:
    return int(update["update_id"])


def _make_storable(update: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the update, or a stand-in if it is nested too deeply to be stored, so that later ones are
    handled.
    """
    return update if is_shallow(update) else {"update_id": update["update_id"], "nested_too_deeply": True}


def _is_migration(update: Update) -> bool:
    message = update.message
    return message is not None and bool(message.migrate_to_chat_id or message.migrate_from_chat_id)


class InboxReader:
    """Reader of one bot's inbox; only the holder of the bot's lease may run it.

    Messages go to the batcher, whose callbacks mark them as handled. `on_other` gets every other update at
    once, so that a button press never waits; the update is marked as handled when it returns, and passed
    again after StorageUnavailable.
    """

    def __init__(
        self,
        inbox: PostgresTelegramInbox,
        batcher: MessageBatcher,
        *,
        bot: BotIdentity,
        client: Bot | None = None,
        on_other: Callable[[Update], Awaitable[None]],
        poll_seconds: float = INBOX_POLL_SECONDS,
        storage_limiter: StorageLimiter = nullcontext,
    ) -> None:
        self._storage_limiter = storage_limiter
        self._inbox = inbox
        self._batcher = batcher
        self._bot = bot
        self._client = client
        self._on_other = on_other
        self._poll_seconds = poll_seconds
        self._woken = asyncio.Event()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._lanes: dict[Hashable, asyncio.Task[None]] = {}
        """Task of the newest update in each lane, which the next one waits for."""
        self._handed: list[StoredUpdate] = []
        self._is_complete = False
        """Whether every waiting update of the inbox, except those in `_handed`, has been started by this
        reader.
        """
        self._dropped = 0

    def hand_over(self, updates: Sequence[StoredUpdate]) -> None:
        """Accept updates that were just stored, in order, so that they need not be read from the inbox.

        The caller then calls `wake`.
        """
        self._handed.extend(updates)

    def wake(self) -> None:
        """Read the inbox now, because an update was stored."""
        self._woken.set()

    async def run(self) -> None:
        """Read the inbox until cancelled.

        Handlers under way are cancelled, and the next reader repeats them.
        """
        backoff = Backoff(min_seconds=0.2, max_seconds=5.0)
        self._is_complete = False
        try:
            while True:
                self._woken.clear()
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
        """Read at most `UPDATES_PER_READ` updates and start their handling; return True if there may be more.

        Raises StorageUnavailable.
        """
        rows = self._take_handed() or await self._list_waiting()
        messages: list[IncomingMessage] = []
        ignored: dict[str, list[int]] = {}
        for row in rows:
            match self._parse(row):
                case IncomingMessage() as message:
                    messages.append(message)
                case IgnoredUpdate(update_id=number, reason=reason):
                    ignored.setdefault(reason, []).append(number)
                case Update(message=Message()) as other if _is_migration(other):
                    self._batcher.put(messages)
                    messages = []
                    await self._handle_other(other)  # updates after this one belong to the new chat
                case other:
                    self._start(other)
        self._batcher.put(messages)
        for reason, numbers in ignored.items():
            await self._inbox.mark_handled(self._bot.bot_id, numbers, error=reason)
        return not self._is_complete

    def _take_handed(self) -> list[StoredUpdate]:
        """Return the updates that were handed over.

        Empty if earlier updates of the inbox must be read first.
        """
        if not self._is_complete or self._dropped != self._batcher.dropped:
            return []
        rows, self._handed = self._handed, []
        return rows

    async def _list_waiting(self) -> list[StoredUpdate]:
        known = self._batcher.pending_updates | self._tasks.keys()
        self._handed, self._dropped, self._is_complete = [], self._batcher.dropped, False
        rows = await self._inbox.list_waiting(self._bot.bot_id, limit=UPDATES_PER_READ, known=known)
        found = {row.update_id for row in rows}
        self._handed = [one for one in self._handed if one.update_id not in found]
        self._is_complete = len(rows) < UPDATES_PER_READ
        return rows

    def _parse(self, row: StoredUpdate) -> IncomingUpdate:
        with mark_work("update", self._bot.bot_id, row.update_id):
            return parse_update(row.body, bot=self._bot, client=self._client)

    async def _wait(self) -> None:
        try:
            await asyncio.wait_for(self._woken.wait(), self._poll_seconds)
        except TimeoutError:
            return

    def _start(self, other: Update) -> None:
        """Start a task that handles an update after the earlier updates of its lane.

        Lanes, which `find_lane` defines, keep the order of membership changes in a chat and of messages in a
        customer's chat.
        """
        lane = find_lane(other)
        before = self._lanes.get(lane) if lane is not None else None
        task = asyncio.create_task(self._run_after(before, other))
        self._tasks[other.update_id] = task
        task.add_done_callback(lambda _: self._tasks.pop(other.update_id, None))
        if lane is not None:
            self._lanes[lane] = task
            task.add_done_callback(partial(self._forget_lane, lane))

    def _forget_lane(self, lane: Hashable, ended: asyncio.Future[None]) -> None:
        if self._lanes.get(lane) is ended:
            del self._lanes[lane]

    async def _run_after(self, before: asyncio.Task[None] | None, other: Update) -> None:
        if before is not None:
            await asyncio.wait([before])
        await self._handle_other(other)

    async def _handle_other(self, other: Update) -> None:
        """Pass an update to `on_other` and mark it as handled; repeats while the database is unavailable."""
        backoff = Backoff(min_seconds=0.2, max_seconds=5.0)
        error = ""
        while True:
            try:
                if not error:
                    with mark_work("update", self._bot.bot_id, other.update_id):
                        async with self._storage_limiter():
                            await self._on_other(other)
                await self._inbox.mark_handled(self._bot.bot_id, [other.update_id], error=error)
                return
            except StorageUnavailable:
                await asyncio.sleep(backoff.next())
            except LeaseLost:
                log.info("update_lease_lost", bot=self._bot.bot_id, update=other.update_id)
                self._is_complete = False
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
