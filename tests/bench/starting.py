"""How long the bot takes from its start until it serves, and what it holds then:
`python -m tests.bench.starting [--json]`.

Beside it, in turns, a process that only imports aiogram: most of a bot's start is that.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import time
from typing import Any

from tests.bench.ground import environment_of, ground, ratio, run
from tests.bench.rest import rss_mib
from tests.fakes.bot_api import TOKEN, running_bot_api
from tests.journeys.telegram_house import ROOT, Program

SETTLE_SECONDS = 1.5
IMPORT_SECONDS = 60.0
_IMPORT = "import aiogram, aiogram.methods, aiogram.types"


async def measure(*, blocks: int) -> dict[str, Any]:
    async with ground() as (servers, folder), running_bot_api() as api:
        settings = environment_of(
            servers, folder, TELEGRAM_BOT_TOKEN=TOKEN, EVERTALK_TELEGRAM_API_URL=api.base_url,
            EVERTALK_TELEGRAM_ACCESS="open", EVERTALK_LOG_FORMAT="json", PATH=os.environ["PATH"],
        )  # fmt: skip
        await _import_alone()
        await _start(settings)
        pairs, sizes = [], []
        for _ in range(blocks):
            alone = await _import_alone()
            seconds, size = await _start(settings)
            pairs.append((alone, seconds))
            sizes.append(size)
    return {
        "bot_start_s": round(statistics.median(seconds for _, seconds in pairs), 2),
        "bot_start_to_import": round(ratio(pairs), 2),
        "import_alone_s": round(statistics.median(alone for alone, _ in pairs), 2),
        "rss_bot_mib": round(statistics.median(sizes), 1),
        "blocks": blocks,
    }


async def _start(settings: dict[str, str]) -> tuple[float, float]:
    """Seconds until it serves, and MiB a moment later."""
    bot, began = Program("bot", settings), time.monotonic()
    await bot.start()
    try:
        await bot.said("bot_serves")
        seconds = time.monotonic() - began
        await asyncio.sleep(SETTLE_SECONDS)
        return seconds, rss_mib(bot.pid) or 0.0
    finally:
        await bot.terminate()


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
