"""Fetches a bot's updates by long polls; each batch is stored before the offset moves, so none is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import structlog

from bot.telegram.client.bot_api import (
    BotApi,
    CallRefused,
    InvalidBotToken,
    TelegramUnavailable,
    is_shallow,
    is_update,
)
from bot.telegram.client.call_queue import Backoff
from bot.telegram.inbound.update_parser import ALLOWED_UPDATES
from bot.telegram.inbound.updates import BotIdentity
from shared.core.values.errors import StorageUnavailable

log = structlog.get_logger(__name__)

CONFLICTING_POLLER = (
    "Another program polls this bot with the same token. Stop it, or give one of the two a bot of its own."
)
WEBHOOK_RETURNED = (
    "A webhook was set for this bot again while it is polled. Stop what sets it, or use webhook mode."
)
RATE_LIMITED = "Telegram asks this bot to wait before it fetches messages again."
T = TypeVar("T")


class UpdateStore(Protocol):
    async def store(self, bot_id: int, updates: Sequence[Mapping[str, Any]]) -> int: ...

    async def next_offset(self, bot_id: int) -> int: ...


class ProblemReporter(Protocol):
    async def tell_problem(self, bot_id: int, problem: str) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PollTimeouts:
    """Seconds; tests choose shorter ones."""

    poll: int = 30
    answer: float = 15.0
    """How much longer than a poll its answer may take."""
    first_wait: float = 1.0
    most_wait: float = 15.0
    conflict_wait: float = 10.0
    watchdog: float = 120.0
    """Without a completed poll for so long the connections are thrown away."""
    idle: float = 3_600.0
    """After so long without an update the offset is asked anew: ids may begin again after a quiet week."""
    worth_telling: float = 60.0


async def fetch_bot_identity(api: BotApi, *, backoff: Backoff | None = None) -> BotIdentity:
    """Who the bot is; tries for ever while Telegram cannot be reached. Raises TokenRefused."""
    backoff = backoff or Backoff()
    while True:
        try:
            me = await api.call("getMe")
            return BotIdentity(
                bot_id=int(me["id"]),
                username=str(me.get("username", "")),
                hears_all=bool(me.get("can_read_all_group_messages")),
            )
        except CallRefused as refused:
            await asyncio.sleep(max(refused.retry_after_seconds, backoff.next()))
        except (TelegramUnavailable, LookupError, TypeError, ValueError, AttributeError) as error:
            log.warning("telegram_unreachable", bot=api.bot_id, reason=_reason(error))
            await asyncio.sleep(backoff.next())


class Poller:
    """One bot's long polls. Only the holder of the bot's lease may run it."""

    def __init__(
        self,
        api: BotApi,
        *,
        inbox: UpdateStore,
        problems: ProblemReporter,
        on_stored: Callable[[], None],
        on_asked: Callable[[], None] = lambda: None,
        allowed: Sequence[str] = ALLOWED_UPDATES,
        times: PollTimeouts | None = None,
    ) -> None:
        self._api = api
        self._inbox = inbox
        self._problems = problems
        self._on_stored = on_stored
        self._on_asked = on_asked
        self._allowed = tuple(allowed)
        self._times = times or PollTimeouts()
        self._backoff = Backoff(first=self._times.first_wait, most=self._times.most_wait)
        self._problem: str | None = None
        self._webhook_deleted = False
        self.completed_at: float | None = None
        """When a poll was last completed, on the loop's clock."""

    async def run(self) -> None:
        """Until cancelled. Raises TokenRefused, which no patience mends."""
        clock = asyncio.get_running_loop()
        offset = await self._stubborn(lambda: self._inbox.next_offset(self._api.bot_id))
        heard_at = connected_at = clock.time()
        while True:
            try:
                updates = await self._poll(offset)
            except InvalidBotToken as refused:
                await self._tell(refused.advice)
                raise
            except CallRefused as refused:
                await self._refused(refused)
            except TelegramUnavailable as error:
                log.warning("telegram_unreachable", bot=self._api.bot_id, reason=str(error))
                await asyncio.sleep(self._backoff.next())
            else:
                self.completed_at = connected_at = clock.time()
                await self._went_well()
                if updates:
                    heard_at = clock.time()
                    offset = await self._keep(updates, offset)
                elif clock.time() - heard_at > self._times.idle:
                    heard_at = clock.time()
                    offset = await self._stubborn(lambda: self._inbox.next_offset(self._api.bot_id))
            if clock.time() - connected_at > self._times.watchdog:
                connected_at = clock.time()
                log.warning("telegram_reconnect", bot=self._api.bot_id)
                await self._api.reconnect()

    async def _poll(self, offset: int) -> list[Any]:
        params = {
            "offset": offset,
            "limit": 100,
            "timeout": self._times.poll,
            "allowed_updates": list(self._allowed),
        }
        self._on_asked()
        found = await self._api.call("getUpdates", params, seconds=self._times.poll + self._times.answer)
        if not isinstance(found, list):
            raise TelegramUnavailable("getUpdates: not a list")
        return found

    async def _keep(self, updates: Sequence[Any], offset: int) -> int:
        """Where to go on, once everything is stored; what is no update cannot be confirmed or answered."""
        good = sorted((_storable(one) for one in updates if is_update(one)), key=_update_number)
        if len(good) < len(updates):
            log.error("invalid_updates_received", bot=self._api.bot_id, count=len(updates) - len(good))
        if not good:
            await asyncio.sleep(self._backoff.next())
            return offset
        stored = await self._stubborn(lambda: self._inbox.store(self._api.bot_id, good))
        if stored:
            self._on_stored()
        return max(offset, _update_number(good[-1]) + 1)

    async def _refused(self, refused: CallRefused) -> None:
        log.warning("polling_rejected", bot=self._api.bot_id, reason=str(refused))
        if refused.status == 409:
            await self._conflict("webhook" in refused.description.lower())
            return
        wait = max(refused.retry_after_seconds, self._backoff.next())
        if wait > self._times.worth_telling:
            await self._tell(RATE_LIMITED)
        await asyncio.sleep(wait)

    async def _conflict(self, webhook: bool) -> None:
        """A webhook from before is taken away, once; against somebody alive nobody wins by haste."""
        if webhook and not self._webhook_deleted:
            self._webhook_deleted = await self._delete_webhook()
            if self._webhook_deleted:
                return
        await self._tell(WEBHOOK_RETURNED if webhook else CONFLICTING_POLLER)
        await asyncio.sleep(max(self._times.conflict_wait, self._backoff.next()))

    async def _delete_webhook(self) -> bool:
        try:
            await self._api.call("deleteWebhook", {"drop_pending_updates": False})
        except (CallRefused, TelegramUnavailable) as error:
            log.warning("webhook_delete_failed", bot=self._api.bot_id, reason=str(error))
            return False
        log.info("webhook_deleted", bot=self._api.bot_id)
        return True

    async def _went_well(self) -> None:
        self._backoff.reset()
        if self._problem != "":
            await self._tell("")

    async def _tell(self, problem: str) -> None:
        """For operators; when it cannot be told now, the next poll tries again."""
        if problem == self._problem:
            return
        try:
            await self._problems.tell_problem(self._api.bot_id, problem)
            self._problem = problem
        except StorageUnavailable as error:
            log.warning("problem_report_failed", bot=self._api.bot_id, reason=str(error))

    async def _stubborn(self, ask: Callable[[], Awaitable[T]]) -> T:
        """For ever: as long as Postgres is away, Telegram keeps what people write."""
        backoff = Backoff(first=min(0.5, self._times.first_wait), most=5.0)
        while True:
            try:
                return await ask()
            except StorageUnavailable as error:
                log.warning("inbox_unavailable", bot=self._api.bot_id, reason=str(error))
                await asyncio.sleep(backoff.next())


def _update_number(update: Mapping[str, Any]) -> int:
    return int(update["update_id"])


def _storable(update: Mapping[str, Any]) -> Mapping[str, Any]:
    """One that nothing could hold must not stop all that come after it."""
    return update if is_shallow(update) else {"update_id": update["update_id"], "nested_too_deeply": True}


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, TelegramUnavailable) else type(error).__name__
