"""The word that the assistant answers again, sent once after a hand-over: a chat would not show it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import structlog

from bot.telegram.client.call_queue import Priority
from bot.telegram.client.outcomes import (
    CallDone,
    CallNotSent,
    CallOutcome,
    CallRejected,
    CallUnknown,
    ChatMoved,
    ChatUnreachable,
    MessageSent,
)
from bot.telegram.client.sender import Sender
from bot.telegram.inbound.bot_context import BotContext, get_chat_texts
from bot.telegram.markup import render, split
from bot.telegram.outbound.buttons import build_rating_buttons
from bot.telegram.outbound.delivery_context import SendClaimedElsewhere
from bot.telegram.outbound.notifier import get_chat_target
from bot.telegram.texts import explain_failure
from shared.adapters.postgres.handover.handovers import PostgresHandovers
from shared.adapters.postgres.telegram.chats import ChatRow, PostgresTelegramChats
from shared.core.identity.handover import ADVICE, RESOLVED, Told, Untold
from shared.core.values.errors import StorageUnavailable
from shared.runtime.crash_points import CrashPoint

log = structlog.get_logger(__name__)


class HandoverNotices:
    """For all bots of the process. A row says `sending` while the request is under way, and not longer."""

    def __init__(
        self,
        handovers: PostgresHandovers,
        places: PostgresTelegramChats,
        *,
        senders: Mapping[int, Sender],
        desk_of: Callable[[int], BotContext | None],
        crash_point: CrashPoint,
    ) -> None:
        self._handovers = handovers
        self._places = places
        self._senders = senders
        self._desk_of = desk_of
        self._crash_point = crash_point
        self._ended: dict[int, Told] = {}
        """What became of a request, until it is stored: while this process lives, that is known."""

    async def send_due(self, accounts: Sequence[int]) -> None:
        """What has to wait is left for the next round; raises StorageUnavailable."""
        for handover_id, told in tuple(self._ended.items()):
            await self._note(handover_id, told)
        for one in await self._handovers.untold(accounts):
            place = await self._places.place(one.address_id)
            if place is None or place.unreachable:
                await self._handovers.told(one.handover_id, "dead")
            elif (sender := self._senders.get(place.bot_id)) is not None:
                await self._tell(one, place, sender)

    async def begin_sending(self, handover_id: int) -> None:
        """Raises TakenByOther, and nothing must be sent then."""
        try:
            begun = await self._handovers.begin_telling(handover_id)
        except StorageUnavailable:
            # Its row may say that a request is on its way: none is.
            self._ended[handover_id] = "queued"
            raise
        if not begun:
            raise SendClaimedElsewhere
        self._crash_point("telegram_before_word")

    async def _tell(self, one: Untold, place: ChatRow, sender: Sender) -> None:
        desk = self._desk_of(place.bot_id)
        public = desk is None or desk.public
        words = explain_failure(get_chat_texts(place), code=one.code, advice=ADVICE[one.code], public=public)
        try:
            outcome = await sender.send_text(
                get_chat_target(place), split(render(words))[0], priority=Priority.NOTICE,
                keyboard=build_rating_buttons(place, one.handover_id) if one.code == RESOLVED else None,
                patience=0.0, tries=1,
                attempt=_HandoverNoticeAttempt(self, one.handover_id),
            )  # fmt: skip
        except SendClaimedElsewhere:
            return
        self._crash_point("telegram_after_word")
        await self._heed(one.handover_id, place, outcome)

    async def _heed(self, handover_id: int, place: ChatRow, outcome: CallOutcome) -> None:
        match outcome:
            case MessageSent() | CallDone():
                await self._note(handover_id, "told")
            case CallUnknown():
                log.warning("notice_delivery_unknown", handover_id=handover_id)
                await self._note(handover_id, "uncertain")
            case CallRejected(reason=reason):
                log.error("notice_rejected", handover_id=handover_id, reason=reason)
                await self._note(handover_id, "dead")
            case ChatUnreachable():
                await self._note(handover_id, "dead")
                await self._places.set_reachable(place.bot_id, place.chat_id, reachable=False)
            case ChatMoved(new_chat_id=new_chat):
                await self._places.migrate(place.bot_id, old_chat=place.chat_id, new_chat=new_chat)
            case CallNotSent():
                pass  # its row is as before: the next round sends it

    async def _note(self, handover_id: int, told: Told) -> None:
        self._ended[handover_id] = told
        await self._handovers.told(handover_id, told)
        self._ended.pop(handover_id, None)

    async def requeue(self, handover_id: int) -> None:
        await self._note(handover_id, "queued")


class _HandoverNoticeAttempt:
    """What the sender tells when the request goes out, and when it was surely not heard."""

    def __init__(self, words: HandoverNotices, handover_id: int) -> None:
        self._words = words
        self._handover_id = handover_id

    async def before_send(self) -> None:
        await self._words.begin_sending(self._handover_id)

    async def on_refused(self, reason: str) -> None:
        del reason
        await self._words.requeue(self._handover_id)
