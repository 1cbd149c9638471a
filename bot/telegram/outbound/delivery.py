"""Answers on their way to Telegram: live, again after a crash or a 429, and the note of a summary behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import groupby

import structlog

from bot.telegram.client.sender import FINAL_PATIENCE_SECONDS
from bot.telegram.inbound.bot_context import BotContext, get_chat_texts
from bot.telegram.outbound.buttons import build_summary_buttons, is_setting_on
from bot.telegram.outbound.delivery_context import DeliveryContext
from bot.telegram.outbound.draft_streaming import GROUP_PACING, NATIVE_PACING, PRIVATE_PACING, EditPacing
from bot.telegram.outbound.final_delivery import FinalDelivery
from bot.telegram.outbound.notifier import Notifier, get_chat_target
from bot.telegram.outbound.streaming_reply import StreamingReply
from bot.telegram.outbound.typing_indicator import TYPING_DELAY_SECONDS, TYPING_INTERVAL_SECONDS, TaskStarter
from bot.telegram.outbound.uncertain_notices import UncertainNotices
from shared.adapters.postgres.telegram.chats import ChatRow
from shared.core.values.errors import StorageUnavailable

log = structlog.get_logger(__name__)

MAX_PARALLEL_SESSIONS = 8


class AnswerDelivery:
    """One for all bots of the process; `emitter` for answers that run here, `recover` for all others."""

    def __init__(
        self,
        post: DeliveryContext,
        *,
        tasks: TaskStarter,
        private: EditPacing = PRIVATE_PACING,
        group: EditPacing = GROUP_PACING,
        native: EditPacing = NATIVE_PACING,
        typing_every: float = TYPING_INTERVAL_SECONDS,
        typing_after: float = TYPING_DELAY_SECONDS,
        patience: float = FINAL_PATIENCE_SECONDS,
    ) -> None:
        self._post = post
        self.uncertain = UncertainNotices(post, tasks=tasks)
        self._finals = FinalDelivery(post, tasks=tasks, notices=self.uncertain)
        self._tasks = tasks
        self._private = private
        self._group = group
        self._native = native
        self._typing_every = typing_every
        self._typing_after = typing_after
        self._patience = patience
        self._live: dict[int, StreamingReply] = {}

    def open_reply(self, place: ChatRow) -> StreamingReply:
        """An `Emit` for `Conversation.answer(place.session_id, …)`; close it when that returns."""
        answer = StreamingReply(
            self._post, self._finals, place,
            tasks=self._tasks, private=self._private, group=self._group, native=self._native,
            typing_every=self._typing_every, typing_after=self._typing_after,
            patience=self._patience, closed=self._closed,
        )  # fmt: skip
        self._live[place.session_id] = answer
        return answer

    async def resume_unfinished(self, accounts: Sequence[int]) -> int:
        """Brings what ended and is not wholly in its chat; says how many turns are done.

        For the start, after `left_by_the_dead`, and for every second: what has to wait is left for the next.
        Raises StorageUnavailable.
        """
        unfinished = await self._post.deliveries.unfinished(accounts)
        # Of a session one after the other, as they were asked; sessions do not wait for each other.
        sessions = [list(turns) for _, turns in groupby(sorted(unfinished), key=lambda found: found[0])]
        gate = asyncio.Semaphore(MAX_PARALLEL_SESSIONS)
        done = await asyncio.gather(
            *(self._recover_session(turns, gate) for turns in sessions if turns[0][0] not in self._live)
        )
        return sum(done)

    def deliver_soon(self, session_id: int, turn: int) -> None:
        """Soon, although its session is at another answer: somebody has asked for this one."""
        self._tasks.start(self._bring(session_id, turn))

    async def _bring(self, session_id: int, turn: int) -> None:
        try:
            await self._recover_turn(session_id, turn)
        except StorageUnavailable as error:
            log.warning("delivery_deferred", session_id=session_id, turn=turn, reason=str(error))

    async def _recover_session(self, turns: list[tuple[int, int]], gate: asyncio.Semaphore) -> int:
        done = 0
        async with gate:
            for session_id, turn in turns:
                try:
                    brought = await self._recover_turn(session_id, turn)
                except StorageUnavailable as error:
                    log.warning("delivery_deferred", session_id=session_id, turn=turn, reason=str(error))
                    return done
                if not brought:
                    return done
                done += 1
        return done

    async def _recover_turn(self, session_id: int, turn: int) -> bool:
        ended = await self._post.deliveries.ended_turn(session_id, turn)
        if ended is None:
            return False
        place = await self._post.places.place(ended.address_id)
        if place is None or place.unreachable:
            return False
        return await self._finals.deliver(place, ended, patience=0.0, tries=1)

    def _closed(self, answer: StreamingReply) -> None:
        if self._live.get(answer.session_id) is answer:
            del self._live[answer.session_id]


class SummaryNotices:
    """`desk_of` and `voice_of` by the bot's id; None for a bot that is not ours now."""

    def __init__(
        self, desk_of: Callable[[int], BotContext | None], voice_of: Callable[[int], Notifier | None]
    ) -> None:
        self._desk_of = desk_of
        self._voice_of = voice_of

    async def send_after_answer(self, place: ChatRow) -> None:
        """Raises StorageUnavailable. A note is noted before it is said: rather none than two."""
        desk, voice = self._desk_of(place.bot_id), self._voice_of(place.bot_id)
        if desk is None or voice is None or desk.public:
            return
        summary = await desk.stores.telegram_chats.newest_summary(place.session_id)
        if summary is None:
            return
        now = await desk.stores.telegram_chats.place(place.address_id)
        noted = int(now.settings.get("noted") or 0) if now is not None else 0
        if now is None or summary.link_id <= noted:
            return
        await desk.stores.telegram_chats.change_settings(place.address_id, {"noted": summary.link_id})
        if is_setting_on(now, "notices"):
            words = get_chat_texts(now).say("summarised", count=summary.messages)
            await voice.send(
                get_chat_target(now), words, keyboard=build_summary_buttons(now, summary.link_id), silent=True
            )
