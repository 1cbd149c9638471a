"""The bot falls at every place, and Telegram, Postgres and Redis with it: each message is answered once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from tests.fakes.bot_api import BotApi, running_bot_api
from tests.fakes.messages_api.harness import RunningFake
from tests.faults.conftest import TEMPLATE
from tests.faults.hatchery import Hatchery
from tests.faults.plant import Plant, Recovery
from tests.faults.processes import CRASHED
from tests.faults.telegram import Telegram

STREAMED = (
    "before_accept",
    "after_accept",
    "after_claim",
    "mid_stream:3",
    "after_model",
    "after_answer",
    "after_delivered",
    "telegram_after_store",
    "telegram_after_bubble",
    "telegram_before_edit",
    "telegram_after_edit",
)
SHORT = ("telegram_before_send", "telegram_after_send")
"""Reached where an answer is there before a bubble was worth it."""
LONG = ("telegram_after_part", "telegram_after_part:2")
POINTS = (*STREAMED, *SHORT, *LONG)
AT_ONCE = 8
LONG_ANSWER = "\n\n".join(
    f"Paragraph {number}. {'One word follows another here. ' * 40}" for number in range(8)
)
ANSWERS: dict[str, dict[str, object]] = {
    "briefly": {"text": "Yes."},
    "few words": {"text": "It is called Njord, and it runs past the hill and on to the sea.", "pace_ms": 60},
    "length": {"text": LONG_ANSWER},
}


@pytest.fixture(scope="module")
async def hatchery() -> AsyncIterator[Hatchery]:
    async with Hatchery() as running:
        yield running


@pytest.fixture(scope="module")
async def api() -> AsyncIterator[BotApi]:
    async with running_bot_api() as running:
        yield running


@pytest.fixture
async def telegram(
    api: BotApi, hatchery: Hatchery, plant: Plant, fake: RunningFake
) -> AsyncIterator[Telegram]:
    """A fresh database, and a Telegram without people."""
    await api.reset()
    case = await plant.case(TEMPLATE)
    yield Telegram(api=api, provider=fake, case=case, hatchery=hatchery)
    await plant.drop(case.database)


# -- the process falls ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Fall:
    """What became of a bot that met its crash point while people wrote to it."""

    error: BaseException | None
    uncertain: int = 0


@pytest.fixture(scope="module")
async def falls(
    api: BotApi, hatchery: Hatchery, plant: Plant, provider: RunningFake, recovery: Recovery
) -> dict[str, Fall]:
    """Each point with a bot and a database of its own, some at the same time: mostly they wait for leases."""
    gate = asyncio.Semaphore(AT_ONCE)
    await provider.reset()

    async def fall(number: int, point: str) -> Fall:
        token = f"{710_000 + number}:FAKE-token-of-a-bot-that-is-to-fall_{number:05d}"
        async with gate:
            await api.add_bot(token, username=f"falling_{number}_bot")
            case = await plant.case(TEMPLATE)
            telegram = Telegram(api=api, provider=provider, case=case, hatchery=hatchery, token=token)
            try:
                return await _fallen(telegram, point, recovery)
            except BaseException as error:
                return Fall(error=error)
            finally:
                await plant.drop(case.database)

    await Telegram.answers_of(provider, ANSWERS)
    found = await asyncio.gather(*(fall(number, point) for number, point in enumerate(POINTS)))
    return dict(zip(POINTS, found, strict=True))


async def _fallen(telegram: Telegram, point: str, recovery: Recovery) -> Fall:
    ada, bob = await telegram.talker(), await telegram.talker()
    how = "briefly" if point in SHORT else "at length" if point in LONG else "in a few words"
    async with telegram.bot(crash_point=point) as bot:
        await ada.say(f"Tell me {how} of the river that I live by.")
        await ada.say("And then of the hill above it.")
        await bot.crashed()
        await bob.say("I have a garden with seven apple trees in it.")
        await telegram.rests()
        recovery.note(f"bot died at {point}", bot.fell_at)
        assert bot.exits == [CRASHED], bot.words()
        await ada.ask("What do I live by?")
        await telegram.promises_hold(strays=point == "telegram_after_bubble")
    uncertain = await telegram.case.value("SELECT count(*) FROM deliveries WHERE state = 'uncertain'")
    return Fall(error=None, uncertain=int(uncertain))


@pytest.mark.parametrize("point", POINTS)
async def test_a_bot_that_dies_leaves_nobody_without_an_answer(falls: dict[str, Fall], point: str) -> None:
    fall = falls[point]
    if fall.error is not None:
        raise fall.error
    assert fall.uncertain == (1 if point in SHORT else 0), "only of what was on its way nobody knows"
