"""Runs the answers of this process: one per session at a time, orphans included, and the heartbeat."""

from __future__ import annotations

import asyncio
from typing import Protocol

import structlog

from shared.core.errors import EvertalkError
from shared.core.exchange import Emit
from shared.tasks import Tasks
from web.hub import Hub

log = structlog.get_logger(__name__)

CHANNEL = "web"
BEAT_SECONDS = 1.0
ORPHANS_SECONDS = 1.0
STEP_SECONDS = 10.0


class Answering(Protocol):
    async def answer(self, session_id: int, emit: Emit) -> None: ...
    async def unanswered(self, channel: str) -> list[int]: ...
    async def heartbeat(self) -> None: ...


class Replies:
    """`answer` is asked once more when a message came while it ran: it may have looked just before."""

    def __init__(self, conversation: Answering, hub: Hub) -> None:
        self._conversation = conversation
        self._hub = hub
        self._answers = Tasks()
        self._loops = Tasks()
        self._running: set[int] = set()
        self._again: set[int] = set()
        self._closing = False

    def start(self) -> None:
        self._loops.forever(self._beat)
        self._loops.forever(self._pick_up_orphans)

    def answer(self, session_id: int) -> None:
        if self._closing:
            return
        if session_id in self._running:
            self._again.add(session_id)
        else:
            self._running.add(session_id)
            self._answers.start(self._answer(session_id))

    def begin_to_close(self) -> None:
        """No new answers; those that run may end."""
        self._closing = True

    async def close(self, *, drain_seconds: float) -> None:
        self._closing = True
        # The heart beats until the last answer is stored: without it they would be fenced off.
        await self._answers.drain(drain_seconds)
        await self._loops.cancel()

    async def _answer(self, session_id: int) -> None:
        try:
            while True:
                self._again.discard(session_id)
                await self._conversation.answer(session_id, self._hub.emitter(session_id))
                if session_id not in self._again or self._closing:
                    return
        except EvertalkError as error:
            # Its turn is still due: the look for orphans finds it.
            log.warning("answer_put_off", session_id=session_id, code=error.code, reason=str(error))
        finally:
            self._running.discard(session_id)
            self._again.discard(session_id)

    async def _beat(self) -> None:
        while True:
            try:
                async with asyncio.timeout(STEP_SECONDS):
                    await self._conversation.heartbeat()
            except (EvertalkError, TimeoutError) as error:
                log.warning("heartbeat_missed", reason=str(error))
            await asyncio.sleep(BEAT_SECONDS)

    async def _pick_up_orphans(self) -> None:
        while True:
            await asyncio.sleep(ORPHANS_SECONDS)
            if self._closing:
                continue
            try:
                async with asyncio.timeout(STEP_SECONDS):
                    waiting = await self._conversation.unanswered(CHANNEL)
            except (EvertalkError, TimeoutError) as error:
                log.warning("orphans_not_read", reason=str(error))
                continue
            for session_id in waiting:
                self.answer(session_id)
