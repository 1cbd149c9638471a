"""A process dies while a reminder's turn begins: it is told all the same, and once."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from tests.faults.conftest import TEMPLATE
from tests.faults.crash_points import REMINDER_POINTS
from tests.faults.scenes import Played, case_of_its_own, play
from tests.kit.deployment.breakable_servers import Case, Plant, Recovery
from tests.kit.deployment.forks import Hatchery
from tests.kit.deployment.person import Person
from tests.kit.deployment.processes import CRASHED
from tests.kit.deployment.telegram import SECONDS, Telegram, bot_of_its_own
from tests.kit.fakes.bot_api import BotApi
from tests.kit.fakes.messages_api.harness import RunningFake

POINTS = (*REMINDER_POINTS, "after_claim:2", "after_answer:2")
"""The second claim and the second answer are the reminder's."""
WORDS = "call Anna about the boat"
REMIND = f"""
INSERT INTO reminders (key, contact_id, session_id, address_id, text, due_at, tell_at)
SELECT 'k', contact_id, session_id, id, '{WORDS}', now(), now() FROM addresses
"""
DONE = "SELECT state = 'done' FROM reminders"


@pytest.fixture(scope="module")
async def on_the_web(request: pytest.FixtureRequest, plant: Plant, recovery: Recovery) -> Played:
    async def falls(point: str) -> None:
        async with case_of_its_own(plant, TEMPLATE) as case:
            await _told_once_on_the_web(case, recovery, point)

    return await play(request, {point: partial(falls, point) for point in POINTS})


@pytest.mark.parametrize("point", POINTS)
async def test_reminder_is_delivered_once_on_the_web(on_the_web: Played, point: str) -> None:
    on_the_web.went_well(point)


async def _told_once_on_the_web(case: Case, recovery: Recovery, point: str) -> None:
    async with case.web(crash_point=point) as web, Person(case.port) as person:
        await person.ask("Good morning.")
        await case.run(REMIND)
        await web.crashed()
        await person.until(lambda: any(WORDS in frame["text"] for frame in person.finals), "the reminder")
        recovery.note(f"web died at {point} of a reminder", web.fell_at)
        assert web.exits == [CRASHED], web.words()
        await person.ask("Thank you.")
        await case.promises_hold(person)
        assert [WORDS in frame["text"] for frame in person.finals].count(True) == 1
        assert await case.value("SELECT count(*) FROM entries WHERE author = 'program'") == 1
        async with asyncio.timeout(SECONDS):
            while not await case.value(DONE):
                await asyncio.sleep(0.1)


@pytest.fixture(scope="module")
async def on_telegram(
    request: pytest.FixtureRequest,
    api: BotApi,
    hatchery: Hatchery,
    plant: Plant,
    module_provider: RunningFake,
    recovery: Recovery,
) -> Played:
    """Each with a bot of its own."""
    await module_provider.reset()
    await Telegram.answers_of(
        module_provider, {"boat": {"text": f"Now {WORDS}."}, "morning": {"text": "Hello."}}
    )

    async def falls(point: str) -> None:
        async with bot_of_its_own(api, module_provider, plant, hatchery, TEMPLATE) as telegram:
            await _told_once_on_telegram(telegram, recovery, point)

    return await play(request, {point: partial(falls, point) for point in POINTS})


@pytest.mark.parametrize("point", POINTS)
async def test_reminder_is_delivered_once_on_telegram(on_telegram: Played, point: str) -> None:
    on_telegram.went_well(point)


async def _told_once_on_telegram(telegram: Telegram, recovery: Recovery, point: str) -> None:
    case, ada = telegram.case, await telegram.talker()
    async with telegram.bot(crash_point=point) as bot:
        await ada.ask("Good morning.")
        await case.run(REMIND)
        await bot.crashed()
        await ada.person.sees(WORDS, within=SECONDS)
        recovery.note(f"bot died at {point} of a reminder", bot.fell_at)
        assert bot.exits == [CRASHED], bot.words()
        await telegram.promises_hold()
        await telegram.until(DONE)
    screen = await ada.person.screen()
    assert screen.texts == ["Hello.", f"Now {WORDS}."]
    assert screen.notifications == 2
