"""Answers whose replies were lost are found in their chat, or sent again, without their person."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from bot.telegram.client.calls import RateLimits, ScaledClock
from bot.telegram.markup.entity_text import MessagePart, render
from bot.telegram.outbound.buttons import ButtonAction
from bot.telegram.outbound.notifier import get_chat_target
from bot.telegram.outbound.uncertain_notices import PLACEHOLDER
from tests.integration.bot.outbound.delivery_driver import (
    BOT_ID,
    UNCERTAIN,
    Answer,
    BotProcess,
    die_while_sending,
)
from tests.integration.bot.outbound.long_answers import LONG, WORDS
from tests.kit.fakes.bot_api import Person, RunningBotApi
from tests.kit.night import by_night

OPEN = "SELECT count(*) FROM uncertain_notices WHERE state <> 'over'"


def settling(bot: BotProcess) -> BotProcess:
    """Its clock is ten times faster, so that the pause before a search is short."""
    bot.settles = True
    bot.set_up(clock=ScaledClock(speed=10.0))
    return bot


async def asked(bot: BotProcess, ann: Person) -> Answer:
    """Return the answer to a message that she has just sent."""
    return await bot.begin(await bot.place(), question=(await ann.say("Well?")).message_id)


async def lose(fake: RunningBotApi, bot: BotProcess, ann: Person, words: str, *, how: str) -> Answer:
    answer = await asked(bot, ann)
    await fake.fail("sendMessage", reset=how)
    await answer.end(words)
    return answer


async def settled(bot: BotProcess) -> None:
    """Rounds of the running bot: notices and unfinished deliveries."""
    for _ in range(5):
        await bot.tell()
        await bot.recover()
        await bot.tasks.rest()
    assert await bot.pool.fetchval(OPEN) == 0
    assert await bot.broken_invariants() == []


@pytest.mark.row("F50")
@pytest.mark.parametrize("how", ["before", "after"])
async def test_answer_with_a_lost_reply_is_in_its_chat_once(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person, how: str
) -> None:
    settling(bot)
    answer = await lose(strict_api, bot, ann, "The one and only.", how=how)
    await settled(bot)
    (line,) = (await ann.screen()).answers
    assert line.text == "The one and only."
    assert await bot.states(answer) == ["delivered"]
    assert (await bot.rows(answer))[0].remote_id == line.message_id


@pytest.mark.parametrize("how", ["before", "after"])
async def test_lost_reply_is_settled_among_other_messages(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person, how: str
) -> None:
    """Between them are messages of the person and a notice of the bot that no row names."""
    settling(bot)
    place = await bot.place()
    answer = await asked(bot, ann)
    await bot.sender.send_text(get_chat_target(place), MessagePart(text="A command's result."))
    await ann.say("Hurry, please.")
    await strict_api.fail("sendMessage", reset=how)
    await answer.end("The one and only.")
    await ann.say("Thank you.")
    await settled(bot)
    assert sorted((await ann.screen()).texts) == ["A command's result.", "The one and only."]
    later = await bot.begin(place)
    await later.end("Next.")
    assert (await ann.screen()).texts[-1] == "Next."


@pytest.mark.parametrize("how", ["before", "after"])
async def test_lost_part_of_a_long_answer_is_settled(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person, how: str
) -> None:
    settling(bot)
    answer = await asked(bot, ann)
    await strict_api.fail("sendMessage", match={"nth": 2}, reset=how)
    await answer.end(LONG)
    await settled(bot)
    shown = "".join("".join((await ann.screen()).texts).split())
    assert shown == "".join(render(LONG).text.split())
    assert set(await bot.states(answer)) == {"delivered"}


@pytest.mark.parametrize("how", ["before", "after"])
async def test_lost_bubble_leaves_no_half_with_a_stop_button(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person, how: str
) -> None:
    settling(bot)
    bot.buttons = True
    answer = await asked(bot, ann)
    await strict_api.fail("sendMessage", reset=how)
    await answer.stream(WORDS * 8)
    await answer.end()
    await settled(bot)
    (line,) = (await ann.screen()).answers
    assert (line.text, line.buttons) == (render(answer.said).text, [ButtonAction.REGENERATE.name.title()])


@pytest.mark.parametrize("how", ["before", "after"])
async def test_lost_bubble_is_remembered_by_the_next_attempt(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person, how: str
) -> None:
    settling(bot)
    place = await bot.place()
    answer = await asked(bot, ann)
    await strict_api.fail("sendMessage", reset=how)
    await answer.stream(WORDS * 2)
    await bot.turns.postpone(answer.claim, seconds=0.0, fault=True, notice=None)
    await answer.emit.close()
    again = await bot.claim(place)
    assert (again.turn, again.claim.attempt) == (answer.turn, 2)
    await again.stream(WORDS * 8)
    await again.end()
    await settled(bot)
    assert (await ann.screen()).texts == [render(again.said).text]


async def test_search_without_an_answer_of_telegram_asks_the_person(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person
) -> None:
    settling(bot)
    await strict_api.fail("stopMessageLiveLocation", times=-1, status=500)
    answer = await lose(strict_api, bot, ann, "The one and only.", how="after")
    assert (await ann.screen()).texts == ["The one and only.", UNCERTAIN]
    assert (await ann.screen()).answers[-1].buttons
    assert await bot.states(answer) == ["uncertain"]
    assert await bot.broken_invariants() == []


@pytest.mark.parametrize("how", ["before", "after"])
async def test_lost_notice_is_settled_with_its_answer(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person, how: str
) -> None:
    settling(bot)
    answer = await asked(bot, ann)
    await strict_api.fail("sendMessage", reset=how)
    await strict_api.fail("sendMessage", reset=how)
    await answer.end("The one and only.")
    await bot.pool.execute("UPDATE uncertain_notices SET due_at = now()")
    await settled(bot)
    assert (await ann.screen()).texts == ["The one and only."]
    assert await bot.states(answer) == ["delivered"]


async def test_answer_of_a_process_that_died_while_sending_is_found(
    strict_api: RunningBotApi, bots: Callable[[], BotProcess], ann: Person
) -> None:
    answer = await die_while_sending(settling(bots()), strict_api, ann, "Once.")
    after = settling(bots())
    assert await after.deliveries.recover_interrupted([BOT_ID]) == 1
    await settled(after)
    assert (await ann.screen()).texts == ["Once."]
    assert await after.states(answer) == ["delivered"]


async def test_successor_goes_on_with_a_search_that_a_dead_process_began(
    strict_api: RunningBotApi, bots: Callable[[], BotProcess], ann: Person
) -> None:
    before = settling(bots())
    await strict_api.fail("stopMessageLiveLocation", times=-1, stall=5.0)
    answer = await asked(before, ann)
    await strict_api.fail("sendMessage", reset="after")
    ending = asyncio.create_task(answer.end("The one and only."))
    while not await before.pool.fetchval("SELECT count(*) FROM uncertain_notices WHERE state = 'shown'"):
        await asyncio.sleep(0.02)
    ending.cancel()
    await asyncio.gather(ending, return_exceptions=True)
    await before.die()
    await strict_api.script([])
    await settled(settling(bots()))
    assert (await ann.screen()).texts == ["The one and only."]


async def test_lost_file_is_left_to_its_person(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person
) -> None:
    settling(bot)
    answer = await asked(bot, ann)
    await strict_api.fail("sendDocument", reset="after")
    await answer.end(WORDS * 700)
    assert (await bot.states(answer))[-1] == "uncertain"
    assert (await ann.screen()).texts[-1] == UNCERTAIN


async def test_many_lost_replies_are_settled_without_a_press(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person
) -> None:
    settling(bot)
    chance = Random(7)
    count = by_night(150, else_=20)
    for number in range(count):
        bot.beat()
        answer = await asked(bot, ann)
        await strict_api.fail("sendMessage", reset=chance.choice(("before", "after")))
        if chance.random() < 0.5:
            await answer.stream(f"Answer {number} of many. ", pause=0.0)
        await answer.end(f"Answer {number} of many. Here it ends.")
    await settled(bot)
    assert (await ann.screen()).texts == [
        f"Answer {number} of many. Here it ends." for number in range(count)
    ]


async def test_lost_replies_are_settled_in_seconds_in_a_busy_chat(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person
) -> None:
    """The clock and the limits are those of a running bot; the person writes every two seconds."""
    bot.settles = True
    bot.set_up(clock=ScaledClock(), limits=RateLimits())
    count, took, chance = by_night(150, else_=6), list[float](), Random(11)
    writing, looking = (asyncio.create_task(work) for work in (_keeps_writing(ann), _keeps_looking(bot)))
    for number in range(count):
        bot.beat()
        answer = await asked(bot, ann)
        await strict_api.fail("sendMessage", reset=chance.choice(("before", "after")))
        since = time.monotonic()
        await answer.end(f"Answer {number} of many.")
        while await bot.states(answer) != ["delivered"] and time.monotonic() - since < 60.0:
            await asyncio.sleep(0.05)
        took.append(time.monotonic() - since)
    for task in (writing, looking):
        task.cancel()
    await asyncio.wait([writing, looking])
    assert sum(seconds <= 10.0 for seconds in took) >= 0.95 * count, sorted(took)
    assert (await ann.screen()).texts == [f"Answer {number} of many." for number in range(count)]
    lives = _find_lives(await ann.views())
    assert len(lives) >= count // 2
    assert sorted(lives)[int(0.99 * (len(lives) - 1))] <= 5.0, sorted(lives)


async def _keeps_writing(ann: Person) -> None:
    while True:
        await asyncio.sleep(2.0)
        await ann.say("And another thing.")


async def _keeps_looking(bot: BotProcess) -> None:
    """The rounds of a running bot."""
    while True:
        await asyncio.sleep(1.0)
        await bot.delivery.uncertain.send_due([BOT_ID])
        await bot.recover()


def _find_lives(views: list[dict[str, Any]]) -> list[float]:
    """Return the seconds for which each notice stood in the chat."""
    shown = {view["message_id"]: view["at"] for view in views if view.get("text") in (PLACEHOLDER, UNCERTAIN)}
    ends: dict[int, float] = {}
    for view in views:
        number = view.get("message_id", 0)
        if number in shown and view.get("text") not in (PLACEHOLDER, UNCERTAIN):
            ends.setdefault(number, view["at"])
    return [ends[number] - at for number, at in shown.items()]
