"""`python -m tests.faults.storm --seconds 600`: everything falls again and again while many people talk."""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg

from shared.adapters.embedded import EmbeddedServers
from shared.adapters.postgres.db.migrate import migrate
from tests.faults.crowd import Caller, Tally, Wanderer, tally_callers
from tests.faults.watch import Watch, percentiles
from tests.faults.weather import Forecast, Weather
from tests.kit.deployment.breakable_servers import Case, Plant
from tests.kit.deployment.forks import Hatchery
from tests.kit.deployment.processes import Process
from tests.kit.deployment.telegram import Telegram
from tests.kit.fakes.bot_api import BotApi, running_bot_api
from tests.kit.fakes.messages_api.harness import RunningFake, running_fake
from tests.kit.free_ports import free_port
from tests.kit.temp_folders import short_folder

TEMPLATE = "storm_template"
SETTLE_SECONDS = 90.0
BETWEEN_COMMANDS_SECONDS = 3.0
PACE_MS = 40.0
"""Between two parts of an answer, so that there is something to interrupt."""
DOLLARS = "100000"
SLOWEST = 8
"""Recoveries that are named one by one."""
_UNDELIVERED = """
SELECT d.session_id, d.turn_no, d.part, d.state, d.error, d.remote_id, t.state AS turn
  FROM deliveries d JOIN turns t USING (session_id, turn_no)
 WHERE d.channel = 'telegram' AND d.state IN ('queued', 'sending', 'sent') ORDER BY 1, 2, 3
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How hard and how long."""

    seconds: float
    seed: int = 1
    webs: int = 2
    bots: int = 1
    people: int = 12
    callers: int = 4
    gap_seconds: float = 1.0
    forecast: Forecast = field(default_factory=Forecast)


@dataclass(slots=True, kw_only=True)
class Storm:
    """`await storm.run()` is its report; all it starts is stopped by then."""

    plan: Plan
    plant: Plant
    case: Case
    provider: RunningFake
    telegram: Telegram
    _ports: list[int] = field(default_factory=list)
    _people: list[Wanderer] = field(default_factory=list)
    _callers: list[Caller] = field(default_factory=list)

    async def run(self) -> dict[str, Any]:
        await self.provider.set_pace(PACE_MS)
        async with AsyncExitStack() as stack:
            processes = [await stack.enter_async_context(one) for one in self._processes()]
            await self._gather_people(stack)
            watch = Watch(case=self.case)
            weather = Weather(
                plant=self.plant, provider=self.provider, processes=processes, watch=watch,
                forecast=self.plan.forecast, seed=self.plan.seed, callers=self.plan.callers,
            )  # fmt: skip
            watching = asyncio.create_task(watch.run())
            try:
                await self._rage(weather)
                settled = await self._settle(weather)
            finally:
                watching.cancel()
                await asyncio.wait([watching])
                # What ended since the last glance was not left lying.
                await watch.last_glance(within_seconds=SETTLE_SECONDS)
                await watch.close()
            report = await self._report(weather, watch)
            return {**report, "settled_seconds": settled}

    def _processes(self) -> list[Process]:
        """Each with a file of its own, as the supervisor gives it."""
        self._ports = [self.case.port, *(free_port() for _ in range(self.plan.webs - 1))]
        modules = [("web", port) for port in self._ports] + [("worker", 0)] + [("bot", 0)] * self.plan.bots
        return [
            self.case.process(module, **self._settings(number, port))
            for number, (module, port) in enumerate(modules)
        ]

    def _settings(self, number: int, port: int) -> dict[str, str]:
        return {
            **self.telegram.settings(),
            "EVERTALK_CAP_TOTAL_PER_DAY_USD": DOLLARS,
            "EVERTALK_CAP_VISITOR_PER_DAY_USD": DOLLARS,
            "EVERTALK_PROCESS_FILE": str(self.plant.folder / f"process.{number}"),
            **({"EVERTALK_HTTP_PORT": str(port)} if port else {}),
        }

    async def _gather_people(self, stack: AsyncExitStack) -> None:
        for number in range(self.plan.people):
            person = Wanderer(self._ports, f"p{number}_", self.plan.seed)
            self._people.append(await stack.enter_async_context(person))
        if self.plan.bots:
            for number in range(self.plan.callers):
                talker = await self.telegram.talker()
                self._callers.append(Caller(talker, f"t{number}_", self.plan.seed))

    async def _rage(self, weather: Weather) -> None:
        speakers: list[Wanderer | Caller] = [*self._people, *self._callers]
        tasks = [asyncio.create_task(one.talk(self.plan.gap_seconds)) for one in speakers]
        tasks += [asyncio.create_task(self._ask_for_summaries()), asyncio.create_task(weather.blow())]
        done, _ = await asyncio.wait(tasks, timeout=self.plan.seconds, return_when=asyncio.FIRST_EXCEPTION)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        for task in done:
            task.result()
        await weather.clear()

    async def _ask_for_summaries(self) -> None:
        while True:
            for person in self._people:
                await asyncio.sleep(BETWEEN_COMMANDS_SECONDS)
                await person.command("compact", "--force")

    async def _settle(self, weather: Weather) -> float:
        """Until everything said is answered and nothing is left to do; nobody waits for a pause to end."""
        since = time.monotonic()
        hurrying = asyncio.create_task(self._hurry())
        try:
            for person in self._people:
                with suppress(AssertionError):
                    await person.answered(within_seconds=SETTLE_SECONDS)
            if self._callers:
                with suppress(AssertionError):
                    await self.telegram.rests()
            await self._jobs_end()
        finally:
            hurrying.cancel()
            await asyncio.wait([hurrying])
        return round(time.monotonic() - since, 2)

    async def _hurry(self) -> None:
        while True:
            with suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
                await self.case.run(
                    """UPDATE sessions SET retry_at = now() WHERE retry_at > now();
                       UPDATE jobs SET due_at = now() WHERE state = 'due' AND due_at > now()"""
                )
            await asyncio.sleep(1.0)

    async def _jobs_end(self) -> None:
        end = time.monotonic() + SETTLE_SECONDS
        while await self.case.value("SELECT count(*) FROM jobs WHERE state IN ('due', 'running')"):
            if time.monotonic() > end:
                return
            await asyncio.sleep(0.1)

    async def _report(self, weather: Weather, watch: Watch) -> dict[str, Any]:
        tally = Tally()
        for person in self._people:
            person.tally(tally)
        broken = tally.broken()
        if self._callers:
            broken += await tally_callers(self.telegram, tally, strays=weather.strays)
        broken += await self._verdict()
        return {
            "seed": self.plan.seed,
            "seconds": self.plan.seconds,
            "faults": dict(weather.count),
            "messages": tally.numbers(),
            "recovery_seconds": _by_fault(watch, lambda *_: True),
            "recovery_while_postgres_was_there": _by_fault(
                watch, lambda since, until: not any(a < until and since < b for a, b in weather.away)
            ),
            "late_glances_seconds": percentiles(watch.late),
            "slowest": [
                {
                    "fault": hit.fault,
                    "what": hit.what,
                    "id": hit.id,
                    "seconds": round(seconds, 2),
                    "behind_another": round(watch.behind.get(hit, 0.0), 2),
                }
                for hit, seconds in sorted(watch.seconds, key=lambda one: -one[1])[:SLOWEST]
            ],
            "never_recovered": watch.waits,
            "answer_seconds": percentiles(tally.answer_seconds),
            "broken": broken,
        }

    async def _verdict(self) -> list[str]:
        """Invariants, screens against the log, and jobs that never ended."""
        found: list[str] = [f"not delivered: {row}" for row in await self.case.rows(_UNDELIVERED)]
        try:
            await self.case.promises_hold(*self._people)
        except AssertionError as error:
            found.append(f"promises: {error}")
        if left := await self.case.value("SELECT count(*) FROM jobs WHERE state IN ('due', 'running')"):
            found.append(f"{left} jobs never ended")
        return found


