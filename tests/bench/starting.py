"""How long the bot takes from its start until it serves, until it is warm, and until somebody who wrote
before has a first answer of a provider's; what it holds at rest and after an answer; and how much longer the
first answer of a web process takes than its second, once it is ready:
`python -m tests.bench.starting [--json]`.

Beside it, in turns, a process that only imports aiogram: most of a bot's start is that.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.bench.ground import environment_of, ground, ratio, run
from tests.bench.rest import rss_mib
from tests.kit.deployment.person import Person as Visitor
from tests.kit.fakes.bot_api import TOKEN, Person, running_bot_api
from tests.kit.fakes.messages_api.harness import running_fake
from tests.kit.free_ports import free_port
from tests.kit.telegram.bot_process import ROOT, Program

SETTLE_SECONDS = 1.5
IMPORT_SECONDS = 60.0
ANSWER_SECONDS = 60.0
_IMPORT = "import aiogram, aiogram.methods, aiogram.types"


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    serves: float
    warm: float
    at_rest: float
    after_answer: float
    """Of a bot that nobody writes to before it is warm."""
    first_answer: float
    """Of another: somebody wrote before it was started."""


async def measure(*, blocks: int) -> dict[str, Any]:
    async with ground() as (servers, folder), running_bot_api() as api, running_fake() as provider:
        settings = environment_of(
            servers, folder, TELEGRAM_BOT_TOKEN=TOKEN, EVERTALK_TELEGRAM_API_URL=api.base_url,
            EVERTALK_TELEGRAM_ACCESS="open", EVERTALK_LOG_FORMAT="json", PATH=os.environ["PATH"],
            ANTHROPIC_BASE_URL=provider.base_url, ANTHROPIC_API_KEY="a-key-for-the-fake",
        )  # fmt: skip
        ada = await api.person(42)
        await _import_alone()
        await _start(settings, ada)
        pairs, starts, answers = [], [], []
        for _ in range(blocks):
            answers.append(await _web_answers(settings))
            alone = await _import_alone()
            starts.append(await _start(settings, ada))
            pairs.append((alone, starts[-1].serves))
    at_rest, after = (statistics.median(sizes) for sizes in _sizes(starts))
    return {
        "bot_first_answer_s": round(statistics.median(each.first_answer for each in starts), 2),
        "bot_start_s": round(statistics.median(each.serves for each in starts), 2),
        "bot_warm_s": round(statistics.median(each.warm for each in starts), 2),
        "bot_start_to_import": round(ratio(pairs), 2),
        "import_alone_s": round(statistics.median(alone for alone, _ in pairs), 2),
        "rss_bot_at_rest_mib": round(at_rest, 1),
        "rss_bot_after_answer_mib": round(after, 1),
        "web_first_answer_ms": round(statistics.median(first for first, _ in answers), 1),
        "web_second_answer_ms": round(statistics.median(second for _, second in answers), 1),
        "web_first_to_second": round(statistics.median(first / second for first, second in answers), 2),
        "blocks": blocks,
    }


def _sizes(starts: Sequence[Start]) -> tuple[list[float], list[float]]:
    return [each.at_rest for each in starts], [each.after_answer for each in starts]


async def _start(settings: dict[str, str], ada: Person) -> Start:
    bot, began = Program("bot", settings), time.monotonic()
    await bot.start()
    try:
        await bot.said("bot_serves")
        serves = time.monotonic() - began
        await bot.said("bots_warmed_up")
        warm = time.monotonic() - began
        await asyncio.sleep(SETTLE_SECONDS)
        at_rest = rss_mib(bot.pid) or 0.0
        await ada.say("Good morning.")
        await _answered(ada)
        await asyncio.sleep(SETTLE_SECONDS)
        after = rss_mib(bot.pid) or 0.0
    finally:
        await bot.terminate()
    return Start(
        serves=serves, warm=warm, at_rest=at_rest, after_answer=after,
        first_answer=await _first_answer(settings, ada),
    )  # fmt: skip


async def _first_answer(settings: dict[str, str], ada: Person) -> float:
    await ada.say("Is anybody there?")
    bot, began = Program("bot", settings), time.monotonic()
    await bot.start()
    try:
        await _answered(ada)
        return time.monotonic() - began
    finally:
        await bot.terminate()


async def _web_answers(settings: dict[str, str]) -> tuple[float, float]:
    """Return milliseconds of the first two answers of a web process that has just said that it is ready."""
    port = free_port()
    web = Program("web", {**settings, "EVERTALK_HTTP_PORT": str(port)})
    await web.start()
    try:
        await web.said("web_warmed_up")
        async with Visitor(port) as visitor:
            return await _timed(visitor), await _timed(visitor)
    finally:
        await web.terminate()


async def _timed(visitor: Visitor) -> float:
    began = time.monotonic()
    await visitor.ask("Is anybody there?")
    return (time.monotonic() - began) * 1000


async def _answered(ada: Person) -> None:
    """The last line is the bot's."""
    await ada.sees(lambda screen: screen.lines[-1].by_bot, within=ANSWER_SECONDS)


async def _import_alone() -> float:
    began = time.monotonic()
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", _IMPORT, cwd=ROOT)
    try:
        await asyncio.wait_for(process.wait(), IMPORT_SECONDS)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return time.monotonic() - began


if __name__ == "__main__":
    raise SystemExit(run("starting", __doc__, measure, blocks=5))
