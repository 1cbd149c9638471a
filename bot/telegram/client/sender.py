"""Sends all calls of a bot: each waits for its turn, and returns a typed outcome."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import structlog

from bot.telegram.client.aiogram_loader import get_response_models
from bot.telegram.client.calls import (
    CallDone,
    CallNotSent,
    CallOutcome,
    CallRejected,
    CallUnknown,
    ChatUnreachable,
    MessageSent,
    Priority,
    QueuedCall,
    RateLimiter,
    RateLimits,
    ScaledClock,
    classify_error,
    is_entity_error,
    is_missing_thread,
    is_refused,
)
from bot.telegram.markup.entity_text import MESSAGE_UNITS, MessagePart
from shared.core.session.turns import utf16_units

if TYPE_CHECKING:
    from aiogram import Bot
    from aiogram.methods import TelegramMethod
    from aiogram.types import InlineKeyboardMarkup, MessageEntity, ReplyParameters


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


@dataclass(frozen=True, slots=True, kw_only=True)
class SendObserver:
    """Callbacks for the row of a message: before its request is sent, and when Telegram surely refused it.

    If `before_send` raises, nothing is sent.
    """

    before_send: Callable[[], Awaitable[None]]
    on_refused: Callable[[str], Awaitable[None]] | None = None


class Sender:
    """`patience` is how long a call may wait for its turn, through a 429 as well.

    The first call opens the bot: until then nothing of aiogram is touched.
    """

    def __init__(
        self,
        bot_id: int,
        open_bot: Callable[[], Bot],
        *,
        clock: ScaledClock | None = None,
        limits: RateLimits | None = None,
        timeout: float = REQUEST_SECONDS,
        backoff: float = BACKOFF_SECONDS,
    ) -> None:
        self.bot_id = bot_id
        self._open_bot = open_bot
        self._opened_bot: Bot | None = None
        self._response_models: tuple[type, ...] = ()
        self._clock = clock or ScaledClock()
        self._rate_limiter = RateLimiter(self._clock, limits or RateLimits())
        self._timeout = timeout
        self._backoff = backoff
        self._unreachable: dict[int, tuple[float, ChatUnreachable]] = {}
        """Chats that refused the bot, with the time of that: further calls would be refused, too."""
        self._sent: OrderedDict[int, deque[int]] = OrderedDict()
        """Newest messages that this process sent, by chat."""

    def get_hold_seconds(self, chat_id: int) -> float:
        """Seconds for which Telegram wants nothing for this chat; 0 when it may be written to."""
        return self._rate_limiter.get_hold_seconds(chat_id)

    async def close(self) -> None:
        """Waiting calls end with CallNotSent."""
        self._rate_limiter.close()
        if self._opened_bot is not None:
            await self._opened_bot.session.close()

    def _get_bot(self) -> Bot:
        if self._opened_bot is None:
            self._opened_bot, self._response_models = self._open_bot(), get_response_models()
        return self._opened_bot

    # -- messages -------------------------------------------------------------------------------------

    async def send_text(
        self,
        target: ChatTarget,
        part: MessagePart,
        *,
        reply_to: int | None = None,
        keyboard: InlineKeyboardMarkup | None = None,
        silent: bool = False,
        priority: Priority = Priority.NOTICE,
        patience: float = FINAL_PATIENCE_SECONDS,
        tries: int = TRIES,
        observer: SendObserver | None = None,
    ) -> CallOutcome:
        """Repeated only when it surely never arrived; refused formatting or topics are left out."""
        from aiogram.methods import SendMessage
        from aiogram.types import LinkPreviewOptions

        def build_method(part: MessagePart, thread_id: int) -> SendMessage:
            return SendMessage(
                chat_id=target.chat_id,
                message_thread_id=thread_id or None,
                text=part.text,
                entities=to_aiogram_entities(part),
                link_preview_options=LinkPreviewOptions(is_disabled=True),
                disable_notification=silent or None,
                reply_parameters=to_reply_parameters(reply_to),
                reply_markup=keyboard,
            )

        options = _CallOptions(
            chat_id=target.chat_id, priority=priority, patience=patience, tries=tries, observer=observer
        )
        outcome = await self._call(build_method(part, target.thread_id), options)
        thread_id = target.thread_id
        for _ in range(2):
            if is_missing_thread(outcome) and thread_id:
                thread_id = 0
            elif isinstance(outcome, CallRejected) and outcome.status == 400 and (part.entities or keyboard):
                log.warning("formatting_rejected", bot_id=self.bot_id, chat_id=target.chat_id)
                keyboard = keyboard if is_entity_error(outcome) else None
                part = strip_entities(part)
            else:
                break
            outcome = await self._call(build_method(part, thread_id), options)
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
        """Replaces an edit of the same message that still waits; that one ends as CallDone."""
        from aiogram.methods import EditMessageText
        from aiogram.types import LinkPreviewOptions

        def build_method(part: MessagePart) -> EditMessageText:
            return EditMessageText(
                chat_id=chat_id,
                message_id=message_id,
                text=part.text,
                entities=to_aiogram_entities(part),
                link_preview_options=LinkPreviewOptions(is_disabled=True),
                reply_markup=keyboard,
            )

        options = _CallOptions(
            chat_id=chat_id, priority=priority, patience=patience, tries=tries,
            repeatable=True, message=(chat_id, message_id), replaceable=True,
        )  # fmt: skip
        outcome = await self._call(build_method(part), options)
        if is_entity_error(outcome) and part.entities:
            log.warning("entities_rejected", bot_id=self.bot_id, chat_id=chat_id)
            outcome = await self._call(build_method(strip_entities(part)), options)
        return outcome

    async def send_document(
        self,
        target: ChatTarget,
        *,
        name: str,
        content: bytes,
        caption: str = "",
        photo: bool = False,
        voice: bool = False,
        keyboard: InlineKeyboardMarkup | None = None,
        silent: bool = False,
        patience: float = FINAL_PATIENCE_SECONDS,
        tries: int = TRIES,
        observer: SendObserver | None = None,
    ) -> CallOutcome:
        """With `photo` or `voice` the chat shows or plays it; else it is a file to open."""
        from aiogram.methods import SendDocument, SendPhoto, SendVoice
        from aiogram.types import BufferedInputFile

        def build_method(thread_id: int) -> SendDocument | SendPhoto | SendVoice:
            method_fields: dict[str, Any] = {
                "chat_id": target.chat_id,
                "message_thread_id": thread_id or None,
                "caption": caption or None,
                "disable_notification": silent or None,
                "reply_markup": keyboard,
            }
            file = BufferedInputFile(content, filename=name)
            if voice:
                return SendVoice(voice=file, **method_fields)
            return (
                SendPhoto(photo=file, **method_fields)
                if photo
                else SendDocument(document=file, **method_fields)
            )

        options = _CallOptions(
            chat_id=target.chat_id, priority=Priority.FINAL, patience=patience, tries=tries, observer=observer
        )
        outcome = await self._call(build_method(target.thread_id), options)
        if is_missing_thread(outcome) and target.thread_id:
            outcome = await self._call(build_method(0), options)
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

    # -- typing, reactions, callbacks -----------------------------------------------------------------

    async def send_typing(self, target: ChatTarget, *, action: str = "typing") -> CallOutcome:
        """Never waits: a late one would be wrong."""
        from aiogram.methods import SendChatAction

        def build_method(thread_id: int) -> SendChatAction:
            return SendChatAction(
                chat_id=target.chat_id, message_thread_id=thread_id or None, action=action
            )  # fmt: skip

        options = _CallOptions(
            chat_id=target.chat_id, priority=Priority.TYPING, patience=0.0, tries=1,
            counts=False, timeout=TYPING_SECONDS,
        )  # fmt: skip
        outcome = await self._call(build_method(target.thread_id), options)
        if is_missing_thread(outcome) and target.thread_id:
            outcome = await self._call(build_method(0), options)
        return outcome

    async def react(
        self,
        chat_id: int,
        message_id: int,
        emoji: str | None,
        *,
        patience: float = EDIT_PATIENCE_SECONDS,
    ) -> CallOutcome:
        from aiogram.methods import SetMessageReaction
        from aiogram.types import ReactionTypeEmoji

        wanted: list[Any] = [] if emoji is None else [ReactionTypeEmoji(emoji=emoji)]
        method = SetMessageReaction(chat_id=chat_id, message_id=message_id, reaction=wanted)
        return await self.call(
            method, chat_id=chat_id, priority=Priority.NOTICE, patience=patience,
            repeatable=True, counts=False, message=(chat_id, message_id),
        )  # fmt: skip

    async def answer_callback(self, query_id: str, *, text: str = "", alert: bool = False) -> CallOutcome:
        """End the waiting of a pressed button; one that came too late is CallRejected."""
        from aiogram.methods import AnswerCallbackQuery

        method = AnswerCallbackQuery(
            callback_query_id=query_id, text=text or None, show_alert=alert or None
        )  # fmt: skip
        return await self.call(
            method, chat_id=None, priority=Priority.CALLBACK,
            patience=CALLBACK_PATIENCE_SECONDS, repeatable=True,
        )  # fmt: skip

    async def answer_inline(
        self, query_id: str, results: Sequence[Mapping[str, Any]], *, button: str = ""
    ) -> CallOutcome:
        """Offer the results of an inline query; `button` leads to the private chat."""
        from aiogram.methods import AnswerInlineQuery
        from aiogram.types import InlineQueryResultsButton

        method = AnswerInlineQuery.model_validate({
            "inline_query_id": query_id, "results": list(results), "cache_time": 0, "is_personal": True,
            "button": InlineQueryResultsButton(text=button, start_parameter="inline") if button else None,
        })  # fmt: skip
        return await self.call(
            method, chat_id=None, priority=Priority.CALLBACK,
            patience=CALLBACK_PATIENCE_SECONDS, repeatable=True,
        )  # fmt: skip

    # -- chats and their members ------------------------------------------------------------------------

    async def get_member(self, chat_id: int, user_id: int, *, patience: float) -> CallOutcome:
        """CallDone has the member as aiogram's type."""
        from aiogram.methods import GetChatMember

        return await self._ask(GetChatMember(chat_id=chat_id, user_id=user_id), chat_id, patience)

    async def get_chat(self, chat_id: int, *, patience: float) -> CallOutcome:
        """CallDone has the chat as aiogram's type."""
        from aiogram.methods import GetChat

        return await self._ask(GetChat(chat_id=chat_id), chat_id, patience)

    async def leave_chat(self, chat_id: int, *, patience: float) -> CallOutcome:
        from aiogram.methods import LeaveChat

        return await self._ask(LeaveChat(chat_id=chat_id), chat_id, patience)

    async def _ask(self, method: TelegramMethod[Any], chat_id: int, patience: float) -> CallOutcome:
        return await self.call(
            method, chat_id=chat_id, priority=Priority.NOTICE, patience=patience, repeatable=True,
            counts=False,
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
        observer: SendObserver | None = None,
    ) -> CallOutcome:
        """Any other call. `repeatable`: doing it twice is the same as doing it once; calls for the same
        `message` go one after the other.
        """
        options = _CallOptions(
            chat_id=chat_id, priority=priority, patience=patience, repeatable=repeatable,
            counts=counts, message=message, tries=tries, observer=observer,
        )  # fmt: skip
        return await self._call(method, options)

    # -- one call -------------------------------------------------------------------------------------

    async def _call(self, method: TelegramMethod[Any], options: _CallOptions) -> CallOutcome:
        deadline = self._clock.now() + options.patience
        tried = 0
        if (gone := self._find_unreachable(options.chat_id)) is not None:
            return gone
        while True:
            queued = options.build_queued_call(deadline)
            refusal = await self._rate_limiter.acquire(queued, replaceable=options.replaceable)
            if refusal is not None:
                return refusal
            try:
                if options.observer is not None:
                    await options.observer.before_send()
                outcome = await self._attempt(method, options)
            finally:
                self._rate_limiter.release(queued)
            self._note_reachability(options.chat_id, outcome)
            if (
                (is_refused(outcome) or isinstance(outcome, CallNotSent))
                and options.observer is not None
                and options.observer.on_refused is not None
            ):
                await options.observer.on_refused(getattr(outcome, "reason", "the group has moved"))
            tried += 1
            if isinstance(outcome, CallNotSent) and outcome.retry_after is not None:
                if (
                    self._rate_limiter.hold(options.chat_id, outcome.retry_after) > deadline
                    or tried >= _MAX_TRIES
                ):
                    return outcome
                continue
            should_retry = isinstance(outcome, CallNotSent) or (
                options.repeatable and isinstance(outcome, CallUnknown)
            )
            if not should_retry or tried >= options.tries:
                return outcome
            await self._clock.sleep(self._backoff * 2 ** (tried - 1))

    def mark_reachable(self, chat_id: int) -> None:
        """A person wrote in the chat, or unblocked the bot: call it again."""
        self._unreachable.pop(chat_id, None)

    def _find_unreachable(self, chat_id: int | None) -> ChatUnreachable | None:
        """Return the refusal of a chat that is not called for now."""
        known = self._unreachable.get(chat_id) if chat_id is not None else None
        if known is None or self._clock.now() - known[0] > UNREACHABLE_SECONDS:
            return None
        return known[1]

    def _note_reachability(self, chat_id: int | None, outcome: CallOutcome) -> None:
        if chat_id is None:
            return
        if isinstance(outcome, ChatUnreachable):
            while len(self._unreachable) >= _MAX_UNREACHABLE:
                del self._unreachable[next(iter(self._unreachable))]
            self._unreachable[chat_id] = self._clock.now(), outcome
        elif isinstance(outcome, MessageSent):
            self._unreachable.pop(chat_id, None)
            self._sent.setdefault(chat_id, deque(maxlen=_MAX_SENT)).append(outcome.message_id)
            self._sent.move_to_end(chat_id)
            if len(self._sent) > _MAX_CHATS_SENT:
                self._sent.popitem(last=False)

    def list_sent(self, chat_id: int) -> tuple[int, ...]:
        """Return ids of the newest messages that this process sent to a chat or edited there."""
        return tuple(self._sent.get(chat_id, ()))

    async def _attempt(self, method: TelegramMethod[Any], options: _CallOptions) -> CallOutcome:
        from aiogram.exceptions import AiogramError
        from aiogram.types import Message
        from aiohttp import ClientTimeout

        seconds = self._timeout if options.timeout is None else min(options.timeout, self._timeout)
        limits: Any = ClientTimeout(total=seconds, sock_connect=min(CONNECT_SECONDS, seconds))
        try:
            value = await self._get_bot()(method, request_timeout=limits)
        except (AiogramError, OSError, ValueError) as error:
            outcome = classify_error(error)
            if not isinstance(outcome, CallDone):
                log.info(
                    "telegram_call_failed", method=method.__api_method__, bot_id=self.bot_id,
                    chat_id=options.chat_id,
                    outcome=type(outcome).__name__, reason=getattr(outcome, "reason", ""),
                )  # fmt: skip
            return outcome
        if isinstance(value, Message):
            return MessageSent(message_id=value.message_id)
        return CallDone(result=value)


