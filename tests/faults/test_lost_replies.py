"""Postgres does what it was asked, and its reply is lost: nobody may guess, everybody looks again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.faults.conftest import TEMPLATE
from tests.kit.deployment.breakable_servers import Case, Plant
from tests.kit.deployment.forks import Hatchery
from tests.kit.deployment.person import WALK, Person
from tests.kit.deployment.telegram import Telegram
from tests.kit.fakes.bot_api import running_bot_api
from tests.kit.fakes.messages_api.harness import RunningFake
from tests.kit.fakes.tcp_proxy import LostReplies, TcpProxy

SHARE = 0.02
MESSAGES = 8
LEAST_LOST = 5
MOST_MORE = 60


@asynccontextmanager
async def unreliable(case: Case, seed: int) -> AsyncIterator[tuple[dict[str, str], LostReplies, TcpProxy]]:
    """The setting of a database behind a line that loses replies."""
    sockets = parse_qs(urlsplit(case.database_url).query)["host"][0]
    lost = LostReplies(share=SHARE, seed=seed)
    async with TcpProxy(upstream=Path(sockets) / ".s.PGSQL.5432", replies=lost) as line:
        url = f"postgresql://postgres@127.0.0.1:{line.port}/{case.database}?sslmode=disable"
        yield {"DATABASE_URL": url}, lost, line


async def _keeps_talking(person: Person, chance: Random) -> None:
    for number in range(MESSAGES):
        await person.say(f"Message {number} of {person.name}: please remember the number {number}. {WALK}")
        await asyncio.sleep(chance.uniform(0.0, 0.4))


async def _summarised(person: Person) -> None:
    """A command that could not be stored says so: a person gives it again."""
    for _ in range(5):
        asked = await person.command("compact", "--force")
        await person.until(_ended(person, asked), "the summary, or why there is none")
        if asked in person.commands:
            return
        assert person.errors[-1]["code"] == "storage_unavailable"
    raise AssertionError(person.errors)


def _ended(person: Person, cid: str) -> Callable[[], bool]:
    return lambda: cid in person.commands or any(error.get("cid") == cid for error in person.errors)


@pytest.mark.row("F26")
async def test_lost_database_reply_loses_and_doubles_nothing(case: Case, seed: int) -> None:
    chance = Random(seed)
    async with unreliable(case, seed) as (settings, lost, line):
        async with (
            case.web(**settings) as web,
            case.worker(**settings) as worker,
            Person(case.port, name="one") as one,
            Person(case.port, name="two") as two,
            Person(case.port, name="three") as three,
        ):
            people = (one, two, three)
            await asyncio.gather(*(_keeps_talking(person, chance) for person in people))
            for _ in range(MOST_MORE):
                if lost.lost >= LEAST_LOST:
                    break
                await one.ask("Are you still there?")
            await asyncio.gather(*(person.answered() for person in people))
            await asyncio.gather(*map(_summarised, people))
            line.heal()
            await asyncio.gather(*(person.ask("And now?") for person in people))
            assert web.exits == worker.exits == [], web.words() + worker.words()
            await case.promises_hold(*people)
        assert lost.lost >= LEAST_LOST


@pytest.mark.row("F26")
async def test_on_telegram_a_lost_reply_loses_and_doubles_nothing(
    hatchery: Hatchery, plant: Plant, fake: RunningFake, seed: int
) -> None:
    case = await plant.case(TEMPLATE)
    async with running_bot_api() as api, unreliable(case, seed) as (settings, lost, line):
        telegram = Telegram(api=api, provider=fake, case=case, hatchery=hatchery)
        people = [await telegram.talker() for _ in range(3)]
        async with telegram.bot(**settings) as bot:
            for number in range(MESSAGES):
                for talker in people:
                    await talker.say(f"This is number {number} of what I say.")
                await asyncio.sleep(Random(f"{seed} {number}").uniform(0.1, 0.6))
            await telegram.rests()
            for number in range(MOST_MORE):
                if lost.lost >= LEAST_LOST:
                    break
                await people[0].ask(f"Are you still there after {number} questions?")
            line.heal()
            # A reply that was lost may be that of a delivery: its bubble is known, or nobody knows of it.
            await telegram.promises_hold(strays=lost.lost)
            assert bot.exits == [], bot.words()
        assert lost.lost >= LEAST_LOST
    await plant.drop(case.database)
