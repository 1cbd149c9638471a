"""How soon work goes on after a SIGKILL and an emptied Redis: `python -m tests.bench.recovering [--json]`.

Processes are started the long way, as a supervisor starts them: with a file that tells whom they succeed, and
the seconds of their imports count. What a process without such a file needs, whose lease must lapse, is told
beside it. Web and bot are killed once more while two loops compute beside them: a house is seldom alone on
its machine when something falls, and the worse figure is published. Storms are elsewhere (`tests/faults`);
here one thing at a time is broken, and what was promised is checked after it.
"""

from __future__ import annotations

import asyncio
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any

from shared.adapters.embedded import EmbeddedServers
from shared.adapters.postgres.db.migrate import migrate
from tests.bench.ground import run, share
from tests.kit.deployment.breakable_servers import Case, Plant
from tests.kit.deployment.person import WALK, Person
from tests.kit.deployment.processes import Process
from tests.kit.fakes.bot_api import TOKEN, RunningBotApi, running_bot_api
from tests.kit.fakes.messages_api.harness import running_fake

TEMPLATE = "recovering_template"
PATIENCE_SECONDS = 60.0
SETTLE_SECONDS = 1.5
PEOPLE = 3
SLOWLY = "Please tell me something of the sea."
SLOW: list[dict[str, Any]] = [
    {
        "match": {"kind": "chat", "contains": "of the sea"}, "times": -1,
        "action": {"text": "The sea is wide and it is blue. " * 20, "pace_ms": 50},
    },
    {"match": {"kind": "summary"}, "times": -1, "action": {"latency": 1.0}},
]  # fmt: skip
"""Slow enough that whoever answers can be killed in the middle."""
BUSY_LOOPS = 2
COMPILED = {"PYTHONDONTWRITEBYTECODE": ""}
"""An installed house compiles its modules once, not at every start, whatever whoever measures has set."""
_RUNNING = "SELECT count(*) FROM jobs WHERE state = 'running'"
_WAITING = "SELECT count(*) FROM jobs WHERE state IN ('due', 'running')"
_CLAIMED = "SELECT count(*) FROM turns WHERE state = 'claimed'"
_DELIVERED = "SELECT count(*) FROM deliveries WHERE state = 'delivered'"


async def measure(*, rounds: int) -> dict[str, Any]:
    async with AsyncExitStack() as stack:
        name = stack.enter_context(
            tempfile.TemporaryDirectory(prefix="evertalk-bench-", ignore_cleanup_errors=True)
        )
        folder = Path(name)
        folder.chmod(0o711)
        servers = await stack.enter_async_context(EmbeddedServers(folder / "servers"))
        plant = Plant(servers=servers, folder=folder)
        await plant.admin(f'create database "{TEMPLATE}"')
        await migrate(plant.database_url(TEMPLATE))
        fake = await stack.enter_async_context(running_fake())
        await fake.script(SLOW)
        model = {"ANTHROPIC_API_KEY": "sk-ant-bench", "ANTHROPIC_BASE_URL": fake.base_url, **COMPILED}
        found = {"web_alone": await _without_a_file(plant, rounds, model)}
        case = await plant.case(TEMPLATE)
        web = await stack.enter_async_context(case.web(**model, **_file(plant, "web")))
        worker = await stack.enter_async_context(case.worker(**model, **_file(plant, "worker")))
        found |= {
            "web": [await _web_falls(case, web, number) for number in range(rounds)],
            "worker": await _worker_falls(case, worker, rounds),
            "wiped": [await _redis_is_wiped(plant, case, worker, number) for number in range(rounds)],
        }
        api = await stack.enter_async_context(running_bot_api())
        settings = {**model, **_file(plant, "bot")}
        found["bot"] = await _bot_falls(await plant.case(TEMPLATE), api, rounds, settings)
        with _busy_loops():
            found["web_beside_busy_loops"] = [
                await _web_falls(case, web, number) for number in range(rounds, 2 * rounds)
            ]
            beside = await plant.case(TEMPLATE)
            found["bot_beside_busy_loops"] = await _bot_falls(beside, api, rounds, settings, first=rounds)
    return _told(found)


