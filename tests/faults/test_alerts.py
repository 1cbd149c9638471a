"""A process dies around an alert: it opens once, a webhook knows its key, no mail is sent twice by guess."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from tests.faults.conftest import TEMPLATE
from tests.faults.crash_points import ALERT_POINTS
from tests.faults.scenes import Played, case_of_its_own, play
from tests.kit.deployment.breakable_servers import Case, Plant
from tests.kit.deployment.forks import Hatchery
from tests.kit.deployment.processes import CRASHED
from tests.kit.deployment.telegram import SECONDS, Telegram, bot_of_its_own
from tests.kit.fakes.bot_api import BotApi
from tests.kit.fakes.mail_server import mail_server
from tests.kit.fakes.messages_api.harness import RunningFake
from tests.kit.fakes.webhook_receiver import receiving

SECRET = "s" * 32
SENT = ("sent", 1)
ENDS: dict[str | None, set[tuple[str, int]]] = {
    None: {SENT},
    "before_alert_opens": {SENT},
    "after_alert_opens": {SENT, ("uncertain", 0), ("uncertain", 1)},
    "before_alert_send": {("uncertain", 0)},
    "after_alert_send": {("uncertain", 1)},
}
"""What may become of a message without a key, and how often it was read. An alert is there for the sending
task as soon as it is committed: a process that dies just after may die in the middle of sending."""
OUT = """
INSERT INTO workers (role, pid, beat, health) VALUES ('worker', 1, now() + interval '1 hour',
  '{"providers": [{"provider": "api.example.org", "open": true, "refused": false}]}')
"""
"""A worker that lives for an hour and says that its provider does not answer."""
DONE = """
SELECT count(*) > 0 AND bool_and(state NOT IN ('due', 'sending')) FROM alert_sends
"""
ALERTS = "SELECT count(*) FROM alerts"


async def until(told: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS
    while not told():
        assert time.monotonic() < end
        await asyncio.sleep(0.1)


async def settled(case: Case) -> None:
    async with asyncio.timeout(SECONDS):
        while not await case.value(DONE):
            await asyncio.sleep(0.2)


@pytest.fixture(scope="module")
async def alerts_on_the_web(request: pytest.FixtureRequest, plant: Plant) -> Played:
    """Each by one way, at one point, with a database of its own."""
    ways: dict[str, Callable[[Case, str], Awaitable[None]]] = {
        "webhook": _a_webhook_takes_it_once,
        "mail": _a_mail_is_not_sent_twice,
    }

    async def falls(way: str, point: str) -> None:
        async with case_of_its_own(plant, TEMPLATE) as case:
            await ways[way](case, point)

    return await play(
        request, {(way, point): partial(falls, way, point) for way in ways for point in ALERT_POINTS}
    )


@pytest.mark.parametrize("told", [("webhook", point) for point in ALERT_POINTS], ids=ALERT_POINTS)
async def test_webhook_alert_is_sent_once_on_the_web(
    alerts_on_the_web: Played, told: tuple[str, str]
) -> None:
    alerts_on_the_web.went_well(told)


async def _a_webhook_takes_it_once(case: Case, point: str) -> None:
    await case.run(OUT)
    async with receiving(SECRET) as receiver:
        hook = {"EVERTALK_ALERT_WEBHOOK_URL": receiver.url, "EVERTALK_ALERT_WEBHOOK_SECRET": SECRET}
        async with case.web(crash_point=point, **hook) as web:
            await web.crashed()
            assert web.exits == [CRASHED], web.words()
            await settled(case)
    assert [one["alert"]["kind"] for one in receiver.taken] == ["breaker_open"]
    assert (receiver.faults, await case.value(ALERTS)) == ([], 1)
    again = {"after_alert_send": {2}, "after_alert_opens": {1, 2}}.get(point, {1})
    assert len(receiver.posts) in again
    await case.promises_hold()


@pytest.mark.parametrize("told", [("mail", point) for point in ALERT_POINTS], ids=ALERT_POINTS)
async def test_a_mail_is_never_sent_twice(alerts_on_the_web: Played, told: tuple[str, str]) -> None:
    alerts_on_the_web.went_well(told)


async def _a_mail_is_not_sent_twice(case: Case, point: str) -> None:
    await case.run(OUT)
    async with mail_server() as server:
        mail = {
            "EVERTALK_ALERT_SMTP_URL": server.url,
            "EVERTALK_ALERT_EMAIL_FROM": "bot@example.org",
            "EVERTALK_ALERT_EMAIL_TO": "anna@example.org",
        }
        async with case.web(crash_point=point, **mail) as web:
            await web.crashed()
            assert web.exits == [CRASHED], web.words()
            await settled(case)
    state = await case.value("SELECT state FROM alert_sends")
    assert (state, len(server.letters)) in ENDS[point]
    assert await case.value(ALERTS) == 1
    await case.promises_hold()


@pytest.fixture(scope="module")
async def in_a_chat(
    request: pytest.FixtureRequest,
    api: BotApi,
    hatchery: Hatchery,
    plant: Plant,
    module_provider: RunningFake,
) -> Played:
    """Each with a bot of its own."""
    await module_provider.reset()

    async def falls(point: str | None) -> None:
        async with bot_of_its_own(api, module_provider, plant, hatchery, TEMPLATE) as telegram:
            await _a_chat_reads_it_at_most_once(telegram, point)

    return await play(request, {point: partial(falls, point) for point in ENDS})


@pytest.mark.parametrize("point", ENDS)
async def test_a_chat_of_operators_reads_it_at_most_once(in_a_chat: Played, point: str | None) -> None:
    in_a_chat.went_well(point)


async def _a_chat_reads_it_at_most_once(telegram: Telegram, point: str | None) -> None:
    case, anna = telegram.case, await telegram.talker()
    async with telegram.bot(EVERTALK_ALERT_TELEGRAM_CHATS=str(anna.id)) as bot:
        await anna.person.say("/start")
        await until(lambda: bool(bot.lines))
        await anna.person.sees(lambda screen: bool(screen.texts), within=SECONDS)
    greeting = (await anna.person.screen()).texts
    await case.run(OUT)
    async with telegram.bot(crash_point=point, EVERTALK_ALERT_TELEGRAM_CHATS=str(anna.id)) as bot:
        if point is not None:
            await bot.crashed()
            assert bot.exits == [CRASHED], bot.words()
        await settled(case)
    state = await case.value("SELECT state FROM alert_sends")
    read = [text for text in (await anna.person.screen()).texts if text not in greeting]
    assert (state, len(read)) in ENDS[point]
    assert all("The model provider does not answer" in text for text in read)
    assert await case.value(ALERTS) == 1
