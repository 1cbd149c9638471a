"""Session middlewares of a `Bot`: unreachable chats, retries, the turn of each call, and its outcome.

They stand in this order around the request. A call made without `call_options` passes all of them: it belongs
to no chat, and its caller handles aiogram's exceptions.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import structlog
from aiogram import Bot
from aiogram.client.session.middlewares.base import BaseRequestMiddleware, NextRequestMiddlewareType
from aiogram.exceptions import AiogramError
from aiogram.methods import TelegramMethod
from aiogram.types import Message

from bot.telegram.client.calls import (
    CallDone,
    CallNotSent,
    CallOutcome,
    CallUnknown,
    ChatUnreachable,
    MessageSent,
    Priority,
    QueuedCall,
    RateLimiter,
    ScaledClock,
    classify_error,
    is_refused,
)

log = structlog.get_logger(__name__)

UNREACHABLE_SECONDS = 60.0
"""Seconds without calls to a chat that blocked or removed the bot, unless it is heard of before."""
MAX_UNREACHABLE = 1_000
MAX_SENT = 200
MAX_CHATS_SENT = 1_000
MAX_TRIES = 10
"""Tries of one call; a chat that keeps answering 429 is left to the next look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SendObserver:
    """Callbacks for the row of a message: before its request is sent, and when Telegram surely refused it.

    If `before_send` raises, nothing is sent.
    """

    before_send: Callable[[], Awaitable[None]]
    on_refused: Callable[[str], Awaitable[None]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOptions:
    """How one call waits for its turn."""

    chat_id: int | None
    priority: Priority
    deadline: float
    """Time on the bot's clock when waiting ends, through a 429 as well."""
    tries: int
    repeatable: bool = False
    """Doing it twice is the same as doing it once."""
    counts: bool = True
    message: tuple[int, int] | None = None
    """Calls for the same message go one after the other."""
    replaceable: bool = False
    observer: SendObserver | None = None


call_options: ContextVar[CallOptions | None] = ContextVar("call_options", default=None)
"""Options of the call that the current task makes."""

Request = Callable[[], Awaitable[Any]]


class CallMiddleware(BaseRequestMiddleware):
    """A step around calls with options, which end as an outcome."""

    async def __call__(
        self, make_request: NextRequestMiddlewareType[Any], bot: Bot, method: TelegramMethod[Any]
    ) -> Any:
        options = call_options.get()
        request = partial(make_request, bot, method)
        return await (request() if options is None else self.run(request, method, options))

    @abstractmethod
    async def run(self, request: Request, method: TelegramMethod[Any], options: CallOptions) -> CallOutcome:
        """Make the request, or return the outcome of a call that is not made."""


class ReachabilityMiddleware(CallMiddleware):
    """Ends calls to chats that blocked the bot, and remembers the messages that arrived."""

    def __init__(self, clock: ScaledClock) -> None:
        self._clock = clock
        self._unreachable: dict[int, tuple[float, ChatUnreachable]] = {}
        """Chats that refused the bot, with the time of that: further calls would be refused, too."""
        self._sent: OrderedDict[int, deque[int]] = OrderedDict()
        """Newest messages that this process sent, by chat."""

    async def run(self, request: Request, method: TelegramMethod[Any], options: CallOptions) -> CallOutcome:
        if options.chat_id is None:
            return cast("CallOutcome", await request())
        if (gone := self._find_unreachable(options.chat_id)) is not None:
            return gone
        outcome: CallOutcome = await request()
        if isinstance(outcome, ChatUnreachable):
            while len(self._unreachable) >= MAX_UNREACHABLE:
                del self._unreachable[next(iter(self._unreachable))]
            self._unreachable[options.chat_id] = self._clock.now(), outcome
        elif isinstance(outcome, MessageSent):
            self._unreachable.pop(options.chat_id, None)
            self._sent.setdefault(options.chat_id, deque(maxlen=MAX_SENT)).append(outcome.message_id)
            self._sent.move_to_end(options.chat_id)
            if len(self._sent) > MAX_CHATS_SENT:
                self._sent.popitem(last=False)
        return outcome

    def mark_reachable(self, chat_id: int) -> None:
        """Allow calls to a chat again, after a person wrote in it or unblocked the bot."""
        self._unreachable.pop(chat_id, None)

    def list_sent(self, chat_id: int) -> tuple[int, ...]:
        """Return ids of the newest messages that this process sent to a chat or edited there."""
        return tuple(self._sent.get(chat_id, ()))

    def _find_unreachable(self, chat_id: int) -> ChatUnreachable | None:
        known = self._unreachable.get(chat_id)
        if known is None or self._clock.now() - known[0] > UNREACHABLE_SECONDS:
            return None
        return known[1]


class RetryMiddleware(CallMiddleware):
    """Holds a chat after a 429, and repeats what surely did not happen or may happen twice."""

    def __init__(self, rate_limiter: RateLimiter, clock: ScaledClock, *, backoff: float) -> None:
        self._rate_limiter = rate_limiter
        self._clock = clock
        self._backoff = backoff

    async def run(self, request: Request, method: TelegramMethod[Any], options: CallOptions) -> CallOutcome:
        tried = 0
        while True:
            outcome: CallOutcome = await request()
            tried += 1
            match outcome:
                case CallNotSent(is_final=True):
                    return outcome
                case CallNotSent(retry_after=float() as seconds):
                    until = self._rate_limiter.hold(options.chat_id, seconds)
                    if until > options.deadline or tried >= MAX_TRIES:
                        return outcome
                    continue
                case CallNotSent():
                    pass
                case CallUnknown() if options.repeatable:
                    pass
                case _:
                    return outcome
            if tried >= options.tries:
                return outcome
            await self._clock.sleep(self._backoff * 2 ** (tried - 1))


class TurnMiddleware(CallMiddleware):
    """Lets each call wait for its turn under the limits of its bot and its chat."""

    def __init__(self, rate_limiter: RateLimiter) -> None:
        self._rate_limiter = rate_limiter

    async def run(self, request: Request, method: TelegramMethod[Any], options: CallOptions) -> CallOutcome:
        queued = QueuedCall(
            chat_id=options.chat_id, priority=options.priority, deadline=options.deadline,
            counts=options.counts, message=options.message,
        )  # fmt: skip
        refusal = await self._rate_limiter.acquire(queued, replaceable=options.replaceable)
        if refusal is not None:
            return refusal
        observer = options.observer
        try:
            if observer is not None:
                await observer.before_send()
            outcome: CallOutcome = await request()
        finally:
            self._rate_limiter.release(queued)
        if (
            observer is not None
            and observer.on_refused is not None
            and (is_refused(outcome) or isinstance(outcome, CallNotSent))
        ):
            await observer.on_refused(getattr(outcome, "reason", "the group has moved"))
        return outcome


class OutcomeMiddleware(CallMiddleware):
    """Returns a typed outcome where aiogram returns a value or raises."""

    async def run(self, request: Request, method: TelegramMethod[Any], options: CallOptions) -> CallOutcome:
        try:
            value = await request()
        except (AiogramError, OSError, ValueError) as error:
            outcome = classify_error(error)
            if not isinstance(outcome, CallDone):
                log.info(
                    "telegram_call_failed", method=method.__api_method__, chat_id=options.chat_id,
                    outcome=type(outcome).__name__, reason=getattr(outcome, "reason", ""),
                )  # fmt: skip
            return outcome
        return (
            MessageSent(message_id=value.message_id) if isinstance(value, Message) else CallDone(result=value)
        )
