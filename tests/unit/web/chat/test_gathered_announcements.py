"""What other processes are told at about the same moment goes out in one message."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from shared.runtime import BackgroundTasks
from tests.kit.web.fixtures import DeafAnnouncer
from web.server.hub import Hub


class Listening(DeafAnnouncer):
    def __init__(self) -> None:
        self.heard: list[tuple[int, list[Any]]] = []

    async def announce_all(self, session_id: int, messages: Sequence[Any]) -> None:
        self.heard.append((session_id, [message["event_seq"] for message in messages]))


async def test_announcements_gather_by_conversation_and_keep_their_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("web.server.hub.GATHER_SECONDS", 0.2)
    announcer, tasks = Listening(), BackgroundTasks()
    nothing: Any = None
    hub = Hub(announcer=announcer, events=nothing, measure=nothing, tasks=tasks)
    hub.start()
    try:
        await asyncio.sleep(0)
        hub.publish(7, 1, "msg", {})
        await asyncio.sleep(0)  # it is taken, and waits for others
        for session_id, event_seq in ((8, 1), (7, 2), (8, 2), (7, 3), (8, 3)):
            hub.publish(session_id, event_seq, "msg", {})
        async with asyncio.timeout(20):
            while len(announcer.heard) < 2:
                await asyncio.sleep(0.001)
    finally:
        await tasks.drain(0.0)
    assert announcer.heard == [(7, [1, 2, 3]), (8, [1, 2, 3])]
