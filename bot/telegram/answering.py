"""Runs the answers of the bots that this process holds: one per session at a time, orphans included."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Protocol

import structlog

from bot.telegram.delivery import Delivery
from shared.adapters.postgres.telegram_places import PlaceRow
from shared.core.errors import EvertalkError, StorageUnavailable
from shared.core.exchange import Emit
from shared.tasks import Tasks

log = structlog.get_logger(__name__)

CHANNEL = "telegram"
BEAT_SECONDS = 1.0
ROUND_SECONDS = 1.0
STEP_SECONDS = 10.0
DRAIN_SECONDS = 2.5


class Answers(Protocol):
    async def answer(self, session_id: int, emit: Emit) -> None: ...
    async def unanswered(self, channel: str, *, accounts: list[str] | None = None) -> list[int]: ...
    async def heartbeat(self) -> None: ...


class Places(Protocol):
    async def place_of_due_turn(self, session_id: int) -> PlaceRow | None: ...


Held = Callable[[], Collection[int]]
"""The bots whose lease this process holds now."""
Afterwards = Callable[[PlaceRow], Awaitable[None]]


class Answering:
    """`answer` is asked once more when a message came while it ran: it may have looked just before."""

    def __init__(
        self,
        conversation: Answers,
        delivery: Delivery,
        places: Places,
        *,
        held: Held,
        afterwards: Afterwards,
    ) -> None:
        self._conversation = conversation
        self._delivery = delivery
        self._places = places
        self._held = held
        self._afterwards = afterwards
        self._answers = Tasks()
        self._loops = Tasks()
        self._running: set[int] = set()
        self._again: set[int] = set()
        self._closing = False

    def start(self) -> None:
        self._loops.forever(self._beat)
        self._loops.forever(self._pick_up_orphans)
        self._loops.forever(self._bring_the_rest)

    def answer(self, place: PlaceRow) -> None:
        """Soon; several calls are one."""
        session_id = place.session_id
        if self._closing:
            return
        if session_id in self._running:
            self._again.add(session_id)
        else:
            self._running.add(session_id)
            self._answers.start(self._answer(place))

    async def close(self) -> None:
        """Answers that are nearly there may end; the others are put back for the next process."""
        self._closing = True
        await self._answers.drain(DRAIN_SECONDS)
        await self._loops.cancel()

    async def _answer(self, place: PlaceRow) -> None:
        session_id = place.session_id
        live = self._delivery.emitter(place)
        try:
            while True:
                self._again.discard(session_id)
                await self._conversation.answer(session_id, live)
                if session_id not in self._again and not self._closing:
                    await self._afterwards(place)
                if session_id not in self._again or self._closing:
                    return
        except EvertalkError as error:
            # Its turn is still due: the next round finds it.
            log.warning("answer_put_off", session_id=session_id, code=error.code, reason=str(error))
        finally:
            self._running.discard(session_id)
            self._again.discard(session_id)
            await live.close()

    async def _beat(self) -> None:
        while True:
            try:
                async with asyncio.timeout(STEP_SECONDS):
                    await self._conversation.heartbeat()
            except (EvertalkError, TimeoutError) as error:
                log.warning("heartbeat_missed", reason=str(error))
            await asyncio.sleep(BEAT_SECONDS)

    async def _pick_up_orphans(self) -> None:
        """Turns that nobody answers."""
        while True:
            await asyncio.sleep(ROUND_SECONDS)
            held = [str(bot_id) for bot_id in self._held()]
            if self._closing or not held:
                continue
            try:
                for session_id in await self._conversation.unanswered(CHANNEL, accounts=held):
                    await self._pick_up(session_id)
            except StorageUnavailable as error:
                log.warning("orphans_not_read", reason=str(error))

    async def _bring_the_rest(self) -> None:
        """Answers that are not wholly in their chats; Telegram may be slow here, and hold up nothing else."""
        while True:
            await asyncio.sleep(ROUND_SECONDS)
            held = list(self._held())
            if self._closing or not held:
                continue
            try:
                await self._delivery.recover(held)
            except StorageUnavailable as error:
                log.warning("rest_not_read", reason=str(error))

    async def _pick_up(self, session_id: int) -> None:
        if session_id in self._running:
            return
        place = await self._places.place_of_due_turn(session_id)
        if place is not None:
            self.answer(place)
