"""Answers turns from Telegram, and delivers answers that have not arrived."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from itertools import groupby
from typing import Protocol

import structlog

from bot.telegram.inbound.bot_context import BotContext
from bot.telegram.outbound.buttons import build_summary_buttons, is_setting_on
from bot.telegram.outbound.delivery_context import DeliveryContext
from bot.telegram.outbound.final_delivery import FinalDelivery
from bot.telegram.outbound.notifier import Notifier, get_chat_target
from bot.telegram.outbound.secretary_delivery import SecretaryDelivery
from bot.telegram.outbound.streaming_reply import ReplyPacing, StreamingReply
from bot.telegram.outbound.uncertain_notices import UncertainNotices
from bot.telegram.texts import get_chat_texts
from shared.adapters.postgres.telegram.chats import ChatRow, PostgresTelegramChats
from shared.adapters.postgres.telegram.guest_queries import GuestChat, PostgresGuestQueries
from shared.adapters.postgres.telegram.secretary import CustomerChat
from shared.core.compaction.outlook import SummaryOutlook
from shared.core.session.turns import ReplyEvent
from shared.core.values.errors import EvertalkError, StorageUnavailable
from shared.runtime import BackgroundTasks
from shared.services.turns.turn_dispatcher import OpenReplySink, SessionAnswerer, TurnDispatcher

log = structlog.get_logger(__name__)

MAX_PARALLEL_SESSIONS = 8
"""Maximum sessions whose unfinished deliveries are resumed at once."""
RECOVERY_SECONDS = 1.0
"""Seconds between two checks for undelivered answers."""
DRAIN_SECONDS = 2.5
"""Seconds that running answers may take to end when the process stops."""
NOTICE_DRAIN_SECONDS = 1.0
"""Seconds that notices after answers may take to end when the process stops, after the answers."""

AfterAnswer = Callable[[ChatRow], Awaitable[None]]


class TelegramTurnDispatcher:
    """Starts the answers of turns from Telegram, for the bots whose lease this process holds.

    `on_idle` is called with the chat in the background after a session has no more turns to answer.
    """

    def __init__(
        self,
        conversation: SessionAnswerer,
        delivery: AnswerDelivery,
        chats: PostgresTelegramChats,
        *,
        guests: PostgresGuestQueries,
        open_guest_sink: OpenReplySink,
        secretary: SecretaryDelivery,
        list_held_bots: Callable[[], Collection[int]],
        on_idle: AfterAnswer,
    ) -> None:
        self._delivery = delivery
        self._chats = chats
        self._guests = guests
        self._open_guest_sink = open_guest_sink
        self._secretary = secretary
        self._list_held_bots = list_held_bots
        self._idle_notices = IdleNotices(on_idle)
        self._answers = TurnDispatcher(
            conversation,
            channel="telegram",
            orphan=self._open_orphan_sink,
            accounts=lambda: [str(bot_id) for bot_id in list_held_bots()],
        )
        self._loops = BackgroundTasks()
        self._bot_serving = asyncio.Event()

    def start(self) -> None:
        """Start to look for due turns and for unfinished deliveries."""
        self._answers.start()
        self._loops.run_forever(self._run_resuming)

    def dispatch(self, chat: ChatRow) -> None:
        """Start answering the chat's due turns; during an answer, have one more round follow it."""
        self._answers.dispatch(chat.session_id, partial(self._open_sink, chat))

    def dispatch_guest(self, chat: GuestChat) -> None:
        """Start answering a guest's question; `GuestDelivery` sends the answer."""
        self._answers.dispatch(chat.session_id, self._open_guest_sink)

    def dispatch_customer(self, chat: CustomerChat) -> None:
        """Start answering a customer's message; the answer becomes a draft."""
        self._answers.dispatch(chat.session_id, partial(self._secretary.open_sink, chat.session_id))

    def wake(self) -> None:
        """Look for due turns now instead of at the next check."""
        self._answers.wake()

    def on_bot_serving(self) -> None:
        """Look now for answers that the last holder of the bot's lease did not deliver."""
        self._bot_serving.set()
        self._answers.wake()

    async def close(self) -> None:
        """Stop, giving running answers `DRAIN_SECONDS` to end, and notices `NOTICE_DRAIN_SECONDS`."""
        await self._answers.close(drain_seconds=DRAIN_SECONDS)
        await self._idle_notices.close()
        await self._loops.cancel()

    def _open_sink(self, chat: ChatRow) -> TelegramReplySink:
        return TelegramReplySink(chat, self._delivery.open_reply(chat), self._idle_notices.start)

    async def _open_orphan_sink(self, session_id: int) -> OpenReplySink | None:
        """Return how to show the answer of a session whose turn is due.

        None if no Telegram chat waits for it.
        """
        chat = await self._chats.find_chat_of_due_turn(session_id)
        if chat is not None:
            return partial(self._open_sink, chat)
        guest = await self._guests.find_chat_of_due_turn(session_id)
        if guest is not None:
            return self._open_guest_sink
        return await self._secretary.open_orphan_sink(session_id)

    async def _run_resuming(self) -> None:
        """Resume unfinished deliveries every `RECOVERY_SECONDS` and when a bot's lease was taken, until
        cancelled.
        """
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(RECOVERY_SECONDS):
                    await self._bot_serving.wait()
            self._bot_serving.clear()
            held = list(self._list_held_bots())
            if self._answers.is_closing or not held:
                continue
            try:
                await self._delivery.resume_unfinished(held)
            except StorageUnavailable as error:
                log.warning("unfinished_deliveries_unreadable", reason=str(error))


