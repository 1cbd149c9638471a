"""Many chats, random faults, a bounded time, a verdict: `python -m tests.bench.telegram_soak [--json]`."""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shared.adapters.embedded import EmbeddedServers
from shared.adapters.postgres.db.migrate import migrate
from tests.kit.deployment.breakable_servers import Plant
from tests.kit.deployment.forks import Hatchery
from tests.kit.deployment.processes import Process
from tests.kit.deployment.telegram import Talker, Telegram
from tests.kit.fakes.bot_api import running_bot_api
from tests.kit.fakes.messages_api.harness import RunningFake

TEMPLATE = "soak_template"
FAULTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("sendMessage", {"status": 429, "retry_after": 1}),
    ("sendMessage", {"reset": "after"}),
    ("editMessageText", {"status": 429, "retry_after": 2}),
    ("editMessageText", {"reset": "before"}),
    ("editMessageText", {"reset": "after"}),
    ("editMessageText", {"status": 502, "html": True}),
    ("sendChatAction", {"status": 500}),
)
POLL_FAULTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("getUpdates", {"reset": "before"}),
    ("getUpdates", {"reset": "after"}),
    ("getUpdates", {"truncate": True}),
    ("getUpdates", {"status": 502, "html": True}),
)
POLL_FAULT_SHARE = 0.06
KILL_EVERY_SECONDS = 15.0
FAULT_EVERY_SECONDS = 0.5
SAY_EVERY_SECONDS = 6.0
"""Per chat, on average."""


async def soak(*, chats: int, seconds: float, seed: int) -> dict[str, Any]:
    """Raises AssertionError with what was lost, doubled, out of order, or broken in the rows."""
    folder = Path(tempfile.mkdtemp(prefix="evs-", dir="/tmp"))
    folder.chmod(0o755)
    servers = EmbeddedServers(folder / "servers")
    await servers.start()
    try:
        plant = Plant(servers=servers, folder=folder)
        await plant.admin(f'create database "{TEMPLATE}"')
        await migrate(plant.database_url(TEMPLATE))
        async with running_bot_api() as api, RunningFake() as provider, Hatchery() as hatchery:
            case = await plant.case(TEMPLATE)
            telegram = Telegram(api=api, provider=provider, case=case, hatchery=hatchery)
            return await _soak(telegram, chats, seconds, random.Random(seed))
    finally:
        await servers.stop()
        shutil.rmtree(folder, ignore_errors=True)


async def _soak(telegram: Telegram, chats: int, seconds: float, dice: random.Random) -> dict[str, Any]:
    met: Counter[str] = Counter()
    people = [await telegram.talker() for _ in range(chats)]
    began = time.monotonic()
    async with telegram.bot() as bot:
        await telegram.serves(bot)
        doing = [
            asyncio.create_task(_talks(talker, began + seconds, random.Random(dice.random())))
            for talker in people
        ]
        doing.append(asyncio.create_task(_goes_wrong(telegram, bot, began + seconds, dice, met)))
        await asyncio.gather(*doing)
        await telegram.api.script([])
        calm = time.monotonic()
        lost_bubbles = met["sendMessage reset"] + chats * met["bot killed"]
        await telegram.promises_hold(strays=lost_bubbles)
        rest = time.monotonic() - calm
    return {
        "chats": chats,
        "seconds": round(seconds),
        "said": sum(len(talker.said) for talker in people),
        "turns": await telegram.case.value("SELECT count(*) FROM turns WHERE state = 'answered'"),
        "parts_delivered": await telegram.case.value(_PARTS, "delivered"),
        "parts_uncertain": await telegram.case.value(_PARTS, "uncertain"),
        "promises_hold": True,
        "seconds_until_all_was_settled": round(rest, 1),
        "faults": dict(met),
    }


_PARTS = "SELECT count(*) FROM deliveries WHERE channel = 'telegram' AND state = $1"


async def _talks(talker: Talker, until: float, dice: random.Random) -> None:
    number = 0
    while time.monotonic() < until:
        await asyncio.sleep(dice.uniform(0.2, 2 * SAY_EVERY_SECONDS))
        number += 1
        await talker.say(f"Message {number} of {talker.id}: {'and so on, ' * dice.randrange(12)}that is it.")


async def _goes_wrong(
    telegram: Telegram, bot: Process, until: float, dice: random.Random, met: Counter[str]
) -> None:
    killed = time.monotonic()
    while time.monotonic() < until:
        await asyncio.sleep(dice.uniform(0.2, 2 * FAULT_EVERY_SECONDS))
        # A failed poll is waited out for seconds: more of them would only be a poller that is away.
        method, action = dice.choice(POLL_FAULTS if dice.random() < POLL_FAULT_SHARE else FAULTS)
        met[f"{method} {'reset' if 'reset' in action else action.get('status', 'truncated')}"] += 1
        await telegram.api.fail(method, times=1, **action)
        if dice.random() < 0.1:
            met["updates doubled"] += 1
            await telegram.api.duplicate_updates(3, repeats=2)
        if time.monotonic() - killed > KILL_EVERY_SECONDS:
            killed = time.monotonic()
            met["bot killed"] += 1
            bot.kill()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.telegram_soak", description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--chats", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long it goes wrong")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    found = asyncio.run(soak(chats=given.chats, seconds=given.seconds, seed=given.seed))
    if given.json:
        print(json.dumps(found))
    else:
        print("\n".join(f"{name:<32} {value}" for name, value in found.items()))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
