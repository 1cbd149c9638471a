"""Handles answers that may not have arrived: searches the chat, or sends a notice with a button to resend."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import structlog

from bot.telegram.client.calls import (
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
from bot.telegram.client.sender import EDIT_PATIENCE_SECONDS, ChatTarget, Sender
from bot.telegram.inbound.updates import QuotedMessage
from bot.telegram.markup.entity_text import MessagePart
from bot.telegram.outbound.buttons import build_uncertain_buttons
from bot.telegram.outbound.delivery_context import (
    DeliveryContext,
    SendClaimedElsewhere,
    build_outgoing_message,
)
from bot.telegram.outbound.lost_messages import LostMessages
from shared.adapters.postgres.telegram.chats import ChatRow
from shared.adapters.postgres.telegram.uncertain_notices import PressOutcome, UncertainNotice, UncertainPart
from shared.core.values.errors import StorageUnavailable
from shared.runtime import BackgroundTasks

log = structlog.get_logger(__name__)

IMMEDIATE_PATIENCE_SECONDS = 3.0
"""Maximum seconds for which an answer waits for the notices of earlier uncertain answers."""
NOTICE_PATIENCE_SECONDS = 5.0
"""Seconds that a notice may wait for its turn."""
SETTLE_DELAY_SECONDS = 1.5
"""Seconds to wait after a broken request; by then Telegram has stored its message or never will."""
PLACEHOLDER = "…"
"""Text of a notice while the bot searches for the answer."""


class UncertainNotices:
    """Notices about uncertain answers, for all bots of the process.

    A notice has the state `sending` only while its request runs. A notice that may not have arrived is sent
    again, since a second one does no harm. When its button is pressed, the notice is edited into the answer;
    that edit can be repeated.
    """

    def __init__(self, context: DeliveryContext, *, tasks: BackgroundTasks) -> None:
        self._context = context
        self._store = context.notices
        self._tasks = tasks
        self._lost = LostMessages(context.notices)
        self._resumed: set[int] = set()
        """Bots for which notices shown by an earlier process were searched for."""
        self._running: dict[int, asyncio.Task[None]] = {}
        self._outcomes: dict[int, tuple[UncertainNotice, ChatRow, CallOutcome]] = {}
        """Outcomes of requests that are not stored yet, by notice id."""

    async def send_due(self, accounts: Sequence[int]) -> None:
        """Start to send the due notices of these bots. Raises StorageUnavailable."""
        for notice, chat, outcome in tuple(self._outcomes.values()):
            if notice.id not in self._running:
                await self._record_outcome(notice, chat, outcome)
        await self._resume_search(accounts)
        for notice in await self._store.list_due(accounts):
            self._start(notice)

    async def send_now(
        self, session_id: int, *, up_to: int, patience: float = IMMEDIATE_PATIENCE_SECONDS
    ) -> None:
        """Send the notices of this turn and earlier ones; wait for all of them, at most `patience` seconds.

        What takes longer continues in the background. Errors are logged; `send_due` tries again.
        """
        try:
            due = await self._store.list_due_up_to(session_id, up_to)
        except StorageUnavailable as error:
            log.warning("notice_deferred", session_id=session_id, turn=up_to, reason=str(error))
            return
        clock = self._context.clock
        until = clock.now() + patience
        for notice in due:
            # The next one is started after it, since notices must be shown in the order of their turns.
            left = clock.to_real_seconds(until - clock.now())
            await asyncio.wait([self._start(notice)], timeout=left)

    def _start(self, notice: UncertainNotice) -> asyncio.Task[None]:
        """Return the task that handles a notice, started if none runs."""
        if (task := self._running.get(notice.id)) is None:
            task = self._running[notice.id] = self._tasks.start(self._process(notice))
        return task

    async def handle_press(
        self, chat: ChatRow, notice_id: int, *, round_number: int, message_id: int | None
    ) -> PressOutcome:
        """Store that the person wants the answer again, and return what to do.

        `round_number` is that of the button, `message_id` the notice, None if it cannot be edited. Raises
        StorageUnavailable.
        """
        result = await self._store.press(
            notice_id, address_id=chat.address_id, round_number=round_number, message_id=message_id
        )
        self._context.crash_point("telegram_after_press")
        sender = self._context.senders.get(chat.bot_id)
        if result.leftover is not None and sender is not None:
            await sender.delete(chat.chat_id, [result.leftover])
        return result

    async def handle_quote(self, chat: ChatRow, message_id: int, quoted: QuotedMessage) -> None:
        """Mark an uncertain part as arrived if a person's reply quotes it and no other part has this text."""
        parts = await self._store.list_uncertain_parts(chat.session_id, address_id=chat.address_id)
        matching = [part for part in parts if await self._is_quote_of(chat, part, quoted)]
        if len(matching) == 1:
            await self._store.mark_seen(
                chat.session_id, matching[0].turn, matching[0].part,
                address_id=chat.address_id, message_id=message_id,
            )  # fmt: skip

    async def handle_answer_press(self, chat: ChatRow, turn: int, message_id: int) -> None:
        """Mark the last part of an answer as arrived, because a person pressed a button below it."""
        await self._store.mark_seen(
            chat.session_id, turn, None, address_id=chat.address_id, message_id=message_id
        )

    async def _begin_sending(self, notice: UncertainNotice, chat: ChatRow) -> None:
        """Store that the request for a notice begins; if this raises, the notice must not be sent.

        Raises SendClaimedElsewhere if another process has begun it, and StorageUnavailable.
        """
        try:
            begun = await self._store.begin(notice)
        except StorageUnavailable:
            # The row may say that a request runs, but none was sent.
            self._outcomes[notice.id] = notice, chat, CallNotSent(reason="storage did not answer")
            raise
        if not begun:
            raise SendClaimedElsewhere
        self._context.crash_point("telegram_before_notice")

    # -- one notice -----------------------------------------------------------------------------------

    async def _process(self, notice: UncertainNotice) -> None:
        """Send a notice, or remove it if the answer has arrived; a database outage is logged only."""
        try:
            chat = await self._context.chats.find_chat(notice.address_id)
            sender = self._context.senders.get(chat.bot_id) if chat is not None else None
            if chat is None or sender is None:
                return
            if notice.is_needed:
                await self._send(notice, chat, sender)
            else:
                await self._remove(notice, chat, sender)
        except SendClaimedElsewhere:
            return
        except StorageUnavailable as error:
            log.warning("notice_deferred", session_id=notice.session_id, turn=notice.turn,
                        reason=str(error))  # fmt: skip
        finally:
            self._running.pop(notice.id, None)

    async def _send(self, notice: UncertainNotice, chat: ChatRow, sender: Sender) -> None:
        """Send the notice: as a placeholder while the bot searches, else with its text and button."""
        begun = False

        async def begin_once() -> None:
            nonlocal begun
            if not begun:
                await self._begin_sending(notice, chat)
            begun = True

        searches = self._context.settles and await self._can_search(chat, notice)
        if searches:
            await self._context.clock.sleep(SETTLE_DELAY_SECONDS)
        text = PLACEHOLDER if searches else self._context.texts.format_uncertain(chat)
        outcome = await sender.send_text(
            ChatTarget(chat_id=chat.chat_id, thread_id=chat.thread_id), MessagePart(text=text),
            # Replies in private chats, too: other questions may follow the one that was answered.
            reply_to=await self._context.chats.find_question_id(chat.session_id, notice.turn),
            keyboard=build_uncertain_buttons(chat, notice.id, notice.round), silent=searches,
            priority=Priority.SETTLE, patience=NOTICE_PATIENCE_SECONDS, tries=1,
            observer=SendObserver(before_send=begin_once),
        )  # fmt: skip
        self._context.crash_point("telegram_after_notice")
        await self._record_outcome(notice, chat, outcome)
        if searches and isinstance(outcome, MessageSent):
            await self._search_and_edit(notice, chat, sender, outcome.message_id)

    # -- settling without the person --------------------------------------------------------------------

    async def _resume_search(self, accounts: Sequence[int]) -> None:
        """Search once per bot for the answers whose notices an earlier process showed.

        Raises StorageUnavailable.
        """
        if not self._context.settles or not (new := set(accounts) - self._resumed):
            return
        for notice in await self._store.list_shown(list(new)):
            self._tasks.start(self._search_again(notice))
        self._resumed |= new

    async def _search_again(self, notice: UncertainNotice) -> None:
        try:
            chat = await self._context.chats.find_chat(notice.address_id)
            sender = self._context.senders.get(chat.bot_id) if chat is not None else None
            if chat is None or sender is None or notice.message_id is None:
                return
            if await self._can_search(chat, notice):
                await self._search_and_edit(notice, chat, sender, notice.message_id)
        except StorageUnavailable as error:
            log.warning("notice_deferred", session_id=notice.session_id, turn=notice.turn,
                        reason=str(error))  # fmt: skip

    async def _can_search(self, chat: ChatRow, notice: UncertainNotice) -> bool:
        """Return whether all uncertain parts are texts; only a text can be edited into another message."""
        ended = await self._context.deliveries.load_ended_turn(notice.session_id, notice.turn)
        if ended is None:
            return False
        texts = len(build_outgoing_message(self._context, chat, ended).parts)
        return all(row.part < texts for row in ended.parts if row.state == "uncertain")

    async def _search_and_edit(
        self, notice: UncertainNotice, chat: ChatRow, sender: Sender, message_id: int
    ) -> None:
        """Search for the uncertain parts in the chat, and edit the notice into a part that did not arrive.

        If the search is inconclusive, the notice gets its text and keeps its button.
        """
        found = await self._lost.find(notice, chat, sender, before=message_id)
        self._context.crash_point("telegram_after_search")
        resolved = None
        if found is not None:
            resolved = await self._store.resolve(notice, found=found, message_id=message_id)
        if found is None or resolved is None:
            text = MessagePart(text=self._context.texts.format_uncertain(chat))
            buttons = build_uncertain_buttons(chat, notice.id, notice.round)
            await sender.edit_text(
                chat.chat_id, message_id, text, keyboard=buttons, priority=Priority.SETTLE,
                patience=NOTICE_PATIENCE_SECONDS,
            )  # fmt: skip
            return
        log.info("uncertain_delivery_settled", session_id=notice.session_id, turn=notice.turn,
                 found=resolved.taken)  # fmt: skip
        # Further messages are notices whose own responses were lost.
        extra = found[resolved.taken :] if notice.tries else ()
        unused = () if resolved.is_notice_used else (message_id,)
        await sender.delete(chat.chat_id, (*extra, *unused))

    async def _record_outcome(self, notice: UncertainNotice, chat: ChatRow, outcome: CallOutcome) -> None:
        """Store the outcome of sending a notice; kept in memory while the database is unavailable."""
        self._outcomes[notice.id] = notice, chat, outcome
        match outcome:
            case MessageSent(message_id=message_id):
                if not await self._store.mark_shown(notice, chat_id=chat.chat_id, message_id=message_id):
                    await self._delete_second_notice(chat, message_id)
            case CallUnknown(reason=reason) | CallRejected(reason=reason):
                log.warning("notice_delivery_unknown", session_id=notice.session_id, turn=notice.turn,
                            reason=reason)  # fmt: skip
                await self._store.mark_not_shown(notice, surely=False)
            case _:
                await self._store.mark_not_shown(notice, surely=True)
        match outcome:
            case ChatUnreachable() | ChatClosed():
                await self._context.wait_for_chat(chat, outcome)
            case ChatMoved(new_chat_id=new_chat):
                await self._context.follow_migration(chat, new_chat)
            case _:
                pass
        self._outcomes.pop(notice.id, None)

    async def _delete_second_notice(self, chat: ChatRow, message_id: int) -> None:
        """Delete a notice that this process sent although another one has sent it meanwhile."""
        if (sender := self._context.senders.get(chat.bot_id)) is not None:
            await sender.delete(chat.chat_id, [message_id])

    async def _remove(self, notice: UncertainNotice, chat: ChatRow, sender: Sender) -> None:
        """Delete the notice of an answer that has arrived, or replace its text if it is too old to be
        deleted.

        It stays if the group became a supergroup, where its id may belong to another message.
        """
        if notice.message_id is not None and notice.chat_id == chat.chat_id:
            outcome = await sender.delete(chat.chat_id, [notice.message_id])
            if isinstance(outcome, CallRejected):
                # Telegram does not delete messages older than two days.
                text = MessagePart(text=self._context.texts.format_arrived(chat))
                outcome = await sender.edit_text(
                    chat.chat_id, notice.message_id, text, patience=EDIT_PATIENCE_SECONDS
                )
            if isinstance(outcome, CallNotSent | CallUnknown):
                return
        await self._store.settle(notice)

    async def _is_quote_of(self, chat: ChatRow, part: UncertainPart, quoted: QuotedMessage) -> bool:
        """Return whether a quote contains text of this part, or is of its file."""
        ended = await self._context.deliveries.load_ended_turn(part.session_id, part.turn)
        if ended is None:
            return False
        message = build_outgoing_message(self._context, chat, ended)
        if part.part < len(message.parts):
            text = message.parts[part.part].text
        elif message.file_at(part.part) is not None:
            return quoted.media in ("document", "photo")
        else:
            text = self._context.texts.format_document_caption(chat) if quoted.media == "document" else ""
        return quoted.text in text if quoted.chosen else quoted.text.strip() == text.strip() != ""
