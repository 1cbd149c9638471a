"""Delivers an ended answer to its chat exactly once, also after a crash."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

import structlog
from aiogram.types import InlineKeyboardMarkup

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
    is_missing_message,
)
from bot.telegram.client.sender import FINAL_PATIENCE_SECONDS, TRIES, ChatTarget, Sender
from bot.telegram.markup.entity_text import DOCUMENT_NAME, MessagePart
from bot.telegram.markup.rich_blocks import RichBlock
from bot.telegram.outbound.delivery_context import (
    DeliveryAttempts,
    DeliveryContext,
    MaybeShown,
    OutgoingMessage,
    SendClaimedElsewhere,
    build_outgoing_message,
    is_notice,
)
from bot.telegram.outbound.native_drafts import edit_rich, is_form_refused, send_rich
from bot.telegram.outbound.uncertain_notices import UncertainNotices
from shared.adapters.postgres.telegram.chats import ChatRow
from shared.adapters.postgres.telegram.deliveries import EndedTurn, PartRow
from shared.core.identity.handover import ANSWERED_TOGETHER
from shared.core.values.files import PICTURE_MIMES
from shared.runtime import BackgroundTasks
from shared.work_marks import mark_work

log = structlog.get_logger(__name__)

SETTLE_PATIENCE_SECONDS = 30.0
"""Maximum seconds for which the later parts of an answer wait until a lost one is found or asked for."""
COOL_DOWN_SECONDS = 60.0
"""Seconds in which a chat gets no second notice with the same error code."""
_MAX_ROUNDS = 3
"""Maximum tries of one delivery after a moved chat or changed rows."""
_MAX_REMEMBERED = 1_000
"""Maximum entries of each dictionary of recent events."""


class _DeliverLater(Exception):
    """Raised if a part cannot be delivered now; its stored row makes a later delivery continue."""


class _DeliverAgain(Exception):
    """Raised if stored parts have changed, so that the delivery must load them and start again."""


class _ChatHasMoved(Exception):
    """Raised if the group became the supergroup `new_chat_id`."""

    def __init__(self, new_chat_id: int) -> None:
        super().__init__(new_chat_id)
        self.new_chat_id = new_chat_id


class _ChatTakesNothing(Exception):
    """Raised if the chat refuses every message; the answer waits until the chat accepts messages."""

    def __init__(self, outcome: ChatUnreachable | ChatClosed) -> None:
        super().__init__(outcome.reason)
        self.outcome = outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class _FinalAnswer:
    """Ended turn with the messages and options for its delivery; part numbers count from 0."""

    chat: ChatRow
    ended: EndedTurn
    sender: Sender
    message: OutgoingMessage
    keyboard: InlineKeyboardMarkup | None
    reply_to: int | None
    patience: float
    tries: int
    maybe_shown: MaybeShown | None

    @property
    def target(self) -> ChatTarget:
        return ChatTarget(chat_id=self.chat.chat_id, thread_id=self.chat.thread_id)

    @property
    def key(self) -> tuple[int, int]:
        return self.ended.session_id, self.ended.turn

    def is_file(self, number: int) -> bool:
        return number >= len(self.message.parts)

    def get_keyboard(self, number: int) -> InlineKeyboardMarkup | None:
        return self.keyboard if number == self.message.count - 1 else None


class FinalDelivery:
    """Delivers ended answers part by part.

    All methods raise StorageUnavailable if the database does not answer.
    """

    def __init__(
        self, context: DeliveryContext, *, tasks: BackgroundTasks, notices: UncertainNotices
    ) -> None:
        self._context = context
        self._notices = notices
        self._tasks = tasks
        self._store = context.deliveries
        self._attempts = DeliveryAttempts(store=context.deliveries, crash_point=context.crash_point)
        self._notified_at: dict[tuple[int, str], float] = {}
        self._pending: dict[int, set[int]] = {}
        self._last_delivered: dict[int, tuple[int, int]] = {}
        self._maybe_shown: dict[tuple[int, int], MaybeShown] = {}
        """Messages of unfinished answers that may have arrived, by session id and turn."""

    async def deliver(
        self,
        chat: ChatRow,
        ended: EndedTurn,
        *,
        patience: float = FINAL_PATIENCE_SECONDS,
        tries: int = TRIES,
    ) -> bool:
        """Deliver an ended turn; return True if nothing is left to do, False if it must be delivered later.

        `patience` is in seconds for each call, `tries` the maximum of requests.
        """
        self.mark_pending(ended.session_id, ended.turn)
        if self._context.want_voice_note is not None and ended.state == "answered" and not ended.operator:
            await self._context.want_voice_note(ended.session_id, ended.turn)
        about = {"session": ended.session_id, "turn": ended.turn}
        with self._context.tracer.span("delivery", about) as span:
            with mark_work("delivery", ended.session_id, ended.turn):
                maybe_shown = self.find_maybe_shown(ended.session_id, ended.turn)
                delivered = await self._deliver(chat, ended, patience, tries, maybe_shown)
            span.set_attributes(brought=delivered)
        if delivered:
            self._record_delivered(ended)
            if chat.unreachable:
                await self._context.chats.set_reachable(chat.bot_id, chat.chat_id, reachable=True)
        return delivered

    def is_in_order(self, session_id: int, *, turn: int, address_id: int) -> bool:
        """Return whether the last delivery of this session was the preceding turn, in the chat of
        `address_id`.
        """
        return self._last_delivered.get(session_id) == (address_id, turn - 1)

    def list_pending(self, session_id: int, *, before: int) -> list[int]:
        """Return the undelivered turns of a session before turn `before`, in order.

        They must be delivered first.
        """
        return sorted(turn for turn in self._pending.get(session_id, ()) if turn < before)

    def mark_pending(self, session_id: int, turn: int) -> None:
        """Record a turn as undelivered, so that it is delivered before later turns."""
        self._pending.setdefault(session_id, set()).add(turn)

    def record_maybe_shown(self, session_id: int, turn: int, shown: MaybeShown) -> None:
        """Record that a message of a turn's unfinished answer may have arrived.

        Kept until the turn is delivered, also for further attempts at it.
        """
        while len(self._maybe_shown) >= _MAX_REMEMBERED:
            del self._maybe_shown[next(iter(self._maybe_shown))]
        self._maybe_shown[session_id, turn] = shown

    def find_maybe_shown(self, session_id: int, turn: int) -> MaybeShown | None:
        """Return the message of a turn's unfinished answer that may have arrived; None if there is none."""
        return self._maybe_shown.get((session_id, turn))

    async def _deliver(
        self, chat: ChatRow, ended: EndedTurn, patience: float, tries: int, maybe_shown: MaybeShown | None
    ) -> bool:
        """Deliver a turn, starting again after a moved chat or changed rows.

        Return whether it is delivered.
        """
        for _ in range(_MAX_ROUNDS):
            try:
                await self._deliver_once(chat, ended, patience=patience, tries=tries, maybe_shown=maybe_shown)
            except (_DeliverLater, SendClaimedElsewhere):
                return False
            except _ChatTakesNothing as refusal:
                await self._context.wait_for_chat(chat, refusal.outcome)
                return False
            except _ChatHasMoved as moved:
                chat = await self._context.follow_migration(chat, moved.new_chat_id)
                again = await self._store.load_ended_turn(ended.session_id, ended.turn)
                ended = again or ended
            except _DeliverAgain:
                ended = await self._store.load_ended_turn(ended.session_id, ended.turn) or ended
            else:
                return True
        return False

    def _record_delivered(self, ended: EndedTurn) -> None:
        self._maybe_shown.pop((ended.session_id, ended.turn), None)
        if (pending := self._pending.get(ended.session_id)) is not None:
            pending.discard(ended.turn)
            if not pending:
                del self._pending[ended.session_id]
        self._last_delivered.pop(ended.session_id, None)
        self._last_delivered[ended.session_id] = ended.address_id, ended.turn
        while len(self._last_delivered) > _MAX_REMEMBERED:
            del self._last_delivered[next(iter(self._last_delivered))]

    def has_notified_recently(self, chat: ChatRow, code: str) -> bool:
        """Return whether the chat got a notice with this error code in the last `COOL_DOWN_SECONDS`."""
        notified_at = self._notified_at.get((chat.address_id, code), -inf)
        return self._context.clock.now() - notified_at < COOL_DOWN_SECONDS

    def record_notified(self, chat: ChatRow, code: str) -> None:
        """Record that the chat has just got a notice with this error code."""
        now = self._context.clock.now()
        if len(self._notified_at) >= _MAX_REMEMBERED:
            self._notified_at = {k: at for k, at in self._notified_at.items() if now - at < COOL_DOWN_SECONDS}
        self._notified_at[chat.address_id, code] = now

    # -- the whole ------------------------------------------------------------------------------------

    async def _deliver_once(
        self, chat: ChatRow, ended: EndedTurn, *, patience: float, tries: int, maybe_shown: MaybeShown | None
    ) -> None:
        """Deliver a turn once.

        Raises _DeliverLater, _DeliverAgain, _ChatTakesNothing, _ChatHasMoved or SendClaimedElsewhere.
        """
        sender = self._context.senders.get(chat.bot_id)
        if sender is None or sender.get_hold_seconds(chat.chat_id) > patience:
            raise _DeliverLater
        if ended.error_code == ANSWERED_TOGETHER:
            await self._delete_earlier_answers(chat, ended, sender)
            return
        if await self._skip_repeated_notice(chat, ended):
            return
        answer = _FinalAnswer(
            chat=chat,
            ended=ended,
            sender=sender,
            message=build_outgoing_message(self._context, chat, ended),
            keyboard=self._build_keyboard(chat, ended),
            reply_to=await self._context.find_question(chat, ended.turn),
            patience=patience,
            tries=tries,
            maybe_shown=maybe_shown,
        )
        if maybe_shown is not None and self._context.settles:
            answer = replace(answer, message=replace(answer.message, blocks=None))
        if answer.message.blocks is not None and not await self._deliver_rich(answer, answer.message.blocks):
            now = await self._store.load_ended_turn(*answer.key)
            answer = replace(answer, message=replace(answer.message, blocks=None), ended=now or answer.ended)
        if answer.message.blocks is None:
            await self._deliver_parts(answer)
        self._context.show_working(chat, ended.turn, self._tasks, ended=True)
        if is_notice(ended):
            self.record_notified(chat, ended.error_code)

    def _build_keyboard(self, chat: ChatRow, ended: EndedTurn) -> InlineKeyboardMarkup | None:
        """Return the buttons below an answer; None for an answer by an operator."""
        if ended.operator:
            return None
        is_cut = ended.state == "answered" and ended.stop == "length"
        return self._context.keyboard(chat, ended.turn, "cut" if is_cut else ended.state)

    async def _deliver_parts(self, answer: _FinalAnswer) -> None:
        count = answer.message.count
        rows = _index_by_part(answer.ended.parts)
        if not rows.keys() >= set(range(count)):
            rows = _index_by_part(
                await self._store.plan(*answer.key, address_id=answer.ended.address_id, count=count)
            )
        for number in range(count):
            await self._deliver_part(answer, rows[number])
            self._context.crash_point("telegram_after_part")
        await self._delete_surplus(answer, rows, count)

    async def _deliver_rich(self, answer: _FinalAnswer, blocks: tuple[RichBlock, ...]) -> bool:
        """Deliver the answer as a rich message; return False if it must be delivered as plain parts."""
        rows = _index_by_part(
            await self._store.plan(*answer.key, address_id=answer.ended.address_id, count=1)
        )
        # Delete first: once part 0 is delivered, the others would look like parts of a plain answer.
        await self._delete_surplus(answer, rows, 1)
        outcome = await self._send_or_edit_rich(answer, rows[0], blocks)
        if outcome is None:
            return False
        if is_form_refused(outcome):
            self._context.get_form_support(answer.chat.bot_id).refuse("rich", answer.chat.chat_id, outcome)
            return False
        await self._record_outcome(answer, 0, outcome, edited=rows[0].state == "sent")
        return True

    async def _send_or_edit_rich(
        self, answer: _FinalAnswer, row: PartRow, blocks: tuple[RichBlock, ...]
    ) -> CallOutcome | None:
        """Send or edit the rich message; None if the message of an earlier attempt cannot be edited."""
        if row.remote_id is not None:
            if not await self._is_in_chat(answer, row.remote_id):
                return None
            outcome = await edit_rich(
                answer.sender, answer.chat.chat_id, row.remote_id, blocks, keyboard=answer.keyboard,
                patience=answer.patience, tries=answer.tries,
            )  # fmt: skip
            return None if is_missing_message(outcome) else outcome
        return await send_rich(
            answer.sender, answer.target, blocks,
            reply_to=answer.reply_to, keyboard=answer.keyboard, patience=answer.patience, tries=answer.tries,
            observer=self._attempts.observe((*answer.key, 0)),
        )  # fmt: skip

    # -- one part -------------------------------------------------------------------------------------

    async def _deliver_part(self, answer: _FinalAnswer, row: PartRow) -> None:
        """Do what the stored state of a part demands: send it, edit it, or find out whether it arrived."""
        if row.state == "sending":
            if not await self._attempts.store_pending_outcome((*answer.key, row.part)):
                raise _DeliverLater  # it is being sent, or must be sent in the next round
        elif row.state == "sent" and row.remote_id is not None:
            # Telegram cannot turn a text into a file, so a text in the place of a file is deleted.
            if answer.is_file(row.part) or not await self._edit(answer, row, row.remote_id):
                await self._restart_from(answer, row, row.remote_id)
        elif row.state == "queued" and self._may_have_arrived(answer, row):
            error = "its bubble may be there"
            await self._store.give_up(*answer.key, row.part, state="uncertain", error=error)
            self._maybe_shown.pop(answer.key, None)  # from here on, the row says it
            await self._resolve_uncertain(answer, row.part)
        elif row.state == "queued":
            await self._send(answer, row.part)

    async def _resolve_uncertain(self, answer: _FinalAnswer, number: int) -> None:
        """Search the chat for uncertain parts, or ask the person; wait at most SETTLE_PATIENCE_SECONDS.

        Raises _DeliverAgain if that changed the state of part `number`.
        """
        await self._notices.send_now(answer.key[0], up_to=answer.key[1], patience=SETTLE_PATIENCE_SECONDS)
        states = {row.part: row.state for row in await self._store.list_parts(*answer.key)}
        if states.get(number) != "uncertain":
            raise _DeliverAgain

    def _may_have_arrived(self, answer: _FinalAnswer, row: PartRow) -> bool:
        """Return whether the lost message may be this part.

        Without searching the chat, this is assumed only for an answer of one part with the same text.
        """
        shown = answer.maybe_shown
        if shown is None or shown.part != row.part or answer.is_file(row.part):
            return False
        return self._context.settles or (
            answer.message.count == 1 and shown.text == answer.message.parts[0].text
        )

    async def _edit(self, answer: _FinalAnswer, row: PartRow, message_id: int) -> bool:
        """Edit a sent message to the final text of its part; return False if the message cannot be edited.

        Raises _DeliverLater if Telegram did not process the edit.
        """
        if not await self._is_in_chat(answer, message_id):
            return False
        self._context.crash_point("telegram_before_edit")
        outcome = await answer.sender.edit_text(
            answer.chat.chat_id, message_id, answer.message.parts[row.part],
            keyboard=answer.get_keyboard(row.part), priority=Priority.FINAL,
            patience=answer.patience, tries=answer.tries,
        )  # fmt: skip
        self._context.crash_point("telegram_after_edit")
        if isinstance(outcome, CallRejected) and outcome.status != 404:
            return False
        if isinstance(outcome, CallUnknown | CallRejected):
            raise _DeliverLater
        await self._record_outcome(answer, row.part, outcome, edited=True)
        return True

    async def _send(self, answer: _FinalAnswer, number: int) -> None:
        """Send a queued part, and store the outcome."""
        outcome = await self._send_request(answer, number)
        self._context.crash_point("telegram_after_send")
        if isinstance(outcome, CallRejected) and outcome.status == 404:
            outcome = CallNotSent(reason=outcome.reason)
        if isinstance(outcome, CallRejected):
            await self._send_otherwise(answer, number, outcome)
        else:
            await self._record_outcome(answer, number, outcome, edited=False)

    async def _send_otherwise(self, answer: _FinalAnswer, number: int, refusal: CallRejected) -> None:
        """Send a refused part as a file; if Telegram refuses that too, send a line that says so."""
        log.error("message_rejected", session_id=answer.key[0], turn=answer.key[1], part=number,
                  reason=refusal.reason)  # fmt: skip
        attempt = self._attempts.observe((*answer.key, number))
        if (file := await self._load_other_form(answer, number)) is not None:
            outcome = await answer.sender.send_document(
                answer.target, name=file[0], content=file[1], silent=number > 0,
                patience=answer.patience, tries=answer.tries, observer=attempt,
            )  # fmt: skip
            if not isinstance(outcome, CallRejected):
                await self._record_outcome(answer, number, outcome, edited=False)
                return
        attached = answer.message.file_at(number)
        line = self._context.texts.format_refused(answer.chat, attached.name if attached else "")
        outcome = await answer.sender.send_text(
            answer.target, MessagePart(text=line), silent=number > 0, priority=Priority.FINAL,
            patience=answer.patience, tries=answer.tries, observer=attempt,
        )  # fmt: skip
        if isinstance(outcome, MessageSent | CallRejected):
            await self._store.give_up(
                *answer.key, number, state="dead", error=refusal.reason,
                remote_id=outcome.message_id if isinstance(outcome, MessageSent) else None,
            )  # fmt: skip
        else:
            await self._record_outcome(answer, number, outcome, edited=False)

    async def _load_other_form(self, answer: _FinalAnswer, number: int) -> tuple[str, bytes] | None:
        """Return name and content to send a refused text or picture as a plain file.

        None if that is impossible.
        """
        if not answer.is_file(number):
            return DOCUMENT_NAME, answer.message.parts[number].text.encode()
        attached = answer.message.file_at(number)
        if attached is None or attached.mime not in PICTURE_MIMES:
            return None
        body = await self._context.files(answer.ended.session_id, attached.id)
        return None if body is None else (attached.name, body)

    async def _send_request(self, answer: _FinalAnswer, number: int) -> CallOutcome:
        reply_to = answer.reply_to if number == 0 else None
        attempt = self._attempts.observe((*answer.key, number))
        if (file := answer.message.file_at(number)) is not None:
            body = await self._context.files(answer.ended.session_id, file.id)
            if body is None:
                return CallDone()  # the file was deleted meanwhile
            return await answer.sender.send_document(
                answer.target, name=file.name, content=body, photo=file.mime in PICTURE_MIMES, silent=True,
                keyboard=answer.get_keyboard(number), patience=answer.patience, tries=answer.tries,
                observer=attempt,
            )  # fmt: skip
        if answer.message.document is not None and answer.is_file(number):
            return await answer.sender.send_document(
                answer.target, name=DOCUMENT_NAME, content=answer.message.document.encode(),
                caption=self._context.texts.format_document_caption(answer.chat, answer.ended.stop),
                silent=True, keyboard=answer.get_keyboard(number),
                patience=answer.patience, tries=answer.tries, observer=attempt,
            )  # fmt: skip
        return await answer.sender.send_text(
            answer.target, answer.message.parts[number], reply_to=reply_to,
            keyboard=answer.get_keyboard(number), silent=number > 0, priority=Priority.FINAL,
            patience=answer.patience, tries=answer.tries, observer=attempt,
        )  # fmt: skip

    async def _record_outcome(
        self, answer: _FinalAnswer, number: int, outcome: CallOutcome, *, edited: bool
    ) -> None:
        """Store the outcome of a part's request.

        Raises _DeliverLater, _ChatTakesNothing or _ChatHasMoved if the part must be delivered later or to
        another chat.
        """
        match outcome:
            case MessageSent():
                await self._attempts.record_outcome((*answer.key, number), outcome)
            case CallDone():
                await self._store.mark_delivered(*answer.key, number, remote_id=None)
            case CallUnknown() if not edited:
                log.warning(
                    "message_delivery_unknown", session_id=answer.key[0], turn=answer.key[1], part=number
                )
                await self._attempts.record_outcome((*answer.key, number), outcome)
                await self._resolve_uncertain(answer, number)
            case CallRejected(reason=reason):
                await self._store.give_up(*answer.key, number, state="dead", error=reason)
            case ChatUnreachable() | ChatClosed():
                raise _ChatTakesNothing(outcome)
            case ChatMoved(new_chat_id=new_chat_id):
                raise _ChatHasMoved(new_chat_id)
            case CallNotSent() | CallUnknown():
                raise _DeliverLater

    # -- surplus messages -----------------------------------------------------------------------------

    async def _restart_from(self, answer: _FinalAnswer, row: PartRow, message_id: int) -> None:
        """Delete the messages of this part and later ones, then reset their rows.

        After a crash in between, the next delivery repeats this. Raises _DeliverLater if Telegram did not
        answer, else _DeliverAgain.
        """
        if await self._is_in_chat(answer, message_id):
            later = [one for one in await self._store.list_parts(*answer.key) if one.part > row.part]
            shown = [one.remote_id for one in later if one.remote_id is not None]
            outcome = await answer.sender.delete(answer.chat.chat_id, (message_id, *shown))
            if isinstance(outcome, CallNotSent | CallUnknown):
                raise _DeliverLater
        await self._store.restart_delivery(
            *answer.key, part=row.part, address_id=answer.ended.address_id, count=answer.message.count
        )
        raise _DeliverAgain

    async def _is_in_chat(self, answer: _FinalAnswer, message_id: int) -> bool:
        """Return whether this message id in the chat belongs to this answer.

        In a group that became a supergroup, the id may belong to another message.
        """
        if answer.chat.chat_id > 0:
            return True
        message = await self._context.chats.find_message(answer.chat.bot_id, answer.chat.chat_id, message_id)
        return message is not None and (message.session_id, message.turn) == answer.key

    async def _delete_surplus(self, answer: _FinalAnswer, rows: Mapping[int, PartRow], count: int) -> None:
        """Delete the messages of parts from number `count` on, then their rows.

        After a crash in between, the next delivery repeats this. Raises _DeliverLater if Telegram did not
        answer.
        """
        surplus = [row.remote_id for row in rows.values() if row.part >= count]
        if not surplus:
            return
        outcome = await answer.sender.delete(
            answer.chat.chat_id, [known for known in surplus if known is not None]
        )
        if isinstance(outcome, CallNotSent | CallUnknown):
            raise _DeliverLater
        await self._store.drop_surplus(*answer.key, count=count)

    async def _delete_earlier_answers(self, chat: ChatRow, ended: EndedTurn, sender: Sender) -> None:
        """Delete the messages of a turn that an operator answered together with a later turn."""
        known = [row.remote_id for row in ended.parts if row.state == "sent" and row.remote_id is not None]
        if known and isinstance(await sender.delete(chat.chat_id, known), CallNotSent | CallUnknown):
            raise _DeliverLater
        await self._store.drop_surplus(ended.session_id, ended.turn, count=1)
        await self._store.mark_delivered(ended.session_id, ended.turn, 0, remote_id=None)

    # -- notices --------------------------------------------------------------------------------------

    async def _skip_repeated_notice(self, chat: ChatRow, ended: EndedTurn) -> bool:
        """Mark a notice as delivered unsent if the chat got one of the same error code in the last minute.

        Return True if so. A notice that replaces a sent message is not skipped.
        """
        if not is_notice(ended) or any(row.remote_id is not None for row in ended.parts):
            return False
        if not self.has_notified_recently(chat, ended.error_code):
            return False
        await self._store.mark_delivered(ended.session_id, ended.turn, 0, remote_id=None)
        return True


def _index_by_part(rows: Sequence[PartRow]) -> dict[int, PartRow]:
    return {row.part: row for row in rows}
