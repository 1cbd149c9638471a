"""Shows an answer in its chat while it is being written, and brings its end when it is stored."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

import structlog

from bot.telegram.client.call_queue import Priority
from bot.telegram.client.outcomes import (
    CallDone,
    CallNotSent,
    CallUnknown,
    ChatMoved,
    ChatUnreachable,
    MessageSent,
    is_missing_message,
)
from bot.telegram.client.sender import EDIT_PATIENCE_SECONDS, FINAL_PATIENCE_SECONDS, ChatTarget, Sender
from bot.telegram.markup import MessagePart
from bot.telegram.outbound.delivery_context import DeliveryContext
from bot.telegram.outbound.draft_streaming import (
    GROUP_PACING,
    NATIVE_PACING,
    PRIVATE_PACING,
    DraftEdit,
    DraftMessage,
    DraftProgress,
    EditPacing,
    ReplyDraft,
)
from bot.telegram.outbound.final_delivery import FinalDelivery
from bot.telegram.outbound.native_drafts import NativeDraft, make_draft_id
from bot.telegram.outbound.typing_indicator import (
    TYPING_DELAY_SECONDS,
    TYPING_INTERVAL_SECONDS,
    TaskStarter,
    TypingIndicator,
)
from shared.adapters.postgres.telegram.chats import ChatRow
from shared.core.session.events import (
    Delta,
    Organizing,
    ReplyEvent,
    RunEnded,
    RunStarted,
    Stored,
    ToolRunning,
)
from shared.core.values.errors import StorageUnavailable

log = structlog.get_logger(__name__)

BUBBLE_PATIENCE_SECONDS = 1.0
"""The model's stream waits while a bubble is sent."""
LAST_EDIT_SECONDS = 5.0


