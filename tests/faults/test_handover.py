"""A process dies around a hand-over: nothing is said twice, nothing is lost, nobody waits for ever."""

from __future__ import annotations

from functools import partial

import aiohttp
import pytest

from tests.faults.conftest import TEMPLATE
from tests.faults.crash_points import (
    AFTER_ASKING,
    AFTER_REPLY,
    AFTER_RETURN,
    AFTER_TAKING,
    AFTER_WORD,
    BEFORE_WORD,
)
from tests.faults.operator_browser import ON, Dashboard
from tests.faults.provided import provided_by
from tests.faults.scenes import Played, play
from tests.kit.deployment.breakable_servers import Case, Plant, Recovery
from tests.kit.deployment.forks import Hatchery
from tests.kit.deployment.person import Person
from tests.kit.deployment.processes import CRASHED
from tests.kit.deployment.telegram import SECONDS, Telegram, bot_of_its_own
from tests.kit.fakes.bot_api import BotApi
from tests.kit.fakes.messages_api.harness import RunningFake
from tests.kit.operator_driver import drive_operator

BACK = "SELECT held_after IS NULL FROM sessions"


async def test_the_web_process_dies_behind_an_operators_words_and_they_come_once(
    case: Case, recovery: Recovery
) -> None:
    jar = aiohttp.CookieJar(unsafe=True)
    async with (
        case.web(crash_point=AFTER_REPLY, **ON) as web,
        Person(case.port) as person,
        aiohttp.ClientSession(cookie_jar=jar, timeout=aiohttp.ClientTimeout(total=20)) as http,
    ):
        await person.ask("Good morning.")
        await person.command("human", "a refund")
        await person.until(lambda: any(e["t"] == "handover" for e in person.seen.values()), "the hand-over")
        operator = Dashboard(case, http)
        await operator.log_in()
        await operator.post("handover", {"action": "take"})
        told = await operator.post("replies", {"cid": "r1", "text": "Here I am."})
        assert told.get("dup") is True, "the first answer died with the process"
        recovery.note("web died behind an operator's words", web.fell_at)
        assert web.exits == [CRASHED], web.words()
        await person.until(lambda: any(m["role"] == "operator" for m in person.messages), "their words")
        await operator.post("handover", {"action": "return"})
        await person.ask("Thank you.")
        assert [m["text"] for m in person.messages if m["role"] == "operator"] == ["Here I am."]
        await case.promises_hold(person)


@pytest.mark.parametrize("point", [AFTER_TAKING, AFTER_RETURN])
async def test_crash_after_handover_lets_one_operator_answer_what_waited(
    case: Case, recovery: Recovery, point: str
) -> None:
    jar = aiohttp.CookieJar(unsafe=True)
    async with (
        case.web(crash_point=point, **ON) as web,
        Person(case.port) as person,
        aiohttp.ClientSession(cookie_jar=jar, timeout=aiohttp.ClientTimeout(total=20)) as http,
    ):
        await person.ask("Good morning.")
        operator = Dashboard(case, http)
        await operator.log_in()
        assert (await operator.post("handover", {"action": "take"}))["state"] == "human"
        said = await person.say("Is anybody there?")
        await person.until(lambda: said in person.acks, "the acknowledgement")
        assert (await operator.post("handover", {"action": "return"}))["state"] == "bot"
        await person.answered()
        recovery.note("web died behind a hand-over", web.fell_at)
        assert web.exits == [CRASHED], web.words()
        assert await case.value(
            "SELECT array_agg(action ORDER BY id) FROM audit WHERE action LIKE 'handover.%'"
        ) == ["handover.take", "handover.return"]
        await case.promises_hold(person)


async def test_crash_after_ask_human_requests_one_operator(case: Case, fake: RunningFake) -> None:
    call = {"name": "ask_human", "input": {"reason": "a refund"}}
    await fake.script([
        {"match": {"contains": "money"}, "times": 1, "action": {"tool_use": [call]}},
        {"match": {"kind": "chat"}, "times": -1, "action": {"text": "Somebody will come."}},
    ])  # fmt: skip
    more = {**provided_by(fake), **ON, "EVERTALK_HANDOVER_MINUTES": "0.15"}
    async with case.web(crash_point=AFTER_ASKING, **more) as web, Person(case.port) as person:
        await person.say("I want my money.")
        await web.crashed()
        await person.answered()
        assert web.exits == [CRASHED], web.words()
        assert await case.value("SELECT count(*) FROM handovers") == 1
        await person.ask("Nobody there?")
        assert await case.value(BACK)
        notices = [m for m in person.messages if m["role"] == "notice"]
        assert [m["error"] for m in notices] == ["handover_unanswered"]
        await case.promises_hold(person)


BROUGHT = {
    "telegram_before_send:2": (0, 1),
    "telegram_after_send:2": (1, 1),
    BEFORE_WORD: (1, 0),
    AFTER_WORD: (1, 1),
}
"""How often the operator's words are in the chat in the end, and the words that the assistant is back."""


@pytest.fixture(scope="module")
async def brought(
    request: pytest.FixtureRequest,
    api: BotApi,
    hatchery: Hatchery,
    plant: Plant,
    module_provider: RunningFake,
) -> Played:
    """Each with a bot of its own."""
    await module_provider.reset()
    await Telegram.answers_of(module_provider, {"morning": {"text": "Hello."}, "Back": {"text": "Yes."}})

    async def falls(point: str) -> None:
        async with bot_of_its_own(api, module_provider, plant, hatchery, TEMPLATE) as telegram:
            await _brings_words_and_falls(telegram, point)

    return await play(request, {point: partial(falls, point) for point in BROUGHT})


@pytest.mark.parametrize("point", BROUGHT)
async def test_the_bot_dies_while_it_brings_words_and_never_says_them_twice(
    brought: Played, point: str
) -> None:
    """What died on its way to Telegram may be in the chat, or not: it is uncertain, and not sent again."""
    brought.went_well(point)


async def _brings_words_and_falls(telegram: Telegram, point: str) -> None:
    ada = await telegram.talker()
    async with telegram.bot(crash_point=point, **ON) as bot:
        await ada.ask("Good morning.")
        async with drive_operator(telegram.case.database_url, ada.id) as operator:
            await operator.take_over()
            await operator.record_reply("Here I am.", cid="r1")
            if "word" in point:
                await ada.person.sees("Here I am.", within=SECONDS)
                await operator.release()
                await bot.crashed()
            else:
                await bot.crashed()
                await operator.release()
            assert bot.exits == [CRASHED], bot.words()
            await telegram.until("SELECT told NOT IN ('queued', 'sending') FROM handovers")
            await telegram.until(
                "SELECT NOT EXISTS (SELECT FROM deliveries WHERE state IN ('queued', 'sending', 'sent'))"
            )
        await ada.ask("Back again?")
    texts = (await ada.person.screen()).texts
    words = sum("Here I am." in text for text in texts)
    last = sum("answers here again" in text for text in texts)
    assert (words, last) == BROUGHT[point]
