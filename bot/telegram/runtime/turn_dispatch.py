"""Runs the answers of the bots that this process holds, and brings what of them is not in its chat yet."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from functools import partial
from typing import Protocol

import structlog

from bot.telegram.outbound.delivery import AnswerDelivery
from bot.telegram.outbound.streaming_reply import StreamingReply
from shared.adapters.postgres.telegram.chats import ChatRow
from shared.core.session.events import ReplyEvent
from shared.core.values.errors import StorageUnavailable
from shared.runtime.tasks import BackgroundTasks
from shared.services.turns import turn_dispatcher
from shared.services.turns.turn_dispatcher import OpenReplySink, SessionAnswerer

log = structlog.get_logger(__name__)

CHANNEL = "telegram"
RECOVERY_SECONDS = 1.0
DRAIN_SECONDS = 2.5


class DueTurnChats(Protocol):
    async def place_of_due_turn(self, session_id: int) -> ChatRow | None: ...


HeldBots = Callable[[], Collection[int]]
"""The bots whose lease this process holds now."""
AfterAnswer = Callable[[ChatRow], Awaitable[None]]


class TelegramReplySink:
    """One place as the screen of its session."""

    def __init__(self, place: ChatRow, live: StreamingReply, afterwards: AfterAnswer) -> None:
        self._place = place
        self._live = live
        self._afterwards = afterwards

    async def __call__(self, event: ReplyEvent) -> None:
        await self._live(event)

    async def mark_idle(self) -> None:
        await self._afterwards(self._place)

    async def close(self) -> None:
        await self._live.close()


class TelegramTurnDispatcher:
    def __init__(
        self,
        conversation: SessionAnswerer,
        delivery: AnswerDelivery,
        places: DueTurnChats,
        *,
        held: HeldBots,
        afterwards: AfterAnswer,
    ) -> None:
        self._delivery = delivery
        self._places = places
        self._held = held
        self._afterwards = afterwards
        self._answers = turn_dispatcher.TurnDispatcher(
            conversation,
            channel=CHANNEL,
            orphan=self._orphan,
            accounts=lambda: [str(bot_id) for bot_id in held()],
        )
        self._loops = BackgroundTasks()
        self._serves = asyncio.Event()

    def start(self) -> None:
        self._answers.start()
        self._loops.run_forever(self._bring_the_rest)

    def dispatch(self, place: ChatRow) -> None:
        """Soon; several calls are one."""
        self._answers.dispatch(place.session_id, partial(self._chat, place))

    def wake(self) -> None:
        self._answers.wake()

    def on_bot_serving(self) -> None:
        """A bot is held now that was not before: what its last holder left is looked for at once."""
        self._serves.set()
        self._answers.wake()

    async def close(self) -> None:
        await self._answers.close(drain_seconds=DRAIN_SECONDS)
        await self._loops.cancel()

    def _chat(self, place: ChatRow) -> TelegramReplySink:
        return TelegramReplySink(place, self._delivery.open_reply(place), self._afterwards)

    async def _orphan(self, session_id: int) -> OpenReplySink | None:
        place = await self._places.place_of_due_turn(session_id)
        return None if place is None else partial(self._chat, place)

    async def _bring_the_rest(self) -> None:
        """Answers that are not wholly in their chats; Telegram may be slow here, and hold up nothing else."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(RECOVERY_SECONDS):
                    await self._serves.wait()
            self._serves.clear()
            held = list(self._held())
            if self._answers.is_closing or not held:
                continue
            try:
                await self._delivery.resume_unfinished(held)
            except StorageUnavailable as error:
                log.warning("unfinished_deliveries_unreadable", reason=str(error))
