"""Announcements over a real Valkey: heard by who follows, survived when it goes, never raising."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from redis.asyncio import Redis

from shared.adapters.redis.announcer import RedisAnnouncer
from shared.ports import ALL_PROCESSES

Heard = asyncio.Queue[tuple[int, Mapping[str, Any]]]


class Process:
    """One announcer and everything it heard."""

    def __init__(self, url: str) -> None:
        self.announcer = RedisAnnouncer(url)
        self.heard: Heard = asyncio.Queue()
        self.task = asyncio.ensure_future(self._listen())

    async def _listen(self) -> None:
        async for heard in self.announcer.listen():
            self.heard.put_nowait(heard)

    async def connected(self) -> None:
        async with asyncio.timeout(60):
            while not self.announcer.connected:
                await asyncio.sleep(0.01)

    async def next(self) -> tuple[int, Mapping[str, Any]]:
        return await asyncio.wait_for(self.heard.get(), 60)

    async def close(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])
        await self.announcer.close()


@pytest.fixture
async def announcers(redis_url: str) -> AsyncIterator[tuple[Process, Process]]:
    one, other = Process(redis_url), Process(redis_url)
    await one.connected()
    await other.connected()
    yield one, other
    await one.close()
    await other.close()


async def test_two_installations_on_one_server_hear_nothing_of_each_other(redis_url: str) -> None:
    """Each has a database of its own there, and a session 7."""
    number = int(redis_url.rpartition("=")[2])
    ours, theirs = Process(redis_url), Process(f"{redis_url.rpartition('=')[0]}={(number + 1) % 16}")
    try:
        for process in (ours, theirs):
            await process.connected()
            await process.announcer.subscribe([7])
        await theirs.announcer.announce(7, {"t": "delta", "text": "theirs"})
        await theirs.announcer.announce(ALL_PROCESSES, {"t": "theirs"})
        await ours.announcer.announce(7, {"t": "delta", "text": "ours"})
        assert await ours.next() == (7, {"t": "delta", "text": "ours"})
        assert await theirs.next() == (7, {"t": "delta", "text": "theirs"})
        assert await theirs.next() == (ALL_PROCESSES, {"t": "theirs"})
        assert ours.heard.empty()
    finally:
        await ours.close()
        await theirs.close()


async def test_a_follower_hears_what_another_process_says(announcers: tuple[Process, Process]) -> None:
    one, other = announcers
    await other.announcer.subscribe([7, 8])
    await one.announcer.announce(7, {"event_seq": 3, "origin": "a"})
    await one.announcer.announce(9, {"event_seq": 1})
    await one.announcer.announce(8, {"t": "run", "text": "Grüße 😀"})
    assert await other.next() == (7, {"event_seq": 3, "origin": "a"})
    assert await other.next() == (8, {"t": "run", "text": "Grüße 😀"})


async def test_following_replaces_what_was_followed(announcers: tuple[Process, Process]) -> None:
    one, other = announcers
    await other.announcer.subscribe([1])
    await other.announcer.subscribe([2])
    await one.announcer.announce(1, {"event_seq": 1})
    await one.announcer.announce(2, {"event_seq": 2})
    assert await other.next() == (2, {"event_seq": 2})


async def test_follow_before_listening_counts(redis_url: str) -> None:
    process = Process(redis_url)
    await process.announcer.subscribe([5])
    await process.connected()
    await process.announcer.subscribe([5])
    await process.announcer.announce(5, {"event_seq": 1})
    assert await process.next() == (5, {"event_seq": 1})
    await process.close()


async def test_a_lost_connection_is_made_again_with_what_was_followed(
    announcers: tuple[Process, Process], redis_url: str
) -> None:
    one, other = announcers
    await other.announcer.subscribe([7])
    client = Redis.from_url(redis_url)
    await client.client_kill_filter(_type="pubsub")
    await client.aclose()
    async with asyncio.timeout(60):
        while other.heard.empty():
            await one.announcer.announce(7, {"event_seq": 9})
            await asyncio.sleep(0.05)
    assert await other.next() == (7, {"event_seq": 9})


async def test_without_redis_nothing_raises() -> None:
    process = Process("unix:///nonexistent/redis.sock")
    await process.announcer.subscribe([1])
    await process.announcer.announce(1, {"event_seq": 1})
    await process.announcer.announce(1, {"event_seq": 2})
    await asyncio.sleep(0.3)
    assert not process.announcer.connected
    assert not process.task.done()
    await process.close()


async def test_deltas_without_listeners_are_not_published(
    announcers: tuple[Process, Process], redis_url: str
) -> None:
    one, other = announcers
    client = Redis.from_url(redis_url)

    await one.announcer.subscribe([7])
    before = await _publishes(client)
    await one.announcer.announce(7, {"event_seq": 1})
    for number in range(20):
        await one.announcer.announce(7, {"t": "delta", "off": number})
    await one.announcer.announce(7, {"event_seq": 2})
    assert await _publishes(client) - before == 2
    await other.announcer.subscribe([7])
    await one.announcer.announce(7, {"event_seq": 3})
    await one.announcer.announce(7, {"t": "delta", "off": 0})
    assert await other.next() == (7, {"event_seq": 3})
    assert await other.next() == (7, {"t": "delta", "off": 0})
    await client.aclose()


async def test_what_is_said_together_is_one_command_and_heard_in_order(
    announcers: tuple[Process, Process], redis_url: str
) -> None:
    one, other = announcers
    await other.announcer.subscribe([7])
    client = Redis.from_url(redis_url)
    before = await _publishes(client)
    said: list[dict[str, Any]] = [
        {"event_seq": 4},
        {"t": "run", "state": "done", "turn": 2},
        {"t": "delta", "off": 0},
    ]
    await one.announcer.announce_all(7, said)
    assert [await other.next() for _ in said] == [(7, message) for message in said]
    assert await _publishes(client) - before == 1
    await client.aclose()


async def test_run_end_is_published_even_without_listeners_at_its_start(
    announcers: tuple[Process, Process], redis_url: str
) -> None:
    one, other = announcers
    client = Redis.from_url(redis_url)
    before = await _publishes(client)
    await one.announcer.announce(7, {"event_seq": 1})
    await one.announcer.announce(7, {"t": "run", "state": "started", "turn": 1})
    await one.announcer.announce_all(7, [{"t": "delta", "off": 0}, {"t": "run", "state": "tool", "turn": 1}])
    assert await _publishes(client) - before == 1
    await other.announcer.subscribe([7])
    await one.announcer.announce_all(7, [{"t": "delta", "off": 5}, {"t": "run", "state": "done", "turn": 1}])
    assert await other.next() == (7, {"t": "run", "state": "done", "turn": 1})
    await client.aclose()


async def test_messages_over_the_publish_limit_arrive_one_by_one(announcers: tuple[Process, Process]) -> None:
    one, other = announcers
    await other.announcer.subscribe([7])
    said = [{"t": "delta", "text": letter * 150_000} for letter in "ab"]
    await one.announcer.announce_all(7, said)
    assert [await other.next() for _ in said] == [(7, message) for message in said]


async def _publishes(client: Redis) -> int:
    return int((await client.info("commandstats")).get("cmdstat_publish", {}).get("calls", 0))


async def test_a_cancellation_that_comes_with_the_answer_of_redis_is_heeded(
    announcers: tuple[Process, Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    announcer = announcers[0].announcer
    asked = asyncio.Event()

    async def publish(channel: str, text: str) -> int:
        # What `asyncio.wait_for` of Python 3.11 does when both come in one round.
        asked.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        return 0

    monkeypatch.setattr(announcer._publisher, "publish", publish)
    work = asyncio.create_task(announcer.announce(1, {"t": "ctx"}))
    await asked.wait()
    work.cancel()
    await asyncio.wait([work], timeout=5)
    assert work.cancelled()