def _by_fault(watch: Watch, counts: Callable[[float, float], bool]) -> dict[str, dict[str, float | int]]:
    """Of what was interrupted and taken up again between two moments that count."""
    return {
        fault: percentiles(
            seconds - watch.behind.get(hit, 0.0)
            for hit, seconds in watch.seconds
            if hit.fault == fault and counts(hit.at, hit.at + seconds)
        )
        for fault in ("SIGKILL", "Redis wiped")
    }


@asynccontextmanager
async def a_house(plan: Plan) -> AsyncIterator[Storm]:
    """Servers, fakes and a database for one storm."""
    folder = short_folder("evs-")
    servers = EmbeddedServers(folder / "servers")
    api: BotApi
    async with Hatchery() as hatchery, running_fake(seed=plan.seed) as provider, running_bot_api() as api:
        await servers.start()
        try:
            plant = Plant(servers=servers, folder=folder, hatchery=hatchery)
            await plant.admin(f'create database "{TEMPLATE}"')
            await migrate(plant.database_url(TEMPLATE))
            case = await plant.case(TEMPLATE)
            telegram = Telegram(api=api, provider=provider, case=case, hatchery=hatchery)
            yield Storm(plan=plan, plant=plant, case=case, provider=provider, telegram=telegram)
        finally:
            await servers.stop()
            shutil.rmtree(folder, ignore_errors=True)


async def raged(plan: Plan) -> dict[str, Any]:
    async with a_house(plan) as storm:
        return await storm.run()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.storm", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--people", type=int, default=12, help="who talk on the web")
    parser.add_argument("--callers", type=int, default=4, help="who talk on Telegram")
    parser.add_argument("--json", type=Path, help="where the report is written; else it is printed")
    asked = parser.parse_args(arguments)
    plan = Plan(seconds=asked.seconds, seed=asked.seed, people=asked.people, callers=asked.callers)
    report = asyncio.run(raged(plan))
    written = json.dumps(report, indent=2)
    if asked.json is not None:
        asked.json.write_text(written + "\n")
    print(written)
    return 1 if report["broken"] else 0


if __name__ == "__main__":
    sys.exit(main())
