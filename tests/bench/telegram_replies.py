"""How soon people see their answer: the real bot beside bare aiogram bots on the same fake Telegram.

Both floors are measured as the bot is, by the same people: `echo` says at once what it hears; `storing` has
the commits of a turn, asks the same model, and does nothing else.
"""

from __future__ import annotations

import asyncio
import os
import statistics
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from shared.adapters.postgres.db.urls import build_driver_url
from tests.bench.rest import rss_mib
from tests.kit.fakes.bot_api import TOKEN, Person, RunningBotApi, running_bot_api
from tests.kit.fakes.messages_api.harness import RunningFake, running_fake
from tests.kit.telegram.bot_process import Program, TelegramHouse, telegram_house

ECHO_TOKEN = "700002:FAKE-token-of-the-echoing-bot_0123456789"
STORING_TOKEN = "700003:FAKE-token-of-the-storing-echo-bot_012345678"
FIRST_PERSON = 3_000
CROWD_PERSON = 3_100
CHATS = 10
CROWD = 50
"""Chats that ask at once while Telegram's limits are enforced: 30 messages a second for each bot."""
REST_SECONDS = 4.0
"""After so long a chat's limits are free again."""
BETWEEN_SECONDS = 1.5
"""The bot takes the buttons above away in the meantime: nobody else is measured in it."""
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
        await _reply(people[0], ANSWER)
        after_first = rss_mib(house.bot.pid)
        bot = Measured(name="bot", pid=house.bot.pid, people=people, answer=ANSWER)
        async with _floors(api, model, database_url, len(people)) as floors:
            found = await _replies((bot, *floors), rounds)
            found |= await _crowded(api, bot, floors[1])
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
        "EVERTALK_TELEGRAM_DRAFTS": "false",  # edits are counted
        "EVERTALK_CAP_TOTAL_PER_DAY_USD": "1000",
        "EVERTALK_CAP_VISITOR_PER_DAY_USD": "1000",
    }
    async with telegram_house(
        api, database_url, redis_url, folder, worker=False, program=Program, **more
    ) as house:
        yield house


@dataclass(slots=True, kw_only=True)
class Measured:
    """One bot, who talks to it, and their milliseconds to the first words and to the whole answer."""

    name: str
    pid: int
    cpu_ms: float = 0.0
    people: Sequence[Person]
    answer: str
    single: list[tuple[float, float]] = field(default_factory=list)
    many: list[tuple[float, float]] = field(default_factory=list)

    def p50(self, waits: Sequence[tuple[float, float]], which: int = 1) -> float:
        return statistics.median(wait[which] for wait in waits)

    async def all_at_once(self) -> list[tuple[float, float]]:
        return await asyncio.gather(*(_reply(person, self.answer) for person in self.people))


@asynccontextmanager
async def _floors(
    api: RunningBotApi, model: RunningFake, database_url: str, chats: int
) -> AsyncIterator[tuple[Measured, ...]]:
    more = {"ECHO_DATABASE_URL": build_driver_url(database_url), "ECHO_MODEL_URL": model.base_url}
    async with AsyncExitStack() as stack:
        floors = []
        for name, token, module, answer in (
            ("echo", ECHO_TOKEN, "tests.bench.echo_bot", QUESTION),
            ("storing", STORING_TOKEN, "tests.bench.storing_echo", ANSWER),
        ):
            await api.add_bot(token, username=f"{name}_test_bot")
            program = Program(
                module,
                {"PATH": os.environ["PATH"], "ECHO_TOKEN": token, "ECHO_API_URL": api.base_url, **more},
            )
            await program.start()
            stack.push_async_callback(program.terminate)
            bot_id = int(token.partition(":")[0])
            people = [await api.person(FIRST_PERSON + number, bot=bot_id) for number in range(chats)]
            await program.said("echo_serves")
            floors.append(Measured(name=name, pid=program.pid, people=people, answer=answer))
        yield tuple(floors)


