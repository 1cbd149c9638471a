"""What a storm does: it kills processes, wipes Redis, fells Postgres, spoils the provider's answers."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from tests.faults.watch import Watch
from tests.kit.deployment.breakable_servers import Plant
from tests.kit.deployment.processes import Process
from tests.kit.fakes.messages_api.harness import RunningFake

Json = dict[str, Any]
TEXT = "This answer is never heard whole, because it ends before its time and is begun again."
MISHAPS: tuple[Json, ...] = (
    {"cut": 2, "text": TEXT},
    {"stream_error": 2, "text": TEXT},
    {"malformed": 1, "text": TEXT},
    {"status": 529},
    {"status": 500},
    {"status": 429, "retry_after": 1},
)
FORECAST_SECONDS = 1.0
FORECAST_REQUESTS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """Seconds between two of a kind; 0 is never. `failing` is the share of the provider's answers."""

    kill_every: float = 1.0
    wipe_every: float = 10.0
    fell_every: float = 30.0
    failing: float = 0.3


@dataclass(slots=True, kw_only=True)
class Weather:
    """`blow` until it is cancelled; `clear` then makes all well again."""

    plant: Plant
    provider: RunningFake
    processes: Sequence[Process]
    watch: Watch
    forecast: Forecast
    seed: int
    callers: int = 0
    """Whom the bot answers, one thing at a time each."""
    count: Counter[str] = field(default_factory=Counter)
    away: list[tuple[float, float]] = field(default_factory=list)
    """From when to when Postgres was felled and came back, on the monotonic clock."""
    strays: int = 0
    """Answers that a killed bot may have been sending: of each one bubble may stand that nobody knows of."""

    async def blow(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._spoil())
            for every, strike in (
                (self.forecast.kill_every, self._kill),
                (self.forecast.wipe_every, self._wipe),
                (self.forecast.fell_every, self._fell),
            ):
                if every:
                    group.create_task(self._again(every, strike))

    async def clear(self) -> None:
        self.count["provider failures"] += await self._failed()
        await self.provider.script([])
        postgres = self.plant.servers.postgres
        if postgres is not None and not postgres.alive:
            await self.plant.start_postgres()

    async def _again(self, every: float, strike: Any) -> None:
        chance = random.Random(f"{self.seed} {strike.__name__}")
        while True:
            await asyncio.sleep(every)
            await strike(chance)

    async def _kill(self, chance: random.Random) -> None:
        victim = chance.choice(self.processes)
        if not victim.runs:
            return
        await self.watch.look_before_kill(victim.pid)
        if victim.module == "bot":
            # One may have begun since the look; one that is stored and on its way holds no lease to be seen.
            self.strays += self.callers
        with suppress(ProcessLookupError):
            victim.kill()
            self.watch.struck("SIGKILL")
            self.count[f"SIGKILL {victim.module}"] += 1

    async def _wipe(self, _: random.Random) -> None:
        await self.watch.look_before_wipe()
        await self.plant.flush_redis()
        self.watch.struck("Redis wiped")
        self.count["Redis wiped"] += 1

    async def _fell(self, _: random.Random) -> None:
        since = time.monotonic()
        await self.plant.crash_postgres()
        await self.plant.start_postgres()
        self.away.append((since, time.monotonic()))
        self.count["Postgres felled"] += 1

    async def _spoil(self) -> None:
        """A new script each second, so that the fake never searches through a long one."""
        chance = random.Random(f"{self.seed} provider")
        while True:
            self.count["provider failures"] += await self._failed()
            await self.provider.script([self._next(chance) for _ in range(FORECAST_REQUESTS)])
            await asyncio.sleep(FORECAST_SECONDS)

    def _next(self, chance: random.Random) -> Json:
        spoiled = chance.random() < self.forecast.failing
        return {"match": {}, "times": 1, "action": chance.choice(MISHAPS) if spoiled else {}}

    async def _failed(self) -> int:
        return sum(rule["used"] for rule in await self.provider.rules() if rule["action"])
