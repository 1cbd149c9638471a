"""A process shows its own events at once; Redis only carries their numbers to the other processes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from shared.runtime import BackgroundTasks
from web.server.hub import Hub, Subscriber
from web.server.send_queue import SendQueue

SESSION = 7


@dataclass(frozen=True, slots=True)
class Event:
    event_seq: int
    kind: str
    payload: Mapping[str, Any]


class Log:
    """Committed events in memory, and how often they were read."""

    def __init__(self) -> None:
        self.stored: list[Event] = []
        self.reads = 0

    def store(self) -> Event:
        number = len(self.stored) + 1
        self.stored.append(Event(number, "pin", {"mid": f"m{number}", "pinned": True}))
        return self.stored[-1]

    async def list_after(self, session_id: int, event_seq: int, *, limit: int = 500) -> Sequence[Event]:
        self.reads += 1
        return self.stored[event_seq:][:limit]

    async def load_newest_seqs(self, session_ids: Sequence[int]) -> dict[int, int]:
        return dict.fromkeys(session_ids, len(self.stored))

    async def find_sessions(self, address_ids: Sequence[int]) -> dict[int, int]:
        return {}


class Bus:
    """Pub/sub that gives a message back to its sender, too; nothing arrives while it is `away`."""

    def __init__(self) -> None:
        self.is_away = False
        self.copies = 1
        self.lines: list[asyncio.Queue[tuple[int, Mapping[str, Any]]]] = []

    def connect(self) -> Line:
        line = Line(self)
        self.lines.append(line.heard)
        return line


class Line:
    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self.heard: asyncio.Queue[tuple[int, Mapping[str, Any]]] = asyncio.Queue()

    @property
    def connected(self) -> bool:
        return not self._bus.is_away

    async def announce(self, session_id: int, message: Mapping[str, Any]) -> None:
        await self.announce_all(session_id, (message,))

    async def announce_all(self, session_id: int, messages: Sequence[Mapping[str, Any]]) -> None:
        if self._bus.is_away:
            return
        for line in self._bus.lines:
            for message in [one for one in messages for _ in range(self._bus.copies)]:
                line.put_nowait((session_id, json.loads(json.dumps(message))))

    async def subscribe(self, session_ids: Sequence[int]) -> None:
        """Every line hears everything."""

    async def listen(self) -> AsyncIterator[tuple[int, Mapping[str, Any]]]:
        while True:
            heard = await self.heard.get()
            yield heard
            self.heard.task_done()


class Page:
    """Socket of a screen that keeps what it was sent."""

    def __init__(self) -> None:
        self.frames: list[dict[str, Any]] = []

    async def send_str(self, data: str) -> None:
        self.frames.append(json.loads(data))

    async def close(self, *, code: int = 1000, message: bytes = b"") -> bool:
        return True

    @property
    def numbers(self) -> list[int]:
        return [frame["event_seq"] for frame in self.frames if "event_seq" in frame]


class WebProcess:
    def __init__(self, bus: Bus, log: Log) -> None:
        self.tasks, self.line, self.page = BackgroundTasks(), bus.connect(), Page()
        nothing: Any = None
        self.hub = Hub(announcer=self.line, events=log, measure=nothing, tasks=self.tasks)
        self.hub.start()

    async def open_page(self) -> None:
        subscriber = Subscriber(
            SendQueue(self.page, spawn=self.tasks.start, abort=lambda: None), public=False
        )
        await self.hub.join(SESSION, subscriber)
        subscriber.begin(json.dumps({"t": "welcome"}), 0)
        self.hub.mark_welcomed(SESSION, 0)

    def publish(self, event: Event) -> None:
        self.hub.publish(SESSION, event.event_seq, event.kind, event.payload)


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.001)


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
        await _until(lambda: here.page.numbers == [1, 2, 3, 4, 5])
        assert log.reads == 0
        assert there.page.numbers == []
        # The other process finds them by its look at PostgreSQL.
        await _until(lambda: there.page.numbers == [1, 2, 3, 4, 5])

    await _run_two(bus, log, act)


@pytest.mark.parametrize("copies", [1, 3])
async def test_own_copy_from_redis_is_not_shown_again(copies: int) -> None:
    bus, log = Bus(), Log()
    bus.copies = copies

    async def act(here: WebProcess, there: WebProcess) -> None:
        for _ in range(5):
            here.publish(log.store())
        await _until(lambda: there.page.numbers == [1, 2, 3, 4, 5])
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
        await _until(lambda: len(here.page.numbers) >= 20 and len(there.page.numbers) >= 20)
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
        await _until(lambda: here.page.numbers == there.page.numbers == [1, 2])

    await _run_two(bus, log, act)
