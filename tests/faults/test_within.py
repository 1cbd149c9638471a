"""A process suffers from within: its loop stands still, or its clock jumps; everybody else goes on."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Sequence
from random import Random

import pytest

from tests.faults.lengths import lasting
from tests.faults.provided import LONG, provided_by
from tests.kit.deployment.breakable_servers import Case, Recovery
from tests.kit.deployment.inner_faults import BLOCK_SECONDS, CLOCK_SHIFTS, CONSTANTS
from tests.kit.deployment.person import PATIENCE_SECONDS, WALK, Person
from tests.kit.deployment.processes import Process, logged
from tests.kit.fakes.messages_api.harness import RunningFake
from tests.kit.free_ports import free_port

HOUR = 3600.0
BLOCKED = lasting(10.0, 20.0)
"""Longer than the four seconds after which a lease lapses, and others have time to take over meanwhile."""
SOON = {CONSTANTS: "shared.adapters.telemetry.heartbeat.VOUCH_SECONDS=1"}
"""Nobody has time to wait until a heart gives up a loop that stands still for half a minute."""


async def heard(processes: Sequence[Process], event: str, *, times: int = 1) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while logged(processes, event) < times:
        assert time.monotonic() < end, f"{event}:\n" + "\n".join(one.words() for one in processes)
        await asyncio.sleep(0.05)


@pytest.mark.row("F20")
async def test_who_computes_for_a_while_keeps_its_turn_and_ends_it(
    case: Case, fake: RunningFake, seed: int
) -> None:
    """Its heart beats beside the loop: nobody pays for the same answer again."""
    more = provided_by(fake)
    async with (
        case.web(**more, **{BLOCK_SECONDS: str(BLOCKED)}) as blocked,
        case.web(**more, EVERTALK_HTTP_PORT=str(free_port())) as second,
        Person(case.port, name="slow") as person,
    ):
        await person.ask("Good day.")
        await fake.script([{"match": {"kind": "chat"}, "times": 1, "action": {"text": LONG, "pace_ms": 600}}])
        cid = await person.say("Please tell me something long.")
        await person.until(lambda: any(one["turn"] == 2 for one in person.deltas), "its first words")
        await asyncio.sleep(Random(seed).uniform(0.0, 1.0))
        blocked.send(signal.SIGUSR2)
        await heard([blocked], "event_loop_blocked")
        await person.answered()
        assert (answer := person.answer_to(cid)) is not None
        assert answer["text"] == LONG
        assert await case.value("SELECT max(attempt) FROM turns") == 1, "nobody took it over"
        assert (
            logged([blocked, second], "heartbeats_late") == logged([blocked, second], "turn_lease_lost") == 0
        )
        assert blocked.exits == second.exits == []
        await case.promises_hold(person)


@pytest.mark.row("F20")
async def test_who_computes_without_end_is_replaced_and_says_nothing_late(
    case: Case, fake: RunningFake, recovery: Recovery, seed: int
) -> None:
    more = provided_by(fake)
    port = str(free_port())
    async with (
        case.web(**more, **SOON, **{BLOCK_SECONDS: str(BLOCKED)}) as blocked,
        case.web(**more, EVERTALK_HTTP_PORT=port) as second,
        Person(case.port, name="blocked") as person,
    ):
        await person.ask("Good day.")
        await fake.script([{"match": {"kind": "chat"}, "times": 1, "action": {"text": LONG, "pace_ms": 600}}])
        cid = await person.say("Please tell me something long.")
        await person.until(lambda: any(one["turn"] == 2 for one in person.deltas), "its first words")
        await asyncio.sleep(Random(seed).uniform(0.0, 1.0))
        since = time.monotonic()
        blocked.send(signal.SIGUSR2)
        async with Person(int(port), token=person.token, name="elsewhere") as elsewhere:
            await elsewhere.until(lambda: len(elsewhere.finals) == 2, "the answer of the other process")
            recovery.note("web blocked, another one took over", since)
        await heard([blocked], "event_loop_stalled")
        await heard([blocked], "heartbeats_late")
        await person.answered()
        await heard([blocked], "turn_lease_lost")
        await person.ask("Can you hear me again?")
        assert (answer := person.answer_to(cid)) is not None
        assert answer["text"] != LONG
        assert blocked.exits == second.exits == []
        await case.promises_hold(person)


@pytest.mark.row("F20")
async def test_job_whose_worker_blocks_is_done_once_by_another(
    case: Case, fake: RunningFake, recovery: Recovery
) -> None:
    more = {**provided_by(fake), **SOON, BLOCK_SECONDS: str(BLOCKED)}
    async with case.web(**more), Person(case.port, name="walker") as person:
        for number in range(8):
            await person.ask(f"Number {number}: we meet on 2026-05-{number + 10} in Lisbon. {WALK}")
        await fake.script([{"match": {"kind": "summary"}, "times": 1, "action": {"latency": 4.0}}])
        async with case.worker(**more) as blocked, case.worker(**more) as second:
            # It is there and asleep: a start may take as long as the first one computes.
            second.send(signal.SIGSTOP)
            asked = await person.command("compact", "--force")
            await _summary_is_asked_for(fake)
            since = time.monotonic()
            blocked.send(signal.SIGUSR2)
            second.send(signal.SIGCONT)
            await person.until(lambda: asked in person.commands, "the summary")
            recovery.note("worker blocked, another one took over", since)
            assert person.commands[asked]["success"], person.commands[asked]
            await heard([blocked], "heartbeats_late")
            await person.ask("And now?")
            await case.promises_hold(person)
            assert blocked.exits == second.exits == []
        assert await case.value("SELECT count(*) FROM compactions WHERE kind = 'summary'") == 1
        assert await case.value("SELECT attempt FROM jobs WHERE kind = 'compact'") == 2, "taken over once"


async def _summary_is_asked_for(fake: RunningFake) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not [one for one in await fake.requests() if one["kind"] == "summary"]:
            await asyncio.sleep(0.05)


@pytest.mark.row("F21")
async def test_a_clock_that_jumps_steals_no_lease_and_holds_none(
    case: Case, fake: RunningFake, recovery: Recovery
) -> None:
    """An hour ahead in mid-answer, two hours back in the next one, beside a process whose clock is right."""
    more = {**provided_by(fake), CLOCK_SHIFTS: f"{HOUR},{-HOUR},0"}
    port = str(free_port())
    slowly = {"text": LONG, "pace_ms": 100}
    async with (
        case.web(**more) as web,
        case.web(**provided_by(fake), EVERTALK_HTTP_PORT=port) as right,
        case.worker(**more) as worker,
        Person(case.port, name="here") as person,
    ):
        await person.ask("Good day.")
        for times in (1, 2, 3):
            await fake.script([{"match": {"kind": "chat"}, "times": 1, "action": slowly}])
            turn = len(person.finals) + 1
            cid = await person.say(f"Please tell me something long, for the {times}. time.")
            await person.until(_writes(person, turn), "words")
            web.send(signal.SIGUSR1)
            worker.send(signal.SIGUSR1)
            await heard([web], "clock_jumped", times=times)
            await heard([worker], "clock_jumped", times=times)
            await person.answered()
            assert (answer := person.answer_to(cid)) is not None
            assert answer["text"] == LONG, "the process that began has ended it"
            await _a_summary_is_made(case, person, times)
        assert await case.value("SELECT max(attempt) FROM turns") == 1, "nobody took a turn over"
        assert await case.value("SELECT max(epoch) FROM jobs") == 1
        assert not logged([web, right], "turn_lease_lost") + logged([web, right, worker], "heartbeats_late")
        web.send(signal.SIGUSR1)
        await fake.script([{"match": {"kind": "chat"}, "times": 1, "action": {"text": LONG, "pace_ms": 300}}])
        await person.say("And once more, please.")
        await person.until(lambda: person.deltas[-1]["turn"] == len(person.finals) + 1, "words")
        web.kill()
        await web.crashed()
        await person.answered()
        recovery.note("web with a wrong clock killed", web.fell_at)
        await case.promises_hold(person)


def _writes(person: Person, turn: int) -> Callable[[], bool]:
    return lambda: any(delta["turn"] == turn for delta in person.deltas)


async def _a_summary_is_made(case: Case, person: Person, times: int) -> None:
    for number in range(4):
        await person.ask(f"Number {number} of {times}: we meet in Lisbon. {WALK}")
    told = await person.result_of(await person.command("compact", "--force"), "the summary")
    assert told["success"], told