async def _replies(bots: Sequence[Measured], rounds: int) -> dict[str, Any]:
    """One chat after the other, then all at once; the bots take turns."""
    for bot in bots:
        await bot.all_at_once()
    for _ in range(rounds):
        await asyncio.sleep(REST_SECONDS)
        for number in range(CHATS):
            for bot in bots:
                bot.single.append(await _reply(bot.people[number], bot.answer))
        await asyncio.sleep(REST_SECONDS)
        for bot in bots:
            before = cpu_ms(bot.pid)
            bot.many += await bot.all_at_once()
            await asyncio.sleep(BETWEEN_SECONDS)
            bot.cpu_ms += (cpu_ms(bot.pid) - before) / rounds / CHATS
    return _told({bot.name: bot for bot in bots})


async def _crowded(api: RunningBotApi, bot: Measured, storing: Measured) -> dict[str, Any]:
    """Return waits of fifty chats at once, of the bot and of the one that stores, under enforced limits."""
    found: dict[str, Any] = {}
    await api.set_limits()
    for measured in (bot, storing):
        bot_id = int((TOKEN if measured is bot else STORING_TOKEN).partition(":")[0])
        people = [await api.person(CROWD_PERSON + number, bot=bot_id) for number in range(CROWD)]
        crowd = replace(measured, people=people)
        await crowd.all_at_once()  # opens their chats
        await asyncio.sleep(REST_SECONDS)
        waits = await crowd.all_at_once()
        found[measured.name] = measured.p50(waits), max(wait for _, wait in waits)
    await api.set_limits(on=False)
    return {
        f"reply_ratio_{CROWD}_to_storing": round(found["bot"][0] / found["storing"][0], 2),
        f"slowest_ratio_{CROWD}_to_storing": round(found["bot"][1] / found["storing"][1], 2),
        f"reply_p50_ms_{CROWD}": round(found["bot"][0], 1),
        f"storing_p50_ms_{CROWD}": round(found["storing"][0], 1),
        f"slowest_ms_{CROWD}": round(found["bot"][1], 1),
        f"storing_slowest_ms_{CROWD}": round(found["storing"][1], 1),
    }


def _told(bots: Mapping[str, Measured]) -> dict[str, Any]:
    """`reply` is the whole answer; `min_seconds` the first of it that is seen."""
    bot = bots["bot"]
    told: dict[str, Any] = {"reply_ratio_10_to_1": round(bot.p50(bot.many) / bot.p50(bot.single), 2)}
    for chats, waits in ((1, "single"), (CHATS, "many")):
        whole = {name: each.p50(getattr(each, waits)) for name, each in bots.items()}
        told |= {
            f"reply_ratio_{chats}": round(whole["bot"] / whole["echo"], 2),
            f"reply_ratio_{chats}_to_storing": round(whole["bot"] / whole["storing"], 2),
            f"reply_p50_ms_{chats}": round(whole["bot"], 1),
            f"first_p50_ms_{chats}": round(bot.p50(getattr(bot, waits), 0), 1),
            f"echo_p50_ms_{chats}": round(whole["echo"], 1),
            f"storing_p50_ms_{chats}": round(whole["storing"], 1),
        }
    for name in ("echo", "storing"):
        told |= {
            f"cpu_ms_per_turn_{name}": round(bots[name].cpu_ms, 1),
            f"cpu_ratio_to_{name}": round(bot.cpu_ms / max(bots[name].cpu_ms, 0.1), 2),
        }
    return {**told, "cpu_ms_per_turn": round(bot.cpu_ms, 1)}


async def _reply(person: Person, answer: str) -> tuple[float, float]:
    """Milliseconds from the message to the bot's first words and to its whole answer, by Telegram's clock."""
    sent = await person.say(QUESTION)
    version = -1
    async with asyncio.timeout(REPLY_SECONDS):
        while True:
            views = await person.views()
            said = next(view for view in views if view.get("message_id") == sent.message_id)
            shown = [view for view in views if _answers(view, sent.message_id)]
            whole = next((view for view in shown if view["text"] == answer), None)
            if whole is not None:
                return (shown[0]["at"] - said["at"]) * 1000, (whole["at"] - said["at"]) * 1000
            version = (await person.next_screen(version, within=1.0)).version


def _answers(view: dict[str, Any], message_id: int) -> bool:
    return view["kind"] in ("sent", "edited") and view.get("by") == "bot" and view["message_id"] > message_id


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
