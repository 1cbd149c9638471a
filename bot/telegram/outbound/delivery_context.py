"""What answers are brought with: senders, rows, words and buttons; and what an ended one is sent as."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from bot.telegram.client.call_queue import ScaledClock
from bot.telegram.client.outcomes import CallNotSent, CallUnknown, MessageSent
from bot.telegram.client.sender import Sender
from bot.telegram.markup import (
    LIVE_UNITS,
    MAX_PARTS,
    MessagePart,
    RenderedText,
    RichBlock,
    build_rich_blocks,
    render,
    split,
)
from bot.telegram.outbound.native_drafts import AnswerForm, FormSupport
from bot.telegram.outbound.typing_indicator import TaskStarter
from bot.telegram.texts import escape_markdown
from shared.adapters.postgres.telegram.chats import ChatRow, PostgresTelegramChats
from shared.adapters.postgres.telegram.uncertain_notices import PostgresUncertainNotices
from shared.adapters.postgres.turns.deliveries import EndedTurn, PostgresDeliveries
from shared.core.values.errors import StorageUnavailable
from shared.core.values.files import Attached
from shared.runtime.crash_points import CrashPoint, ignore_crash_point
from shared.runtime.tracing import NULL_TRACER, Tracer

if TYPE_CHECKING:
    from aiogram.types import InlineKeyboardMarkup


class DeliveryTexts(Protocol):
    """Every word of ours that is added to an answer."""

    def stopped(self, place: ChatRow) -> str:
        """Below what was written until somebody pressed Stop: `[stopped]`."""

    def working(self, place: ChatRow, tool: str, subject: str = "") -> str | None:
        """The status line while a tool runs; None for tools that nobody shall see."""

    def notice(self, place: ChatRow, code: str, text: str) -> str:
        """One friendly line for an error or a refusal; `text` is its advice in English."""

    def document(self, place: ChatRow) -> str:
        """The caption of an answer that comes as a file."""

    def uncertain(self, place: ChatRow) -> str:
        """That an answer may not have arrived, above the button that brings it."""

    def arrived(self, place: ChatRow) -> str:
        """What becomes of that when it has arrived, and the notice is too old to be deleted."""


WORKING = "👀"
BuildKeyboard = Callable[[ChatRow, int, str], "InlineKeyboardMarkup | None"]
"""Of a place, a turn and its state (`running` while it is written): the buttons under the last part."""
FindQuestion = Callable[[int, int], Awaitable[int | None]]
"""Of a session and a turn: the message that asked, where the answer shall quote it."""
WantsForm = Callable[[ChatRow, AnswerForm], bool]
WantVoiceNote = Callable[[int, int], Awaitable[None]]
"""Of a session and a turn: its answer is to be heard, too, if its person chose that."""
LoadFile = Callable[[int, str], Awaitable[bytes | None]]
"""Of a session and a file's public id; None when it is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryContext:
    """One for all bots of the process."""

    senders: Mapping[int, Sender]
    deliveries: PostgresDeliveries
    notices: PostgresUncertainNotices
    places: PostgresTelegramChats
    texts: DeliveryTexts
    keyboard: BuildKeyboard
    question: FindQuestion
    files: LoadFile
    wants: WantsForm
    want_voice_note: WantVoiceNote | None = None
    """None where nothing is read aloud."""
    reacts: bool = False
    """👀 on a group's message while its answer is worked at."""
    clock: ScaledClock = field(default_factory=ScaledClock)
    latches: dict[int, FormSupport] = field(default_factory=dict)
    crash_point: CrashPoint = ignore_crash_point
    tracer: Tracer = NULL_TRACER
    marking: dict[int, asyncio.Task[None]] = field(default_factory=dict)
    """By session: the mark that is being put on its question."""

    def get_form_support(self, bot_id: int) -> FormSupport:
        return self.latches.setdefault(bot_id, FormSupport())

    def can_use(self, place: ChatRow, form: AnswerForm) -> bool:
        return self.wants(place, form) and self.get_form_support(place.bot_id).allows(form)

    async def find_question(self, place: ChatRow, turn: int) -> int | None:
        """In private chats it is clear what is answered."""
        return await self.question(place.session_id, turn) if place.chat_id < 0 else None

    def show_working(self, place: ChatRow, turn: int, tasks: TaskStarter, *, ended: bool = False) -> None:
        """A mark on the question, in groups where that is wished; nobody waits for it."""
        if self.reacts and place.chat_id < 0:
            before = self.marking.pop(place.session_id, None)
            task = tasks.start(self._mark(place, turn, None if ended else WORKING, before))
            if not ended:
                self.marking[place.session_id] = task

    async def _mark(
        self, place: ChatRow, turn: int, emoji: str | None, before: asyncio.Task[None] | None
    ) -> None:
        """After the one before: else a mark could come when its answer is there."""
        if before is not None:
            await asyncio.wait([before])
        sender = self.senders.get(place.bot_id)
        try:
            question = await self.question(place.session_id, turn)
        except StorageUnavailable:
            return
        if sender is not None and question is not None:
            await sender.react(place.chat_id, question, emoji)

    async def follow_migration(self, place: ChatRow, new_chat_id: int) -> ChatRow:
        """The same place in the supergroup that its group has become."""
        await self.places.migrate(place.bot_id, old_chat=place.chat_id, new_chat=new_chat_id)
        return await self.places.place(place.address_id) or replace(place, chat_id=new_chat_id)


