"""Client of one bot: queues each call under the rate limits, and returns a typed outcome."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, cast

import structlog
from aiogram import Bot
from aiogram.methods import (
    AnswerCallbackQuery,
    AnswerGuestQuery,
    AnswerInlineQuery,
    CreateForumTopic,
    DeleteMessage,
    EditForumTopic,
    EditMessageReplyMarkup,
    EditMessageText,
    GetChat,
    GetChatMember,
    LeaveChat,
    SendChatAction,
    SendDocument,
    SendMessage,
    SendPhoto,
    SendVoice,
    SetMessageReaction,
    TelegramMethod,
)
from aiogram.types import (
    BufferedInputFile,
    InlineKeyboardMarkup,
    InlineQueryResultArticle,
    InlineQueryResultsButton,
    InputTextMessageContent,
    MessageEntity,
    ReactionTypeEmoji,
    ReplyParameters,
)

from bot.telegram.client.calls import (
    CallDone,
    CallOutcome,
    CallRejected,
    Priority,
    RateLimiter,
    RateLimits,
    ScaledClock,
    is_entity_error,
    is_missing_thread,
    is_undecided,
)
from bot.telegram.client.middlewares import (
    CallOptions,
    OutcomeMiddleware,
    ReachabilityMiddleware,
    RetryMiddleware,
    SendObserver,
    TurnMiddleware,
    call_options,
)
from bot.telegram.markup.entity_text import MESSAGE_UNITS, MessagePart
from shared.core.session.turns import utf16_units

log = structlog.get_logger(__name__)

BACKOFF_SECONDS = 0.5
"""Seconds before the first retry of a call; each later pause is twice as long."""
TRIES = 3
"""Maximum requests of a call; a 429 may add some."""
FINAL_PATIENCE_SECONDS = 120.0
"""Seconds that a final message may wait for its turn."""
EDIT_PATIENCE_SECONDS = 5.0
"""Seconds that an edit may wait for its turn."""
TYPING_SECONDS = 5
"""Seconds until a request that shows an activity is given up."""
CALLBACK_PATIENCE_SECONDS = 20.0
"""Seconds that an answer to a button press or an inline query may wait for its turn."""
GUEST_PATIENCE_SECONDS = 5.0
"""Seconds that an answer in a guest chat may wait for its turn; later the delivery loop tries again."""
_GUEST_CHATS = 2**60
"""Offset that keeps a guest chat's rate limit apart from that of a chat with the same id."""
_CUSTOMER_CHATS = 2**61
"""Offset that keeps a customer's rate limit apart from that of the customer's own chat with the bot."""


