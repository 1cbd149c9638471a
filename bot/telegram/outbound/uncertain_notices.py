"""Tells people of answers that may not have arrived, with a button that brings them: none is left waiting."""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from bot.telegram.client.outcomes import (
    CallNotSent,
    CallOutcome,
    CallRejected,
    CallUnknown,
    ChatMoved,
    ChatUnreachable,
    MessageSent,
)
from bot.telegram.client.sender import EDIT_PATIENCE_SECONDS, ChatTarget, Sender
from bot.telegram.inbound.updates import QuotedMessage
from bot.telegram.markup import MessagePart
from bot.telegram.outbound.buttons import build_uncertain_buttons
from bot.telegram.outbound.delivery_context import (
    DeliveryContext,
    SendClaimedElsewhere,
    build_outgoing_message,
)
from bot.telegram.outbound.typing_indicator import TaskStarter
from shared.adapters.postgres.telegram.chats import ChatRow
from shared.adapters.postgres.telegram.uncertain_notices import Pressed, UncertainNotice, UncertainPart
from shared.core.values.errors import StorageUnavailable

log = structlog.get_logger(__name__)

IMMEDIATE_PATIENCE_SECONDS = 3.0
"""How long the parts behind an uncertain one wait while its notice waits for its turn."""


class UncertainNotices:
    """For all bots of the process. A row says `sending` while the request is under way, and not longer.

    A notice of which nobody knows whether it arrived is sent again: it does no harm twice, and it is silence
    that does. Each stands where the answer should: pressed, it becomes the answer, by an edit that can be
    repeated.
    """

    def __init__(self, post: DeliveryContext, *, tasks: TaskStarter) -> None:
        self._post = post
        self._store = post.notices
        self._tasks = tasks
        self._at_it: set[int] = set()
        self._ended: dict[int, tuple[UncertainNotice, ChatRow, CallOutcome]] = {}
        """What became of a request, until it is stored: while this process lives, that is known."""

    async def send_due(self, accounts: Sequence[int]) -> None:
        """What has to wait is left for the next round; raises StorageUnavailable."""
        for notice, place, outcome in tuple(self._ended.values()):
            if notice.id not in self._at_it:
                await self._note(notice, place, outcome)
        for notice in await self._store.to_do(accounts):
            if notice.id not in self._at_it:
                self._at_it.add(notice.id)
                self._tasks.start(self._see_to(notice))

    async def send_now(self, session_id: int, turn: int) -> None:
        """At once, so that it stands where the part should; what fails here is left for `bring`."""
        try:
            notice = await self._store.of_turn(session_id, turn)
            if notice is not None and notice.id not in self._at_it:
                self._at_it.add(notice.id)
                await self._see_to(notice, patience=IMMEDIATE_PATIENCE_SECONDS)
        except StorageUnavailable as error:
            log.warning("notice_deferred", session_id=session_id, turn=turn, reason=str(error))

    async def handle_press(
        self, place: ChatRow, notice_id: int, *, round_number: int, message_id: int | None
    ) -> Pressed:
        """Its answer is on its way now; raises StorageUnavailable."""
        pressed = await self._store.press(
            notice_id, address_id=place.address_id, round_number=round_number, message_id=message_id
        )
        self._post.crash_point("telegram_after_press")
        sender = self._post.senders.get(place.bot_id)
        if pressed.leftover is not None and sender is not None:
            await sender.delete(place.chat_id, [pressed.leftover])
        return pressed

    async def handle_quote(self, place: ChatRow, message_id: int, quoted: QuotedMessage) -> None:
        """Somebody answers a message of ours: if it is an uncertain part, it has arrived."""
        parts = await self._store.uncertain_parts(place.session_id, address_id=place.address_id)
        said = [part for part in parts if await self._says(place, part, quoted)]
        if len(said) == 1:
            await self._store.seen(
                place.session_id, said[0].turn, said[0].part,
                address_id=place.address_id, message_id=message_id,
            )  # fmt: skip

    async def handle_answer_press(self, place: ChatRow, turn: int, message_id: int) -> None:
        """A button under the end of an answer: that part has arrived."""
        await self._store.seen(
            place.session_id, turn, None, address_id=place.address_id, message_id=message_id
        )

    async def begin_sending(self, notice: UncertainNotice, place: ChatRow) -> None:
        """Raises TakenByOther, and nothing must be sent then."""
        try:
            begun = await self._store.begin(notice)
        except StorageUnavailable:
            # Its row may say that a request is on its way: none is.
            self._ended[notice.id] = notice, place, CallNotSent(reason="storage did not answer")
            raise
        if not begun:
            raise SendClaimedElsewhere
        self._post.crash_point("telegram_before_notice")

    # -- one notice -----------------------------------------------------------------------------------

    async def _see_to(self, notice: UncertainNotice, *, patience: float = 0.0) -> None:
        try:
            place = await self._post.places.place(notice.address_id)
            sender = self._post.senders.get(place.bot_id) if place is not None else None
            if place is None or sender is None:
                return
            if notice.is_needed:
                await self._tell(notice, place, sender, patience)
            else:
                await self._take_away(notice, place, sender)
        except SendClaimedElsewhere:
            return
        except StorageUnavailable as error:
            log.warning("notice_deferred", session_id=notice.session_id, turn=notice.turn,
                        reason=str(error))  # fmt: skip
        finally:
            self._at_it.discard(notice.id)

    async def _tell(self, notice: UncertainNotice, place: ChatRow, sender: Sender, patience: float) -> None:
        outcome = await sender.send_text(
            ChatTarget(chat_id=place.chat_id, thread_id=place.thread_id),
            MessagePart(text=self._post.texts.uncertain(place)),
            # Also in private chats: by now other questions may stand between.
            reply_to=await self._post.question(place.session_id, notice.turn),
            keyboard=build_uncertain_buttons(place, notice.id, notice.round),
            patience=patience, tries=1, attempt=_NoticeAttempt(self, notice, place),
        )  # fmt: skip
        self._post.crash_point("telegram_after_notice")
        await self._note(notice, place, outcome)

    async def _note(self, notice: UncertainNotice, place: ChatRow, outcome: CallOutcome) -> None:
        self._ended[notice.id] = notice, place, outcome
        match outcome:
            case MessageSent(message_id=message_id):
                if not await self._store.shown(notice, chat_id=place.chat_id, message_id=message_id):
                    await self._take_back(place, message_id)
            case CallUnknown(reason=reason) | CallRejected(reason=reason):
                log.warning("notice_delivery_unknown", session_id=notice.session_id, turn=notice.turn,
                            reason=reason)  # fmt: skip
                await self._store.not_shown(notice, surely=False)
            case _:
                await self._store.not_shown(notice, surely=True)
        match outcome:
            case ChatUnreachable():
                await self._post.places.set_reachable(place.bot_id, place.chat_id, reachable=False)
            case ChatMoved(new_chat_id=new_chat):
                await self._post.follow_migration(place, new_chat)
            case _:
                pass
        self._ended.pop(notice.id, None)

    async def _take_back(self, place: ChatRow, message_id: int) -> None:
        """Another holder of the bot has told it meanwhile."""
        if (sender := self._post.senders.get(place.bot_id)) is not None:
            await sender.delete(place.chat_id, [message_id])

    async def _take_away(self, notice: UncertainNotice, place: ChatRow, sender: Sender) -> None:
        """The answer has arrived. In a supergroup that was a group, the number is another message's."""
        if notice.message_id is not None and notice.chat_id == place.chat_id:
            outcome = await sender.delete(place.chat_id, [notice.message_id])
            if isinstance(outcome, CallRejected):
                # Telegram deletes nothing that is older than two days.
                words = MessagePart(text=self._post.texts.arrived(place))
                outcome = await sender.edit_text(
                    place.chat_id, notice.message_id, words, patience=EDIT_PATIENCE_SECONDS
                )
            if isinstance(outcome, CallNotSent | CallUnknown):
                return
        await self._store.settle(notice)

    async def _says(self, place: ChatRow, part: UncertainPart, quoted: QuotedMessage) -> bool:
        """Whether these are the words of that part, as they stand in a chat."""
        ended = await self._post.deliveries.ended_turn(part.session_id, part.turn)
        if ended is None:
            return False
        letter = build_outgoing_message(self._post, place, ended)
        if part.part < len(letter.parts):
            words = letter.parts[part.part].text
        elif letter.file_at(part.part) is not None:
            return quoted.media in ("document", "photo")
        else:
            words = self._post.texts.document(place) if quoted.media == "document" else ""
        return quoted.text in words if quoted.chosen else quoted.text.strip() == words.strip() != ""


class _NoticeAttempt:
    """What the sender tells when the request goes out; what was refused is told by the outcome, too."""

    def __init__(self, notices: UncertainNotices, notice: UncertainNotice, place: ChatRow) -> None:
        self._notices = notices
        self._notice = notice
        self._place = place
        self._begun = False

    async def before_send(self) -> None:
        if not self._begun:
            await self._notices.begin_sending(self._notice, self._place)
        self._begun = True

    async def on_refused(self, reason: str) -> None:
        del reason