class StreamingReply:
    """The listener of one session's answers, one turn after the other; `close` it when `answer` returns."""

    def __init__(
        self,
        post: DeliveryContext,
        finals: FinalDelivery,
        place: ChatRow,
        *,
        tasks: TaskStarter,
        private: EditPacing = PRIVATE_PACING,
        group: EditPacing = GROUP_PACING,
        native: EditPacing = NATIVE_PACING,
        typing_every: float = TYPING_INTERVAL_SECONDS,
        typing_after: float = TYPING_DELAY_SECONDS,
        patience: float = FINAL_PATIENCE_SECONDS,
        closed: Callable[[StreamingReply], None] | None = None,
    ) -> None:
        self._post = post
        self._finals = finals
        self._place = place
        self._tasks = tasks
        self._private, self._group = private, group
        self._rhythm = private if place.chat_id > 0 else group
        self._native_rhythm = native
        self._typing_every = typing_every
        self._typing_after = typing_after
        self._patience = patience
        self._closed = closed
        self._typing: TypingIndicator | None = None
        self._draft = ReplyDraft(rhythm=self._rhythm)
        self._draft.end()
        self._turn = 0
        self._asked_at = 0
        self._has_looked_back = False
        self._epoch = 0
        self._news = asyncio.Event()
        self._is_idle = False
        self._refreshing: asyncio.Task[None] | None = None
        self._native: NativeDraft | None = None
        self._maybe_shown: str | None = None

    async def __call__(self, event: ReplyEvent) -> None:
        """Never raises: what could not be shown now is brought by `recover`."""
        try:
            await self._hear(event)
        except StorageUnavailable as error:
            self._draft.end()
            log.warning("streaming_reply_failed", session_id=self._place.session_id, reason=str(error))
        except Exception:
            self._draft.end()
            log.exception("streaming_reply_failed", session_id=self._place.session_id, turn=self._turn)

    async def close(self) -> None:
        """Nothing of it is on its way any more."""
        await self._end_show()
        await self._stop_typing()
        if self._closed is not None:
            self._closed(self)

    @property
    def session_id(self) -> int:
        return self._place.session_id

    @property
    def _sender(self) -> Sender | None:
        return self._post.senders.get(self._place.bot_id)

    @property
    def _where(self) -> ChatTarget:
        return ChatTarget(chat_id=self._place.chat_id, thread_id=self._place.thread_id)

    # -- events ---------------------------------------------------------------------------------------

    async def _hear(self, event: ReplyEvent) -> None:
        match event:
            case RunStarted():
                await self._started(event)
            case Delta() if event.turn == self._turn:
                self._start_typing()
                self._draft.append(event, self._post.clock.now())
                await self._show()
            case ToolRunning() if event.turn == self._turn:
                self._draft.set_status(self._post.texts.working(self._place, event.name, event.subject))
                await self._show()
            case Organizing() if event.turn == self._turn:
                self._draft.set_status(self._post.texts.working(self._place, "organizing"))
                await self._show()
            case Stored(kind="msg"):
                await self._stored(event)
            case RunEnded():
                await self._end_show()
                await self._stop_typing()
            case _:
                pass

    async def _started(self, event: RunStarted) -> None:
        self._epoch = event.epoch
        if event.turn == self._turn and not self._draft.is_ended:
            self._draft.begin(event.attempt)
            return
        await self._end_show()
        self._turn, self._asked_at, self._maybe_shown = event.turn, event.address_id, None
        self._has_looked_back = False
        in_order = await self._earlier_are_there(event.turn)
        self._draft = ReplyDraft(rhythm=self._rhythm, attempt=event.attempt)
        self._start_typing()
        self._post.show_working(self._place, event.turn, self._tasks)
        if not in_order:
            self._draft.end()
            return
        if event.attempt > 1:
            await self._adopt_bubbles()
        if not self._draft.bubbles and self._place.chat_id > 0 and self._post.can_use(self._place, "drafts"):
            self._start_native()

    async def _follow_to(self, address_id: int) -> None:
        """A session may have several places: an answer is shown where its question was asked."""
        if address_id in (0, self._place.address_id):
            return
        place = await self._post.places.place(address_id)
        if place is not None:
            self._place = place
            self._rhythm = self._private if place.chat_id > 0 else self._group

    async def _earlier_are_there(self, turn: int) -> bool:
        """What another process left behind comes first; until it is there, nothing of this turn is shown."""
        if await self._is_in_order(turn):
            return True
        for earlier in self._finals.list_pending(self._place.session_id, before=turn):
            if not await self._bring_one(earlier, patience=0.0):
                return False
        return True

    async def _is_in_order(self, turn: int) -> bool:
        """Else it looks for what is left: of another process, or of a commit whose reply was lost."""
        await self._follow_to(self._asked_at)
        session_id, address_id = self._place.session_id, self._place.address_id
        in_order = self._finals.is_in_order(session_id, turn=turn, address_id=address_id)
        if not in_order:
            before = await self._post.deliveries.unfinished_before(session_id, turn, address_id=address_id)
            for earlier in before:
                self._finals.mark_pending(session_id, earlier)
        self._has_looked_back = True
        return in_order

    async def _stored(self, event: Stored) -> None:
        if event.payload.get("waiting"):
            await self._end_show()
            await self._tell_waiting(event)
        elif event.payload.get("role") in ("assistant", "notice"):
            await self._end_show()
            await self._stop_typing()
            await self._bring(int(event.payload.get("turn", self._turn)))

    async def _bring(self, turn: int) -> None:
        """After whatever of earlier turns had to wait."""
        self._finals.mark_pending(self._place.session_id, turn)
        if turn == self._turn and not self._has_looked_back:
            await self._is_in_order(turn)
        for earlier in self._finals.list_pending(self._place.session_id, before=turn):
            if not await self._bring_one(earlier):
                return
        await self._bring_one(turn, maybe_shown=self._maybe_shown)

    async def _bring_one(
        self, turn: int, *, patience: float | None = None, maybe_shown: str | None = None
    ) -> bool:
        ended = await self._post.deliveries.ended_turn(self._place.session_id, turn)
        if ended is None:
            return False
        place: ChatRow | None = self._place
        if ended.address_id != self._place.address_id:
            place = await self._post.places.place(ended.address_id)
        return place is not None and await self._finals.deliver(
            place,
            ended,
            patience=self._patience if patience is None else patience,
            maybe_shown=maybe_shown,
        )

    async def _tell_waiting(self, event: Stored) -> None:
        """That an answer takes longer is said once; nobody misses it when it gets lost."""
        code, sender = str(event.payload.get("error", "")), self._sender
        if sender is None or self._finals.has_told_recently(self._place, code):
            return
        words = self._post.texts.notice(self._place, code, str(event.payload.get("text", "")))
        outcome = await sender.send_text(
            self._where, MessagePart(text=words), silent=True, patience=EDIT_PATIENCE_SECONDS
        )
        if isinstance(outcome, MessageSent):
            self._finals.record_told(self._place, code)

    # -- bubbles --------------------------------------------------------------------------------------

    async def _adopt_bubbles(self) -> None:
        """An earlier attempt, perhaps of another process, has shown something: it is replaced in place."""
        rows = await self._post.deliveries.parts(self._place.session_id, self._turn)
        known = [row for row in rows if row.state == "sent" and row.remote_id is not None]
        self._draft.bubbles = [DraftMessage(message_id=row.remote_id or 0) for row in known]
        if known:
            self._start_refreshing()

    async def _show(self) -> None:
        """A new bubble is sent here and now, so that none is on its way when the answer is committed."""
        if self._native is None and self._draft.wants_bubble(self._post.clock.now()):
            await self._open_bubble()
        if self._is_idle and self._draft.next_at(0.0) is not None:
            self._news.set()

    async def _open_bubble(self) -> None:
        opening, sender, number = self._draft.render_opening(), self._sender, len(self._draft.bubbles)
        if opening is None or sender is None:
            return
        part, seen = opening
        reply_to = await self._post.find_question(self._place, self._turn) if number == 0 else None
        self._post.crash_point("telegram_before_bubble")
        outcome = await sender.send_text(
            self._where, part, reply_to=reply_to, silent=number > 0,
            keyboard=self._post.keyboard(self._place, self._turn, "running"),
            patience=BUBBLE_PATIENCE_SECONDS, tries=1,
        )  # fmt: skip
        self._post.crash_point("telegram_after_bubble")
        match outcome:
            case MessageSent(message_id=message_id):
                await self._opened(sender, message_id, part, seen)
            case CallNotSent(retry_after=retry_after):
                self._draft.slow_down(retry_after, self._post.clock.now())
            case CallUnknown(reason=reason):
                self._tell_stray(reason)
                self._maybe_shown = part.text if number == 0 else None
                self._draft.end()
            case ChatMoved(new_chat_id=new_chat_id):
                self._place = await self._post.follow_migration(self._place, new_chat_id)
            case _:
                self._draft.end()
        if isinstance(outcome, ChatUnreachable):
            await self._post.places.set_reachable(self._place.bot_id, self._place.chat_id, reachable=False)

    async def _opened(self, sender: Sender, message_id: int, part: MessagePart, seen: DraftProgress) -> None:
        number = len(self._draft.bubbles)
        ours = False
        try:
            ours = await self._post.deliveries.bubble_shown(
                self._place.session_id, self._turn, number,
                epoch=self._epoch, address_id=self._place.address_id, remote_id=message_id,
            )  # fmt: skip
        finally:
            if not ours:
                self._draft.end()
                gone = await sender.delete(self._place.chat_id, [message_id])
                if not isinstance(gone, CallDone):
                    self._tell_stray(f"not deleted: {gone}")
        if ours:
            self._draft.record_opened(message_id, part, seen, self._post.clock.now())
            self._start_refreshing()

    def _tell_stray(self, reason: str) -> None:
        """The one thing that may stand in a chat and is not known of."""
        log.warning(
            "draft_message_delivery_unknown",
            session_id=self._place.session_id,
            turn=self._turn,
            reason=reason,
        )

    def _start_refreshing(self) -> None:
        if self._refreshing is None:
            self._refreshing = self._tasks.start(self._refresh(self._draft))

    async def _refresh(self, draft: ReplyDraft) -> None:
        while not draft.is_ended:
            edit = draft.next_edit(self._post.clock.now())
            if edit is not None:
                await self._edit(draft, edit)
                continue
            self._news.clear()
            at = draft.next_at(self._post.clock.now())
            self._is_idle = at is None
            with suppress(TimeoutError):
                async with asyncio.timeout(self._seconds_until(at)):
                    await self._news.wait()

    def _seconds_until(self, at: float | None) -> float | None:
        """Without a time the next piece or the end wakes it."""
        return None if at is None else self._post.clock.real(at - self._post.clock.now())

    async def _edit(self, draft: ReplyDraft, edit: DraftEdit) -> None:
        sender = self._sender
        if sender is None:
            draft.slow_down(None, self._post.clock.now())
            return
        keyboard = self._post.keyboard(self._place, self._turn, "running") if edit.is_last else None
        outcome = await sender.edit_text(
            self._place.chat_id, edit.message_id, edit.part, keyboard=keyboard, priority=Priority.EDIT
        )
        now = self._post.clock.now()
        if isinstance(outcome, MessageSent | CallDone):
            draft.record_edited(edit, now)
        elif isinstance(outcome, CallNotSent):
            draft.slow_down(outcome.retry_after, now)
        elif isinstance(outcome, CallUnknown):
            draft.slow_down(None, now)
        else:
            if not is_missing_message(outcome):
                log.info("streaming_edits_stopped", outcome=type(outcome).__name__)
            draft.end()

    async def _end_show(self) -> None:
        """The edit that is on its way may end: the next one for its message waits for it anyway."""
        self._draft.end()
        self._news.set()
        if self._native is not None:
            self._native.stop()
        task, self._refreshing, self._native = self._refreshing, None, None
        if task is not None:
            await asyncio.wait([task], timeout=LAST_EDIT_SECONDS)

    # -- native drafts --------------------------------------------------------------------------------

    def _start_native(self) -> None:
        sender = self._sender
        if sender is None:
            return
        self._native = NativeDraft(
            sender, self._where, self._draft, clock=self._post.clock,
            latch=self._post.get_form_support(self._place.bot_id), every=self._native_rhythm.edit_seconds,
            draft_id=make_draft_id(self._place.session_id, self._turn),
        )  # fmt: skip
        self._refreshing = self._tasks.start(self._run_native(self._native))

    async def _run_native(self, native: NativeDraft) -> None:
        if not await native.run() and self._native is native:
            self._native, self._refreshing = None, None

    # -- typing ---------------------------------------------------------------------------------------

    def _start_typing(self) -> None:
        if self._typing is None and (sender := self._sender) is not None:
            self._typing = TypingIndicator(
                sender, self._where, tasks=self._tasks, clock=self._post.clock,
                every=self._typing_every, after=self._typing_after,
            )  # fmt: skip

    async def _stop_typing(self) -> None:
        typing, self._typing = self._typing, None
        if typing is not None:
            await typing.stop()
