"""The queue in front of one socket: order, bounds, and a reader who sleeps."""

from __future__ import annotations

import asyncio
import json

import pytest

from shared.runtime import BackgroundTasks
from tests.kit.web.fixtures import Server
from web.protocol import wire
from web.server import send_queue as module
from web.server.send_queue import MAX_FRAMES, SendQueue


class Line:
    """A socket whose reader wakes when it is told."""

    def __init__(self) -> None:
        self.awake = asyncio.Event()
        self.sent: list[str] = []
        self.code: int | None = None

    async def send_str(self, data: str) -> None:
        await self.awake.wait()
        self.sent.append(data)

    async def close(self, *, code: int = 1000, message: bytes = b"") -> bool:
        self.code = code
        return True


class Kept:
    def __init__(self) -> None:
        self.line = Line()
        self.aborted = False
        self.tasks = BackgroundTasks()
        self.send_queue = SendQueue(self.line, spawn=self.tasks.start, abort=self.abort)

    def abort(self) -> None:
        self.aborted = True


async def test_frames_leave_in_order_and_the_close_comes_last() -> None:
    kept = Kept()
    for number in range(100):
        kept.send_queue.put(str(number))
    kept.send_queue.close(1012, "restart")
    kept.send_queue.put("too late")
    kept.line.awake.set()
    await asyncio.wait_for(kept.send_queue.wait_closed(), 60)
    assert kept.line.sent == [str(number) for number in range(100)]
    assert kept.line.code == 1012


@pytest.mark.control("S34")
async def test_a_full_queue_drops_deltas_first() -> None:
    kept = Kept()
    kept.send_queue.put("first")
    await asyncio.sleep(0)
    for number in range(MAX_FRAMES + 40):
        kept.send_queue.put(f"delta {number}", droppable=True)
    kept.send_queue.put("durable")
    kept.line.awake.set()
    while "durable" not in kept.line.sent:
        await asyncio.sleep(0)
    assert kept.line.sent[0] == "first"
    assert len(kept.line.sent) < MAX_FRAMES
    assert kept.line.code is None


@pytest.mark.control("S34")
async def test_queue_full_of_durable_events_is_closed_with_1013() -> None:
    kept = Kept()
    for number in range(MAX_FRAMES + 2):
        kept.send_queue.put(f"durable {number}")
    assert kept.send_queue.closing
    kept.line.awake.set()
    await asyncio.wait_for(kept.send_queue.wait_closed(), 60)
    assert kept.line.code == wire.CLOSE_SLOW
    assert len(kept.line.sent) <= 1


@pytest.mark.control("S34")
async def test_bytes_are_bounded_too_but_a_welcome_is_free() -> None:
    kept = Kept()
    kept.send_queue.put("w" * 2_000_000, free=True)
    kept.send_queue.put("ä" * 60_000)
    kept.send_queue.put("ä" * 60_000)
    assert not kept.send_queue.closing
    kept.send_queue.put("ä" * 60_000)
    assert kept.send_queue.closing


@pytest.mark.control("S34")
async def test_a_reader_who_never_wakes_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SEND_SECONDS", 0.02)
    kept = Kept()
    kept.send_queue.put("hello")
    await asyncio.wait_for(kept.send_queue.wait_closed(), 60)
    assert kept.aborted


@pytest.mark.control("S34")
async def test_a_sleeping_browser_does_not_hold_up_the_others(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SEND_SECONDS", 1.0)
    sleeper, welcome = await server.greet()
    reader, _ = await server.greet(token=welcome["token"])
    session_id = await server.session_id(welcome["session"])
    assert sleeper.socket._conn is not None
    transport = sleeper.socket._conn.transport
    assert isinstance(transport, asyncio.Transport)
    transport.pause_reading()
    text = "x" * 60_000
    for number in range(1, 400):
        await server.conversation.store_event(session_id, "msg", {"text": text})
        server.process.hub.publish(
            session_id, number, "msg", {"mid": f"n{number}", "role": "notice", "text": text}
        )
        await reader.until("msg", event_seq=number)
        if server.process.hub.screens == 1:
            break
    async with asyncio.timeout(60):
        while server.process.hub.screens > 1:
            await asyncio.sleep(0.01)
    await reader.send({"t": "ping", "n": 1})
    await reader.until("pong")
    monkeypatch.setattr(module, "SEND_SECONDS", 60.0)
    back, again = await server.greet(token=welcome["token"], last_seq=1)
    assert again["resumed"] is True
    assert json.dumps(again["events"][0]["text"]) == json.dumps(text)
    assert back.close_code is None
