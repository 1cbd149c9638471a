"""Web processes that share a log and a bus in memory, each with one page."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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

    async def open_page(self) -> Subscriber:
        subscriber = Subscriber(
            SendQueue(self.page, spawn=self.tasks.start, abort=lambda: None), public=False
        )
        await self.hub.join(SESSION, subscriber)
        subscriber.begin(json.dumps({"t": "welcome"}), 0)
        self.hub.mark_welcomed(SESSION, 0)
        return subscriber

    def publish(self, event: Event) -> None:
        self.hub.publish(SESSION, event.event_seq, event.kind, event.payload)

    async def hear(self, *messages: Mapping[str, Any]) -> None:
        """Handle messages of another process, in this order and without a pause."""
        for message in messages:
            self.line.heard.put_nowait((SESSION, message))
        async with asyncio.timeout(20):
            await self.line.heard.join()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.001)
