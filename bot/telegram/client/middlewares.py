"""Session middlewares of a `Bot`: unreachable chats, retries, rate limits and typed outcomes.

Each request passes them in this order. A call without `call_options` skips all of them: it belongs to no
chat, and its caller handles aiogram's exceptions.
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
"""Seconds without calls to a chat that blocked or removed the bot; a message from the chat ends them early.
"""
MAX_UNREACHABLE = 1_000
"""Maximum chats that are remembered as unreachable."""
MAX_SENT = 200
"""Maximum message ids that are remembered for one chat."""
MAX_CHATS_SENT = 1_000
"""Maximum chats whose sent messages are remembered."""
MAX_TRIES = 10
"""Maximum requests for one call, also through 429 responses; then its outcome is CallNotSent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SendObserver:
    """Callbacks that keep the stored row of a message up to date.

    `before_send` runs before each request; if it raises, nothing is sent. `on_refused` gets the reason when
    Telegram surely did not send the message.
    """

    before_send: Callable[[], Awaitable[None]]
    on_refused: Callable[[str], Awaitable[None]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOptions:
    """How a call is queued and retried; `Sender.call` describes the fields."""

    chat_id: int | None
    priority: Priority
    deadline: float
    """Time on the bot's clock until which the call may wait in the queue or through a 429."""
    tries: int
    repeatable: bool = False
    """Whether a repeated call has no further effect, so that it can be retried after a lost response."""
    counts: bool = True
    message: tuple[int, int] | None = None
    """Chat id and message id; calls for the same message are sent one after the other.

    None for no such order.
    """
    replaceable: bool = False
    observer: SendObserver | None = None


call_options: ContextVar[CallOptions | None] = ContextVar("call_options", default=None)
"""Options of the call that the current task makes; None for a plain aiogram call."""

Request = Callable[[], Awaitable[Any]]


class CallMiddleware(BaseRequestMiddleware):
    """Base of middlewares that return a CallOutcome; calls without `call_options` skip them."""

    async def __call__(
        self, make_request: NextRequestMiddlewareType[Any], bot: Bot, method: TelegramMethod[Any]
    ) -> Any:
        options = call_options.get()
        request = partial(make_request, bot, method)
        return await (request() if options is None else self.run(request, method, options))

    @abstractmethod
    async def run(self, request: Request, method: TelegramMethod[Any], options: CallOptions) -> CallOutcome:
        """Return the outcome of the call: make it by `request`, or return an outcome without making it."""


class ReachabilityMiddleware(CallMiddleware):
    """Refuses calls to chats that blocked the bot for `UNREACHABLE_SECONDS`, and records ids of sent
    messages.
    """

    def __init__(self, clock: ScaledClock) -> None:
        self._clock = clock
        self._unreachable: dict[int, tuple[float, ChatUnreachable]] = {}
        """Time and outcome of the refusal, by id of an unreachable chat."""
        self._sent: OrderedDict[int, deque[int]] = OrderedDict()
        """Ids of the newest messages that this process sent, by chat id."""

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
        """Allow calls to a chat again; called when a person wrote in it or unblocked the bot."""
        self._unreachable.pop(chat_id, None)

    def list_sent(self, chat_id: int) -> tuple[int, ...]:
        """Return ids of the newest messages that this process sent or edited in a chat, oldest first.

        At most `MAX_SENT` ids; empty if the chat is not known.
        """
        return tuple(self._sent.get(chat_id, ()))

    def _find_unreachable(self, chat_id: int) -> ChatUnreachable | None:
        """Return the stored refusal of a chat if it is less than `UNREACHABLE_SECONDS` old, else None."""
        known = self._unreachable.get(chat_id)
        if known is None or self._clock.now() - known[0] > UNREACHABLE_SECONDS:
            return None
        return known[1]


class RetryMiddleware(CallMiddleware):
    """Retries calls that Telegram did not get, and holds a chat's calls after a 429.

    A call with unknown result is retried only if it is `repeatable`.
    """

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
    """Makes each call wait until the rate limits of its bot and chat allow it, and runs its observer."""

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
    """Turns aiogram's results and exceptions into a CallOutcome, and logs failures."""

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