class IdleNotices:
    """Background tasks that call `send` after answers; the next answer of a chat does not wait for them.

    Calls for one session never overlap.
    """

    def __init__(self, send: AfterAnswer) -> None:
        self._send = send
        self._tasks = BackgroundTasks()
        self._waiting: dict[int, ChatRow | None] = {}
        """Chats whose answers ended during a call, by session id; None where a call runs and none follows."""

    def start(self, chat: ChatRow) -> None:
        """Call `send` for the chat; if a call for its session runs, one more follows that."""
        if chat.session_id in self._waiting:
            self._waiting[chat.session_id] = chat
        else:
            self._waiting[chat.session_id] = None
            self._tasks.start(self._run(chat))

    async def close(self) -> None:
        """Wait up to `NOTICE_DRAIN_SECONDS` for running calls, then cancel them."""
        await self._tasks.drain(NOTICE_DRAIN_SECONDS)

    async def _run(self, chat: ChatRow) -> None:
        session_id = chat.session_id
        following: ChatRow | None = chat
        try:
            while following is not None:
                self._waiting[session_id] = None
                await self._send_once(following)
                following = self._waiting[session_id]
        finally:
            del self._waiting[session_id]

    async def _send_once(self, chat: ChatRow) -> None:
        try:
            await self._send(chat)
        except EvertalkError as error:
            # The next answer of the session looks again.
            log.warning("idle_notice_failed", session_id=chat.session_id, code=error.code, reason=str(error))


class TelegramReplySink:
    """Reply sink that shows the answers of one session in its chat.

    `on_idle` is called with the chat when no more turns are due; it must return at once.
    """

    def __init__(self, chat: ChatRow, reply: StreamingReply, on_idle: Callable[[ChatRow], None]) -> None:
        self._chat = chat
        self._reply = reply
        self._on_idle = on_idle

    async def __call__(self, event: ReplyEvent) -> None:
        await self._reply(event)

    async def mark_idle(self) -> None:
        """Start to send the notices that are due after an answer."""
        self._on_idle(self._chat)

    async def close(self) -> None:
        """Stop edits and the typing indicator of the reply."""
        await self._reply.close()