UNREACHABLE_SECONDS = 60.0
"""Seconds without calls to a chat that blocked or removed the bot, unless it is heard of before."""
_MAX_UNREACHABLE = 1_000
_MAX_SENT = 200
_MAX_CHATS_SENT = 1_000
_MAX_TRIES = 10
"""Tries of one call; a chat that keeps answering 429 is left to the next look."""


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
    observer: SendObserver | None = None

    def build_queued_call(self, deadline: float) -> QueuedCall:
        return QueuedCall(
            chat_id=self.chat_id,
            priority=self.priority,
            deadline=deadline,
            counts=self.counts,
            message=self.message,
        )


def to_aiogram_entities(part: MessagePart) -> list[MessageEntity] | None:
    from aiogram.types import MessageEntity

    return [MessageEntity.model_validate(entity.to_api()) for entity in part.entities] or None


def to_reply_parameters(message_id: int | None) -> ReplyParameters | None:
    """A question that was deleted meanwhile is no reason to keep the answer back."""
    from aiogram.types import ReplyParameters

    if message_id is None:
        return None
    return ReplyParameters(message_id=message_id, allow_sending_without_reply=True)


def strip_entities(part: MessagePart) -> MessagePart:
    """For formatting that was refused; addresses of links are spelled out where there is room for them."""
    text, raw = part.text, part.text.encode("utf-16-le")
    for entity in reversed(part.entities):
        if entity.url is not None:
            longer = raw[: 2 * entity.end] + f" ({entity.url})".encode("utf-16-le") + raw[2 * entity.end :]
            spelled = longer.decode("utf-16-le")
            if utf16_units(spelled) <= MESSAGE_UNITS:
                text, raw = spelled, longer
    return replace(part, text=text, entities=())
