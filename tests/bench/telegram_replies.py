"""How soon people see something: the real bot beside a bare aiogram echo on the same fake Telegram."""

from __future__ import annotations

import asyncio
import os
import statistics
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.bench.rest import rss_mib
from tests.fakes.bot_api import BotApi, Person, RunningBotApi, running_bot_api
from tests.fakes.messages_api.harness import RunningFake, running_fake
from tests.journeys.telegram_house import Program, TelegramHouse, telegram_house

ECHO_TOKEN = "700002:FAKE-token-of-the-echoing-bot_0123456789"
ECHO_BOT = 700_002
FIRST_PERSON = 3_000
CHATS = 10
REST_SECONDS = 4.0
"""After so long a chat's limits are free again."""
REPLY_SECONDS = 20.0
STREAM_WORDS = 120
STREAM_PACE_MS = 50.0
QUESTION = "Where did we eat last summer?"
ANSWER = "You liked the Blue Heron, because of the grilled sardines and the view over the bridge at night."


async def measure(database_url: str, redis_url: str, folder: Path, *, rounds: int) -> dict[str, Any]:
    async with (
        running_bot_api() as api,
        running_fake() as model,
        _house(api, model, database_url, redis_url, folder) as house,
    ):
        await asyncio.sleep(1.0)
        at_rest = rss_mib(house.bot.pid)
        people = [await house.api.person(FIRST_PERSON + number) for number in range(CHATS)]
        await _answer_at_once(model)
        await _reply(people[0])
        after_first = rss_mib(house.bot.pid)
        found = await _replies(api, house, people, rounds)
        return {
            **found,
            **await _streamed(house, model),
            "rss_bot_mib": at_rest,
            "rss_bot_after_answer_mib": after_first,
            "rss_bot_at_end_mib": rss_mib(house.bot.pid),
        }


@asynccontextmanager
async def _house(
    api: RunningBotApi, model: RunningFake, database_url: str, redis_url: str, folder: Path
) -> AsyncIterator[TelegramHouse]:
    more = {
        "ANTHROPIC_API_KEY": "sk-ant-bench",
        "ANTHROPIC_BASE_URL": model.base_url,
        "EVERTALK_TELEGRAM_ACCESS": "open",
        "EVERTALK_CAP_TOTAL_PER_DAY_USD": "1000",
        "EVERTALK_CAP_VISITOR_PER_DAY_USD": "1000",
    }
    async with telegram_house(api, database_url, redis_url, folder, worker=False, **more) as house:
        yield house


async def _replies(
    api: BotApi, house: TelegramHouse, people: Sequence[Person], rounds: int
) -> dict[str, Any]:
    """One chat after the other, then all at once; the echo in turns with the bot."""
    await api.add_bot(ECHO_TOKEN, username="echo_test_bot")
    echo = Program(
        "tests.bench.echo_bot",
        {"PATH": os.environ["PATH"], "ECHO_TOKEN": ECHO_TOKEN, "ECHO_API_URL": api.base_url},
    )
    others = [await api.person(person.id, bot=ECHO_BOT) for person in people]
    await echo.start()
    try:
        await echo.said("echo_serves")
        for whom in (people, others):
            await asyncio.gather(*(_reply(person) for person in whom))
        single: dict[str, list[float]] = {"bot": [], "echo": []}
        many: dict[str, list[float]] = {"bot": [], "echo": []}
        cpu = 0.0
        for _ in range(rounds):
            await asyncio.sleep(REST_SECONDS)
            for person, other in zip(people, others, strict=True):
                single["echo"].append(await _reply(other))
                single["bot"].append(await _reply(person))
            await asyncio.sleep(REST_SECONDS)
            many["echo"] += await asyncio.gather(*(_reply(person) for person in others))
            before = cpu_ms(house.bot.pid)
            many["bot"] += await asyncio.gather(*(_reply(person) for person in people))
            await asyncio.sleep(1.0)
            cpu += cpu_ms(house.bot.pid) - before
    finally:
        await echo.terminate()
    one, ten = statistics.median(single["bot"]), statistics.median(many["bot"])
    floor_one, floor_ten = statistics.median(single["echo"]), statistics.median(many["echo"])
    return {
        "reply_ratio_1": round(one / floor_one, 2),
        "reply_ratio_10": round(ten / floor_ten, 2),
        "reply_ratio_10_to_1": round(ten / one, 2),
        "reply_p50_ms_1": round(one, 1),
        "reply_p50_ms_10": round(ten, 1),
        "echo_p50_ms_1": round(floor_one, 1),
        "echo_p50_ms_10": round(floor_ten, 1),
        "cpu_ms_per_turn": round(cpu / rounds / len(people), 1),
    }


async def _reply(person: Person) -> float:
    """Milliseconds from the message to the first message of the bot, by Telegram's clock."""
    sent = await person.say(QUESTION)
    version = -1
    async with asyncio.timeout(REPLY_SECONDS):
        while True:
            views = await person.views()
            said = next(view for view in views if view.get("message_id") == sent.message_id)
            first = next((view for view in views if _answers(view, sent.message_id)), None)
            if first is not None:
                return float(first["at"] - said["at"]) * 1000
            version = (await person.next_screen(version, within=1.0)).version


def _answers(view: dict[str, Any], message_id: int) -> bool:
    return bool(view["kind"] == "sent" and view.get("by") == "bot" and view["message_id"] > message_id)


async def _answer_at_once(model: RunningFake) -> None:
    await model.script([{"match": {"kind": "chat"}, "times": -1, "action": {"text": ANSWER, "pace_ms": 0}}])


async def _streamed(house: TelegramHouse, model: RunningFake) -> dict[str, Any]:
    """An answer that takes its time, as models do."""
    text = " ".join(f"word{number:03d}" for number in range(STREAM_WORDS))
    await model.script(
        [{"match": {"kind": "chat"}, "times": -1, "action": {"text": text, "pace_ms": STREAM_PACE_MS}}]
    )
    ada = await house.api.person(FIRST_PERSON - 1)
    await ada.say(QUESTION)
    screen = await ada.sees(lambda screen: any(line.text == text for line in screen.answers), within=60.0)
    await house.until(
        """SELECT bool_and(d.state = 'delivered') FROM deliveries d
             JOIN addresses a ON a.id = d.address_id WHERE a.chat = $1""",
        str(ada.id),
    )
    views = await ada.views()
    sent = [view["at"] for view in views if view["kind"] == "sent"]
    edits = [view["at"] for view in views if view["kind"] == "edited"]
    return {
        "edits_per_streamed_answer": len(edits),
        "streamed_seconds": round(edits[-1] - sent[0], 1),
        "messages_per_streamed_answer": len(screen.answers),
    }


def cpu_ms(pid: int) -> float:
    """Of this process so far; 0 where there is no /proc."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")