class AnswerDelivery:
    """Delivers answers for all bots of the process.

    `open_reply` shows an answer that this process writes, `resume_unfinished` delivers ended ones.
    """

    def __init__(
        self,
        context: DeliveryContext,
        *,
        tasks: BackgroundTasks,
        pacing: ReplyPacing | None = None,
    ) -> None:
        self._context = context
        self.uncertain = UncertainNotices(context, tasks=tasks)
        self._final_delivery = FinalDelivery(context, tasks=tasks, notices=self.uncertain)
        self._tasks = tasks
        self._pacing = pacing or ReplyPacing()
        self._replies: dict[int, StreamingReply] = {}

    def open_reply(self, chat: ChatRow) -> StreamingReply:
        """Return the reply that shows the events of a session's answers in the chat.

        The caller must close it.
        """
        answer = StreamingReply(
            self._context,
            self._final_delivery,
            self.uncertain,
            chat,
            tasks=self._tasks,
            pacing=self._pacing,
            on_closed=self._on_reply_closed,
        )
        self._replies[chat.session_id] = answer
        return answer

    async def resume_unfinished(self, accounts: Sequence[int]) -> int:
        """Deliver the ended turns of these bots that are not complete in their chats; return how many now
        are.

        Call it after `recover_interrupted`, then every second: a delivery that has to wait is left for the
        next call, and sessions with an open reply are left to that. `accounts` are bot ids. Raises
        StorageUnavailable.
        """
        unfinished = await self._context.deliveries.list_unfinished(accounts)
        # Turns of one session are delivered in their order; sessions do not wait for each other.
        sessions = [list(turns) for _, turns in groupby(sorted(unfinished), key=lambda found: found[0])]
        gate = asyncio.Semaphore(MAX_PARALLEL_SESSIONS)
        done = await asyncio.gather(
            *(self._resume_session(turns, gate) for turns in sessions if turns[0][0] not in self._replies)
        )
        return sum(done)

    def deliver_soon(self, session_id: int, turn: int) -> None:
        """Deliver one ended turn in the background, even while its session writes another answer."""
        self._tasks.start(self._resume_soon(session_id, turn))

    async def _resume_soon(self, session_id: int, turn: int) -> None:
        try:
            await self._resume_turn(session_id, turn)
        except StorageUnavailable as error:
            log.warning("delivery_deferred", session_id=session_id, turn=turn, reason=str(error))

    async def _resume_session(self, turns: list[tuple[int, int]], gate: asyncio.Semaphore) -> int:
        """Deliver ended turns of one session in order; return how many, up to the first that must wait."""
        done = 0
        async with gate:
            for session_id, turn in turns:
                try:
                    is_delivered = await self._resume_turn(session_id, turn)
                except StorageUnavailable as error:
                    log.warning("delivery_deferred", session_id=session_id, turn=turn, reason=str(error))
                    return done
                if not is_delivered:
                    return done
                done += 1
        return done

    async def _resume_turn(self, session_id: int, turn: int) -> bool:
        """Deliver one ended turn; return False if it must wait."""
        ended = await self._context.deliveries.load_ended_turn(session_id, turn)
        if ended is None:
            return False
        chat = await self._context.chats.find_chat(ended.address_id)
        if chat is None or (chat.unreachable and not chat.is_due):
            return False
        await self.uncertain.send_now(session_id, up_to=turn)
        return await self._final_delivery.deliver(chat, ended, patience=0.0, tries=1)

    def _on_reply_closed(self, answer: StreamingReply) -> None:
        if self._replies.get(answer.session_id) is answer:
            del self._replies[answer.session_id]


class SummaryForecast(Protocol):
    """Service that predicts the next automatic summary of a session."""

    async def foresee_summary(self, session_id: int) -> SummaryOutlook:
        """Return when the session's next automatic summary is due, or why none will be made. Raises
        StorageUnavailable.
        """
        ...


class SummaryNotices:
    """Sends notices about summaries after answers.

    `find_context` and `find_notifier` take a bot id and return None for a bot that this process does not
    hold.
    """

    def __init__(
        self,
        find_context: Callable[[int], BotContext | None],
        find_notifier: Callable[[int], Notifier | None],
        forecast: SummaryForecast,
    ) -> None:
        self._find_context = find_context
        self._find_notifier = find_notifier
        self._forecast = forecast

    async def send_after_answer(self, chat: ChatRow) -> None:
        """Send the notices that are due after an answer, such as about a new summary.

        Each is recorded before it is sent, so a crash can lose one but not repeat it. Raises
        StorageUnavailable.
        """
        context, notifier = self._find_context(chat.bot_id), self._find_notifier(chat.bot_id)
        if context is None or notifier is None or context.public or chat.session_id in context.compacting:
            return
        summary = await context.stores.telegram_chats.load_newest_summary(chat.session_id)
        announces = is_setting_on(chat, "announce")
        if summary is None and not announces:
            return
        now = await context.stores.telegram_chats.find_chat(chat.address_id)
        if now is None:
            return
        if is_setting_on(now, "announce"):
            await self._announce(
                context, notifier, now, after_compaction=0 if summary is None else summary.compaction_id
            )
        noted = int(now.settings.get("noted") or 0)
        if summary is None or summary.compaction_id <= noted:
            return
        await context.stores.telegram_chats.change_settings(chat.address_id, {"noted": summary.compaction_id})
        if is_setting_on(now, "notices"):
            text = get_chat_texts(now).say("summarised", count=summary.messages)
            await notifier.send(
                get_chat_target(now),
                text,
                keyboard=build_summary_buttons(now, summary.compaction_id),
                silent=True,
            )

    async def _announce(
        self, context: BotContext, notifier: Notifier, chat: ChatRow, *, after_compaction: int
    ) -> None:
        """Send a notice that a summary will be made soon, at most once after each compaction."""
        if chat.settings.get("announced") == after_compaction:
            return
        if not (await self._forecast.foresee_summary(chat.session_id)).soon:
            return
        await context.stores.telegram_chats.change_settings(chat.address_id, {"announced": after_compaction})
        await notifier.send(get_chat_target(chat), get_chat_texts(chat).say("summary_soon"), silent=True)