_TITLE_CHARS = 60
"""Maximum characters of the title of an answer in a guest chat."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatTarget:
    """Chat to send to; `thread_id` is the id of its topic, 0 for the chat itself."""

    chat_id: int
    thread_id: int = 0


class Sender:
    """Client of one bot whose calls are queued under the rate limits and return a CallOutcome.

    Registers its middlewares at the bot's session. `patience` is the number of seconds that a call may wait
    for its turn, including the wait after a 429.
    """

    def __init__(
        self,
        bot: Bot,
        *,
        clock: ScaledClock | None = None,
        limits: RateLimits | None = None,
        backoff: float = BACKOFF_SECONDS,
    ) -> None:
        self.bot_id = bot.id
        self._bot = bot
        self._clock = clock or ScaledClock()
        self._rate_limiter = RateLimiter(self._clock, limits or RateLimits())
        self._reachability = ReachabilityMiddleware(self._clock)
        self.mark_reachable = self._reachability.mark_reachable
        self.list_sent = self._reachability.list_sent
        for step in (
            self._reachability,
            RetryMiddleware(self._rate_limiter, self._clock, backoff=backoff),
            TurnMiddleware(self._rate_limiter),
            OutcomeMiddleware(),
        ):
            bot.session.middleware(step)

    def get_hold_seconds(self, chat_id: int) -> float:
        """Return the seconds for which a 429 holds back a chat's calls; 0 if calls are allowed now."""
        return self._rate_limiter.get_hold_seconds(chat_id)

    async def close(self) -> None:
        """Close the session; waiting calls return CallNotSent."""
        self._rate_limiter.close()
        await self._bot.session.close()

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
        """Send a message; it is repeated only if it surely did not arrive.

        If Telegram refuses the formatting, the keyboard or the topic, send the message without it.
        """

        def build_method(part: MessagePart, thread_id: int) -> SendMessage:
            return SendMessage(
                chat_id=target.chat_id,
                message_thread_id=thread_id or None,
                text=part.text,
                entities=to_aiogram_entities(part),
                disable_notification=silent or None,
                reply_parameters=to_reply_parameters(reply_to),
                reply_markup=keyboard,
            )

        options: dict[str, Any] = {
            "chat_id": target.chat_id, "priority": priority, "patience": patience, "tries": tries,
            "observer": observer,
        }  # fmt: skip
        outcome = await self.call(build_method(part, target.thread_id), **options)
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
            outcome = await self.call(build_method(part, thread_id), **options)
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
        """Edit a message; with `keyboard` None its buttons are removed.

        An earlier edit of the same message that still waits is dropped and returns CallDone.
        """

        def build_method(part: MessagePart) -> EditMessageText:
            return EditMessageText(
                chat_id=chat_id,
                message_id=message_id,
                text=part.text,
                entities=to_aiogram_entities(part),
                reply_markup=keyboard,
            )

        return await self._call_formatted(
            build_method, part, chat_id=chat_id, priority=priority, patience=patience, tries=tries,
            repeatable=True, message=(chat_id, message_id), replaceable=True,
        )  # fmt: skip

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
        """Send a file to a chat, or as a photo with `photo`, or as a voice message with `voice`.

        Sent to the chat itself if the topic no longer exists.
        """

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

        return await self._call_in_topic(
            build_method, target, priority=Priority.FINAL, patience=patience, tries=tries, observer=observer
        )

    async def edit_keyboard(
        self,
        chat_id: int,
        message_id: int,
        keyboard: InlineKeyboardMarkup | None = None,
        *,
        priority: Priority = Priority.EDIT,
        patience: float = EDIT_PATIENCE_SECONDS,
    ) -> CallOutcome:
        """Replace the buttons below a message; None removes them."""
        method = EditMessageReplyMarkup(chat_id=chat_id, message_id=message_id, reply_markup=keyboard)
        return await self.call(
            method, chat_id=chat_id, priority=priority, patience=patience,
            repeatable=True, message=(chat_id, message_id),
        )  # fmt: skip

    async def delete(self, chat_id: int, message_ids: Iterable[int]) -> CallOutcome:
        """Delete messages one by one; return CallDone if all are deleted.

        Else return the first outcome after which a message may still be there, or without one the first
        refusal.
        """
        first: CallOutcome = CallDone()
        for message_id in message_ids:
            method = DeleteMessage(chat_id=chat_id, message_id=message_id)
            outcome = await self.call(
                method, chat_id=chat_id, priority=Priority.FINAL,
                patience=EDIT_PATIENCE_SECONDS, repeatable=True, counts=False,
            )  # fmt: skip
            if isinstance(first, CallDone) or (is_undecided(outcome) and not is_undecided(first)):
                first = outcome
        return first

    # -- typing, reactions, callbacks -----------------------------------------------------------------

    def expect_answer(self) -> AbstractContextManager[None]:
        """Return a context in which typing indicators of all chats leave room for one answer."""
        return self._rate_limiter.expect_answer()

    async def send_typing(self, target: ChatTarget, *, action: str = "typing") -> CallOutcome:
        """Show an activity such as `typing` for about five seconds.

        Not sent at all if it cannot be sent now.
        """

        def build_method(thread_id: int) -> SendChatAction:
            return SendChatAction(
                chat_id=target.chat_id, message_thread_id=thread_id or None, action=action
            )  # fmt: skip

        return await self._call_in_topic(
            build_method, target, priority=Priority.TYPING, patience=0.0, tries=1, counts=False,
            timeout=TYPING_SECONDS,
        )  # fmt: skip

    async def react(
        self,
        chat_id: int,
        message_id: int,
        emoji: str | None,
        *,
        patience: float = EDIT_PATIENCE_SECONDS,
    ) -> CallOutcome:
        """Set the bot's reaction to a message; `emoji` None removes it."""
        wanted: list[Any] = [] if emoji is None else [ReactionTypeEmoji(emoji=emoji)]
        method = SetMessageReaction(chat_id=chat_id, message_id=message_id, reaction=wanted)
        return await self.call(
            method, chat_id=chat_id, priority=Priority.NOTICE, patience=patience,
            repeatable=True, counts=False, message=(chat_id, message_id),
        )  # fmt: skip

    async def answer_callback(self, query_id: str, *, text: str = "", alert: bool = False) -> CallOutcome:
        """Answer a button press; `text` is shown briefly, or as a dialog with `alert`.

        The outcome is CallRejected if the press is too old.
        """
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
        """Send the results of an inline query.

        `button` is the label of a link to the private chat, empty for none.
        """
        method = AnswerInlineQuery.model_validate({
            "inline_query_id": query_id, "results": list(results), "cache_time": 0, "is_personal": True,
            "button": InlineQueryResultsButton(text=button, start_parameter="inline") if button else None,
        })  # fmt: skip
        return await self.call(
            method, chat_id=None, priority=Priority.CALLBACK,
            patience=CALLBACK_PATIENCE_SECONDS, repeatable=True,
        )  # fmt: skip

    # -- guest chats ----------------------------------------------------------------------------------

    async def answer_guest(self, chat_id: int, query_id: str, part: MessagePart) -> CallOutcome:
        """Send the answer to a question from a chat where the bot is a guest.

        The result of CallDone is aiogram's SentGuestMessage. Not repeated after a lost response; refused
        formatting is left out.
        """

        def build_method(part: MessagePart) -> AnswerGuestQuery:
            first_line, _, _ = part.text.partition("\n")
            content = InputTextMessageContent(
                message_text=part.text,
                entities=to_aiogram_entities(part),
            )
            article = InlineQueryResultArticle(
                id="answer", title=first_line.strip()[:_TITLE_CHARS] or "…", input_message_content=content
            )
            return AnswerGuestQuery(guest_query_id=query_id, result=article)

        return await self._call_guest(chat_id, build_method, part, priority=Priority.FINAL)

    async def edit_guest_answer(self, chat_id: int, inline_message_id: str, part: MessagePart) -> CallOutcome:
        """Replace the placeholder in a guest chat with the answer; refused formatting is left out."""

        def build_method(part: MessagePart) -> EditMessageText:
            return EditMessageText(
                inline_message_id=inline_message_id,
                text=part.text,
                entities=to_aiogram_entities(part),
            )

        return await self._call_guest(
            chat_id, build_method, part, priority=Priority.NOTICE, repeatable=True
        )  # fmt: skip

    async def _call_guest(
        self,
        chat_id: int,
        build_method: Callable[[MessagePart], TelegramMethod[Any]],
        part: MessagePart,
        **options: Any,
    ) -> CallOutcome:
        key = chat_id + (_GUEST_CHATS if chat_id > 0 else -_GUEST_CHATS)
        options |= {"chat_id": key, "patience": GUEST_PATIENCE_SECONDS, "tries": 1}
        return await self._call_formatted(build_method, part, **options)

    # -- business accounts ----------------------------------------------------------------------------

    async def send_for_owner(
        self, connection_id: str, chat_id: int, part: MessagePart, *, patience: float = FINAL_PATIENCE_SECONDS
    ) -> CallOutcome:
        """Send a text to a customer in the name of the business account's owner.

        Refused formatting is left out. `connection_id` is Telegram's id of the business connection.
        """

        def build_method(part: MessagePart) -> SendMessage:
            return SendMessage(
                business_connection_id=connection_id,
                chat_id=chat_id,
                text=part.text,
                entities=to_aiogram_entities(part),
            )

        return await self._call_formatted(
            build_method, part, chat_id=chat_id + _CUSTOMER_CHATS, priority=Priority.FINAL, patience=patience
        )

    # -- chats and their members ------------------------------------------------------------------------

    async def get_member(self, chat_id: int, user_id: int, *, patience: float) -> CallOutcome:
        """Ask Telegram for a member of a chat; the result of CallDone is aiogram's ChatMember."""
        return await self._ask(GetChatMember(chat_id=chat_id, user_id=user_id), chat_id, patience)

    async def get_chat(self, chat_id: int, *, patience: float) -> CallOutcome:
        """Ask Telegram for a chat; the result of CallDone is aiogram's ChatFullInfo."""
        return await self._ask(GetChat(chat_id=chat_id), chat_id, patience)

    async def create_topic(self, chat_id: int, name: str) -> CallOutcome:
        """Create a topic in a chat; the result of CallDone is aiogram's ForumTopic.

        The call is not repeated after a lost response.
        """
        method = CreateForumTopic(chat_id=chat_id, name=name)
        return await self.call(method, chat_id=chat_id, patience=EDIT_PATIENCE_SECONDS)

    async def rename_topic(self, chat_id: int, thread_id: int, name: str) -> CallOutcome:
        """Change the name of a topic in a chat."""
        method = EditForumTopic(chat_id=chat_id, message_thread_id=thread_id, name=name)
        return await self.call(
            method, chat_id=chat_id, priority=Priority.CLEANUP, repeatable=True, counts=False
        )  # fmt: skip

    async def leave_chat(self, chat_id: int, *, patience: float) -> CallOutcome:
        """Make the bot leave a group or channel."""
        return await self._ask(LeaveChat(chat_id=chat_id), chat_id, patience)

    async def _ask(self, method: TelegramMethod[Any], chat_id: int, patience: float) -> CallOutcome:
        return await self.call(
            method, chat_id=chat_id, priority=Priority.NOTICE, patience=patience, repeatable=True,
            counts=False,
        )  # fmt: skip

    async def _call_formatted(
        self, build_method: Callable[[MessagePart], TelegramMethod[Any]], part: MessagePart, **options: Any
    ) -> CallOutcome:
        """Call the method for `part`; if Telegram refuses the formatting, call it again without."""
        outcome = await self.call(build_method(part), **options)
        if is_entity_error(outcome) and part.entities:
            log.warning("entities_rejected", bot_id=self.bot_id, chat_id=options["chat_id"])
            outcome = await self.call(build_method(strip_entities(part)), **options)
        return outcome

    async def _call_in_topic(
        self, build_method: Callable[[int], TelegramMethod[Any]], target: ChatTarget, **options: Any
    ) -> CallOutcome:
        """Call the method for the target's topic; if the topic no longer exists, call it for the chat."""
        outcome = await self.call(build_method(target.thread_id), chat_id=target.chat_id, **options)
        if is_missing_thread(outcome) and target.thread_id:
            outcome = await self.call(build_method(0), chat_id=target.chat_id, **options)
        return outcome

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
        replaceable: bool = False,
        tries: int = TRIES,
        timeout: int | None = None,
        observer: SendObserver | None = None,
    ) -> CallOutcome:
        """Queue a call, make it when the rate limits allow, and return its outcome.

        `chat_id` is None for a call that belongs to no chat. `patience` is the number of seconds that the
        call may wait; after that the outcome is CallNotSent. `tries` is the maximum of requests; a 429 may
        add some. A `repeatable` call is also repeated after a lost response. With `counts` False the call
        does not count towards the limits of the chat. `message` is a chat id and a message id: calls for the
        same message are sent one after the other, and a `replaceable` call drops an earlier waiting one,
        which returns CallDone. `timeout` is in seconds, None for the session's default. Raises what
        `observer` raises.
        """
        options = CallOptions(
            chat_id=chat_id, priority=priority, deadline=self._clock.now() + patience, tries=tries,
            repeatable=repeatable, counts=counts, message=message, replaceable=replaceable, observer=observer,
        )  # fmt: skip
        token = call_options.set(options)
        try:
            return cast("CallOutcome", await self._bot(method, request_timeout=timeout))
        finally:
            call_options.reset(token)


def to_aiogram_entities(part: MessagePart) -> list[MessageEntity] | None:
    """Return the entities of a part as aiogram's type; None if there are none."""
    return [MessageEntity.model_validate(entity.to_api()) for entity in part.entities] or None


def to_reply_parameters(message_id: int | None) -> ReplyParameters | None:
    """Return the parameters that make a message a reply to this one; None for no reply."""
    return None if message_id is None else ReplyParameters(message_id=message_id)


def strip_entities(part: MessagePart) -> MessagePart:
    """Return a part without formatting.

    Link addresses are appended in brackets if they fit in the message.
    """
    text, raw = part.text, part.text.encode("utf-16-le")
    for entity in reversed(part.entities):
        if entity.url is not None:
            longer = raw[: 2 * entity.end] + f" ({entity.url})".encode("utf-16-le") + raw[2 * entity.end :]
            spelled = longer.decode("utf-16-le")
            if utf16_units(spelled) <= MESSAGE_UNITS:
                text, raw = spelled, longer
    return replace(part, text=text, entities=())
