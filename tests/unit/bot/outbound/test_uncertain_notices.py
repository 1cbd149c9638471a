"""Waits for notices about uncertain answers have one bound, however many there are and whatever they do."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from bot.telegram.client.calls import ScaledClock
from bot.telegram.outbound.uncertain_notices import UncertainNotices
from shared.runtime import BackgroundTasks


class Held:
    """Stands for the stores: notices are due, and the chat of each is looked up until `gate` opens."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.asked: list[int] = []

    async def list_due_up_to(self, _session_id: int, up_to: int) -> list[Any]:
        return [SimpleNamespace(id=turn, address_id=turn) for turn in range(1, up_to + 1)]

    async def find_chat(self, address_id: int) -> None:
        self.asked.append(address_id)
        await self.gate.wait()


async def test_wait_for_notices_ends_though_their_requests_do_not() -> None:
    held, tasks = Held(), BackgroundTasks()
    context = SimpleNamespace(notices=held, chats=held, senders={}, clock=ScaledClock(speed=100.0))
    notices = UncertainNotices(cast("Any", context), tasks=tasks)
    async with asyncio.timeout(30):
        await notices.send_now(7, up_to=3)
    await asyncio.sleep(0)
    assert held.asked == [1, 2, 3], "all of them are on their way"
    held.gate.set()
    await tasks.drain(30)
    assert notices._running == {}
