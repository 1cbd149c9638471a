"""Method getUpdates: long polls, confirmation by offset, and conflicts of two pollers."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.kit.fakes.bot_api.clock import Clock
from tests.kit.fakes.bot_api.refusals import OTHER_POLLER, WEBHOOK_ACTIVE, Refusal
from tests.kit.fakes.bot_api.shapes import Json
from tests.kit.fakes.bot_api.updates import Inbox

MAX_TIMEOUT = 50
MAX_LIMIT = 100
BREATH = 3.0
"""Seconds after a conflict in which a further one is answered late, which slows down a hasty poller."""


class Poller:
    def __init__(self, inbox: Inbox, clock: Clock) -> None:
        self._inbox = inbox
        self._clock = clock
        self._waiting: asyncio.Future[str] | None = None
        self._last_conflict = float("-inf")
        self._last_offset: int | None = None
        self._last_asked = float("-inf")

    async def get_updates(self, params: Json, *, webhook_active: bool) -> list[Json]:
        if webhook_active:
            await self._conflict_breath()
            raise Refusal(WEBHOOK_ACTIVE, status=409)
        self.terminate(OTHER_POLLER)
        self._inbox.allow(params.get("allowed_updates"))
        offset = params.get("offset", 0)
        limit = params.get("limit", MAX_LIMIT)
        limit = limit if 1 <= limit <= MAX_LIMIT else MAX_LIMIT
        timeout = max(0, min(params.get("timeout", 0), MAX_TIMEOUT))
        now = self._clock.now()
        if offset == self._last_offset and now < self._last_asked + BREATH:
            timeout = max(timeout, int(BREATH))
            limit = 1 if now < self._last_asked + 0.5 else limit
        self._last_offset, self._last_asked = offset, now
        if offset < 0:
            self._inbox.keep_last(-offset)
        else:
            self._inbox.confirm_below(offset)
        return await self._waited(offset, limit, now + timeout)

    def forget(self) -> None:
        self.terminate(OTHER_POLLER)
        self._last_conflict = self._last_asked = float("-inf")
        self._last_offset = None

    def terminate(self, reason: str) -> None:
        """Answer the waiting poll with a conflict."""
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(reason)

    async def _waited(self, offset: int, limit: int, until: float) -> list[Json]:
        mine: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._waiting = mine
        while True:
            if mine.done():
                await self._conflict_breath()
                raise Refusal(mine.result(), status=409)
            found = [one for one in self._inbox.ready() if one.again or offset < 0 or one.id >= offset]
            if found:
                for one in found[:limit]:
                    one.again = False
                return [one.as_json() for one in found[:limit]]
            if self._clock.now() >= until:
                return []
            await self._something(mine, until)

    async def _something(self, mine: asyncio.Future[str], until: float) -> None:
        arrived = asyncio.ensure_future(self._inbox.arrived.wait())
        elapsed = asyncio.ensure_future(self._clock.wait_until(until))
        try:
            waiting: set[asyncio.Future[Any]] = {arrived, elapsed, mine}
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            arrived.cancel()
            elapsed.cancel()

    async def _conflict_breath(self) -> None:
        """Answer the first conflict at once, and one right after it three seconds late."""
        now = self._clock.now()
        soon = now < self._last_conflict + BREATH
        self._last_conflict = now
        if soon:
            await self._clock.sleep(BREATH)
