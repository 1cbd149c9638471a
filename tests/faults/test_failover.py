"""A standby that was behind is promoted: what was acknowledged comes again, and no turn is stuck."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random

import pytest

from tests.faults.followed_case import followed_case
from tests.faults.provided import LONG
from tests.kit.deployment.breakable_servers import Recovery
from tests.kit.deployment.forks import Hatchery
from tests.kit.deployment.person import Person
from tests.kit.deployment.processes import logged
from tests.kit.deployment.telegram import Telegram
from tests.kit.fakes.bot_api import running_bot_api
from tests.kit.fakes.messages_api.harness import RunningFake
from tests.kit.free_ports import free_port
from tests.kit.suite.time_limit import count_times
from tests.kit.vanishing_host import vanishing_host

PEOPLE = 4
SILENCE_SECONDS = 10.0
"""Longest time without an answer that docs/cluster.md promises, on a machine at rest."""
LAG_SECONDS = 2.5
GIVEN_BACK_SECONDS = 10.0
_ANSWERED = "SELECT count(*) FROM turns WHERE ended_at IS NOT NULL"
_DELIVERED = "SELECT count(*) FROM deliveries WHERE channel = 'telegram' AND state = 'delivered'"
_HELD = "SELECT count(*) FROM sessions WHERE leased_by IS NOT NULL"


async def _talks(person: Person, chance: Random, seconds: float) -> None:
    end, number = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        number += 1
        await person.say(f"Message {number} of {person.name}, at {time.monotonic():.3f}.")
        await asyncio.sleep(chance.uniform(0.1, 0.5))


def _came_back(person: Person, before: int) -> Callable[[], bool]:
    return lambda: person.connections > before


@pytest.mark.row("F54")
async def test_failover_leaves_nothing_stuck_and_lost_answers_are_repeated(
    hatchery: Hatchery, fake: RunningFake, recovery: Recovery, seed: int
) -> None:
    chance = Random(seed)
    await fake.set_pace(20.0)
    await fake.script([{"match": {"kind": "chat", "contains": "something long"}, "times": -1,
                        "action": {"text": LONG, "pace_ms": 100}}])  # fmt: skip
    async with (
        AsyncExitStack() as stack, followed_case(hatchery) as case, running_bot_api() as api,
    ):  # fmt: skip
        telegram = Telegram(api=api, provider=fake, case=case, hatchery=hatchery)
        settings = telegram.settings()
        ports = [case.port, free_port()]
        running = [
            await stack.enter_async_context(case.web(**{**settings, "EVERTALK_HTTP_PORT": str(port)}))
            for port in ports
        ]
        running.append(await stack.enter_async_context(case.worker(**settings)))
        running.append(await stack.enter_async_context(telegram.bot()))
        people = [
            await stack.enter_async_context(Person(ports[number % 2], name=f"f{number}-"))
            for number in range(PEOPLE)
        ]
        talkers = [await telegram.talker() for _ in range(2)]
        for talker in talkers:
            await talker.ask(f"Good day, I am {talker.id}.")
        await asyncio.gather(*(person.ask("Good day.") for person in people))
        for person in people:
            await person.say(f"{person.name}: please tell me something long.")
        await case.standby.hears(f"SELECT ({_HELD}) >= 2", case.database)
        await case.standby.lag()
        held = await case.standby.value(_HELD, case.database)
        late = await stack.enter_async_context(Person(case.port, name="late-"))
        await late.ask("I came when nobody took note of it.")
        await asyncio.gather(
            *(_talks(person, Random(f"{seed} {person.name}"), LAG_SECONDS) for person in people),
            *(talker.say(f"And this is something that {talker.id} says.") for talker in talkers),
        )
        await asyncio.sleep(chance.uniform(0.0, 0.5))
        known, delivered = await case.value(_ANSWERED), await case.value(_DELIVERED)
        since, sockets = time.monotonic(), {person.name: person.connections for person in (*people, late)}
        await case.fail_over()
        assert held >= 2
        lost = known - await case.value(_ANSWERED)
        strays = delivered - await case.value(_DELIVERED)
        assert lost > 0, "the standby was not behind"
        for person in (*people, late):
            await person.until(_came_back(person, sockets[person.name]), "a new welcome")
            await person.answered()
        recovery.note("a standby was promoted", since)
        assert sum(person.again for person in (*people, late)) > 0
        await telegram.promises_hold(strays=strays + 2)
        await case.until(f"SELECT ({_HELD}) = 0", within_seconds=GIVEN_BACK_SECONDS)
        for person in (*people, late):
            await person.ask("And now?")
        await case.promises_hold(*people, late)
        # The worker holds nobody on the line, and may begin anew when Postgres falls.
        talking = [one for one in running if one.module != "worker"]
        assert [one.exits for one in talking] == [[], [], []], "\n".join(one.words() for one in talking)
        assert logged(running[:2], "database_promoted") == 2


@pytest.mark.row("F57")
async def test_primary_that_vanishes_is_left_for_the_promoted_standby(
    hatchery: Hatchery, fake: RunningFake, recovery: Recovery
) -> None:
    """No refusal and no goodbye arrives: only limits of the connections themselves tell."""
    async with AsyncExitStack() as stack:
        case = await stack.enter_async_context(followed_case(hatchery))
        assert isinstance(case.line.upstream, Path)
        host = await stack.enter_async_context(vanishing_host(case.line.upstream))
        case.line.upstream = case.standby.socket
        hosts = f"{host.address}:5432,127.0.0.1:{case.line.port}"
        url = f"postgresql://postgres@{hosts}/{case.database}?sslmode=disable&target_session_attrs=primary"
        settings = {
            "DATABASE_URL": url,
            "ANTHROPIC_BASE_URL": fake.base_url,
            "ANTHROPIC_API_KEY": "a-key-for-the-fake",
        }
        web = await stack.enter_async_context(case.web(**settings))
        worker = await stack.enter_async_context(case.worker(**settings))
        people = [
            await stack.enter_async_context(Person(case.port, name=f"v{number}-")) for number in range(PEOPLE)
        ]
        await asyncio.gather(*(person.ask("Good day.") for person in people))
        await case.standby.hears(f"SELECT ({_ANSWERED}) = {PEOPLE}", case.database)
        last = time.monotonic()
        host.vanish()
        await case.standby.take_over()
        for person in people:
            await person.say("Are you still there?")
        await people[0].until(lambda: any(len(one.finals) == 2 for one in people), "a first answer")
        silence = time.monotonic() - last
        recovery.note("answered after the primary vanished", last)
        for person in people:
            await person.answered()
        await case.promises_hold(*people)
        assert web.exits == [], web.words()
        assert worker.exits in ([], [1]), worker.words()
        assert silence <= SILENCE_SECONDS * count_times()
