"""Alerts of a lost database: sent once per deployment, repeated if refused, their end is stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest

from shared.core.ops.alerts import NotSent, Outage, Outcome, Sending, Sent
from shared.services.admin.outage_alerts import DEPUTY_FACTOR, OutageMonitor

AFTER = 60.0
START = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class World:
    """Time and Redis of all processes of a deployment."""

    seconds: float = 0.0
    redis_away: bool = False
    event: Outage | None = None
    results: dict[str, Outcome | None] = field(default_factory=dict)

    async def open(self, outage: Outage, *, not_before: datetime | None) -> Outage | None:
        if self.redis_away:
            return None
        if self.event is not None and not_before is not None and self.event.opened_at < not_before:
            await self.clear()
        self.event = self.event or outage
        return self.event

    async def claim(self, target: str) -> bool | None:
        if self.redis_away:
            return None
        is_first = target not in self.results
        self.results.setdefault(target, None)
        return is_first

    async def note(self, target: str, outcome: Outcome) -> None:
        if not self.redis_away:
            self.results[target] = outcome

    async def load(self) -> tuple[Outage, Mapping[str, Outcome | None]] | None:
        return None if self.redis_away or self.event is None else (self.event, dict(self.results))

    async def clear(self) -> bool | None:
        self.event, self.results = None, {}
        return True


@dataclass
class Channel:
    """A receiver that refuses as often as it is told to."""

    refusals: int = 0
    taken: list[Sending] = field(default_factory=list)

    async def send(self, sending: Sending) -> Outcome:
        if self.refusals:
            self.refusals -= 1
            return NotSent(code="http_503")
        self.taken.append(sending)
        return Sent()


@dataclass
class Store:
    recorded: list[tuple[Outage, dict[str, Outcome | None]]] = field(default_factory=list)

    async def count_older_processes(self, worker_id: int) -> int:
        return 0

    async def record_outage(self, outage: Outage, results: Mapping[str, Outcome | None]) -> None:
        self.recorded.append((outage, dict(results)))


class Process:
    def __init__(self, world: World, channel: Channel, *, rank: int = 0, has_beaten: bool = True) -> None:
        self.world, self.beaten_at = world, world.seconds
        self.monitor = OutageMonitor(
            world,
            channels=lambda: {"webhook": channel},
            silent_seconds=lambda: world.seconds - self.beaten_at,
            state=lambda: "read-only" if world.seconds - self.beaten_at > 3 else "ok",
            after_seconds=AFTER,
            has_beaten=has_beaten,
            clock=lambda: world.seconds,
            now=lambda: START + timedelta(seconds=world.seconds),
        )
        self.monitor.rank = rank


async def _pass(world: World, seconds: float, *processes: Process) -> None:
    end = world.seconds + seconds
    while world.seconds < end:
        world.seconds += 1.0
        for process in processes:
            await process.monitor.send_due()


@pytest.mark.parametrize("redis_away", [False, True])
async def test_outage_is_reported_once_by_two_processes(redis_away: bool) -> None:
    world, channel = World(redis_away=redis_away), Channel()
    processes = Process(world, channel), Process(world, channel, rank=1)
    await _pass(world, AFTER - 1, *processes)
    assert channel.taken == []
    await _pass(world, AFTER * 3, *processes)
    (sent,) = channel.taken
    assert (sent.alert.kind, sent.phase) == ("database_lost", "opened")
    assert sent.alert.detail == {"state": "read-only", "seconds": 60}


async def test_second_process_speaks_when_the_first_is_gone_and_redis_away() -> None:
    world, channel = World(redis_away=True), Channel()
    second, third = Process(world, channel, rank=1), Process(world, channel, rank=2)
    await _pass(world, DEPUTY_FACTOR * AFTER - 1, second, third)
    assert channel.taken == []
    await _pass(world, 3600, second, third)
    assert len(channel.taken) == 1


async def test_refused_message_is_repeated_with_the_same_key() -> None:
    world, channel = World(), Channel(refusals=2)
    process = Process(world, channel)
    await _pass(world, AFTER + 30, process)
    (sent,) = channel.taken
    assert sent.attempt == 3
    assert world.event is not None
    assert sent.send_key == world.event.build_sending("webhook", attempt=1).send_key


async def test_endless_refusals_are_bounded() -> None:
    world, channel = World(), Channel(refusals=10_000)
    process = Process(world, channel)
    await _pass(world, 4 * 3600, process)
    assert 10_000 - channel.refusals == 12


async def test_end_of_an_outage_is_stored_with_its_results() -> None:
    world, channel, store = World(), Channel(), Store()
    process = Process(world, channel)
    await _pass(world, AFTER, process)
    await process.monitor.record(store)
    ((outage, results),) = store.recorded
    assert results == {"webhook": Sent()}
    assert channel.taken[0].alert.public_id == outage.public_id
    assert world.event is None


async def test_short_outage_is_neither_reported_nor_stored() -> None:
    world, channel, store = World(), Channel(), Store()
    process = Process(world, channel)
    await _pass(world, AFTER - 1, process)
    await process.monitor.record(store)
    assert (channel.taken, store.recorded) == ([], [])


async def test_outage_of_a_process_that_died_is_stored_by_the_next_one() -> None:
    world, channel, store = World(), Channel(), Store()
    await _pass(world, AFTER, Process(world, channel))
    await Process(world, channel).monitor.record(store)
    ((_, results),) = store.recorded
    assert results == {"webhook": Sent()}


async def test_next_outage_is_reported_although_redis_missed_the_end() -> None:
    world, channel, store = World(), Channel(), Store()
    process = Process(world, channel)
    await _pass(world, AFTER, process)
    stale = world.event
    await process.monitor.record(store)
    world.event, world.results = stale, {"webhook": Sent()}
    await _pass(world, 600)
    process.beaten_at = world.seconds
    await _pass(world, AFTER, process)
    assert len(channel.taken) == 2
    assert channel.taken[0].send_key != channel.taken[1].send_key


async def test_process_that_starts_in_an_outage_does_not_repeat_its_alert() -> None:
    world, channel = World(), Channel()
    await _pass(world, AFTER, Process(world, channel))
    restarted = Process(world, channel, has_beaten=False)
    await _pass(world, 3 * AFTER, restarted)
    assert len(channel.taken) == 1
