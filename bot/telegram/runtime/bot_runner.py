"""Runs one bot while this process holds its lease: receives its updates and reads its inbox."""

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
"""Seconds for which a confirmed lease counts as held; after a longer pause another process may hold it."""


class LeaseGuard:
    """State of a bot's lease in this process: `BotRunner` updates it, and exclusive work waits until it is
    valid.
    """

    def __init__(self, *, now: Callable[[], float] = time.monotonic) -> None:
        self.now = now
        self._seen_at: float | None = None
        self._seen = asyncio.Event()

    def mark_held(self, *, asked_at: float) -> None:
        """Record that Postgres confirmed the lease.

        `asked_at` is the clock's time in seconds before the query.
        """
        self._seen_at = asked_at
        self._seen.set()

    def mark_lost(self) -> None:
        """Record that another process holds the lease, so that exclusive work waits."""
        self._seen_at = None

    @property
    def is_valid(self) -> bool:
        """Whether Postgres confirmed the lease less than `VALID_SECONDS` ago."""
        return self._seen_at is not None and self.now() - self._seen_at < VALID_SECONDS

    async def wait_until_valid(self) -> None:
        """Wait until the lease is valid; returns at once if it is."""
        while not self.is_valid:
            self._seen.clear()
            await self._seen.wait()


log = structlog.get_logger(__name__)

UPDATE_POLL_SECONDS = 0.5
"""Seconds between two reads of the inbox without a wake-up; finds updates that another process stored."""
LEASE_RENEW_SECONDS = 1.0
"""Seconds between two renewals of the lease, or tries to take it."""
CLOSE_SECONDS = 5.0
"""Seconds to wait for reader and poller when they are cancelled."""


class BotRunner:
    """Runner of one bot: takes its lease, and receives and handles updates while it holds the lease."""

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
        """Set once polling has started or the webhook is registered."""
        self._epoch: int | None = None
        self._is_recovered = False
        """Whether the interrupted deliveries of the last holder are marked; nothing is sent before that."""
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
        """Whether this process holds the lease and has recovered the deliveries of the last holder."""
        return self._epoch is not None and self._is_recovered

    def start(self) -> None:
        """Start to take the bot's lease, and to serve the bot while this process holds it."""
        self._tasks.run_forever(self._keep_lease)

    def wake(self) -> None:
        """Read the inbox now; called after an update was stored."""
        self._crash_point("telegram_after_store")
        self._reader.wake()

    async def close(self) -> None:
        """Stop intake and drop buffered messages, then release the lease.

        Unhandled updates stay in the inbox.
        """
        await self._stop_intake()
        await self._batcher.close()
        await self._tasks.cancel()
        with suppress(StorageUnavailable):
            await self._context.stores.leases.release(
                self._context.config.lease_name, worker_id=self._worker_id
            )

    # -- the lease --------------------------------------------------------------------------------------

    async def _keep_lease(self) -> None:
        """Take the lease and renew it every `LEASE_RENEW_SECONDS`, starting when this process is warmed up.

        A process that has just started thus leaves the bot to one that can answer at once.
        """
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
        """Start or stop the work of the bot by the result of a renewal: `epoch` is None if another process
        holds it.

        Raises StorageUnavailable.
        """
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
        """Stop intake and drop buffered messages after another process has taken the bot's lease."""
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
        """Receive updates by polling or webhook until cancelled.

        If Telegram refuses the token, store the reason and return after 60 seconds.
        """
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
        """Log and store when Telegram delivers to a foreign webhook, a sign of another deployment with this
        token.

        The webhook is not set again, since two deployments would then take turns.
        """
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
        """Set command menus and descriptions after intake has started; no answer waits for them."""
        await self._intake_started.wait()
        await BotProfile(self._context).run()


def make_steady_clock() -> Callable[[], datetime]:
    """Return a clock that starts at the current time and is not affected by later changes of the system
    clock.

    Otherwise, a system clock set back by an hour would make a buffered message wait for an hour.
    """
    began, since = datetime.now(UTC), _read_boot_clock()
    return lambda: began + timedelta(seconds=_read_boot_clock() - since)


def _read_boot_clock() -> float:
    """Return seconds of the boot-time clock, which includes time asleep.

    The monotonic clock where it is missing.
    """
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