@contextmanager
def _busy_loops() -> Iterator[None]:
    """As many programs that compute without end as the smallest machine has cores."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(BUSY_LOOPS)]
    try:
        yield
    finally:
        for one in busy:
            one.kill()
            one.wait()


def _file(plant: Plant, name: str) -> dict[str, str]:
    """Of its own, as the supervisor gives it."""
    return {"EVERTALK_PROCESS_FILE": str(plant.folder / f"{name}.worker")}


async def _without_a_file(plant: Plant, rounds: int, model: dict[str, str]) -> list[float]:
    case = await plant.case(TEMPLATE)
    async with case.web(**model) as web:
        return [await _web_falls(case, web, number) for number in range(rounds)]


async def _web_falls(case: Case, web: Process, number: int) -> float:
    """Killed while it answers; started again by its supervisor."""
    async with Person(case.port, name=f"w{number}-") as person:
        await person.ask("Hello there, it is me.")
        await person.say(SLOWLY)
        await person.acknowledged()
        await _until(case, _CLAIMED)
        fallen = len(web.exits)
        web.kill()
        seconds = await _since_it_fell(web, fallen, person.answered(within_seconds=PATIENCE_SECONDS))
        await case.promises_hold(person)
    await asyncio.sleep(SETTLE_SECONDS)
    return seconds


async def _worker_falls(case: Case, worker: Process, rounds: int) -> list[float]:
    """Killed while it compacts."""
    found = []
    for number in range(rounds):
        async with Person(case.port, name=f"k{number}-") as person:
            await _talk(person)
            asked = await person.command("compact", "--force")
            await _until(case, _RUNNING)
            fallen = len(worker.exits)
            worker.kill()
            done = person.until(
                lambda p=person, a=asked: a in p.commands,  # type: ignore[misc]
                "the summary", within_seconds=PATIENCE_SECONDS,
            )  # fmt: skip
            found.append(await _since_it_fell(worker, fallen, done))
            await case.promises_hold(person)
        await asyncio.sleep(SETTLE_SECONDS)
    return found


async def _redis_is_wiped(plant: Plant, case: Case, worker: Process, number: int) -> float:
    """With a job of each of several people waiting, and a message said while it happens."""
    async with AsyncExitStack() as stack:
        people = [
            await stack.enter_async_context(Person(case.port, name=f"r{number}-{one}-"))
            for one in range(PEOPLE)
        ]
        await asyncio.gather(*map(_talk, people))
        worker.send(signal.SIGSTOP)
        asked = [await person.command("compact", "--force") for person in people]
        await _until(case, f"SELECT ({_WAITING}) = {PEOPLE}")
        await plant.kill_redis(emptied=True)
        await plant.start_redis()
        worker.send(signal.SIGCONT)
        began = time.monotonic()
        for person, cid in zip(people, asked, strict=True):
            await person.say("And now?")
            await person.until(
                lambda p=person, c=cid: c in p.commands,  # type: ignore[misc]
                "the summary", within_seconds=PATIENCE_SECONDS,
            )  # fmt: skip
            await person.answered()
        seconds = time.monotonic() - began
        await case.promises_hold(*people)
    return seconds


async def _bot_falls(
    case: Case, api: RunningBotApi, rounds: int, model: dict[str, str], *, first: int = 0
) -> list[float]:
    """Killed with a message taken in and not yet answered."""
    settings = case.settings(
        TELEGRAM_BOT_TOKEN=TOKEN,
        EVERTALK_TELEGRAM_API_URL=api.base_url,
        EVERTALK_TELEGRAM_ACCESS="open",
        **model,
    )
    found = []
    async with Process("bot", settings) as bot:
        for number in range(first, first + rounds):
            person = await api.person(6_000 + number)
            fallen, delivered = len(bot.exits), await case.value(_DELIVERED)
            await person.say(SLOWLY)
            await _until(case, _CLAIMED)
            bot.kill()
            answered = _until(case, f"SELECT ({_DELIVERED}) > {delivered}")
            found.append(await _since_it_fell(bot, fallen, answered))
            await case.promises_hold()
            await asyncio.sleep(SETTLE_SECONDS)
    return found


async def _talk(person: Person) -> None:
    for number in range(7):
        await person.ask(f"Number {number}: we meet on 2026-05-{number + 10} in Lisbon. {WALK}")


async def _since_it_fell(process: Process, fallen: int, done: Any) -> float:
    await done
    end = time.monotonic()
    if len(process.exits) <= fallen or process.fell_at is None:
        raise RuntimeError(f"{process.module} was not killed in time")
    return end - process.fell_at


async def _until(case: Case, statement: str) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await case.value(statement):
            await asyncio.sleep(0.02)


def _told(found: dict[str, list[float]]) -> dict[str, Any]:
    killed = [*found["web"], *found["worker"], *found["bot"]]
    busy = [*found["web_beside_busy_loops"], *found["bot_beside_busy_loops"]]
    alone, beside = share(killed, 0.99), share(busy, 0.99)
    return {
        "after_sigkill_p99_s": round(max(alone, beside), 1),
        "after_sigkill_p99_alone_s": round(alone, 1),
        "after_sigkill_p99_beside_busy_loops_s": round(beside, 1),
        "after_sigkill_of_web_beside_busy_loops_s": _sorted(found["web_beside_busy_loops"]),
        "after_sigkill_of_bot_beside_busy_loops_s": _sorted(found["bot_beside_busy_loops"]),
        "after_sigkill_p50_s": round(statistics.median(killed), 1),
        **{f"after_sigkill_of_{name}_s": _sorted(found[name]) for name in ("web", "worker", "bot")},
        "after_sigkill_of_web_without_file_s": _sorted(found["web_alone"]),
        "after_wipe_s": round(max(found["wiped"]), 1),
        "after_wipe_all_s": _sorted(found["wiped"]),
        "kills": len(killed) + len(busy),
    }


def _sorted(seconds: list[float]) -> list[float]:
    return [round(one, 1) for one in sorted(seconds)]


if __name__ == "__main__":
    raise SystemExit(run("recovering", __doc__, measure, rounds=7))
