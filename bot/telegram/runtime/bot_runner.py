"""Runs one bot: holds its lease, polls or registers its webhook, and reads its inbox."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import nullcontext, suppress
from datetime import UTC, datetime, timedelta

import structlog
from aiogram.exceptions import TelegramBadRequest

from bot.telegram.client.session import InvalidBotToken
from bot.telegram.handlers.dispatcher import BotDispatcher
from bot.telegram.inbound.bot_context import BotContext
from bot.telegram.inbound.inbox import InboxReader, Poller
from bot.telegram.inbound.message_batching import MessageBatcher
from bot.telegram.inbound.update_parser import list_allowed_updates
from bot.telegram.inbound.webhook import (
    WEBHOOK_CHECK_SECONDS,
    WebhookConfig,
    find_foreign_webhook,
    register_webhook,
)
from bot.telegram.runtime.bot_profile import BotProfile
from shared.core.values.errors import StorageUnavailable
from shared.ports import StorageLimiter
from shared.runtime import BackgroundTasks, CrashPoint, ignore_crash_point
from shared.services.turns.session_service import LEASE_SECONDS

VALID_SECONDS = LEASE_SECONDS - 1.0
"""A process that was paused for longer may have been replaced, and checks its lease first."""


class LeaseGuard:
    """Whether this process holds the lease; the runner updates it, and exclusive work waits for it."""

    def __init__(self, *, now: Callable[[], float] = time.monotonic) -> None:
        self.now = now
        self._seen_at: float | None = None
        self._seen = asyncio.Event()

    def mark_held(self, *, asked_at: float) -> None:
        """Record that Postgres confirmed the lease; `asked_at` is the time before the query, in seconds."""
        self._seen_at = asked_at
        self._seen.set()

    def mark_lost(self) -> None:
        self._seen_at = None

    @property
    def is_valid(self) -> bool:
        return self._seen_at is not None and self.now() - self._seen_at < VALID_SECONDS

    async def wait_until_valid(self) -> None:
        while not self.is_valid:
            self._seen.clear()
            await self._seen.wait()


log = structlog.get_logger(__name__)

UPDATE_POLL_SECONDS = 0.5
"""How often the inbox is read without a wake-up, for updates that another process has stored."""
LEASE_RENEW_SECONDS = 1.0
CLOSE_SECONDS = 5.0


class BotRunner:
    """`start` it when its context is ready; it works whenever this process holds the bot's lease."""

    def __init__(
        self,
        context: BotContext,
        dispatcher: BotDispatcher,
        batcher: MessageBatcher,
        *,
        lease_guard: LeaseGuard,
        worker_id: int,
        webhook: WebhookConfig | None,
        wait_until_warm: Callable[[], Awaitable[object]],
        on_serving: Callable[[], None] = lambda: None,
        storage_limiter: StorageLimiter = nullcontext,
        crash_point: CrashPoint = ignore_crash_point,
    ) -> None:
        self._context = context
        self._bot_id = context.identity.bot_id
        self._batcher = batcher
        self._lease_guard = lease_guard
        self._worker_id = worker_id
        self._webhook = webhook
        self._wait_until_warm = wait_until_warm
        self._on_serving = on_serving
        self._crash_point = crash_point
        self._has_profile = False
        self._intake_started = asyncio.Event()
        """Polling has started, or the webhook is set."""
        self._epoch: int | None = None
        self._is_recovered = False
        """Deliveries that the last holder left were recovered: only then is anything sent."""
        self._tasks = BackgroundTasks()
        self._intake: asyncio.Task[None] | None = None
        self._reading: asyncio.Task[None] | None = None
        self._reader = InboxReader(
            context.stores.telegram_inbox, batcher, bot=context.identity,
            client=context.bot, on_other=dispatcher.feed_other, poll_seconds=UPDATE_POLL_SECONDS,
            storage_limiter=storage_limiter,
        )  # fmt: skip

    @property
    def is_serving(self) -> bool:
        return self._epoch is not None and self._is_recovered

    def start(self) -> None:
        self._tasks.run_forever(self._keep_lease)

    def wake(self) -> None:
        """Wake the reader after an update was stored."""
        self._crash_point("telegram_after_store")
        self._reader.wake()

    async def close(self) -> None:
        """Close the bot; unhandled updates are polled again, and the lease is released."""
        await self._stop_intake()
        await self._batcher.close()
        await self._tasks.cancel()
        with suppress(StorageUnavailable):
            await self._context.stores.leases.release(
                self._context.config.lease_name, worker_id=self._worker_id
            )

    # -- the lease --------------------------------------------------------------------------------------

    async def _keep_lease(self) -> None:
        """Take the lease when this process can answer, so that a cold one leaves it to a warm one."""
        await self._wait_until_warm()
        while True:
            asked_at = self._lease_guard.now()
            try:
                epoch = await self._context.stores.leases.take(
                    self._context.config.lease_name, worker_id=self._worker_id
                )
            except StorageUnavailable as error:
                log.warning("lease_check_failed", bot=self._bot_id, reason=str(error))
            else:
                await self._handle_lease(epoch)
                if epoch is not None:
                    self._lease_guard.mark_held(asked_at=asked_at)
            await asyncio.sleep(LEASE_RENEW_SECONDS)

    async def _handle_lease(self, epoch: int | None) -> None:
        if epoch is None:
            if self._epoch is not None:
                log.warning("lease_lost", bot=self._bot_id)
                await self._release()
            return
        if epoch != self._epoch:
            if self._epoch is not None:
                log.warning("lease_lost", bot=self._bot_id)
                await self._release()
            self._epoch = epoch
        if not self._is_recovered:
            left = await self._context.stores.deliveries.recover_interrupted([self._bot_id])
            left += await self._context.stores.handovers.recover_interrupted([self._bot_id])
            left += await self._context.stores.uncertain_notices.recover_interrupted([self._bot_id])
            left += await self._context.stores.guest_queries.recover_interrupted([self._bot_id])
            left += await self._context.stores.secretary.recover_interrupted([self._bot_id])
            if left:
                log.warning("deliveries_unknown_after_takeover", bot=self._bot_id, count=left)
            self._is_recovered = True
            log.info("bot_serves", bot=self._bot_id, username=self._context.identity.username)
            self._on_serving()
        if self._reading is None or self._reading.done():
            self._reading = self._tasks.start(self._run_reader())
        if self._intake is None or self._intake.done():
            self._intake = self._tasks.start(self._run_intake())
        if not self._has_profile:
            self._has_profile = True
            self._tasks.start(self._keep_profile())

    async def _release(self) -> None:
        """Stop intake and drop waiting messages after another process has taken over the bot's lease."""
        self._lease_guard.mark_lost()
        self._epoch, self._is_recovered = None, False
        await self._stop_intake()
        await self._batcher.close()

    async def _stop_intake(self) -> None:
        running = [task for task in (self._intake, self._reading) if task is not None]
        self._intake = self._reading = None
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running, timeout=CLOSE_SECONDS)

    async def _run_reader(self) -> None:
        await self._reader.run()

    async def _run_intake(self) -> None:
        """Poll, or register the webhook; until cancelled or refused for good."""
        try:
            if self._webhook is not None:
                await self._serve_webhook(self._webhook)
            else:
                poller = Poller(
                    self._context.bot,
                    inbox=self._context.stores.telegram_inbox,
                    problems=self._context.stores.telegram_chats,
                    on_stored=self.wake,
                    hand_over=self._reader.hand_over,
                    on_poll=self._intake_started.set,
                    allowed=list_allowed_updates(self._context.identity),
                )
                await poller.run()
        except InvalidBotToken as refused:
            log.error("bot_token_rejected", bot=self._bot_id, advice=refused.advice)
            await self._report_problem(refused.advice)
            await asyncio.sleep(60)

    async def _serve_webhook(self, webhook: WebhookConfig) -> None:
        try:
            if await register_webhook(self._context.bot, webhook):
                log.info("webhook_set", bot=self._bot_id)
            await self._report_problem("")
            self._intake_started.set()
            await self._watch_webhook(webhook)
        except TelegramBadRequest as refused:
            await self._report_problem(f"Telegram refuses the webhook: {refused.message}")
            log.error("webhook_rejected", bot=self._bot_id, reason=refused.message)
            await asyncio.sleep(60)

    async def _watch_webhook(self, webhook: WebhookConfig) -> None:
        """Report another deployment with this token, without setting the webhook back again and again."""
        reported = ""
        while True:
            await asyncio.sleep(WEBHOOK_CHECK_SECONDS)
            problem = await find_foreign_webhook(self._context.bot, webhook)
            if problem is not None and problem != reported:
                log.warning("webhook_changed", bot=self._bot_id, taken=bool(problem))
                await self._report_problem(problem)
                reported = problem

    async def _report_problem(self, problem: str) -> None:
        with suppress(StorageUnavailable):
            await self._context.stores.telegram_chats.record_problem(self._bot_id, problem)

    async def _keep_profile(self) -> None:
        """Set menus and descriptions in the background: no answer waits for them."""
        await self._intake_started.wait()
        await BotProfile(self._context).run()


def make_steady_clock() -> Callable[[], datetime]:
    """Return a clock that continues from the time at the start, whatever the system clock is set to.

    Otherwise a buffered paste would wait for as long as the clock was set back.
    """
    began, since = datetime.now(UTC), _seconds()
    return lambda: began + timedelta(seconds=_seconds() - since)


def _seconds() -> float:
    """Return seconds, including time asleep where the system counts it."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
