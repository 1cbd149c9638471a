"""The one way out of a bot: every call waits for its turn, and its outcome is known for what it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import structlog

from bot.telegram.client.aiogram_loader import get_response_models
from bot.telegram.client.aiogram_types import strip_entities, to_aiogram_entities, to_reply_parameters
from bot.telegram.client.call_queue import Priority, QueuedCall, RateLimiter, RateLimits, ScaledClock
from bot.telegram.client.outcomes import (
    CallDone,
    CallNotSent,
    CallOutcome,
    CallRejected,
    CallUnknown,
    ChatMoved,
    ChatUnreachable,
    MessageSent,
    classify_error,
    is_entity_error,
    is_missing_thread,
)
from bot.telegram.markup import MessagePart

if TYPE_CHECKING:
    from aiogram import Bot
    from aiogram.methods import TelegramMethod
    from aiogram.types import InlineKeyboardMarkup

log = structlog.get_logger(__name__)

REQUEST_SECONDS = 30.0
CONNECT_SECONDS = 5.0
BACKOFF_SECONDS = 0.5
TRIES = 3
FINAL_PATIENCE_SECONDS = 120.0
EDIT_PATIENCE_SECONDS = 5.0
TYPING_SECONDS = 5.0
CALLBACK_PATIENCE_SECONDS = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatTarget:
    """A chat, and a topic of it where `thread_id` is not 0."""

    chat_id: int
    thread_id: int = 0


def create_bot(token: str, *, api_url: str | None = None, timeout: float = REQUEST_SECONDS) -> Bot:
    """aiogram's client for Telegram's own server, or for another one; close its session in the end."""
    from aiogram import Bot
    from aiogram.client.session.aiohttp import AiohttpSession
    from aiogram.client.telegram import PRODUCTION, TelegramAPIServer

    server = PRODUCTION if api_url is None else TelegramAPIServer.from_base(api_url)
    return Bot(token, session=AiohttpSession(api=server, timeout=timeout))


class SendObserver(Protocol):
    """Who keeps a row about a message: it hears when the request goes out, and when it was surely refused."""

    async def before_send(self) -> None: ...
    async def on_refused(self, reason: str) -> None: ...


class Sender:
    """`patience` is how long a call may wait for its turn, through a 429 as well.

    The first call opens the bot: until then nothing of aiogram is touched.
    """

    def __init__(
        self,
        bot_id: int,
        opening: Callable[[], Bot],
        *,
        clock: ScaledClock | None = None,
        limits: RateLimits | None = None,
        timeout: float = REQUEST_SECONDS,
        backoff: float = BACKOFF_SECONDS,
    ) -> None:
        self.bot_id = bot_id
        self._opening = opening
        self._opened: Bot | None = None
        self._answers: tuple[type, ...] = ()
        self._clock = clock or ScaledClock()
        self._gate = RateLimiter(self._clock, limits or RateLimits())
        self._timeout = timeout
        self._backoff = backoff

    def get_hold_seconds(self, chat_id: int) -> float:
        """Seconds for which Telegram wants nothing for this chat; 0 when it may be written to."""
        return self._gate.get_hold_seconds(chat_id)

    async def close(self) -> None:
        """Whoever still waits is told that nothing was sent."""
        self._gate.close()
        if self._opened is not None:
            await self._opened.session.close()

    def _bot(self) -> Bot:
        if self._opened is None:
            self._opened, self._answers = self._opening(), get_response_models()
        return self._opened

    # -- messages -------------------------------------------------------------------------------------

    async def send_text(
        self,
        where: ChatTarget,
        part: MessagePart,
        *,
        reply_to: int | None = None,
        keyboard: InlineKeyboardMarkup | None = None,
        silent: bool = False,
        priority: Priority = Priority.NOTICE,
        patience: float = FINAL_PATIENCE_SECONDS,
        tries: int = TRIES,
        attempt: SendObserver | None = None,
    ) -> CallOutcome:
        """Repeated only when it surely never arrived; refused formatting or topics are left out."""
        from aiogram.methods import SendMessage
        from aiogram.types import LinkPreviewOptions

        def method(part: MessagePart, thread_id: int) -> SendMessage:
            return SendMessage(
                chat_id=where.chat_id,
                message_thread_id=thread_id or None,
                text=part.text,
                entities=to_aiogram_entities(part),
                link_preview_options=LinkPreviewOptions(is_disabled=True),
                disable_notification=silent or None,
                reply_parameters=to_reply_parameters(reply_to),
                reply_markup=keyboard,
            )

        wish = _CallOptions(
            chat_id=where.chat_id, priority=priority, patience=patience, tries=tries, attempt=attempt
        )
        outcome = await self._call(method(part, where.thread_id), wish)
        thread_id = where.thread_id
        for _ in range(2):
            if is_entity_error(outcome) and part.entities:
                log.warning("entities_rejected", bot_id=self.bot_id, chat_id=where.chat_id)
                part = strip_entities(part)
            elif is_missing_thread(outcome) and thread_id:
                thread_id = 0
            else:
                break
            outcome = await self._call(method(part, thread_id), wish)
        return outcome

    async def edit_text(
        self,
        chat_id: int,
        message_id: int,
        part: MessagePart,
        *,
        keyboard: InlineKeyboardMarkup | None = None,
        priority: Priority = Priority.EDIT,
        patience: float = EDIT_PATIENCE_SECONDS,
        tries: int = 1,
    ) -> CallOutcome:
        """An edit of the same message that still waits is replaced, and told that nothing is left to do."""
        from aiogram.methods import EditMessageText
        from aiogram.types import LinkPreviewOptions

        def method(part: MessagePart) -> EditMessageText:
            return EditMessageText(
                chat_id=chat_id,
                message_id=message_id,
                text=part.text,
                entities=to_aiogram_entities(part),
                link_preview_options=LinkPreviewOptions(is_disabled=True),
                reply_markup=keyboard,
            )

        wish = _CallOptions(
            chat_id=chat_id, priority=priority, patience=patience, tries=tries,
            repeatable=True, message=(chat_id, message_id), replaceable=True,
        )  # fmt: skip
        outcome = await self._call(method(part), wish)
        if is_entity_error(outcome) and part.entities:
            log.warning("entities_rejected", bot_id=self.bot_id, chat_id=chat_id)
            outcome = await self._call(method(strip_entities(part)), wish)
        return outcome

    async def send_document(
        self,
        where: ChatTarget,
        *,
        name: str,
        content: bytes,
        caption: str = "",
        photo: bool = False,
        voice: bool = False,
        reply_to: int | None = None,
        keyboard: InlineKeyboardMarkup | None = None,
        silent: bool = False,
        priority: Priority = Priority.FINAL,
        patience: float = FINAL_PATIENCE_SECONDS,
        tries: int = TRIES,
        attempt: SendObserver | None = None,
    ) -> CallOutcome:
        """`photo` and `voice` are shown and heard in the chat, where a file is opened."""
        from aiogram.methods import SendDocument, SendPhoto, SendVoice
        from aiogram.types import BufferedInputFile

        def method(thread_id: int) -> SendDocument | SendPhoto | SendVoice:
            options: dict[str, Any] = {
                "chat_id": where.chat_id,
                "message_thread_id": thread_id or None,
                "caption": caption or None,
                "disable_notification": silent or None,
                "reply_parameters": to_reply_parameters(reply_to),
                "reply_markup": keyboard,
            }
            file = BufferedInputFile(content, filename=name)
            if voice:
                return SendVoice(voice=file, **options)
            return SendPhoto(photo=file, **options) if photo else SendDocument(document=file, **options)

        wish = _CallOptions(
            chat_id=where.chat_id, priority=priority, patience=patience, tries=tries, attempt=attempt
        )
        outcome = await self._call(method(where.thread_id), wish)
        if is_missing_thread(outcome) and where.thread_id:
            outcome = await self._call(method(0), wish)
        return outcome

    async def edit_keyboard(
        self,
        chat_id: int,
        message_id: int,
        keyboard: InlineKeyboardMarkup | None = None,
        *,
        priority: Priority = Priority.EDIT,
        patience: float = EDIT_PATIENCE_SECONDS,
    ) -> CallOutcome:
        from aiogram.methods import EditMessageReplyMarkup

        method = EditMessageReplyMarkup(chat_id=chat_id, message_id=message_id, reply_markup=keyboard)
        return await self.call(
            method, chat_id=chat_id, priority=priority, patience=patience,
            repeatable=True, message=(chat_id, message_id),
        )  # fmt: skip

    async def delete(self, chat_id: int, message_ids: Iterable[int]) -> CallOutcome:
        """Done when all of them are gone, else the first outcome that is not."""
        from aiogram.methods import DeleteMessage

        first: CallOutcome = CallDone()
        for message_id in message_ids:
            method = DeleteMessage(chat_id=chat_id, message_id=message_id)
            outcome = await self.call(
                method, chat_id=chat_id, priority=Priority.FINAL,
                patience=EDIT_PATIENCE_SECONDS, repeatable=True, counts=False,
            )  # fmt: skip
            if isinstance(first, CallDone):
                first = outcome
        return first

    # -- what no screen keeps -------------------------------------------------------------------------

    async def send_typing(self, where: ChatTarget, *, action: str = "typing") -> CallOutcome:
        """Never waits: a late one would be a lie."""
        from aiogram.methods import SendChatAction

        def method(thread_id: int) -> SendChatAction:
            return SendChatAction(
                chat_id=where.chat_id, message_thread_id=thread_id or None, action=action
            )  # fmt: skip

        wish = _CallOptions(
            chat_id=where.chat_id, priority=Priority.TYPING, patience=0.0, tries=1,
            counts=False, timeout=TYPING_SECONDS,
        )  # fmt: skip
        outcome = await self._call(method(where.thread_id), wish)
        if is_missing_thread(outcome) and where.thread_id:
            outcome = await self._call(method(0), wish)
        return outcome

    async def react(self, chat_id: int, message_id: int, emoji: str | None) -> CallOutcome:
        from aiogram.methods import SetMessageReaction
        from aiogram.types import ReactionTypeEmoji

        wanted: list[Any] = [] if emoji is None else [ReactionTypeEmoji(emoji=emoji)]
        method = SetMessageReaction(chat_id=chat_id, message_id=message_id, reaction=wanted)
        return await self.call(
            method, chat_id=chat_id, priority=Priority.NOTICE, patience=EDIT_PATIENCE_SECONDS,
            repeatable=True, counts=False, message=(chat_id, message_id),
        )  # fmt: skip

    async def answer_callback(self, query_id: str, *, text: str = "", alert: bool = False) -> CallOutcome:
        """Of a pressed button; one that came too late is Rejected, which is nobody's fault."""
        from aiogram.methods import AnswerCallbackQuery

        method = AnswerCallbackQuery(
            callback_query_id=query_id, text=text or None, show_alert=alert or None
        )  # fmt: skip
        return await self.call(
            method, chat_id=None, priority=Priority.CALLBACK,
            patience=CALLBACK_PATIENCE_SECONDS, repeatable=True,
        )  # fmt: skip

    async def call(
        self,
        method: TelegramMethod[Any],
        *,
        chat_id: int | None,
        priority: Priority = Priority.NOTICE,
        patience: float = FINAL_PATIENCE_SECONDS,
        repeatable: bool = False,
        counts: bool = True,
        message: tuple[int, int] | None = None,
        tries: int = TRIES,
        attempt: SendObserver | None = None,
    ) -> CallOutcome:
        """Any other call. `repeatable`: doing it twice is the same as doing it once; calls for the same
        `message` go one after the other.
        """
        wish = _CallOptions(
            chat_id=chat_id, priority=priority, patience=patience, repeatable=repeatable,
            counts=counts, message=message, tries=tries, attempt=attempt,
        )  # fmt: skip
        return await self._call(method, wish)

    # -- one call -------------------------------------------------------------------------------------

    async def _call(self, method: TelegramMethod[Any], wish: _CallOptions) -> CallOutcome:
        deadline = self._clock.now() + wish.patience
        tried = 0
        while True:
            ticket = wish.ticket(deadline)
            refused = await self._gate.acquire(ticket, replaceable=wish.replaceable)
            if refused is not None:
                return refused
            try:
                if wish.attempt is not None:
                    await wish.attempt.before_send()
                outcome = await self._once(method, wish)
            finally:
                self._gate.release(ticket)
            if wish.attempt is not None and isinstance(
                outcome, CallNotSent | CallRejected | ChatUnreachable | ChatMoved
            ):
                await wish.attempt.on_refused(getattr(outcome, "reason", "the group has moved"))
            tried += 1
            if isinstance(outcome, CallNotSent) and outcome.retry_after is not None:
                if self._gate.hold(wish.chat_id, outcome.retry_after) > deadline or tried >= _MAX_TRIES:
                    return outcome
                continue
            again = isinstance(outcome, CallNotSent) or (wish.repeatable and isinstance(outcome, CallUnknown))
            if not again or tried >= wish.tries:
                return outcome
            await self._clock.sleep(self._backoff * 2 ** (tried - 1))

    async def _once(self, method: TelegramMethod[Any], wish: _CallOptions) -> CallOutcome:
        from aiogram.exceptions import AiogramError
        from aiogram.types import Message
        from aiohttp import ClientTimeout

        seconds = self._timeout if wish.timeout is None else min(wish.timeout, self._timeout)
        limits: Any = ClientTimeout(total=seconds, sock_connect=min(CONNECT_SECONDS, seconds))
        try:
            value = await self._bot()(method, request_timeout=limits)
        except (AiogramError, OSError, ValueError) as error:
            outcome = classify_error(error)
            if not isinstance(outcome, CallDone):
                log.info(
                    "telegram_call_failed", method=method.__api_method__, bot_id=self.bot_id,
                    chat_id=wish.chat_id,
                    outcome=type(outcome).__name__, reason=getattr(outcome, "reason", ""),
                )  # fmt: skip
            return outcome
        return (
            MessageSent(message_id=value.message_id) if isinstance(value, Message) else CallDone(value=value)
        )


_MAX_TRIES = 10
"""However patient the caller: a chat that always answers 429 is left to the next look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _CallOptions:
    chat_id: int | None
    priority: Priority
    patience: float
    tries: int
    repeatable: bool = False
    counts: bool = True
    message: tuple[int, int] | None = None
    replaceable: bool = False
    timeout: float | None = None
    attempt: SendObserver | None = None

    def ticket(self, deadline: float) -> QueuedCall:
        return QueuedCall(
            chat_id=self.chat_id,
            priority=self.priority,
            deadline=deadline,
            counts=self.counts,
            message=self.message,
        )
