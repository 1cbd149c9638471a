"""A process shows its own events at once; Redis only carries their numbers to the other processes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.web.chat.paged_processes import Bus, Log, WebProcess, until


async def _run_two(bus: Bus, log: Log, act: Callable[[WebProcess, WebProcess], Any]) -> None:
    here, there = WebProcess(bus, log), WebProcess(bus, log)
    try:
        await here.open_page()
        await there.open_page()
        await act(here, there)
    finally:
        await here.tasks.drain(0.0)
        await there.tasks.drain(0.0)


async def test_own_events_reach_own_screens_while_redis_is_away() -> None:
    bus, log = Bus(), Log()
    bus.is_away = True

    async def act(here: WebProcess, there: WebProcess) -> None:
        for _ in range(5):
            here.publish(log.store())
        await until(lambda: here.page.numbers == [1, 2, 3, 4, 5])
        assert log.reads == 0
        assert there.page.numbers == []
        # The other process finds them by its look at PostgreSQL.
        await until(lambda: there.page.numbers == [1, 2, 3, 4, 5])

    await _run_two(bus, log, act)


@pytest.mark.parametrize("copies", [1, 3])
async def test_own_copy_from_redis_is_not_shown_again(copies: int) -> None:
    bus, log = Bus(), Log()
    bus.copies = copies

    async def act(here: WebProcess, there: WebProcess) -> None:
        for _ in range(5):
            here.publish(log.store())
        await until(lambda: there.page.numbers == [1, 2, 3, 4, 5])
        async with asyncio.timeout(20):
            await here.line.heard.join()
        assert here.page.numbers == [1, 2, 3, 4, 5]
        assert there.page.numbers == [1, 2, 3, 4, 5]

    await _run_two(bus, log, act)


async def test_events_of_two_processes_keep_one_order() -> None:
    bus, log = Bus(), Log()

    async def act(here: WebProcess, there: WebProcess) -> None:
        for number in range(20):
            bus.is_away = number in range(8, 12)
            (here if number % 3 else there).publish(log.store())
            await asyncio.sleep(0)
        await until(lambda: len(here.page.numbers) >= 20 and len(there.page.numbers) >= 20)
        assert here.page.numbers == there.page.numbers == list(range(1, 21))

    await _run_two(bus, log, act)


async def test_own_event_waits_for_an_earlier_one_of_another_process() -> None:
    bus, log = Bus(), Log()

    async def act(here: WebProcess, there: WebProcess) -> None:
        earlier, own = log.store(), log.store()
        here.publish(own)
        await asyncio.sleep(0)
        assert here.page.numbers == []
        there.publish(earlier)
        await until(lambda: here.page.numbers == there.page.numbers == [1, 2])

    await _run_two(bus, log, act)
