"""Sends a notice when an operator has left a conversation and the assistant answers again, once each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import structlog

from bot.telegram.client.calls import (
    CallDone,
    CallNotSent,
    CallOutcome,
    CallRejected,
    CallUnknown,
    ChatClosed,
    ChatMoved,
    ChatUnreachable,
    MessageSent,
    Priority,
)
from bot.telegram.client.middlewares import SendObserver
from bot.telegram.client.sender import Sender
from bot.telegram.inbound.bot_context import BotContext
from bot.telegram.markup.entity_text import render, split
from bot.telegram.outbound.buttons import build_rating_buttons
from bot.telegram.outbound.delivery_context import SendClaimedElsewhere
from bot.telegram.outbound.notifier import get_chat_target
from bot.telegram.texts import explain_failure, get_chat_texts
from shared.adapters.postgres.handover.handovers import PostgresHandovers
from shared.adapters.postgres.telegram.chats import ChatRow, PostgresTelegramChats
from shared.core.identity.handover import ADVICE, RESOLVED, Told, UnsentNotice
from shared.core.values.errors import StorageUnavailable
from shared.runtime import CrashPoint

log = structlog.get_logger(__name__)


class HandoverNotices:
    """Sender of notices about ended handovers for all bots of the process.

    A notice has the state `sending` only while its request runs.
    """

    def __init__(
        self,
        handovers: PostgresHandovers,
        chats: PostgresTelegramChats,
        *,
        senders: Mapping[int, Sender],
        find_context: Callable[[int], BotContext | None],
        crash_point: CrashPoint,
    ) -> None:
        self._handovers = handovers
        self._chats = chats
        self._senders = senders
        self._find_context = find_context
        self._crash_point = crash_point
        self._outcomes: dict[int, Told] = {}
        """Outcomes of requests that are not stored yet, by handover id."""

    async def send_due(self, accounts: Sequence[int]) -> None:
        """Send the due notices of these bots; a notice to a chat that is being tried again waits.

        Raises StorageUnavailable.
        """
        for handover_id, outcome in tuple(self._outcomes.items()):
            await self._record_outcome(handover_id, outcome)
        for one in await self._handovers.list_unnotified(accounts):
            chat = await self._chats.find_chat(one.address_id)
            if chat is not None and chat.will_be_tried:
                continue
            if chat is None or chat.unreachable:
                await self._handovers.record_notified(one.handover_id, "dead")
            elif (sender := self._senders.get(chat.bot_id)) is not None:
                await self._send(one, chat, sender)

    async def _begin_sending(self, handover_id: int) -> None:
        """Store that the request for a notice begins; if this raises, the notice must not be sent.

        Raises SendClaimedElsewhere if another process has begun it, and StorageUnavailable.
        """
        try:
            begun = await self._handovers.begin_notifying(handover_id)
        except StorageUnavailable:
            # The row may say that a request runs, but none was sent.
            self._outcomes[handover_id] = "queued"
            raise
        if not begun:
            raise SendClaimedElsewhere
        self._crash_point("telegram_before_word")

    async def _send(self, one: UnsentNotice, chat: ChatRow, sender: Sender) -> None:
        context = self._find_context(chat.bot_id)
        public = context is None or context.public
        text = explain_failure(get_chat_texts(chat), code=one.code, advice=ADVICE[one.code], public=public)
        try:
            outcome = await sender.send_text(
                get_chat_target(chat), split(render(text))[0], priority=Priority.NOTICE,
                keyboard=build_rating_buttons(chat, one.handover_id) if one.code == RESOLVED else None,
                patience=0.0, tries=1,
                observer=SendObserver(
                    before_send=partial(self._begin_sending, one.handover_id),
                    on_refused=lambda _: self._record_outcome(one.handover_id, "queued"),
                ),
            )  # fmt: skip
        except SendClaimedElsewhere:
            return
        self._crash_point("telegram_after_word")
        await self._handle_outcome(one.handover_id, chat, outcome)

    async def _handle_outcome(self, handover_id: int, chat: ChatRow, outcome: CallOutcome) -> None:
        match outcome:
            case MessageSent() | CallDone():
                await self._record_outcome(handover_id, "told")
            case CallUnknown():
                log.warning("notice_delivery_unknown", handover_id=handover_id)
                await self._record_outcome(handover_id, "uncertain")
            case CallRejected(reason=reason):
                log.error("notice_rejected", handover_id=handover_id, reason=reason)
                await self._record_outcome(handover_id, "dead")
            case ChatUnreachable():
                await self._record_outcome(handover_id, "dead")
                await self._chats.set_reachable(chat.bot_id, chat.chat_id, reachable=False)
            case ChatMoved(new_chat_id=new_chat):
                await self._chats.migrate(chat.bot_id, old_chat=chat.chat_id, new_chat=new_chat)
            case ChatClosed(reason=reason):
                await self._record_outcome(handover_id, "queued")
                await self._chats.record_refusal(chat.address_id, reason)
            case CallNotSent():
                pass  # its row is unchanged, so the next round sends it

    async def _record_outcome(self, handover_id: int, outcome: Told) -> None:
        self._outcomes[handover_id] = outcome
        await self._handovers.record_notified(handover_id, outcome)
        self._outcomes.pop(handover_id, None)
