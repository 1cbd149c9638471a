"""One bot from its token to its last answer: known to Telegram, leased, polled or posted to, and heard."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog

from bot.telegram.client.aiogram_loader import AiogramLoader
from bot.telegram.client.bot_api import CallRefused, InvalidBotToken, TelegramUnavailable
from bot.telegram.client.command_menus import build_command_menus, list_menu_languages
from bot.telegram.handlers.update_handler import UpdateHandler
from bot.telegram.inbound.batching_driver import MessageBatcher
from bot.telegram.inbound.bot_context import BotContext
from bot.telegram.inbound.inbox_reader import InboxReader
from bot.telegram.inbound.polling import Poller
from bot.telegram.inbound.update_parser import allowed_updates
from bot.telegram.inbound.webhook import WebhookConfig, register_webhook
from bot.telegram.texts import get_texts
from shared.core.values.errors import StorageUnavailable
from shared.ports import StorageLimiter
from shared.runtime.crash_points import CrashPoint, ignore_crash_point
from shared.runtime.tasks import BackgroundTasks
from shared.services.turns.session_service import LEASE_SECONDS

VALID_SECONDS = LEASE_SECONDS - 1.0
"""A process that was stopped for longer may have been replaced, and looks at its lease before all else."""


class LeaseGuard:
    """The runner tells it each look at the lease; what one process only may do waits for `sure`."""

    def __init__(self, *, now: Callable[[], float] = time.monotonic) -> None:
        self.now = now
        self._seen_at: float | None = None
        self._seen = asyncio.Event()

    def mark_held(self, *, asked_at: float) -> None:
        """It was ours when Postgres was asked; `asked_at` is `now()` before that."""
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
"""How long an update may wait that nobody announced, such as one that another process took in."""
LEASE_RENEW_SECONDS = 1.0
CLOSE_SECONDS = 5.0


class BotRunner:
    """`start` it once its desk stands; it works whenever this process holds the bot's lease."""

    def __init__(
        self,
        desk: BotContext,
        hearing: UpdateHandler,
        lanes: MessageBatcher,
        *,
        hold: LeaseGuard,
        worker_id: int,
        webhook: WebhookConfig | None,
        library: AiogramLoader,
        on_serving: Callable[[], None] = lambda: None,
        storage_limiter: StorageLimiter = nullcontext,
        crash_point: CrashPoint = ignore_crash_point,
    ) -> None:
        self._desk = desk
        self._lanes = lanes
        self._hold = hold
        self._worker_id = worker_id
        self._webhook = webhook
        self._library = library
        self._on_serving = on_serving
        self._crash_point = crash_point
        self._has_menus = False
        self._takes_in = asyncio.Event()
        """Telegram has been asked for what people write, or told where to post it."""
        self._epoch: int | None = None
        self._taken = False
        """What the holder before left was looked after: only then is anything sent."""
        self._tasks = BackgroundTasks()
        self._intake: asyncio.Task[None] | None = None
        self._reading: asyncio.Task[None] | None = None
        self._reader = InboxReader(
            desk.stores.telegram_inbox, lanes, bot=desk.identity, on_other=hearing.handle_update,
            look_seconds=UPDATE_POLL_SECONDS,
            storage_limiter=storage_limiter,
        )  # fmt: skip

    @property
    def is_serving(self) -> bool:
        return self._epoch is not None and self._taken

    def start(self) -> None:
        self._tasks.run_forever(self._keep_lease)

    def wake(self) -> None:
        """An update was stored, and Telegram does not know it yet."""
        self._crash_point("telegram_after_store")
        self._reader.ring()

    async def close(self) -> None:
        """What was not handed on comes again; the lease goes to whoever waits for it."""
        await self._stop_intake()
        await self._lanes.close()
        await self._tasks.cancel()
        with suppress(StorageUnavailable):
            await self._desk.stores.leases.give_back(self._desk.config.lease_name, worker_id=self._worker_id)

    # -- the lease --------------------------------------------------------------------------------------

    async def _keep_lease(self) -> None:
        while True:
            asked_at = self._hold.now()
            try:
                epoch = await self._desk.stores.leases.take(
                    self._desk.config.lease_name, worker_id=self._worker_id
                )
            except StorageUnavailable as error:
                log.warning("lease_check_failed", bot=self._desk.bot_id, reason=str(error))
            else:
                await self._leased(epoch)
                if epoch is not None:
                    self._hold.mark_held(asked_at=asked_at)
            await asyncio.sleep(LEASE_RENEW_SECONDS)

    async def _leased(self, epoch: int | None) -> None:
        if epoch is None:
            if self._epoch is not None:
                log.warning("lease_lost", bot=self._desk.bot_id)
                await self._let_go()
            return
        if epoch != self._epoch:
            if self._epoch is not None:
                log.warning("lease_lost", bot=self._desk.bot_id)
                await self._let_go()
            self._epoch = epoch
        if not self._taken:
            left = await self._desk.stores.deliveries.left_by_the_dead([self._desk.bot_id])
            left += await self._desk.stores.handovers.left_by_the_dead([self._desk.bot_id])
            left += await self._desk.stores.uncertain_notices.left_by_the_dead([self._desk.bot_id])
            if left:
                log.warning("deliveries_unknown_after_takeover", bot=self._desk.bot_id, count=left)
            self._taken = True
            log.info("bot_serves", bot=self._desk.bot_id, username=self._desk.identity.username)
            self._on_serving()
        if self._reading is None or self._reading.done():
            self._reading = self._tasks.start(self._read())
        if self._intake is None or self._intake.done():
            self._intake = self._tasks.start(self._take_in())
        if not self._has_menus:
            self._has_menus = True
            self._tasks.start(self._set_menus())

    async def _let_go(self) -> None:
        """Another process has what came in, and may group it otherwise: nothing of ours is handed on."""
        self._hold.mark_lost()
        self._epoch, self._taken = None, False
        await self._stop_intake()
        await self._lanes.close()

    async def _stop_intake(self) -> None:
        running = [task for task in (self._intake, self._reading) if task is not None]
        self._intake = self._reading = None
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running, timeout=CLOSE_SECONDS)

    async def _read(self) -> None:
        await self._library.wait_until_ready()
        await self._reader.run()

    async def _take_in(self) -> None:
        """Poll, or tell Telegram where to post; until cancelled or refused for good."""
        try:
            if self._webhook is not None:
                await self._be_posted_to(self._webhook)
            else:
                poller = Poller(
                    self._desk.api,
                    inbox=self._desk.stores.telegram_inbox,
                    problems=self._desk.stores.telegram_chats,
                    on_stored=self.wake,
                    on_asked=self._takes_in.set,
                    allowed=allowed_updates(self._desk.identity),
                )
                await poller.run()
        except InvalidBotToken as refused:
            log.error("bot_token_rejected", bot=self._desk.bot_id, advice=refused.advice)
            await self._tell(refused.advice)
            await asyncio.sleep(60)

    async def _be_posted_to(self, webhook: WebhookConfig) -> None:
        try:
            if await register_webhook(self._desk.api, webhook):
                log.info("webhook_set", bot=self._desk.bot_id)
            await self._tell("")
            self._takes_in.set()
            await asyncio.Event().wait()
        except CallRefused as refused:
            await self._tell(f"Telegram refuses the webhook: {refused.description}")
            log.error("webhook_rejected", bot=self._desk.bot_id, reason=str(refused))
            await asyncio.sleep(60)

    async def _tell(self, problem: str) -> None:
        with suppress(StorageUnavailable):
            await self._desk.stores.telegram_chats.tell_problem(self._desk.bot_id, problem)

    # -- what people see in their apps --------------------------------------------------------------------

    async def _set_menus(self) -> None:
        """Commands and the words about the bot, for each scope and language; it works without them, too.

        They are from before, in most cases: nobody who waits for an answer waits for ten calls of this kind.
        """
        await self._library.wait_until_ready()
        await self._takes_in.wait()
        try:
            desk = self._desk
            for menu in build_command_menus(desk.audience, humans=desk.humans, speaks=desk.speaks):
                await self._set_profile(
                    "setMyCommands",
                    menu.language,
                    commands=[{"command": name, "description": what} for name, what in menu.commands],
                    scope={"type": menu.scope},
                )
            for language in list_menu_languages():
                say = get_texts(language).say
                await self._set_profile("setMyDescription", language, description=say("description"))
                await self._set_profile("setMyShortDescription", language, short_description=say("about"))
        except (CallRefused, TelegramUnavailable, InvalidBotToken) as error:
            log.warning("set_commands_failed", bot=self._desk.bot_id, reason=str(error))

    async def _set_profile(self, method: str, language: str, **wish: Any) -> None:
        """A call for each language is many: Telegram may ask to wait among them."""
        while True:
            try:
                await self._desk.api.call(method, {**wish, "language_code": language})
                return
            except CallRefused as refused:
                if not refused.retry_after_seconds:
                    raise
                await asyncio.sleep(refused.retry_after_seconds)


def make_steady_clock() -> Callable[[], datetime]:
    """The time of day as it was at the start, and what has passed since: nobody who sets the clock moves it.

    What waits in a lane for the rest of a paste would otherwise wait for as long as the clock was set back.
    """
    began, since = datetime.now(UTC), _seconds()
    return lambda: began + timedelta(seconds=_seconds() - since)


def _seconds() -> float:
    """Those of a machine asleep count where the system counts them."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
