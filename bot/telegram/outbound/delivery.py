"""Answers turns for the bots that this process holds, and delivers again what did not arrive."""

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
from shared.core.values.errors import StorageUnavailable
from shared.runtime import BackgroundTasks
from shared.services.turns.turn_dispatcher import OpenReplySink, SessionAnswerer, TurnDispatcher

log = structlog.get_logger(__name__)

MAX_PARALLEL_SESSIONS = 8
RECOVERY_SECONDS = 1.0
DRAIN_SECONDS = 2.5

AfterAnswer = Callable[[ChatRow], Awaitable[None]]


class TelegramTurnDispatcher:
    """`list_held_bots` are the bots whose lease this process has now."""

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
        self._on_idle = on_idle
        self._answers = TurnDispatcher(
            conversation,
            channel="telegram",
            orphan=self._open_orphan_sink,
            accounts=lambda: [str(bot_id) for bot_id in list_held_bots()],
        )
        self._loops = BackgroundTasks()
        self._bot_serving = asyncio.Event()

    def start(self) -> None:
        self._answers.start()
        self._loops.run_forever(self._run_recovery)

    def dispatch(self, chat: ChatRow) -> None:
        """Answer the chat's session soon; several calls are one."""
        self._answers.dispatch(chat.session_id, partial(self._open_sink, chat))

    def dispatch_guest(self, chat: GuestChat) -> None:
        """Answer a guest's question soon; its delivery is the guests' own."""
        self._answers.dispatch(chat.session_id, self._open_guest_sink)

    def dispatch_customer(self, chat: CustomerChat) -> None:
        """Answer a customer's message soon; the answer becomes a draft."""
        self._answers.dispatch(chat.session_id, partial(self._secretary.open_sink, chat.session_id))

    def wake(self) -> None:
        self._answers.wake()

    def on_bot_serving(self) -> None:
        """Look at once for deliveries that the last holder of the bot left."""
        self._bot_serving.set()
        self._answers.wake()

    async def close(self) -> None:
        await self._answers.close(drain_seconds=DRAIN_SECONDS)
        await self._loops.cancel()

    def _open_sink(self, chat: ChatRow) -> TelegramReplySink:
        return TelegramReplySink(chat, self._delivery.open_reply(chat), self._on_idle)

    async def _open_orphan_sink(self, session_id: int) -> OpenReplySink | None:
        chat = await self._chats.find_chat_of_due_turn(session_id)
        if chat is not None:
            return partial(self._open_sink, chat)
        guest = await self._guests.find_chat_of_due_turn(session_id)
        if guest is not None:
            return self._open_guest_sink
        return await self._secretary.open_orphan_sink(session_id)

    async def _run_recovery(self) -> None:
        """Deliver unfinished answers, forever; a slow Telegram delays nothing else here."""
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


class TelegramReplySink:
    """One chat as the reply sink of its session."""

    def __init__(self, chat: ChatRow, reply: StreamingReply, on_idle: AfterAnswer) -> None:
        self._chat = chat
        self._reply = reply
        self._on_idle = on_idle

    async def __call__(self, event: ReplyEvent) -> None:
        await self._reply(event)

    async def mark_idle(self) -> None:
        await self._on_idle(self._chat)

    async def close(self) -> None:
        await self._reply.close()


class AnswerDelivery:
    """One for all bots of the process; `open_reply` for what runs here, `resume_unfinished` for the rest."""

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
        """Open the reply that receives the events of the session's answers; close it at the end."""
        answer = StreamingReply(
            self._context,
            self._final_delivery,
            chat,
            tasks=self._tasks,
            pacing=self._pacing,
            on_closed=self._on_reply_closed,
        )
        self._replies[chat.session_id] = answer
        return answer

    async def resume_unfinished(self, accounts: Sequence[int]) -> int:
        """Deliver ended turns that are not wholly in their chats; returns how many are done.

        For the start, after `recover_interrupted`, and for every second: what has to wait is left for the
        next. Raises StorageUnavailable.
        """
        unfinished = await self._context.deliveries.list_unfinished(accounts)
        # Of a session one after the other, as they were asked; sessions do not wait for each other.
        sessions = [list(turns) for _, turns in groupby(sorted(unfinished), key=lambda found: found[0])]
        gate = asyncio.Semaphore(MAX_PARALLEL_SESSIONS)
        done = await asyncio.gather(
            *(self._recover_session(turns, gate) for turns in sessions if turns[0][0] not in self._replies)
        )
        return sum(done)

    def deliver_soon(self, session_id: int, turn: int) -> None:
        """Soon, although its session is at another answer: a button asked for this one."""
        self._tasks.start(self._recover_soon(session_id, turn))

    async def _recover_soon(self, session_id: int, turn: int) -> None:
        try:
            await self._recover_turn(session_id, turn)
        except StorageUnavailable as error:
            log.warning("delivery_deferred", session_id=session_id, turn=turn, reason=str(error))

    async def _recover_session(self, turns: list[tuple[int, int]], gate: asyncio.Semaphore) -> int:
        done = 0
        async with gate:
            for session_id, turn in turns:
                try:
                    is_delivered = await self._recover_turn(session_id, turn)
                except StorageUnavailable as error:
                    log.warning("delivery_deferred", session_id=session_id, turn=turn, reason=str(error))
                    return done
                if not is_delivered:
                    return done
                done += 1
        return done

    async def _recover_turn(self, session_id: int, turn: int) -> bool:
        ended = await self._context.deliveries.load_ended_turn(session_id, turn)
        if ended is None:
            return False
        chat = await self._context.chats.find_chat(ended.address_id)
        if chat is None or (chat.unreachable and not chat.is_due):
            return False
        await self._final_delivery.announce_uncertain(session_id, up_to=turn)
        return await self._final_delivery.deliver(chat, ended, patience=0.0, tries=1)

    def _on_reply_closed(self, answer: StreamingReply) -> None:
        if self._replies.get(answer.session_id) is answer:
            del self._replies[answer.session_id]


class SummaryForecast(Protocol):
    async def foresee_summary(self, session_id: int) -> SummaryOutlook: ...


class SummaryNotices:
    """`find_context` and `find_notifier` by the bot's id; None for a bot that is not ours now."""

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

        Each is recorded before it is sent: after a crash it is missing rather than doubled. Raises
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
        """Announce the next summary, once after each."""
        if chat.settings.get("announced") == after_compaction:
            return
        if not (await self._forecast.foresee_summary(chat.session_id)).soon:
            return
        await context.stores.telegram_chats.change_settings(chat.address_id, {"announced": after_compaction})
        await notifier.send(get_chat_target(chat), get_chat_texts(chat).say("summary_soon"), silent=True)
