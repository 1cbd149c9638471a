"""What two processes let in is counted together; without Redis each counts alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from shared.adapters.redis.counts import RedisCounts
from tests.kit.free_ports import free_port
from tests.kit.web.callers import bearer, make_visitor
from tests.kit.web.fixtures import Server, Starter
from tests.kit.web.rest_calls import call
from web.server.rate_limits import ClientLimits, RateWindows
from web.server.shared_rate_limits import CommonCounts

MOST = 10


class Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


class Process:
    def __init__(self, url: str, clock: Clock) -> None:
        self.windows = RateWindows(60.0, clock=clock)
        self.counts = RedisCounts(url)
        self._common = CommonCounts(self.counts, {"messages": self.windows}, clock=clock)

    def let_in(self, times: int, key: str = "ada") -> int:
        return sum(self.windows.take(key, MOST) == 0.0 for _ in range(times))

    async def exchange(self) -> None:
        await self._common.exchange()


@pytest.fixture
async def limiters(redis_url: str) -> AsyncIterator[tuple[Process, Process, Clock]]:
    clock = Clock()
    one, other = Process(redis_url, clock), Process(redis_url, clock)
    yield one, other, clock
    await one.counts.close()
    await other.counts.close()


async def test_together_they_let_in_what_one_would(limiters: tuple[Process, Process, Clock]) -> None:
    one, other, clock = limiters
    assert (one.let_in(6), other.let_in(1)) == (6, 1)
    for process in (one, other, one):
        await process.exchange()
    assert other.let_in(20) == MOST - 7
    await other.exchange()
    await one.exchange()
    assert one.let_in(20) == 0
    assert one.let_in(20, "berta") == MOST
    clock.now += 75.0
    for process in (one, other):
        await process.exchange()
    assert one.let_in(20) == MOST


async def test_each_counts_alone_while_redis_is_away() -> None:
    clock = Clock()
    process = Process(f"redis://127.0.0.1:{free_port()}/0", clock)
    assert process.let_in(4) == 4
    await process.exchange()
    assert process.let_in(20) == MOST - 4
    await process.counts.close()


async def test_what_was_heard_fades_without_news(limiters: tuple[Process, Process, Clock]) -> None:
    one, other, clock = limiters
    assert (one.let_in(1), other.let_in(MOST)) == (1, MOST)
    for process in (other, one):
        await process.exchange()
    assert one.let_in(1) == 0
    clock.now += 61.0
    assert one.let_in(20) == MOST


async def test_redis_sees_no_address_and_forgets(
    limiters: tuple[Process, Process, Clock], redis_url: str
) -> None:
    one, _, _ = limiters
    one.let_in(3, "new 203.0.113.7")
    await one.exchange()
    client = Redis.from_url(redis_url)
    try:
        keys = [key async for key in client.scan_iter("evertalk:counts:*")]
        assert keys
        for key in keys:
            assert 0 < await client.ttl(key) <= 121
            assert not [field for field in await client.hgetall(key) if b"203.0.113.7" in field]
    finally:
        await client.aclose()


@pytest.fixture
async def counts(redis_url: str) -> AsyncIterator[list[RedisCounts]]:
    """Closed after the servers, which count on until they end, and would connect anew."""
    made = [RedisCounts(redis_url), RedisCounts(redis_url)]
    yield made
    for one in made:
        await one.close()


async def test_a_visitor_gains_nothing_by_going_to_the_other_process(
    counts: list[RedisCounts], starter: Starter
) -> None:
    servers = [await starter.start(limits=ClientLimits(reads=6), counts=one) for one in counts]
    row, token = await make_visitor(servers[0].services.pool)
    path = f"/sessions/{row.session_public_id}/messages"
    assert [await _asked(servers[0], path, token) for _ in range(6)] == [200] * 6
    told: list[int] = []
    while len(told) < 5 and 429 not in told:
        told.append(await _asked(servers[1], path, token))
        await asyncio.sleep(1.5)
    assert told[-1] == 429, "it was let in as if nobody had counted"


async def _asked(server: Server, path: str, token: str) -> int:
    status, _ = await call(server, "GET", path, bearer(token))
    return int(status)
