"""Shows an answer in its chat while the model writes it, and delivers it once it is stored."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import structlog

from bot.telegram.client.calls import (
    CallDone,
    CallNotSent,
    CallUnknown,
    ChatClosed,
    ChatMoved,
    ChatUnreachable,
    MessageSent,
    Priority,
    ScaledClock,
    is_missing_message,
)
from bot.telegram.client.sender import EDIT_PATIENCE_SECONDS, FINAL_PATIENCE_SECONDS, ChatTarget, Sender
from bot.telegram.markup.entity_text import MessagePart
from bot.telegram.outbound.delivery_context import DeliveryContext, MaybeShown
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
from bot.telegram.outbound.uncertain_notices import UncertainNotices
from shared.adapters.postgres.telegram.chats import ChatRow
from shared.adapters.postgres.telegram.deliveries import EndedTurn, PartRow
from shared.core.session.turns import (
    Delta,
    Organizing,
    ReplyEvent,
    RunEnded,
    RunStarted,
    Stored,
    ToolRunning,
)
from shared.core.values.errors import StorageUnavailable
from shared.runtime import BackgroundTasks

log = structlog.get_logger(__name__)

BUBBLE_PATIENCE_SECONDS = 1.0
"""Seconds that a new message may wait for its turn; the model's stream waits as long."""
STORAGE_PATIENCE_SECONDS = 5.0
"""Seconds of a database outage after which a message that cannot be recorded is deleted again."""
STORAGE_PAUSE_SECONDS = 0.25
"""Seconds between two tries to store a new message."""
LAST_EDIT_SECONDS = 5.0
"""Seconds to wait for an edit under way when editing stops."""
TYPING_INTERVAL_SECONDS = 4.0
"""Seconds between typing indicators; Telegram shows each for five seconds."""
TYPING_DELAY_SECONDS = 0.2
"""Seconds before the first typing indicator; a faster answer needs none."""
TYPING_RETRY_SECONDS = 1.0
"""Seconds until an indicator that the rate limits did not allow is tried again; their window is as long."""
LAST_CALL_SECONDS = 5.0
"""Seconds to wait for a typing call under way when the indicator stops."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyPacing:
    """Timing of edits and typing indicators, in seconds; tests use shorter intervals."""

    private: EditPacing = PRIVATE_PACING
    group: EditPacing = GROUP_PACING
    native: EditPacing = NATIVE_PACING
    typing_every: float = TYPING_INTERVAL_SECONDS
    typing_after: float = TYPING_DELAY_SECONDS
    patience: float = FINAL_PATIENCE_SECONDS

    def get_edit_pacing(self, chat: ChatRow) -> EditPacing:
        """Return the timing of edits for a private chat or a group."""
        return self.private if chat.chat_id > 0 else self.group


class StreamingReply:
    """Display of one session's answers in its chat, turn by turn; `TelegramReplySink` passes it the events.

    The caller must `close` it when the session has no more turns.
    """

    def __init__(
        self,
        context: DeliveryContext,
        final_delivery: FinalDelivery,
        notices: UncertainNotices,
        chat: ChatRow,
        *,
        tasks: BackgroundTasks,
        pacing: ReplyPacing,
        on_closed: Callable[[StreamingReply], None],
    ) -> None:
        self._context = context
        self._final_delivery = final_delivery
        self._notices = notices
        self._chat = chat
        self._tasks = tasks
        self._pacing = pacing
        self._on_closed = on_closed
        self._typing: TypingIndicator | None = None
        self._draft = self._open_draft(0)
        self._draft.end()
        self._turn = 0
        self._asker_address_id = 0
        self._has_checked_earlier = False
        self._is_unseen = False
        """True while the turn is at its first attempt and no message of its answer was sent."""
        self._epoch = 0
        self._draft_changed = asyncio.Event()
        self._is_idle = False
        self._refreshing: asyncio.Task[None] | None = None
        self._native: NativeDraft | None = None

    async def __call__(self, event: ReplyEvent) -> None:
        """Show an event in the chat.

        Never raises: after an error the draft is not shown further, and `resume_unfinished` delivers the
        answer.
        """
        try:
            await self._handle(event)
        except StorageUnavailable as error:
            self._draft.end()
            log.warning("streaming_reply_failed", session_id=self._chat.session_id, reason=str(error))
        except Exception:
            self._draft.end()
            log.exception("streaming_reply_failed", session_id=self._chat.session_id, turn=self._turn)

    async def close(self) -> None:
        """Stop edits and the typing indicator, and report the reply as closed.

        Waits up to `LAST_EDIT_SECONDS` for an edit and `LAST_CALL_SECONDS` for a typing call under way.
        """
        await self._stop_showing()
        await self._stop_typing()
        self._on_closed(self)

    @property
    def session_id(self) -> int:
        """Id of the session whose answers are shown."""
        return self._chat.session_id

    @property
    def _sender(self) -> Sender | None:
        return self._context.senders.get(self._chat.bot_id)

    @property
    def _target(self) -> ChatTarget:
        return ChatTarget(chat_id=self._chat.chat_id, thread_id=self._chat.thread_id)

    # -- events ---------------------------------------------------------------------------------------

    async def _handle(self, event: ReplyEvent) -> None:
        match event:
            case RunStarted():
                await self._handle_started(event)
            case Delta() if event.turn == self._turn:
                self._start_typing()
                self._draft.append(event, self._context.clock.now())
                await self._show()
            case ToolRunning() if event.turn == self._turn:
                self._draft.set_status(
                    self._context.texts.format_working(self._chat, event.name, event.subject)
                )
                await self._show()
            case Organizing() if event.turn == self._turn:
                self._draft.set_status(self._context.texts.format_working(self._chat, "organizing"))
                await self._show()
            case Stored(kind="msg"):
                await self._handle_stored(event)
            case RunEnded():
                await self._stop_showing()
                await self._stop_typing()
            case _:
                pass

    async def _handle_started(self, event: RunStarted) -> None:
        """Prepare the draft of a new turn or attempt, after earlier turns were delivered."""
        self._epoch = event.epoch
        if event.turn == self._turn and not self._draft.is_ended:
            self._is_unseen = False
            self._draft.begin(event.attempt)
            return
        await self._stop_showing()
        self._turn, self._asker_address_id = event.turn, event.address_id
        self._has_checked_earlier, self._is_unseen = False, event.attempt == 1
        in_order = await self._deliver_earlier(event.turn)
        self._draft = self._open_draft(event.attempt)
        self._start_typing()
        self._context.show_working(self._chat, event.turn, self._tasks)
        if not in_order or self._final_delivery.find_maybe_shown(self.session_id, event.turn) is not None:
            # A message that may be in the chat is not sent a second time before it was searched for.
            self._draft.end()
            return
        if event.attempt > 1:
            await self._adopt_bubbles()
        if not self._draft.bubbles and self._chat.chat_id > 0 and self._context.can_use(self._chat, "drafts"):
            self._start_native()

    def _open_draft(self, attempt: int) -> ReplyDraft:
        return ReplyDraft(
            pacing=self._pacing.get_edit_pacing(self._chat), attempt=attempt,
            most_messages=self._context.most_messages,
        )  # fmt: skip

    async def _follow_chat(self, address_id: int) -> None:
        """Switch to the chat that asked, by its address id; 0 or an unknown id changes nothing."""
        if address_id in (0, self._chat.address_id):
            return
        chat = await self._context.chats.find_chat(address_id)
        if chat is not None:
            self._chat = chat

    async def _deliver_earlier(self, turn: int) -> bool:
        """Deliver earlier turns of the session; return False if one of them cannot be delivered now.

        A turn after an undelivered one is not shown while the model writes it.
        """
        if await self._is_in_order(turn):
            return True
        for earlier in self._final_delivery.list_pending(self._chat.session_id, before=turn):
            if not await self._deliver_turn(earlier, patience=0.0):
                return False
        return True

    async def _is_in_order(self, turn: int) -> bool:
        """Return whether this process has just delivered the preceding turn in this chat.

        If not, mark the unfinished earlier turns as pending, and send notices about uncertain ones.
        """
        await self._follow_chat(self._asker_address_id)
        session_id, address_id = self._chat.session_id, self._chat.address_id
        in_order = self._final_delivery.is_in_order(session_id, turn=turn, address_id=address_id)
        if not in_order:
            before = await self._context.deliveries.list_unfinished_before(
                session_id, turn, address_id=address_id
            )
            for earlier in before:
                self._final_delivery.mark_pending(session_id, earlier)
            await self._notices.send_now(session_id, up_to=turn)
        self._has_checked_earlier = True
        return in_order

    async def _handle_stored(self, event: Stored) -> None:
        if event.payload.get("waiting"):
            await self._stop_showing()
            await self._send_waiting_notice(event)
        elif event.payload.get("role") in ("assistant", "notice"):
            await self._stop_showing()
            await self._stop_typing()
            await self._deliver(int(event.payload.get("turn", self._turn)), self._read_answer(event))

    def _read_answer(self, event: Stored) -> EndedTurn | None:
        """Return the stored answer of an event as an ended turn; None if it must be loaded from the database.

        Loading is needed unless this process stored the whole answer at its first attempt, before any message
        of it was sent. The row is then known; `FinalDelivery` still checks it before it sends.
        """
        said, turn = event.payload, event.payload.get("turn")
        is_whole = event.ends == "answered" and said.get("role") == "assistant" and bool(said.get("text"))
        is_ours = turn == self._turn and self._is_unseen and self._asker_address_id == self._chat.address_id
        if not is_whole or not is_ours or said.keys() & {"attachments", "error", "name", "replaces"}:
            return None
        return EndedTurn(
            session_id=self._chat.session_id, turn=self._turn, address_id=self._asker_address_id,
            state="answered", text=str(said["text"]), error_code="", stop=str(said.get("stop") or ""),
            parts=(PartRow(part=0, state="queued", remote_id=None, attempt=0),),
        )  # fmt: skip

    async def _deliver(self, turn: int, ended: EndedTurn | None) -> None:
        """Deliver the turns that wait before this one, then this one; if one fails, this one waits, too.

        `ended` None loads the turn from the database.
        """
        self._final_delivery.mark_pending(self._chat.session_id, turn)
        if turn == self._turn and not self._has_checked_earlier:
            await self._is_in_order(turn)
        for earlier in self._final_delivery.list_pending(self._chat.session_id, before=turn):
            if not await self._deliver_turn(earlier):
                return
        await self._deliver_turn(turn, ended=ended)

    async def _deliver_turn(
        self,
        turn: int,
        *,
        patience: float | None = None,
        ended: EndedTurn | None = None,
    ) -> bool:
        ended = ended or await self._context.deliveries.load_ended_turn(self._chat.session_id, turn)
        if ended is None:
            return False
        chat: ChatRow | None = self._chat
        if ended.address_id != self._chat.address_id:
            chat = await self._context.chats.find_chat(ended.address_id)
        return chat is not None and await self._final_delivery.deliver(
            chat,
            ended,
            patience=self._pacing.patience if patience is None else patience,
        )

    async def _send_waiting_notice(self, event: Stored) -> None:
        """Tell the chat that an answer takes longer, at most once per `COOL_DOWN_SECONDS`; not retried."""
        code, sender = str(event.payload.get("error", "")), self._sender
        if sender is None or self._final_delivery.has_notified_recently(self._chat, code):
            return
        text = self._context.texts.format_notice(self._chat, code, str(event.payload.get("text", "")))
        outcome = await sender.send_text(
            self._target, MessagePart(text=text), silent=True, patience=EDIT_PATIENCE_SECONDS
        )
        if isinstance(outcome, MessageSent):
            self._final_delivery.record_notified(self._chat, code)

    # -- bubbles --------------------------------------------------------------------------------------

    async def _adopt_bubbles(self) -> None:
        """Take over the messages of an earlier attempt, perhaps by another process, and edit them from now
        on.
        """
        rows = await self._context.deliveries.list_parts(self._chat.session_id, self._turn)
        known = [row for row in rows if row.state == "sent" and row.remote_id is not None]
        self._draft.bubbles = [DraftMessage(message_id=row.remote_id or 0) for row in known]
        if known:
            self._start_refreshing()

    async def _show(self) -> None:
        """Send a new message if one is due, and wake the task that edits.

        New messages are sent here, so that none is under way when the answer is committed.
        """
        if self._native is None and self._draft.wants_bubble(self._context.clock.now()):
            await self._open_bubble()
        if self._is_idle and self._draft.get_next_edit_time(0.0) is not None:
            self._draft_changed.set()

    async def _open_bubble(self) -> None:
        """Send a new message for the draft, and record it."""
        opening, sender, number = self._draft.render_opening(), self._sender, len(self._draft.bubbles)
        if opening is None or sender is None:
            return
        part, seen = opening
        reply_to = await self._context.find_question(self._chat, self._turn) if number == 0 else None
        self._is_unseen = False
        self._context.crash_point("telegram_before_bubble")
        outcome = await sender.send_text(
            self._target, part, reply_to=reply_to, silent=number > 0,
            keyboard=self._context.keyboard(self._chat, self._turn, "running"),
            patience=BUBBLE_PATIENCE_SECONDS, tries=1,
        )  # fmt: skip
        self._context.crash_point("telegram_after_bubble")
        match outcome:
            case MessageSent(message_id=message_id):
                await self._record_opened(sender, message_id, part, seen)
            case CallNotSent(retry_after=retry_after):
                self._draft.slow_down(retry_after, self._context.clock.now())
            case CallUnknown(reason=reason):
                self._log_stray(reason)
                shown = MaybeShown(part=number, text=part.text)
                self._final_delivery.record_maybe_shown(self.session_id, self._turn, shown)
                self._draft.end()
            case ChatMoved(new_chat_id=new_chat_id):
                self._chat = await self._context.follow_migration(self._chat, new_chat_id)
            case _:
                self._draft.end()
        if isinstance(outcome, ChatUnreachable | ChatClosed):
            await self._context.wait_for_chat(self._chat, outcome)

    async def _record_opened(
        self, sender: Sender, message_id: int, part: MessagePart, seen: DraftProgress
    ) -> None:
        """Store a new message.

        Delete it from the chat if it does not belong to this attempt or cannot be stored.
        """
        ours = False
        try:
            ours = await self._record_bubble(message_id)
        finally:
            if not ours:
                self._draft.end()
                gone = await sender.delete(self._chat.chat_id, [message_id])
                if not isinstance(gone, CallDone):
                    self._log_stray(f"not deleted: {gone}")
        if ours:
            self._draft.record_opened(message_id, part, seen, self._context.clock.now())
            self._start_refreshing()

    async def _record_bubble(self, message_id: int) -> bool:
        """Store a new message; return False if another attempt has taken over the turn.

        Retries for `STORAGE_PATIENCE_SECONDS`, then raises StorageUnavailable.
        """
        until = self._context.clock.now() + STORAGE_PATIENCE_SECONDS
        while True:
            try:
                return await self._context.deliveries.record_bubble(
                    self._chat.session_id, self._turn, len(self._draft.bubbles),
                    epoch=self._epoch, address_id=self._chat.address_id, remote_id=message_id,
                )  # fmt: skip
            except StorageUnavailable:
                if self._context.clock.now() >= until:
                    raise
            await self._context.clock.sleep(STORAGE_PAUSE_SECONDS)

    def _log_stray(self, reason: str) -> None:
        """Log that a message may be in the chat without a stored row."""
        log.warning(
            "draft_message_delivery_unknown",
            session_id=self._chat.session_id,
            turn=self._turn,
            reason=reason,
        )

    def _start_refreshing(self) -> None:
        if self._refreshing is None:
            self._refreshing = self._tasks.start(self._refresh(self._draft))

    async def _refresh(self, draft: ReplyDraft) -> None:
        """Edit the messages of the draft until it ends."""
        while not draft.is_ended:
            edit = draft.next_edit(self._context.clock.now())
            if edit is not None:
                await self._edit(draft, edit)
                continue
            self._draft_changed.clear()
            at = draft.get_next_edit_time(self._context.clock.now())
            self._is_idle = at is None
            with suppress(TimeoutError):
                async with asyncio.timeout(self._measure_seconds_until(at)):
                    await self._draft_changed.wait()

    def _measure_seconds_until(self, at: float | None) -> float | None:
        """Return the real seconds until `at`; None, meaning no timeout, if `at` is None."""
        return None if at is None else self._context.clock.to_real_seconds(at - self._context.clock.now())

    async def _edit(self, draft: ReplyDraft, edit: DraftEdit) -> None:
        sender = self._sender
        if sender is None:
            draft.slow_down(None, self._context.clock.now())
            return
        keyboard = self._context.keyboard(self._chat, self._turn, "running") if edit.is_last else None
        outcome = await sender.edit_text(
            self._chat.chat_id, edit.message_id, edit.part, keyboard=keyboard, priority=Priority.EDIT
        )
        now = self._context.clock.now()
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

    async def _stop_showing(self) -> None:
        """Stop editing; wait up to `LAST_EDIT_SECONDS` for an edit under way."""
        self._draft.end()
        self._draft_changed.set()
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
            sender, self._target, self._draft, clock=self._context.clock,
            form_support=self._context.get_form_support(self._chat.bot_id),
            every=self._pacing.native.edit_seconds, draft_id=make_draft_id(self._chat.session_id, self._turn),
        )  # fmt: skip
        self._refreshing = self._tasks.start(self._run_native(self._native))

    async def _run_native(self, native: NativeDraft) -> None:
        """Show the native draft; if it was refused or too long, the next event opens a plain message."""
        if not await native.run() and self._native is native:
            self._native, self._refreshing = None, None

    # -- typing ---------------------------------------------------------------------------------------

    def _start_typing(self) -> None:
        if self._typing is None and (sender := self._sender) is not None:
            self._typing = TypingIndicator(
                sender, self._target, tasks=self._tasks, clock=self._context.clock,
                every=self._pacing.typing_every, after=self._pacing.typing_after,
            )  # fmt: skip

    async def _stop_typing(self) -> None:
        typing, self._typing = self._typing, None
        if typing is not None:
            await typing.stop()


class TypingIndicator:
    """Shows `typing` in one chat until `stop`, at intervals of `every` seconds after a delay of `after`."""

    def __init__(
        self,
        sender: Sender,
        target: ChatTarget,
        *,
        tasks: BackgroundTasks,
        clock: ScaledClock,
        every: float = TYPING_INTERVAL_SECONDS,
        after: float = TYPING_DELAY_SECONDS,
    ) -> None:
        self._sender = sender
        self._target = target
        self._clock = clock
        self._every = every
        self._after = after
        self._stopped = asyncio.Event()
        self._task = tasks.start(self._run())

    async def stop(self) -> None:
        """Stop the indicator; wait up to `LAST_CALL_SECONDS` for a call under way."""
        self._stopped.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_CALL_SECONDS):
                await asyncio.wait([self._task])

    async def _run(self) -> None:
        with self._sender.expect_answer():
            await self._pause(self._after)
            while not self._stopped.is_set():
                outcome = await self._sender.send_typing(self._target)
                if isinstance(outcome, ChatUnreachable | ChatClosed):
                    return
                if isinstance(outcome, CallNotSent):
                    await self._pause(max(TYPING_RETRY_SECONDS, outcome.retry_after or 0.0))
                else:
                    await self._pause(self._every)

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._clock.to_real_seconds(seconds)):
                await self._stopped.wait()
