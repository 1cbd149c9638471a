"""Brings an answer that has ended into its chat, exactly once: for live answers and after a crash alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING

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
    is_missing_message,
)
from bot.telegram.client.sender import FINAL_PATIENCE_SECONDS, TRIES, ChatTarget, Sender
from bot.telegram.markup import DOCUMENT_NAME, RichBlock
from bot.telegram.outbound.delivery_context import (
    DeliveryAttempts,
    DeliveryContext,
    OutgoingMessage,
    SendClaimedElsewhere,
    build_outgoing_message,
    is_notice,
)
from bot.telegram.outbound.native_drafts import edit_rich, is_form_refused, send_rich
from bot.telegram.outbound.typing_indicator import TaskStarter
from bot.telegram.outbound.uncertain_notices import UncertainNotices
from shared.adapters.postgres.telegram.chats import ChatRow
from shared.adapters.postgres.turns.deliveries import EndedTurn, PartRow
from shared.core.identity.handover import ANSWERED_TOGETHER
from shared.core.values.errors import StorageUnavailable
from shared.core.values.files import PICTURE_MIMES

if TYPE_CHECKING:
    from aiogram.types import InlineKeyboardMarkup

__all__ = ["FinalDelivery", "DeliveryContext"]

log = structlog.get_logger(__name__)

COOL_DOWN_SECONDS = 60.0
BUTTON_CLEANUP_DELAY_SECONDS = 0.5
"""The buttons of the answer before go when nobody waits for anything: they count like messages."""
BUTTON_CLEANUP_PATIENCE_SECONDS = 1.0
"""For such a moment; people press what they see, and the buttons below two answers look alike."""
_MAX_ROUNDS = 3
_MAX_REMEMBERED = 1_000


class _DeliverLater(Exception):
    """Not all of it could be brought now; the rows say what is left."""


class _DeliverAgain(Exception):
    """A bubble was lost; its rows are as if it had never been."""


class _ChatHasMoved(Exception):
    def __init__(self, new_chat_id: int) -> None:
        super().__init__(new_chat_id)
        self.new_chat_id = new_chat_id


class _ChatIsUnreachable(Exception):
    """The chat cannot be reached any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _FinalAnswer:
    place: ChatRow
    ended: EndedTurn
    sender: Sender
    letter: OutgoingMessage
    keyboard: InlineKeyboardMarkup | None
    reply_to: int | None
    patience: float
    tries: int
    maybe_shown: str | None

    @property
    def where(self) -> ChatTarget:
        return ChatTarget(chat_id=self.place.chat_id, thread_id=self.place.thread_id)

    @property
    def key(self) -> tuple[int, int]:
        return self.ended.session_id, self.ended.turn

    def is_file(self, number: int) -> bool:
        return number >= len(self.letter.parts)

    def keyboard_of(self, number: int) -> InlineKeyboardMarkup | None:
        return self.keyboard if number == self.letter.count - 1 else None


