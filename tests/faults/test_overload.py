"""One of two processes has more people than it can carry: nothing is taken from it, the other helps."""

from __future__ import annotations

import asyncio
import math
import signal
import statistics
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from shared.adapters.telemetry.heartbeat import LOOK_SECONDS
from shared.services.turns.session_service import MAX_LAG_SECONDS
from tests.faults.lengths import lasting
from tests.faults.provided import provided_by
from tests.kit.deployment.breakable_servers import Case
from tests.kit.deployment.person import Person
from tests.kit.deployment.processes import Process, logged
from tests.kit.fakes.messages_api.harness import RunningFake
from tests.kit.free_ports import free_port

PEOPLE = 80
ROUNDS = int(lasting(2.0, 10.0))
"""Of each of four crowds, two of which are at one process."""
RUNS_SECONDS, RESTS_SECONDS = 0.03, 0.2
"""So long a process may compute, and not: two weak hosts, and eighty people are too many for one."""
FEW, LATE_SECONDS = 8, MAX_LAG_SECONDS + 2 * LOOK_SECONDS
"""Whoever rests for so long is too busy for new turns, however quick the machine is."""
PATIENT_SECONDS = 240.0
WORDS = "All work and no play makes a long answer of many small pieces. " * 12
ANSWERED = [{"match": {"kind": "chat"}, "times": -1, "action": {"text": WORDS, "pace_ms": 5}}]
CAPS = {"EVERTALK_CAP_TOTAL_PER_DAY_USD": "100000", "EVERTALK_CAP_VISITOR_PER_DAY_USD": "100000"}
NOT_AT_ALL_FAIR = lasting(math.inf, 2.0)
"""Times are judged in a long run only: in a short one a single slow moment of the machine is the p95."""


async def _asks(person: Person, rounds: int) -> list[float]:
    """Seconds from each question to its answer; asked as soon as the one before is answered."""
    found = []
    for number in range(rounds):
        since = time.monotonic()
        await person.say(f"Question {number} of {person.name}.")
        await person.answered(within_seconds=PATIENT_SECONDS)
        found.append(time.monotonic() - since)
    return found


async def _crowd(ports: Sequence[int], name: str, rounds: int, *, people: int = PEOPLE) -> list[float]:
    """The seconds of every answer."""
    async with AsyncExitStack() as stack:
        crowd = [
            await stack.enter_async_context(Person(ports[number % len(ports)], name=f"{name}{number}-"))
            for number in range(people)
        ]
        found = await asyncio.gather(*(_asks(person, rounds) for person in crowd))
        return [one for each in found for one in each]


@asynccontextmanager
async def weak(*processes: Process, rests_seconds: float = RESTS_SECONDS) -> AsyncIterator[None]:
    """As on a host that is slower, or has others to serve."""
    taking_turns = asyncio.create_task(_take_turns(processes, rests_seconds))
    try:
        yield
    finally:
        taking_turns.cancel()
        await asyncio.wait([taking_turns])
        for process in processes:
            process.send(signal.SIGCONT)


async def _take_turns(processes: Sequence[Process], rests_seconds: float) -> None:
    while True:
        for number, seconds in ((signal.SIGSTOP, rests_seconds), (signal.SIGCONT, RUNS_SECONDS)):
            for process in processes:
                process.send(number)
            await asyncio.sleep(seconds)


async def _nothing_was_taken(case: Case, fake: RunningFake, *processes: Process) -> None:
    """A turn that was given back before anybody worked at it may be tried again; none is paid for twice."""
    assert logged(processes, "turn_lease_lost") == logged(processes, "heartbeats_late") == 0
    turns = await case.value("SELECT count(*) FROM turns")
    asked = [one for one in await fake.requests() if one["kind"] == "chat"]
    assert len(asked) == turns, "a call was paid for twice"
    assert [one.exits for one in processes] == [[]] * len(processes)
    await case.promises_hold()


@pytest.mark.row("F55")
async def test_new_turns_of_a_process_that_is_late_go_to_the_other(case: Case, fake: RunningFake) -> None:
    await fake.script(ANSWERED)
    more = {**provided_by(fake), **CAPS}
    async with case.web(**more) as web, case.web(**more, EVERTALK_HTTP_PORT=str(free_port())) as idle:
        await _crowd([case.port], "warm", 1, people=1)
        before = idle.events["turn_tokens"]
        async with weak(web, rests_seconds=LATE_SECONDS):
            await _crowd([case.port], "crowd", 2, people=FEW)
        assert idle.events["turn_tokens"] > before, web.events
        await _nothing_was_taken(case, fake, web, idle)


@pytest.mark.night
@pytest.mark.row("F55")
@pytest.mark.timeout(900)
async def test_a_crowd_at_one_of_two_processes_is_answered_once_and_fairly(
    case: Case, fake: RunningFake
) -> None:
    await fake.script(ANSWERED)
    other = free_port()
    more = {**provided_by(fake), **CAPS}
    async with case.web(**more) as web, case.web(**more, EVERTALK_HTTP_PORT=str(other)) as idle:
        await _crowd([case.port, other], "warm", 1)
        async with weak(web, idle):
            seconds, spread, helped = list[float](), list[list[float]](), 0
            # By turns, so that whatever else this machine does weighs on both.
            for half in ("first", "second"):
                spread += [await _crowd([case.port, other], f"spread-{half}", ROUNDS)]
                before = idle.events["turn_tokens"]
                seconds += await _crowd([case.port], f"crowd-{half}", ROUNDS)
                helped += idle.events["turn_tokens"] - before
        fair = statistics.mean(one for each in spread for one in each)
        late = statistics.quantiles(seconds, n=20)[-1]
        told = (
            f"p95 {late:.2f} s, median {statistics.median(seconds):.2f} s, fair share {fair:.2f} s; "
            f"{helped} of {len(seconds)} answered by the other process"
        )
        print(told)
        assert helped > 0, told
        assert late <= NOT_AT_ALL_FAIR * fair, told
        await _nothing_was_taken(case, fake, web, idle)