PartKey = tuple[int, int, int]
"""Session, turn, part."""


class SendClaimedElsewhere(Exception):
    """Somebody else sends this part, or it is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryAttempts:
    """Remembers what became of a request until it is stored: while this process lives, that is known."""

    store: PostgresDeliveries
    crash_point: CrashPoint
    _ended: dict[PartKey, MessageSent | CallUnknown | CallNotSent] = field(default_factory=dict)

    def for_part(self, key: PartKey) -> DeliveryAttempt:
        return DeliveryAttempt(self, key)

    async def begin(self, key: PartKey) -> None:
        try:
            begun = await self.store.begin(*key)
        except StorageUnavailable:
            # Its row may say that a request is on its way: `catch_up` puts that right, none went out.
            self._ended[key] = CallNotSent(reason="storage did not answer before it was sent")
            raise
        self._ended.pop(key, None)
        if not begun:
            raise SendClaimedElsewhere
        self.crash_point("telegram_before_send")

    async def record_outcome(self, key: PartKey, outcome: MessageSent | CallUnknown | CallNotSent) -> None:
        """Raises StorageUnavailable; `catch_up` stores it then."""
        self._ended[key] = outcome
        match outcome:
            case MessageSent(message_id=message_id):
                await self.store.delivered(*key, remote_id=message_id)
            case CallUnknown(reason=reason):
                await self.store.give_up(*key, state="uncertain", error=reason)
            case CallNotSent(reason=reason):
                await self.store.surely_not_sent(*key, error=reason)
        self._ended.pop(key, None)

    async def store_pending_outcome(self, key: PartKey) -> bool:
        """Whether nothing is left to do: not while it is being sent, nor where the next holder decides."""
        outcome = self._ended.get(key)
        if outcome is not None:
            await self.record_outcome(key, outcome)
        return isinstance(outcome, MessageSent | CallUnknown)


class DeliveryAttempt:
    """What the sender tells when the request goes out, and when it was surely not heard."""

    def __init__(self, attempts: DeliveryAttempts, key: PartKey) -> None:
        self._attempts = attempts
        self._key = key

    async def before_send(self) -> None:
        """Raises TakenByOther, and nothing must be sent then."""
        await self._attempts.begin(self._key)

    async def on_refused(self, reason: str) -> None:
        await self._attempts.record_outcome(self._key, CallNotSent(reason=reason))


EMPTY_ANSWER = "…"
_REPLACEABLE_STATES = ("queued", "sent")


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingMessage:
    """With the limits of the live view no text changes its message at the end, and none goes away."""

    parts: tuple[MessagePart, ...]
    document: str | None = None
    files: tuple[Attached, ...] = ()
    blocks: tuple[RichBlock, ...] | None = None

    @property
    def count(self) -> int:
        return len(self.parts) + (self.document is not None) + len(self.files)

    def file_at(self, part: int) -> Attached | None:
        """What a part is that is neither words nor the document with all of them."""
        at = part - len(self.parts) - (self.document is not None)
        return self.files[at] if at >= 0 else None


def build_outgoing_message(post: DeliveryContext, place: ChatRow, ended: EndedTurn) -> OutgoingMessage:
    parts = split(_rendered(post, place, ended), limit=LIVE_UNITS) or (MessagePart(text=EMPTY_ANSWER),)
    if len(parts) > MAX_PARTS:
        return OutgoingMessage(parts=parts[:MAX_PARTS], document=_answer_text(ended), files=ended.files)
    return OutgoingMessage(parts=parts, files=ended.files, blocks=_blocks(post, place, ended))


def _rendered(post: DeliveryContext, place: ChatRow, ended: EndedTurn) -> RenderedText:
    if is_notice(ended):
        return RenderedText(text=post.texts.notice(place, ended.error_code, ended.text))
    if ended.state != "stopped":
        return render(_answer_text(ended))
    if not ended.text.strip():
        return RenderedText(text=post.texts.stopped(place))
    return render(ended.text).followed_by(post.texts.stopped(place))


def _blocks(post: DeliveryContext, place: ChatRow, ended: EndedTurn) -> tuple[RichBlock, ...] | None:
    """None as soon as something is in the chat for good, on its way, or shown in more than one message."""
    begun = any(row.state not in _REPLACEABLE_STATES or row.part > 0 for row in ended.parts)
    if begun or ended.files or ended.state != "answered" or not post.can_use(place, "rich"):
        return None
    return build_rich_blocks(_answer_text(ended))


def _answer_text(ended: EndedTurn) -> str:
    """A human's words begin with who writes: in a chat everything comes from the bot."""
    return (
        f"👤 **{escape_markdown(ended.operator, most=60)}**\n\n{ended.text}" if ended.operator else ended.text
    )


def is_notice(ended: EndedTurn) -> bool:
    return ended.state in ("refused", "failed")