class FinalDelivery:
    """The one code path for the end of an answer; raises StorageUnavailable."""

    def __init__(self, post: DeliveryContext, *, tasks: TaskStarter, notices: UncertainNotices) -> None:
        self._post = post
        self._notices = notices
        self._tasks = tasks
        self._store = post.deliveries
        self._attempts = DeliveryAttempts(store=post.deliveries, crash_point=post.crash_point)
        self._told: dict[tuple[int, str], float] = {}
        self._left: dict[int, set[int]] = {}
        self._brought: dict[int, tuple[int, int]] = {}

    async def deliver(
        self,
        place: ChatRow,
        ended: EndedTurn,
        *,
        patience: float = FINAL_PATIENCE_SECONDS,
        tries: int = TRIES,
        maybe_shown: str | None = None,
    ) -> bool:
        """True when nothing of it is left to do. `maybe_shown`: a lost bubble with this text may be there."""
        self.mark_pending(ended.session_id, ended.turn)
        if self._post.want_voice_note is not None and ended.state == "answered" and not ended.operator:
            await self._post.want_voice_note(ended.session_id, ended.turn)
        about = {"session": ended.session_id, "turn": ended.turn}
        with self._post.tracer.span("delivery", about) as span:
            brought = await self._deliver(place, ended, patience, tries, maybe_shown)
            span.set_attributes(brought=brought)
        if brought:
            self._was_brought(ended)
        return brought

    def is_in_order(self, session_id: int, *, turn: int, address_id: int) -> bool:
        """We have just brought the turn before there, and what came before that even earlier."""
        return self._brought.get(session_id) == (address_id, turn - 1)

    def list_pending(self, session_id: int, *, before: int) -> list[int]:
        """Earlier turns that are still to be brought: their answers come first."""
        return sorted(turn for turn in self._left.get(session_id, ()) if turn < before)

    def mark_pending(self, session_id: int, turn: int) -> None:
        """It is to be brought, and later ones behind it."""
        self._left.setdefault(session_id, set()).add(turn)

    async def _deliver(
        self, place: ChatRow, ended: EndedTurn, patience: float, tries: int, maybe_shown: str | None
    ) -> bool:
        for _ in range(_MAX_ROUNDS):
            try:
                await self._bring(place, ended, patience=patience, tries=tries, maybe_shown=maybe_shown)
            except (_DeliverLater, SendClaimedElsewhere):
                return False
            except _ChatIsUnreachable as gone:
                await self._give_up(place, ended, str(gone))
                return True
            except _ChatHasMoved as moved:
                place = await self._post.follow_migration(place, moved.new_chat_id)
                again = await self._store.ended_turn(ended.session_id, ended.turn)
                ended = again or ended
            except _DeliverAgain:
                ended = await self._store.ended_turn(ended.session_id, ended.turn) or ended
            else:
                return True
        return False

    def _was_brought(self, ended: EndedTurn) -> None:
        if (left := self._left.get(ended.session_id)) is not None:
            left.discard(ended.turn)
            if not left:
                del self._left[ended.session_id]
        self._brought.pop(ended.session_id, None)
        self._brought[ended.session_id] = ended.address_id, ended.turn
        while len(self._brought) > _MAX_REMEMBERED:
            del self._brought[next(iter(self._brought))]

    def has_told_recently(self, place: ChatRow, code: str) -> bool:
        """Whether this trouble was told in this chat just before."""
        told = self._told.get((place.address_id, code), -inf)
        return self._post.clock.now() - told < COOL_DOWN_SECONDS

    def record_told(self, place: ChatRow, code: str) -> None:
        now = self._post.clock.now()
        if len(self._told) >= _MAX_REMEMBERED:
            self._told = {k: at for k, at in self._told.items() if now - at < COOL_DOWN_SECONDS}
        self._told[place.address_id, code] = now

    # -- the whole ------------------------------------------------------------------------------------

    async def _bring(
        self, place: ChatRow, ended: EndedTurn, *, patience: float, tries: int, maybe_shown: str | None
    ) -> None:
        sender = self._post.senders.get(place.bot_id)
        if sender is None or sender.get_hold_seconds(place.chat_id) > patience:
            raise _DeliverLater
        if ended.error_code == ANSWERED_TOGETHER:
            await self._take_back(place, ended, sender)
            return
        if await self._is_told_already(place, ended):
            return
        job = _FinalAnswer(
            place=place,
            ended=ended,
            sender=sender,
            letter=build_outgoing_message(self._post, place, ended),
            keyboard=None if ended.operator else self._post.keyboard(place, ended.turn, ended.state),
            reply_to=await self._post.find_question(place, ended.turn),
            patience=patience,
            tries=tries,
            maybe_shown=maybe_shown,
        )
        if job.letter.blocks is not None and not await self._bring_rich(job, job.letter.blocks):
            now = await self._store.ended_turn(*job.key)
            job = replace(job, letter=replace(job.letter, blocks=None), ended=now or job.ended)
        if job.letter.blocks is None:
            await self._bring_parts(job)
        self._post.show_working(place, ended.turn, self._tasks, ended=True)
        if is_notice(ended):
            self.record_told(place, ended.error_code)
        if job.keyboard is not None and ended.turn > 1:
            self._tasks.start(self._clear_previous(job))

    async def _bring_parts(self, job: _FinalAnswer) -> None:
        count = job.letter.count
        rows = _index_by_part(job.ended.parts)
        if not rows.keys() >= set(range(count)):
            rows = _index_by_part(
                await self._store.plan(*job.key, address_id=job.ended.address_id, count=count)
            )
        for number in range(count):
            await self._bring_part(job, rows[number])
            self._post.crash_point("telegram_after_part")
        await self._clear(job, rows, count)

    async def _bring_rich(self, job: _FinalAnswer, blocks: tuple[RichBlock, ...]) -> bool:
        """False when the classic form has to do."""
        rows = _index_by_part(await self._store.plan(*job.key, address_id=job.ended.address_id, count=1))
        # First: whoever finds part 0 delivered later must not take these for parts of a classic answer.
        await self._clear(job, rows, 1)
        outcome = await self._rich_outcome(job, rows[0], blocks)
        if outcome is None:
            return False
        if is_form_refused(outcome):
            self._post.get_form_support(job.place.bot_id).refuse("rich", getattr(outcome, "reason", ""))
            return False
        await self._conclude(job, 0, outcome, edited=rows[0].state == "sent")
        return True

    async def _rich_outcome(
        self, job: _FinalAnswer, row: PartRow, blocks: tuple[RichBlock, ...]
    ) -> CallOutcome | None:
        if row.remote_id is not None:
            if not await self._is_here(job, row.remote_id):
                return None
            outcome = await edit_rich(
                job.sender, job.place.chat_id, row.remote_id, blocks, keyboard=job.keyboard
            )
            return None if is_missing_message(outcome) else outcome
        return await send_rich(
            job.sender, job.where, blocks,
            reply_to=job.reply_to, keyboard=job.keyboard, patience=job.patience,
            attempt=self._attempts.for_part((*job.key, 0)),
        )  # fmt: skip

    # -- one part -------------------------------------------------------------------------------------

    async def _bring_part(self, job: _FinalAnswer, row: PartRow) -> None:
        if row.state == "sending":
            if not await self._attempts.store_pending_outcome((*job.key, row.part)):
                raise _DeliverLater  # on its way, or to be sent in the next round
        elif row.state == "sent" and row.remote_id is not None:
            # No text becomes a file: a notice that stands in its place goes.
            if job.is_file(row.part) or not await self._edit(job, row, row.remote_id):
                await self._forget_bubble(job, row, row.remote_id)
        elif row.state == "queued" and self._may_be_there(job, row):
            await self._store.give_up(*job.key, 0, state="uncertain", error="its bubble may be there")
            await self._notices.send_now(*job.key)
        elif row.state == "queued":
            await self._send(job, row.part)

    def _may_be_there(self, job: _FinalAnswer, row: PartRow) -> bool:
        """Whether a bubble of unknown fate showed all that this answer says."""
        return row.part == 0 and job.letter.count == 1 and job.maybe_shown == job.letter.parts[0].text

    async def _edit(self, job: _FinalAnswer, row: PartRow, message_id: int) -> bool:
        """False when the bubble is good for nothing any more."""
        if not await self._is_here(job, message_id):
            return False
        self._post.crash_point("telegram_before_edit")
        outcome = await job.sender.edit_text(
            job.place.chat_id, message_id, job.letter.parts[row.part],
            keyboard=job.keyboard_of(row.part), priority=Priority.FINAL,
            patience=job.patience, tries=job.tries,
        )  # fmt: skip
        self._post.crash_point("telegram_after_edit")
        if isinstance(outcome, CallRejected) and outcome.status != 404:
            return False
        if isinstance(outcome, CallUnknown | CallRejected):
            raise _DeliverLater
        await self._conclude(job, row.part, outcome, edited=True)
        return True

    async def _send(self, job: _FinalAnswer, number: int) -> None:
        outcome = await self._send_out(job, number)
        self._post.crash_point("telegram_after_send")
        if isinstance(outcome, CallRejected) and outcome.status == 404:
            outcome = CallNotSent(reason=outcome.reason)
        await self._conclude(job, number, outcome, edited=False)

    async def _send_out(self, job: _FinalAnswer, number: int) -> CallOutcome:
        reply_to = job.reply_to if number == 0 else None
        attempt = self._attempts.for_part((*job.key, number))
        if (file := job.letter.file_at(number)) is not None:
            body = await self._post.files(job.ended.session_id, file.id)
            if body is None:
                return CallDone()  # forgotten meanwhile
            return await job.sender.send_document(
                job.where, name=file.name, content=body, photo=file.mime in PICTURE_MIMES, silent=True,
                keyboard=job.keyboard_of(number), patience=job.patience, tries=job.tries, attempt=attempt,
            )  # fmt: skip
        if job.letter.document is not None and job.is_file(number):
            return await job.sender.send_document(
                job.where, name=DOCUMENT_NAME, content=job.letter.document.encode(),
                caption=self._post.texts.document(job.place), silent=True,
                keyboard=job.keyboard_of(number), patience=job.patience, tries=job.tries, attempt=attempt,
            )  # fmt: skip
        return await job.sender.send_text(
            job.where, job.letter.parts[number], reply_to=reply_to, keyboard=job.keyboard_of(number),
            silent=number > 0, priority=Priority.FINAL, patience=job.patience, tries=job.tries,
            attempt=attempt,
        )  # fmt: skip

    async def _conclude(self, job: _FinalAnswer, number: int, outcome: CallOutcome, *, edited: bool) -> None:
        """What became of a part goes into its row."""
        match outcome:
            case MessageSent():
                await self._attempts.record_outcome((*job.key, number), outcome)
            case CallDone():
                await self._store.delivered(*job.key, number, remote_id=None)
            case CallUnknown() if not edited:
                log.warning("message_delivery_unknown", session_id=job.key[0], turn=job.key[1], part=number)
                await self._attempts.record_outcome((*job.key, number), outcome)
                await self._notices.send_now(*job.key)
            case CallRejected(reason=reason):
                log.error(
                    "message_rejected", session_id=job.key[0], turn=job.key[1], part=number, reason=reason
                )
                await self._store.give_up(*job.key, number, state="dead", error=reason)
            case ChatUnreachable(reason=reason):
                raise _ChatIsUnreachable(reason)
            case ChatMoved(new_chat_id=new_chat_id):
                raise _ChatHasMoved(new_chat_id)
            case CallNotSent() | CallUnknown():
                raise _DeliverLater

    # -- bubbles that are in the way ------------------------------------------------------------------

    async def _forget_bubble(self, job: _FinalAnswer, row: PartRow, message_id: int) -> None:
        """This bubble and those behind it go, and their parts are sent anew."""
        here = [known for known in (message_id,) if await self._is_here(job, known)]
        left = await self._store.send_anew(
            *job.key, part=row.part, address_id=job.ended.address_id, count=job.letter.count
        )
        await job.sender.delete(job.place.chat_id, {*here, *(left if here else ())})
        raise _DeliverAgain

    async def _is_here(self, job: _FinalAnswer, message_id: int) -> bool:
        """In a supergroup that was a group, the number is another message's."""
        if job.place.chat_id > 0:
            return True
        message = await self._post.places.message(job.place.bot_id, job.place.chat_id, message_id)
        return message is not None and (message.session_id, message.turn) == job.key

    async def _clear(self, job: _FinalAnswer, rows: Mapping[int, PartRow], count: int) -> None:
        """First out of the chat, then out of the rows: after a crash in between it is done again."""
        surplus = [row.remote_id for row in rows.values() if row.part >= count]
        if not surplus:
            return
        outcome = await job.sender.delete(
            job.place.chat_id, [known for known in surplus if known is not None]
        )
        if isinstance(outcome, CallNotSent | CallUnknown):
            raise _DeliverLater
        await self._store.drop_surplus(*job.key, count=count)

    async def _take_back(self, place: ChatRow, ended: EndedTurn, sender: Sender) -> None:
        """What an attempt has shown before a human answered this turn with a later one is no answer."""
        known = [row.remote_id for row in ended.parts if row.state == "sent" and row.remote_id is not None]
        if known and isinstance(await sender.delete(place.chat_id, known), CallNotSent | CallUnknown):
            raise _DeliverLater
        await self._store.drop_surplus(ended.session_id, ended.turn, count=1)
        await self._store.delivered(ended.session_id, ended.turn, 0, remote_id=None)

    async def _clear_previous(self, job: _FinalAnswer) -> None:
        """Buttons are under the newest answer only."""
        await self._post.clock.sleep(BUTTON_CLEANUP_DELAY_SECONDS)
        bot_id, chat_id = job.place.bot_id, job.place.chat_id
        try:
            known = await self._store.last_message(
                job.ended.session_id, job.ended.turn - 1, bot_id=bot_id, chat_id=chat_id
            )
        except StorageUnavailable as error:
            log.info("button_cleanup_failed", session_id=job.ended.session_id, reason=str(error))
            return
        if known is None:
            return
        outcome = await job.sender.edit_keyboard(
            chat_id, known, None, priority=Priority.TIDYING, patience=BUTTON_CLEANUP_PATIENCE_SECONDS
        )
        if isinstance(outcome, CallNotSent):
            # Nobody takes the chat for quiet while it is written in: then it is time all the same.
            await job.sender.edit_keyboard(
                chat_id, known, None, priority=Priority.NOTICE, patience=FINAL_PATIENCE_SECONDS
            )

    async def _give_up(self, place: ChatRow, ended: EndedTurn, reason: str) -> None:
        for row in await self._store.parts(ended.session_id, ended.turn):
            await self._store.give_up(ended.session_id, ended.turn, row.part, state="dead", error=reason)
        await self._post.places.set_reachable(place.bot_id, place.chat_id, reachable=False)

    # -- words ----------------------------------------------------------------------------------------

    async def _is_told_already(self, place: ChatRow, ended: EndedTurn) -> bool:
        """The same trouble twice within a minute is told once, unless a bubble has to become something."""
        if not is_notice(ended) or any(row.remote_id is not None for row in ended.parts):
            return False
        if not self.has_told_recently(place, ended.error_code):
            return False
        await self._store.delivered(ended.session_id, ended.turn, 0, remote_id=None)
        return True


def _index_by_part(rows: Sequence[PartRow]) -> dict[int, PartRow]:
    return {row.part: row for row in rows}
