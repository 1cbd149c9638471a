"""The bot falls at every place, and Telegram, Postgres and Redis with it: each message is answered once."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from random import Random

import aiohttp
import pytest

from bot.telegram.texts import get_texts
from tests.faults.conftest import TEMPLATE
from tests.faults.crash_points import BOT_LONG, BOT_NOTICES, BOT_POINTS, BOT_SHORT
from tests.faults.lengths import lasting
from tests.faults.scenes import SCENE_SECONDS
from tests.faults.slow_answers import ABORTED, SLOW_ANSWER
from tests.kit.deployment.breakable_servers import Plant, Recovery
from tests.kit.deployment.chat_view import RESEND
from tests.kit.deployment.forks import Hatchery
from tests.kit.deployment.inner_faults import CLOCK_SHIFTS
from tests.kit.deployment.processes import CRASHED, first_or_drawn, logged
from tests.kit.deployment.telegram import SECONDS, Talker, Telegram
from tests.kit.fakes.bot_api import BotApi, Screen
from tests.kit.fakes.messages_api.harness import RunningFake
from tests.kit.fakes.tcp_proxy import TcpProxy
from tests.kit.free_ports import free_port

CASES = (
    pytest.param("before_accept", marks=pytest.mark.row("F01")),
    pytest.param("after_accept", marks=pytest.mark.row("F02")),
    pytest.param("after_claim", marks=pytest.mark.row("F04")),
    pytest.param("mid_stream:3", marks=pytest.mark.row("F05")),
    pytest.param("after_model", marks=pytest.mark.row("F06")),
    pytest.param("after_answer", marks=pytest.mark.row("F07")),
    "after_delivered",
    pytest.param("telegram_after_store", marks=pytest.mark.row("F02")),
    pytest.param("telegram_before_bubble", marks=pytest.mark.row("F08")),
    pytest.param("telegram_after_bubble", marks=pytest.mark.row("F09")),
    pytest.param("telegram_before_edit", marks=pytest.mark.row("F10")),
    pytest.param("telegram_after_edit", marks=pytest.mark.row("F11")),
    pytest.param("telegram_before_send", marks=pytest.mark.row("F08")),
    pytest.param("telegram_after_send", marks=pytest.mark.row("F08")),
    *(pytest.param(point, marks=pytest.mark.row("F08")) for point in BOT_NOTICES),
    "telegram_after_part",
    "telegram_after_part:2",
)
AT_ONCE = 12
AT_MOST_MORE = 8
LONG_ANSWER = "\n\n".join(
    f"Paragraph {number}. {'One word follows another here. ' * 40}" for number in range(8)
)
MINUTE = " ".join(f"step{number}" for number in range(400))
ANSWERS: dict[str, dict[str, object]] = {
    "for a minute": {"text": MINUTE, "pace_ms": 400, "times": 1},
    "briefly": {"text": "Yes."},
    "few words": {"text": "It is called Njord, and it runs past the hill and on to the sea.", "pace_ms": 200},
    "length": {"text": LONG_ANSWER},
    "slowly": {"text": SLOW_ANSWER, "pace_ms": 150},
    "leisurely": {"text": SLOW_ANSWER, "pace_ms": 500},
}
UNCERTAIN = get_texts("en").say("uncertain")
TOLD_SECONDS = 5.0
GONE_SECONDS = 30.0
SECONDS_TO_END = 15.0
"""Ten are promised; the rest is for a machine that has other things to do."""


@pytest.fixture
async def telegram(
    api: BotApi, hatchery: Hatchery, plant: Plant, fake: RunningFake
) -> AsyncIterator[Telegram]:
    """A fresh database, and a Telegram without people."""
    await api.reset()
    case = await plant.case(TEMPLATE)
    await Telegram.answers_of(fake, ANSWERS)
    yield Telegram(api=api, provider=fake, case=case, hatchery=hatchery)
    await plant.drop(case.database)


# -- the process falls ------------------------------------------------------------------------------------


Scene = Callable[[Telegram, Recovery], Awaitable[None]]


async def killed_with_a_hundred_updates(telegram: Telegram, recovery: Recovery) -> None:
    people = [await telegram.talker() for _ in range(20)]
    for number in range(5):
        for talker in people:
            await talker.say(f"This is number {number} of what I say.")
    async with telegram.bot() as bot:
        await telegram.called("getUpdates", status=200)
        bot.kill()
        await bot.crashed()
        await telegram.rests()
        recovery.note("100 updates in 20 chats, bot killed", bot.fell_at)
        await telegram.promises_hold(strays=len(people))


async def asked_to_end_in_mid_answer(telegram: Telegram, recovery: Recovery) -> None:
    ada = await telegram.talker()
    async with telegram.bot() as bot:
        await ada.say("Tell me slowly of the sea.")
        await ada.person.sees("word3", within=SECONDS)
        since = time.monotonic()
        bot.send(signal.SIGTERM)
        await bot.crashed(within_seconds=SECONDS_TO_END)
        recovery.note("bot ended in mid-answer", since)
        assert bot.exits == [0], bot.words()
        await telegram.promises_hold()
    assert (await ada.person.screen()).texts == [SLOW_ANSWER]


async def asked_to_end_in_an_answer_of_a_minute(telegram: Telegram, recovery: Recovery) -> None:
    ada = await telegram.talker()
    async with telegram.bot() as bot:
        await ada.say("Walk with me for a minute.")
        await ada.person.sees("step3", within=SECONDS)
        since = time.monotonic()
        bot.send(signal.SIGTERM)
        await bot.crashed(within_seconds=GONE_SECONDS)
        recovery.note("bot ended in an answer of a minute", since)
        assert bot.exits == [0], bot.words()
        await telegram.promises_hold()
    screen = await ada.person.screen()
    assert len(screen.texts) == 1
    assert "step" not in screen.texts[0], "the answer that was handed over is in its place"


async def killed_in_mid_stream(telegram: Telegram, recovery: Recovery) -> None:
    ada = await telegram.talker()
    async with telegram.bot() as bot:
        await ada.say("Tell me leisurely of the sea.")
        await ada.person.sees(lambda screen: any(line.edited for line in screen.answers), within=SECONDS)
        bot.kill()
        await bot.crashed()
        await telegram.promises_hold()
        recovery.note("bot killed in mid-stream", bot.fell_at)
    screen = await ada.person.screen()
    assert screen.texts == [SLOW_ANSWER]
    assert screen.notifications == 1
    assert await telegram.case.value(ABORTED) == 1


async def told_to_wait_twice_and_restarted_meanwhile(telegram: Telegram, recovery: Recovery) -> None:
    ada = await telegram.talker()
    await telegram.api.fail("sendMessage", times=2, match={"chat": ada.id}, status=429, retry_after=4)
    async with telegram.bot() as bot:
        await ada.say("Answer me briefly, will you?")
        await telegram.called("sendMessage", status=429)
        bot.send(signal.SIGTERM)
        await bot.crashed(within_seconds=SECONDS_TO_END)
        await telegram.promises_hold()
        recovery.note("429 twice, bot restarted meanwhile", bot.fell_at)
        assert len(await telegram.called("sendMessage", status=429)) == 2
    assert (await ada.person.screen()).texts == ["Yes."]


async def an_acknowledgement_was_lost(telegram: Telegram, recovery: Recovery) -> None:
    ada = await telegram.talker()
    await telegram.api.fail("sendMessage", match={"chat": ada.id}, reset="after")
    async with telegram.bot():
        await ada.ask("Answer me briefly, will you?")
        await telegram.promises_hold()
        assert (await ada.person.screen()).texts == ["Yes."]
        assert await telegram.case.value("SELECT state FROM deliveries") == "delivered"
        await ada.say("And again briefly, please.")
        await telegram.promises_hold()
    assert (await ada.person.screen()).texts == ["Yes.", "Yes."]
    assert telegram.presses == 0, "nobody has to ask for what is there"


async def an_answer_is_searched_for_in_vain(telegram: Telegram, recovery: Recovery) -> None:
    """Telegram does not say whether it is there: its person is told, and a quote of it settles that."""
    ada = await telegram.talker()
    await telegram.api.fail("sendMessage", match={"chat": ada.id}, reset="after")
    await _never_searched(telegram, ada)
    async with telegram.bot():
        await ada.ask("Answer me briefly, will you?")
        await ada.person.sees(UNCERTAIN, within=SECONDS)
        await telegram.promises_hold()
        assert (await ada.person.screen()).texts == ["Yes.", UNCERTAIN]
        assert await telegram.case.value("SELECT state FROM deliveries") == "uncertain"
        (first, *_) = (await ada.person.screen()).answers
        await ada.say("What do you mean by that? Tell me briefly.", reply_to=first.message_id)
        await ada.person.sees(_has_no_notice, within=SECONDS)
        await telegram.promises_hold()
    assert (await ada.person.screen()).texts == ["Yes.", "Yes."]
    assert telegram.presses == 0


async def _never_searched(telegram: Telegram, talker: Talker) -> None:
    """Telegram answers no search in this chat: the person is asked, where there is a number to ask for."""
    await telegram.api.fail("stopMessageLiveLocation", times=-1, match={"chat": talker.id}, status=500)


async def _leave_a_gap(telegram: Telegram, talker: Talker) -> None:
    """A message came and went that no row names: its number has to be asked for."""
    url, form = f"{telegram.api.base_url}/bot{telegram.token}", aiohttp.FormData()
    form.add_field("chat_id", str(talker.id))
    form.add_field("document", b"gone", filename="gone.txt")
    async with aiohttp.ClientSession() as http:
        async with http.post(f"{url}/sendDocument", data=form) as sent:
            message_id = (await sent.json())["result"]["message_id"]
        await http.post(f"{url}/deleteMessage", json={"chat_id": talker.id, "message_id": message_id})


async def an_answer_was_cut_off(telegram: Telegram, recovery: Recovery) -> None:
    """Before Telegram had it: within five seconds its person knows, and two presses bring it once."""
    ada = await telegram.talker()
    await telegram.api.fail("sendMessage", match={"chat": ada.id}, reset="before")
    await _never_searched(telegram, ada)
    async with telegram.bot() as one, telegram.bot():
        await telegram.serves(one)
        await ada.say("Answer me briefly, will you?")
        await _leave_a_gap(telegram, ada)
        await ada.person.sees(UNCERTAIN, within=SECONDS)
        calls = await telegram.api.calls("sendMessage", bot=telegram.bot_id)
        lost, told = [call["at"] for call in calls]
        assert told - lost <= TOLD_SECONDS
        await ada.say("And again briefly, please.")
        await telegram.rests()
        await asyncio.gather(ada.person.tap(RESEND), ada.person.tap(RESEND))
        await ada.person.sees(_has_no_notice, within=SECONDS)
        await telegram.until("SELECT count(*) = 0 FROM telegram_updates WHERE handled_at IS NULL")
        await telegram.promises_hold()
    assert (await ada.person.screen()).texts == ["Yes.", "Yes."]


async def an_answer_and_its_notice_were_cut_off(telegram: Telegram, recovery: Recovery) -> None:
    """Nobody knows of either; the notice comes again, and in the end the answer takes its place."""
    ada = await telegram.talker()
    await telegram.api.fail("sendMessage", times=3, match={"chat": ada.id}, reset="before")
    async with telegram.bot():
        await ada.say("Answer me briefly, will you?")
        await ada.person.sees("Yes.", within=SECONDS)
        await telegram.promises_hold()
    assert (await ada.person.screen()).texts == ["Yes."]
    assert telegram.presses == 0


def _has_no_notice(screen: Screen) -> bool:
    return UNCERTAIN not in screen.texts


async def every_update_came_five_times(telegram: Telegram, recovery: Recovery) -> None:
    await _came_five_times(telegram, {})


async def every_post_came_five_times_at_once(telegram: Telegram, recovery: Recovery) -> None:
    await _came_five_times(telegram, telegram.posted_to())


async def _came_five_times(telegram: Telegram, settings: dict[str, str]) -> None:
    ada = await telegram.talker()
    async with telegram.bot(**settings) as bot:
        await telegram.serves(bot)
        if settings:
            await telegram.says(bot, "webhook_set")
        await telegram.api.duplicate_updates(3, repeats=4, copies=5, bot=telegram.bot_id)
        for number in range(3):
            await ada.say(f"I say number {number} only once.")
        await telegram.promises_hold()
        assert await telegram.case.value("SELECT count(*) FROM telegram_updates") == 3


async def every_post_came_five_times_to_two_processes(telegram: Telegram, recovery: Recovery) -> None:
    ada = await telegram.talker()
    settings = telegram.posted_to()
    ports = [int(settings["EVERTALK_TELEGRAM_PORT"]), free_port()]
    here = [("127.0.0.1", port) for port in ports]
    async with TcpProxy(upstream=here[0], others=here[1:]) as door:
        settings["EVERTALK_PUBLIC_URL"] = f"http://127.0.0.1:{door.port}"
        async with (
            telegram.bot(**settings) as one,
            telegram.bot(**{**settings, "EVERTALK_TELEGRAM_PORT": str(ports[1])}),
        ):
            await telegram.says(one, "webhook_set")
            await telegram.api.duplicate_updates(5, repeats=2, copies=5, bot=telegram.bot_id)
            for number in range(5):
                await ada.say(f"I say number {number} only once.")
            await telegram.promises_hold()
            assert await telegram.case.value("SELECT count(*) FROM telegram_updates") == 5
            assert set((await telegram.api.bot(telegram.bot_id))["posts"]) == {"200"}
            assert door.connections >= 2, "both were posted to"


async def posted_to_in_the_wrong_order(telegram: Telegram, recovery: Recovery) -> None:
    """What comes first is read first: nobody waits for a number that may never come."""
    ada = await telegram.talker()
    async with telegram.bot(**telegram.posted_to()) as bot:
        await telegram.says(bot, "webhook_set")
        await telegram.api.reorder_updates(3, bot=telegram.bot_id)
        for number in range(3):
            await ada.say(f"This is number {number} of what I say.")
        ada.said.reverse()
        await telegram.promises_hold()


async def twenty_messages_in_an_answer(telegram: Telegram, recovery: Recovery) -> None:
    ada = await telegram.talker()
    async with telegram.bot():
        await ada.say("Tell me slowly of the sea.")
        await ada.person.sees("word3", within=SECONDS)
        for number in range(20):
            await ada.say(f"This is number {number} of what I say meanwhile.")
        await telegram.promises_hold()
        doubled = "SELECT count(*) - count(DISTINCT seq) FROM turn_entries"
        assert await telegram.case.value(doubled) == 0


async def its_clock_jumped_with_a_paste_in_its_lanes(telegram: Telegram, recovery: Recovery) -> None:
    """An hour back, an hour ahead, and right again: what waits for the rest of a paste waits no longer."""
    ada = await telegram.talker()
    async with telegram.bot(**{CLOCK_SHIFTS: "-3600,3600,0"}) as bot:
        await telegram.serves(bot)
        for number in range(3):
            await ada.say(f"Paste {number}: " + "x" * 4087)
            await telegram.until("SELECT count(*) > $1 FROM telegram_updates", number)
            bot.send(signal.SIGUSR1)
            await telegram.says(bot, "clock_jumped", times=number + 1)
            await ada.person.sees(partial(_has_answers, number + 1), within=SCENE_SECONDS)
        assert await telegram.case.value("SELECT max(attempt) FROM turns") == 1
        assert not logged([bot], "lease_lost")
        await telegram.promises_hold()


def _has_answers(number: int, screen: Screen) -> bool:
    return len(screen.answers) >= number


async def posted_to_when_it_died(telegram: Telegram, recovery: Recovery) -> None:
    """The update was stored, and Telegram never heard so: it comes again."""
    ada, bob = await telegram.talker(), await telegram.talker()
    settings = telegram.posted_to()
    async with telegram.bot(crash_point="telegram_after_store", **settings) as bot:
        await telegram.serves(bot)
        await telegram.says(bot, "webhook_set")
        await ada.say("I live by the river.")
        await bot.crashed()
        await bob.say("I live on the hill.")
        await ada.say("And I have a boat there.")
        await telegram.rests()
        recovery.note("webhook: bot died after it had stored", bot.fell_at)
        await telegram.promises_hold()


async def two_bots_at_once(telegram: Telegram, recovery: Recovery) -> None:
    ada = await telegram.talker()
    async with telegram.bot() as one:
        await telegram.serves(one)
        async with telegram.bot() as other:
            await ada.ask("I live by the river.")
            await asyncio.sleep(1.5)
            assert logged([other], "bot_serves") == 0, "it stands by"
            await one.kill_for_good()
            await ada.say("And I have a boat there.")
            await telegram.serves(other)
            recovery.note("another bot took over", one.fell_at)
            await telegram.promises_hold()
            assert logged([other], "polling_rejected") == 0
    assert other.exits == []


async def put_to_sleep_with_a_paste_in_its_lanes(telegram: Telegram, recovery: Recovery) -> None:
    """What it holds as two messages was one for its successor; when it wakes, it hands on nothing of it."""
    ada = await telegram.talker()
    async with telegram.bot() as one:
        await telegram.serves(one)
        await ada.ask("I live by the river.")
        async with telegram.bot() as other, telegram.sessions_locked() as held_up:
            await ada.say("x" * 4096)
            await held_up.waits()
            await ada.say("And this is the end of it.")
            await telegram.until("SELECT count(*) = 2 FROM telegram_updates WHERE handled_at IS NULL")
            await asyncio.sleep(0.5)
            one.send(signal.SIGSTOP)
            since = time.monotonic()
            await held_up.break_off()
            await telegram.serves(other)
            await telegram.rests()
            recovery.note("another bot took over from one asleep", since)
            turns = await telegram.case.value("SELECT count(*) FROM turns")
            one.send(signal.SIGCONT)
            await telegram.says(one, "lease_lost")
            await ada.ask("And I have a boat there.")
            await asyncio.sleep(1.0)
            await telegram.promises_hold()
            assert await telegram.case.value("SELECT count(*) FROM turns") == turns + 1
            assert one.exits == other.exits == []


SCENES: tuple[Scene, ...] = (
    killed_with_a_hundred_updates,
    asked_to_end_in_mid_answer,
    asked_to_end_in_an_answer_of_a_minute,
    killed_in_mid_stream,
    told_to_wait_twice_and_restarted_meanwhile,
    an_acknowledgement_was_lost,
    an_answer_is_searched_for_in_vain,
    an_answer_was_cut_off,
    an_answer_and_its_notice_were_cut_off,
    every_update_came_five_times,
    every_post_came_five_times_at_once,
    every_post_came_five_times_to_two_processes,
    posted_to_in_the_wrong_order,
    its_clock_jumped_with_a_paste_in_its_lanes,
    twenty_messages_in_an_answer,
    posted_to_when_it_died,
    two_bots_at_once,
    put_to_sleep_with_a_paste_in_its_lanes,
)

PLAYED = (
    "killed_with_a_hundred_updates",
    "asked_to_end_in_mid_answer",
    pytest.param("asked_to_end_in_an_answer_of_a_minute", marks=pytest.mark.row("F18")),
    "killed_in_mid_stream",
    pytest.param("told_to_wait_twice_and_restarted_meanwhile", marks=pytest.mark.row("F50")),
    pytest.param("an_acknowledgement_was_lost", marks=pytest.mark.row("F50")),
    pytest.param("an_answer_is_searched_for_in_vain", marks=pytest.mark.row("F50")),
    pytest.param("an_answer_was_cut_off", marks=pytest.mark.row("F50")),
    pytest.param("an_answer_and_its_notice_were_cut_off", marks=pytest.mark.row("F50")),
    pytest.param("every_update_came_five_times", marks=pytest.mark.row("F23")),
    pytest.param("every_post_came_five_times_at_once", marks=pytest.mark.row("F23")),
    pytest.param("every_post_came_five_times_to_two_processes", marks=pytest.mark.row("F23")),
    pytest.param("its_clock_jumped_with_a_paste_in_its_lanes", marks=pytest.mark.row("F21")),
    pytest.param("twenty_messages_in_an_answer", marks=pytest.mark.row("F25")),
    pytest.param("posted_to_when_it_died", marks=pytest.mark.row("F02")),
    pytest.param("two_bots_at_once", marks=pytest.mark.row("F22")),
    pytest.param("put_to_sleep_with_a_paste_in_its_lanes", marks=pytest.mark.row("F19")),
    pytest.param("posted_to_in_the_wrong_order", marks=pytest.mark.row("F24")),
)


async def _fallen(telegram: Telegram, point: str, recovery: Recovery, seed: int = 1) -> None:
    """People write to a bot that meets its crash point, and go on writing."""
    crash_point = first_or_drawn(point, seed, most=3)
    ada, bob = await telegram.talker(), await telegram.talker()
    how = "briefly" if point in BOT_SHORT else "at length" if point in BOT_LONG else "in a few words"
    async with telegram.bot(crash_point=crash_point) as bot:
        await ada.say(f"Tell me {how} of the river that I live by.")
        await ada.say("And then of the hill above it.")
        for number in range(0 if seed == 1 else AT_MOST_MORE):
            await asyncio.sleep(Random(f"{seed} {point} {number}").uniform(0.2, 2.5))
            if bot.exits:
                break
            await ada.say(f"Tell me {how} of house number {number} at that river.")
        await bot.crashed()
        await bob.say("I have a garden with seven apple trees in it.")
        await telegram.rests()
        recovery.note(f"bot died at {crash_point}", bot.fell_at)
        assert bot.exits == [CRASHED], bot.words()
        await ada.ask("What do I live by?")
        await telegram.promises_hold(strays=point == "telegram_after_bubble")
    if point.startswith("mid_stream"):
        assert await telegram.case.value(ABORTED) == 1
    uncertain = await telegram.case.value("SELECT count(*) FROM deliveries WHERE state = 'uncertain'")
    assert (uncertain, telegram.presses) == (0, 0), "what was on its way is found, or sent again"


async def _fallen_with_a_notice(telegram: Telegram, point: str, recovery: Recovery) -> None:
    """An answer is cut off; the bot dies while it tells so, or when it has heard that it is wanted."""
    ada = await telegram.talker()
    await telegram.api.fail("sendMessage", match={"chat": ada.id}, reset="before")
    if point == "telegram_after_press":
        await _never_searched(telegram, ada)
    async with telegram.bot(crash_point=point) as bot:
        await ada.say("Answer me briefly, will you?")
        if point == "telegram_after_press":
            await _leave_a_gap(telegram, ada)
            await ada.person.sees(UNCERTAIN, within=SECONDS)
            await ada.person.tap(RESEND)
        await bot.crashed()
        await ada.say("And again briefly, please.")
        await telegram.rests()
        recovery.note(f"bot died at {point}", bot.fell_at)
        assert bot.exits == [CRASHED], bot.words()
        await telegram.promises_hold()
    assert (await ada.person.screen()).texts == ["Yes.", "Yes."], "a second notice goes with the first"
    assert telegram.presses == 0


Verdicts = dict[str, BaseException | None]


@pytest.fixture(scope="module")
async def verdicts(
    request: pytest.FixtureRequest,
    api: BotApi,
    hatchery: Hatchery,
    plant: Plant,
    module_provider: RunningFake,
    recovery: Recovery,
    seed: int,
) -> Verdicts:
    """Each with a bot and a database of its own, some at the same time: mostly they wait for leases."""
    gate = asyncio.Semaphore(AT_ONCE)
    await module_provider.reset()
    await Telegram.answers_of(module_provider, ANSWERS)

    async def verdict(number: int, scene: Scene) -> BaseException | None:
        token = f"{710_000 + number}:FAKE-token-of-a-bot-that-is-to-fall_{number:05d}"
        async with gate:
            await api.add_bot(token, username=f"falling_{number}_bot")
            case = await plant.case(TEMPLATE)
            made = Telegram(api=api, provider=module_provider, case=case, hatchery=hatchery, token=token)
            try:
                async with asyncio.timeout(SCENE_SECONDS):
                    await scene(made, recovery)
            except BaseException as error:
                return error
            finally:
                await plant.drop(case.database)
        return None

    def at(point: str) -> Scene:
        return lambda telegram, recovery: _fallen(telegram, point, recovery, seed)

    def told(point: str) -> Scene:
        return lambda telegram, recovery: _fallen_with_a_notice(telegram, point, recovery)

    known = {scene.__name__: scene for scene in SCENES} | {point: at(point) for point in BOT_POINTS}
    known |= {point: told(point) for point in BOT_NOTICES}
    wanted = {value for item in request.session.items for value in _values(item)}
    scenes = {name: scene for name, scene in known.items() if name in wanted}
    found = await asyncio.gather(*(verdict(*one) for one in enumerate(scenes.values())))
    return dict(zip(scenes, found, strict=True))


def _values(item: pytest.Item) -> list[object]:
    """Of the parameters of a test of this file: nobody plays what nobody asked for."""
    if item.path != Path(__file__):
        return []
    return list(item.callspec.params.values()) if hasattr(item, "callspec") else []


@pytest.mark.parametrize("point", CASES)
async def test_bot_crash_leaves_no_message_unanswered(verdicts: Verdicts, point: str) -> None:
    if (error := verdicts[point]) is not None:
        raise error


@pytest.mark.parametrize("scene", PLAYED)
async def test_nothing_is_lost_or_doubled_when(verdicts: Verdicts, scene: str) -> None:
    if (error := verdicts[scene]) is not None:
        raise error


# -- the servers fall -------------------------------------------------------------------------------------


@pytest.mark.row("F27", "F28")
async def test_postgres_falls_while_people_write(
    telegram: Telegram, plant: Plant, recovery: Recovery
) -> None:
    """To a bot that polls and to one that is posted to: Telegram keeps what cannot be stored."""
    posted = await _second(telegram, plant)
    settings = posted.posted_to()
    people = [await telegram.talker(), await telegram.talker(), await posted.talker(), await posted.talker()]
    async with telegram.bot() as polls, posted.bot(**settings) as is_posted_to:
        await telegram.serves(polls)
        await posted.says(is_posted_to, "webhook_set")
        await asyncio.gather(*(one.say("Before it fell I lived by the river.") for one in people))
        # What is answered with 200 from here on came while it was away.
        before = await posted.answered_at_least("200", times=2)
        await plant.crash_postgres()
        for number in range(3):
            await asyncio.gather(*(one.say(f"Number {number} of what I say meanwhile.") for one in people))
            await asyncio.sleep(0.5)
        await asyncio.sleep(lasting(0.0, 58.0))
        meanwhile = await posted.answered_at_least("503", times=1)
        await plant.start_postgres()
        since = time.monotonic()
        await asyncio.gather(*(one.say("And after it came back.") for one in people))
        await asyncio.gather(telegram.rests(), posted.rests())
        recovery.note("Telegram answered after Postgres fell", since)
        await telegram.promises_hold()
        await posted.promises_hold()
        assert meanwhile.get("200") == before.get("200"), "what was not stored was acknowledged"
        posts = (await telegram.api.bot(posted.bot_id))["webhook"]
        assert polls.exits == is_posted_to.exits == [], polls.words() + is_posted_to.words()
    assert posts is not None
    answers = (await telegram.api.bot(posted.bot_id))["posts"]
    assert set(answers) == {"200", "503"}, answers
    await plant.drop(posted.case.database)


@pytest.mark.row("F50")
async def test_postgres_is_away_when_a_button_is_pressed(telegram: Telegram, plant: Plant) -> None:
    """The press waits with Telegram, like any word."""
    ada = await telegram.talker()
    await telegram.api.fail("sendMessage", match={"chat": ada.id}, reset="before")
    await _never_searched(telegram, ada)
    async with telegram.bot() as bot:
        await ada.say("Answer me briefly, will you?")
        await _leave_a_gap(telegram, ada)
        await ada.person.sees(UNCERTAIN, within=SECONDS)
        await telegram.rests()
        await plant.crash_postgres()
        await ada.person.tap(RESEND)
        await asyncio.sleep(1.0)
        assert (await ada.person.screen()).texts == [UNCERTAIN]
        await plant.start_postgres()
        await ada.person.sees("Yes.", within=SECONDS)
        await telegram.promises_hold()
        assert bot.exits == [], bot.words()
    assert (await ada.person.screen()).texts == ["Yes."]
    assert telegram.presses == 0, "one press was enough"


@pytest.mark.row("F35")
async def test_redis_and_telegram_are_away_for_a_while(
    telegram: Telegram, plant: Plant, recovery: Recovery
) -> None:
    ada, bob = await telegram.talker(), await telegram.talker()
    async with telegram.bot() as bot:
        await telegram.serves(bot)
        await plant.kill_redis(emptied=True)
        await ada.ask("I live by the river.")
        await ada.say("Tell me slowly of the sea.")
        await ada.person.sees("word3", within=SECONDS)
        await telegram.api.refuse_connections()
        await bob.say("I live on the hill.")
        await telegram.until("SELECT count(*) = 2 FROM turns WHERE ended_at IS NOT NULL")
        await asyncio.sleep(1.5)
        await telegram.api.accept_connections()
        since = time.monotonic()
        await plant.start_redis()
        await telegram.promises_hold()
        recovery.note("all brought after Telegram was away", since)
        assert bot.exits == [], bot.words()
    assert SLOW_ANSWER in (await ada.person.screen()).texts


async def _second(telegram: Telegram, plant: Plant) -> Telegram:
    token = "720001:FAKE-token-of-the-bot-that-is-posted-to_0123"
    await telegram.api.add_bot(token, username="posted_to_bot")
    return Telegram(
        api=telegram.api, provider=telegram.provider, case=await plant.case(TEMPLATE),
        hatchery=telegram.hatchery, token=token,
    )  # fmt: skip


async def test_edit_whose_process_died_is_made_once(telegram: Telegram, recovery: Recovery) -> None:
    ada = await telegram.talker()
    async with telegram.bot(crash_point="after_reword") as bot:
        said = await ada.person.say("My flight leaves on the 12th.")
        ada.said.append("My flight leaves on the 12th.")
        await telegram.rests()
        await ada.person.edit(said.message_id, "My flight leaves on the 14th.")
        await bot.crashed()
        await ada.person.sees("Shall I answer again?", within=SECONDS)
        recovery.note("bot died behind an edit", bot.fell_at)
        assert bot.exits == [CRASHED], bot.words()
        assert await telegram.case.value("SELECT count(*) FROM entries WHERE replaces_seq IS NOT NULL") == 1
        await telegram.promises_hold(strays=1)


@pytest.mark.row("F50")
async def test_edit_while_postgres_is_away_is_read_later(telegram: Telegram, plant: Plant) -> None:
    ada = await telegram.talker()
    async with telegram.bot() as bot:
        said = await ada.person.say("My flight leaves on the 12th.")
        ada.said.append("My flight leaves on the 12th.")
        await telegram.rests()
        await plant.crash_postgres()
        await ada.person.edit(said.message_id, "My flight leaves on the 14th.")
        await asyncio.sleep(1.0)
        await plant.start_postgres()
        await ada.person.sees("Shall I answer again?", within=SECONDS)
        newest = "SELECT blocks::text FROM entries WHERE replaces_seq IS NOT NULL"
        assert "14th" in await telegram.case.value(newest)
        await telegram.promises_hold(strays=1)
        assert bot.exits == [], bot.words()


async def test_edit_that_arrives_before_its_message_is_answered_once(telegram: Telegram) -> None:
    ada = await telegram.talker()
    async with telegram.bot(**telegram.posted_to()) as bot:
        await telegram.says(bot, "webhook_set")
        await telegram.api.reorder_updates(2, bot=telegram.bot_id)
        said = await ada.person.say("My flight leaves on the 12th.")
        await ada.person.edit(said.message_id, "My flight leaves on the 14th.")
        ada.said.append("My flight leaves on the 14th.")
        await telegram.promises_hold()
        assert await telegram.case.value("SELECT count(*) FROM entries WHERE author = 'person'") == 1
        held = "SELECT blocks::text FROM entries WHERE author = 'person'"
        assert "14th" in await telegram.case.value(held)
