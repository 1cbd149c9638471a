"""Shared parts of the delivery of answers: stores, senders, texts, and the outgoing message of an ended
turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import structlog
from aiogram.types import InlineKeyboardMarkup

from bot.telegram.client.calls import (
    CallNotSent,
    CallUnknown,
    ChatClosed,
    ChatUnreachable,
    MessageSent,
    ScaledClock,
)
from bot.telegram.client.middlewares import SendObserver
from bot.telegram.client.sender import Sender
from bot.telegram.inbound.bot_context import BotContext
from bot.telegram.markup.entity_text import LIVE_UNITS, MAX_PARTS, MessagePart, RenderedText, render, split
from bot.telegram.markup.rich_blocks import RichBlock, build_rich_blocks
from bot.telegram.outbound.buttons import is_setting_on
from bot.telegram.outbound.native_drafts import AnswerForm, FormSupport
from bot.telegram.texts import describe_work, escape_markdown, explain_failure, get_chat_texts
from shared.adapters.postgres.telegram.chats import ChatRow, PostgresTelegramChats
from shared.adapters.postgres.telegram.deliveries import EndedTurn, PostgresDeliveries
from shared.adapters.postgres.telegram.uncertain_notices import PostgresUncertainNotices
from shared.core.values.errors import StorageUnavailable
from shared.core.values.files import Attached
from shared.runtime import NULL_TRACER, BackgroundTasks, CrashPoint, Tracer, ignore_crash_point

log = structlog.get_logger(__name__)

_HIDDEN_TOOLS = frozenset({"save_memory", "update_memory", "forget_memory"})


class DeliveryTexts:
    """Texts that the bot adds to answers, in the language of the chat.

    `find_context` takes a bot id and returns its context: public bots use other texts.
    """

    def __init__(self, find_context: Callable[[int], BotContext | None]) -> None:
        self._find_context = find_context

    def format_stopped(self, chat: ChatRow) -> str:
        """Return the note `[stopped]` that is added to a stopped answer."""
        return get_chat_texts(chat).say("stopped")

    def format_cut(self, chat: ChatRow, stop: str) -> str:
        """Return the line below an answer that was cut for the reason `stop`; empty for a complete answer."""
        key = f"cut_{stop}"
        texts = get_chat_texts(chat)
        return texts.say(key) if key in texts else ""

    def format_working(self, chat: ChatRow, tool: str, subject: str = "") -> str | None:
        """Return the line to show while a tool runs; None if that tool is not shown."""
        texts = get_chat_texts(chat)
        if tool == "organizing":
            return texts.say("summarising")
        if tool in _HIDDEN_TOOLS:
            return None
        return describe_work(texts, "mcp" if tool.startswith("mcp_") else tool, subject)

    def format_notice(self, chat: ChatRow, code: str, text: str) -> str:
        """Return the message for an error or refusal with this code; `text` is its advice in English."""
        context = self._find_context(chat.bot_id)
        public = context is None or context.public
        return explain_failure(get_chat_texts(chat), code=code, advice=text, public=public)

    def format_uncertain(self, chat: ChatRow) -> str:
        """Return the notice that an answer may not have arrived, which has a button to send it again."""
        return get_chat_texts(chat).say("uncertain")

    def format_arrived(self, chat: ChatRow) -> str:
        """Return the text that replaces the uncertain notice after the answer was found.

        Used only if Telegram refuses to delete the notice.
        """
        return get_chat_texts(chat).say("arrived")

    def format_refused(self, chat: ChatRow, file: str = "") -> str:
        """Return the line that is sent in place of an answer or file that Telegram refused.

        `file` is the name of the refused file; empty means the text of the answer.
        """
        texts = get_chat_texts(chat)
        return texts.say("file_refused", name=file) if file else texts.say("answer_refused")

    def format_document_caption(self, chat: ChatRow, stop: str = "") -> str:
        """Return the caption of a file that contains a long answer.

        `stop` is the reason of a cut, empty for none.
        """
        lines = (get_chat_texts(chat).say("whole_answer"), self.format_cut(chat, stop))
        return "\n".join(filter(None, lines))


WORKING = "👀"
"""Reaction on a group's question while the bot answers it."""
BuildKeyboard = Callable[[ChatRow, int, str], "InlineKeyboardMarkup | None"]
"""Function from chat, turn and state to the buttons below the last part of an answer, None for no buttons.

The state is `running` while the model writes, `cut` at the length limit, else that of the turn.
"""
WantVoiceNote = Callable[[int, int], Awaitable[None]]
"""Function from session id and turn that requests a voice note, if the person wants answers as voice
notes.
"""
LoadFile = Callable[[int, str], Awaitable[bytes | None]]
"""Function from session id and public id of a file to its content; None if the file was deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryContext:
    """Stores, texts and settings for the delivery of answers, shared by all bots of the process."""

    senders: Mapping[int, Sender]
    deliveries: PostgresDeliveries
    notices: PostgresUncertainNotices
    chats: PostgresTelegramChats
    texts: DeliveryTexts
    keyboard: BuildKeyboard
    files: LoadFile
    offered: Collection[str]
    """Names of the settings that people can change for a chat, such as `drafts` and `rich`."""
    want_voice_note: WantVoiceNote | None = None
    """Function that requests a voice note of an answer; None if speech output is not configured."""
    settles: bool = True
    """Whether the bot first searches the chat for an answer that may have arrived, before it asks the
    person.
    """
    most_messages: int = MAX_PARTS
    """Maximum messages of one answer; a longer one is cut, and sent complete as a file after them."""
    reacts: bool = False
    """Whether the bot sets the reaction 👀 on a group's question while it answers."""
    clock: ScaledClock = field(default_factory=ScaledClock)
    form_support: dict[int, FormSupport] = field(default_factory=dict)
    crash_point: CrashPoint = ignore_crash_point
    tracer: Tracer = NULL_TRACER
    reaction_tasks: dict[int, asyncio.Task[None]] = field(default_factory=dict)
    """Tasks that set the reaction on a question, by session id."""

    def get_form_support(self, bot_id: int) -> FormSupport:
        """Return which forms of answers the bot's server accepts; at first all."""
        return self.form_support.setdefault(bot_id, FormSupport())

    def can_use(self, chat: ChatRow, form: AnswerForm) -> bool:
        """Return whether the chat wants this form of answers and Telegram has not refused it there."""
        wanted = form in self.offered and is_setting_on(chat, form)
        return wanted and self.get_form_support(chat.bot_id).allows(form, chat.chat_id)

    async def find_question(self, chat: ChatRow, turn: int) -> int | None:
        """Return the message id of a turn's question in a group.

        None in a private chat or if it is unknown.
        """
        return await self.chats.find_question_id(chat.session_id, turn) if chat.chat_id < 0 else None

    def show_working(self, chat: ChatRow, turn: int, tasks: BackgroundTasks, *, ended: bool = False) -> None:
        """Start to set the reaction on a turn's question, or to clear it if `ended`.

        Does not wait for Telegram. Only questions in groups get a reaction, and only if `reacts` is True.
        """
        if self.reacts and chat.chat_id < 0:
            before = self.reaction_tasks.pop(chat.session_id, None)
            task = tasks.start(self._set_reaction(chat, turn, None if ended else WORKING, before))
            if not ended:
                self.reaction_tasks[chat.session_id] = task

    async def _set_reaction(
        self, chat: ChatRow, turn: int, emoji: str | None, before: asyncio.Task[None] | None
    ) -> None:
        """Set the reaction on a turn's question after the task `before` has ended; `emoji` None clears it.

        In another order, the reaction could be set after the answer has arrived.
        """
        if before is not None:
            await asyncio.wait([before])
        sender = self.senders.get(chat.bot_id)
        try:
            question = await self.chats.find_question_id(chat.session_id, turn)
        except StorageUnavailable:
            return
        if sender is not None and question is not None:
            await sender.react(chat.chat_id, question, emoji)

    async def wait_for_chat(self, chat: ChatRow, refusal: ChatUnreachable | ChatClosed) -> None:
        """Store that the chat refuses messages.

        Its answers wait until a person writes or a later try succeeds.
        """
        log.warning("chat_refuses_messages", chat_id=chat.chat_id, reason=refusal.reason)
        if isinstance(refusal, ChatClosed):
            await self.chats.record_refusal(chat.address_id, refusal.reason)
        else:
            await self.chats.set_reachable(chat.bot_id, chat.chat_id, reachable=False)

    async def follow_migration(self, chat: ChatRow, new_chat_id: int) -> ChatRow:
        """Move a chat to the supergroup that its group has become; return its new row."""
        await self.chats.migrate(chat.bot_id, old_chat=chat.chat_id, new_chat=new_chat_id)
        return await self.chats.find_chat(chat.address_id) or replace(chat, chat_id=new_chat_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class MaybeShown:
    """Message of an unfinished answer that may be in the chat, although Telegram did not return its id."""

    part: int
    text: str


PartKey = tuple[int, int, int]
"""Session id, turn and number of a part, counted from 0."""


class SendClaimedElsewhere(Exception):
    """Raised if another process is sending this part, or has sent it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryAttempts:
    """Outcomes of requests for parts of answers; each is kept here until it is stored."""

    store: PostgresDeliveries
    crash_point: CrashPoint
    _outcomes: dict[PartKey, MessageSent | CallUnknown | CallNotSent] = field(default_factory=dict)

    def observe(self, key: PartKey) -> SendObserver:
        """Return the callbacks that store the start and a refusal of the request for a part."""
        return SendObserver(before_send=partial(self._begin, key), on_refused=partial(self._refused, key))

    async def _refused(self, key: PartKey, reason: str) -> None:
        await self.record_outcome(key, CallNotSent(reason=reason))

    async def _begin(self, key: PartKey) -> None:
        """Store that the request for a part begins; if this raises, the part must not be sent.

        Raises SendClaimedElsewhere if another process has begun it, and StorageUnavailable.
        """
        try:
            begun = await self.store.begin(*key)
        except StorageUnavailable:
            # The row may say that a request runs, but none was sent; `store_pending_outcome` corrects it.
            self._outcomes[key] = CallNotSent(reason="storage did not answer before it was sent")
            raise
        self._outcomes.pop(key, None)
        if not begun:
            raise SendClaimedElsewhere
        self.crash_point("telegram_before_send")

    async def record_outcome(self, key: PartKey, outcome: MessageSent | CallUnknown | CallNotSent) -> None:
        """Store the outcome of a part's request.

        If this raises StorageUnavailable, the outcome is kept for `store_pending_outcome`.
        """
        self._outcomes[key] = outcome
        match outcome:
            case MessageSent(message_id=message_id):
                await self.store.mark_delivered(*key, remote_id=message_id)
            case CallUnknown(reason=reason):
                await self.store.give_up(*key, state="uncertain", error=reason)
            case CallNotSent(reason=reason):
                await self.store.mark_not_sent(*key, error=reason)
        self._outcomes.pop(key, None)

    async def store_pending_outcome(self, key: PartKey) -> bool:
        """Store the kept outcome of a part's request; return True if the part needs no further request.

        False if no outcome is kept, or if the part was not sent. Raises StorageUnavailable.
        """
        outcome = self._outcomes.get(key)
        if outcome is not None:
            await self.record_outcome(key, outcome)
        return isinstance(outcome, MessageSent | CallUnknown)


EMPTY_ANSWER = "…"
"""Text of an answer without content."""
_REPLACEABLE_STATES = ("queued", "sent")


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingMessage:
    """Content of an ended turn as it is sent: text parts, then an optional document, then files.

    Text is split as while it was streamed, so that no text moves to another message at the end.
    """

    parts: tuple[MessagePart, ...]
    document: str | None = None
    files: tuple[Attached, ...] = ()
    blocks: tuple[RichBlock, ...] | None = None

    @property
    def count(self) -> int:
        """Number of messages that the answer needs in the chat: its parts, a document, and its files."""
        return len(self.parts) + (self.document is not None) + len(self.files)

    def file_at(self, part: int) -> Attached | None:
        """Return the file that is sent as message number `part`; None for a text part or the document."""
        at = part - len(self.parts) - (self.document is not None)
        return self.files[at] if at >= 0 else None


def build_outgoing_message(context: DeliveryContext, chat: ChatRow, ended: EndedTurn) -> OutgoingMessage:
    """Return the messages for an ended turn; too long an answer is cut and also sent as a document."""
    rendered = _render_answer(context, chat, ended)
    parts = split(rendered, limit=LIVE_UNITS) or (MessagePart(text=EMPTY_ANSWER),)
    if len(parts) > context.most_messages:
        parts = parts[: context.most_messages]
        return OutgoingMessage(parts=parts, document=_get_answer_text(ended), files=ended.files)
    return OutgoingMessage(parts=parts, files=ended.files, blocks=_blocks(context, chat, ended))


def _render_answer(context: DeliveryContext, chat: ChatRow, ended: EndedTurn) -> RenderedText:
    """Return the text of an ended turn with notes about its stop or cut, or the notice of an error."""
    if is_notice(ended):
        return RenderedText(text=context.texts.format_notice(chat, ended.error_code, ended.text))
    if ended.state != "stopped":
        rendered = render(_get_answer_text(ended))
        cut = context.texts.format_cut(chat, ended.stop)
        return rendered.append_note(cut) if cut else rendered
    if not ended.text.strip():
        return RenderedText(text=context.texts.format_stopped(chat))
    return render(ended.text).append_note(context.texts.format_stopped(chat))


def _blocks(context: DeliveryContext, chat: ChatRow, ended: EndedTurn) -> tuple[RichBlock, ...] | None:
    """Return the answer as rich blocks; None if it must be sent as plain parts.

    Needs an answered turn without files and a chat that can show rich messages. Of the plain parts only the
    first may exist, and it must be queued or sent.
    """
    begun = any(row.state not in _REPLACEABLE_STATES or row.part > 0 for row in ended.parts)
    if begun or ended.files or ended.state != "answered" or not context.can_use(chat, "rich"):
        return None
    cut = context.texts.format_cut(chat, ended.stop)
    return build_rich_blocks("\n\n".join(filter(None, (_get_answer_text(ended), cut))))


def _get_answer_text(ended: EndedTurn) -> str:
    """Return the text of an answer, below a line with the operator's name if an operator wrote it.

    Without that line, Telegram would show only the bot as sender.
    """
    return (
        f"👤 **{escape_markdown(ended.operator, most=60)}**\n\n{ended.text}" if ended.operator else ended.text
    )


def is_notice(ended: EndedTurn) -> bool:
    """Return whether the turn ended with an error or a refusal instead of an answer."""
    return ended.state in ("refused", "failed")
