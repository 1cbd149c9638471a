"""Newer forms of answers: native drafts, and rich messages in chats that chose them.

Not every client and server supports them. A refused form is disabled in its chat until the process restarts,
and the answer is sent as plain messages. If a server does not know the method in three chats, the form is
disabled for all chats.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, Literal, TypeGuard
from zlib import crc32

import structlog
from aiogram.methods import EditMessageText, SendMessageDraft, SendRichMessage
from aiogram.types import InlineKeyboardMarkup, InputRichMessage

from bot.telegram.client.calls import (
    CallNotSent,
    CallOutcome,
    CallRejected,
    ChatUnreachable,
    Priority,
    ScaledClock,
    is_missing_message,
)
from bot.telegram.client.middlewares import SendObserver
from bot.telegram.client.sender import (
    ChatTarget,
    Sender,
    to_aiogram_entities,
    to_reply_parameters,
)
from bot.telegram.markup.entity_text import MessagePart
from bot.telegram.markup.rich_blocks import RichBlock
from bot.telegram.outbound.draft_streaming import ReplyDraft

log = structlog.get_logger(__name__)

AnswerForm = Literal["drafts", "rich"]
"""Newer form of an answer: native drafts while it is written, or a rich message."""
KEEP_ALIVE_SECONDS = 20.0
"""Seconds between two calls that keep a draft; Telegram drops it after 30."""
UNKNOWN_CHATS = 3
"""Chats in which a method must be unknown until no chat tries it; a single 404 may come from a proxy."""
_MAX_DRAFT_ID = 2**31 - 1
_MAX_REFUSED = 1_000
"""Maximum pairs of form and chat remembered as refused."""


def make_draft_id(session_id: int, turn: int) -> int:
    """Return the draft id of a turn; equal for each attempt, so that the draft continues after a crash."""
    return crc32(f"{session_id}:{turn}".encode()) % _MAX_DRAFT_ID + 1


class FormSupport:
    """Knowledge of which newer forms the server of one bot and its chats accept."""

    def __init__(self) -> None:
        self._unknown: dict[AnswerForm, set[int]] = {"drafts": set(), "rich": set()}
        """Ids of chats in which the server did not know the method of a form."""
        self._refused: dict[tuple[AnswerForm, int], None] = {}

    def allows(self, form: AnswerForm, chat_id: int) -> bool:
        """Return whether the form may be tried in a chat."""
        is_known = len(self._unknown[form]) < UNKNOWN_CHATS
        return is_known and (form, chat_id) not in self._refused

    def refuse(self, form: AnswerForm, chat_id: int, refusal: CallRejected) -> None:
        """Disable a form for one chat; after a 404 in `UNKNOWN_CHATS` chats, disable it for all."""
        if not self.allows(form, chat_id):
            return
        if refusal.status == 404:
            self._unknown[form].add(chat_id)
        while len(self._refused) >= _MAX_REFUSED:
            del self._refused[next(iter(self._refused))]
        self._refused[form, chat_id] = None
        for_all = len(self._unknown[form]) >= UNKNOWN_CHATS
        log.warning("message_form_disabled", form=form, for_all_chats=for_all, reason=refusal.reason)


class NativeDraft:
    """Native draft of one answer: a message of Telegram's client with its own Stop button.

    `draft` is the text to show, `every` the seconds between two looks at it.
    """

    def __init__(
        self,
        sender: Sender,
        target: ChatTarget,
        draft: ReplyDraft,
        *,
        clock: ScaledClock,
        form_support: FormSupport,
        every: float = 0.5,
        draft_id: int,
    ) -> None:
        self._sender = sender
        self._target = target
        self._draft = draft
        self._clock = clock
        self._form_support = form_support
        self._every = every
        self.draft_id = draft_id
        self._over = asyncio.Event()
        self._shown: MessagePart | None = None
        self._shown_at = 0.0

    def stop(self) -> None:
        """Make `run` return after the call under way."""
        self._over.set()

    async def run(self) -> bool:
        """Show the draft until `stop` is called; return False if the answer must continue as plain messages.

        That is the case if Telegram refuses drafts, or if the text outgrows one message.
        """
        while not self._over.is_set():
            part = self._build_text()
            if part is None:
                return False
            now = self._clock.now()
            pause = self._every
            if part != self._shown or now - self._shown_at >= KEEP_ALIVE_SECONDS:
                outcome = await self._show(part)
                if isinstance(outcome, CallRejected):
                    self._form_support.refuse("drafts", self._target.chat_id, outcome)
                    return False
                if isinstance(outcome, ChatUnreachable):
                    return True
                if isinstance(outcome, CallNotSent):
                    pause = max(pause, outcome.retry_after or 0.0)
                else:
                    self._shown, self._shown_at = part, now
            await self._pause(pause)
        return True

    def _build_text(self) -> MessagePart | None:
        """Return the text to show, empty while there is none.

        None if the draft needs more than one message.
        """
        views = self._draft.render_views()
        if len(views) > 1:
            return None
        return views[0] if views else MessagePart(text="")

    async def _show(self, part: MessagePart) -> CallOutcome:
        method = SendMessageDraft(
            chat_id=self._target.chat_id,
            draft_id=self.draft_id,
            message_thread_id=self._target.thread_id or None,
            text=part.text,
            entities=to_aiogram_entities(part),
            can_stop=True,
            keep_on_stop=True,
        )
        return await self._sender.call(
            method, chat_id=self._target.chat_id, priority=Priority.EDIT, patience=0.0, counts=False, tries=1
        )

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._clock.to_real_seconds(seconds)):
                await self._over.wait()


async def send_rich(
    sender: Sender,
    target: ChatTarget,
    blocks: tuple[RichBlock, ...],
    *,
    reply_to: int | None,
    keyboard: InlineKeyboardMarkup | None,
    patience: float,
    tries: int,
    observer: SendObserver | None = None,
) -> CallOutcome:
    """Send a rich message; the outcome CallRejected means that the answer must be sent as plain messages."""
    method = SendRichMessage(
        chat_id=target.chat_id,
        message_thread_id=target.thread_id or None,
        rich_message=_rich(blocks),
        reply_parameters=to_reply_parameters(reply_to),
        reply_markup=keyboard,
    )
    return await sender.call(
        method, chat_id=target.chat_id, priority=Priority.FINAL, patience=patience, tries=tries,
        observer=observer,
    )  # fmt: skip


async def edit_rich(
    sender: Sender,
    chat_id: int,
    message_id: int,
    blocks: tuple[RichBlock, ...],
    *,
    keyboard: InlineKeyboardMarkup | None,
    patience: float,
    tries: int,
) -> CallOutcome:
    """Edit a message into a rich message; the outcome CallRejected means that it must become a plain one."""
    method = EditMessageText(
        chat_id=chat_id, message_id=message_id, rich_message=_rich(blocks), link_preview_options=None,
        reply_markup=keyboard,
    )  # fmt: skip
    return await sender.call(
        method,
        chat_id=chat_id,
        priority=Priority.FINAL,
        patience=patience,
        tries=tries,
        repeatable=True,
        message=(chat_id, message_id),
    )


def is_form_refused(outcome: CallOutcome) -> TypeGuard[CallRejected]:
    """Return whether Telegram refused the form itself, not the message to edit."""
    return isinstance(outcome, CallRejected) and not is_missing_message(outcome)


def _rich(blocks: tuple[RichBlock, ...]) -> Any:
    return InputRichMessage.model_validate({"blocks": list(blocks)})
