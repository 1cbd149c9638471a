"""`./evertalk test chaos --minutes 30`: all is killed while forty people write, who judge what they see."""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import asyncpg

from shared.adapters.embedded import EmbeddedServers
from shared.adapters.postgres.db.migrate import migrate
from shared.adapters.postgres.operations.invariants import check_invariants
from tests.faults.transcripts import MARK, Judgement, Kills, Texter, Transcript, Visitor, judged
from tests.faults.watch import percentiles
from tests.kit.deployment.breakable_servers import Case, Plant, open_for_too_long
from tests.kit.deployment.forks import Hatchery
from tests.kit.deployment.processes import Process
from tests.kit.deployment.telegram import Telegram
from tests.kit.fakes.bot_api import BotApi, running_bot_api
from tests.kit.fakes.messages_api.harness import RunningFake, running_fake
from tests.kit.suite.one_line import OneLineParser
from tests.kit.temp_folders import short_folder

TEMPLATE = "chaos_template"
SETTLE_SECONDS = 120.0
BETWEEN_SUMMARIES_SECONDS = 3.0
PACE_MS = 20.0
"""Between two parts of an answer, so that there is something to interrupt."""
DOLLARS = "100000"
MOST_LINES = 20
"""Of what is broken; the files of the transcripts have the rest."""
_EVIDENCE = """
WITH said AS (
  SELECT DISTINCT te.session_id, te.turn_no
    FROM entry_rows e JOIN turn_entries te USING (session_id, seq)
   WHERE to_jsonb(e)::text LIKE '%' || $1 || '%'
)
SELECT 'update ' || to_jsonb(u)::text FROM telegram_updates u WHERE u.body::text LIKE '%' || $1 || '%'
UNION ALL SELECT 'turn ' || to_jsonb(t)::text
  FROM turns t JOIN said USING (session_id, turn_no)
UNION ALL SELECT 'entry ' || to_jsonb(e)::text
  FROM entry_rows e JOIN turn_entries USING (session_id, seq) JOIN said USING (session_id, turn_no)
UNION ALL SELECT 'delivery ' || to_jsonb(d)::text FROM deliveries d JOIN said USING (session_id, turn_no)
UNION ALL SELECT 'notice ' || to_jsonb(n)::text FROM uncertain_notices n JOIN said USING (session_id, turn_no)
"""
"""What the database says of a message that a person misses or has twice, by its mark."""
_FAULTS = (
    """SELECT kind, trigger, id, faults, last_error FROM jobs WHERE faults > 0 AND trigger <> 'upgrade'"""
)
"""An upgrade of a digest also counts the summaries of a model that were of no use."""
_OPEN_JOBS = """
SELECT kind, trigger, state, outcome ->> 'deferred' AS deferred, count(*), min(due_at - now())::text,
       max(last_error)
  FROM jobs WHERE state IN ('due', 'running') GROUP BY 1, 2, 3, 4
"""
_END_PAUSES = """
UPDATE sessions SET retry_at = now() WHERE retry_at > now();
UPDATE flushes f SET ended_at = f.ended_at - interval '1 hour' FROM jobs j
 WHERE j.session_id = f.session_id AND j.state = 'due' AND j.outcome ->> 'deferred' = 'cooldown'
   AND f.ended_at > now() - interval '1 hour';
UPDATE sessions s SET last_active_at = s.last_active_at - interval '1 hour' FROM jobs j
 WHERE j.session_id = s.id AND j.state = 'due' AND j.outcome ->> 'deferred' = 'talking'
   AND s.last_active_at > now() - interval '1 hour';
UPDATE jobs SET due_at = now() WHERE state = 'due' AND due_at > now();
UPDATE uncertain_notices SET due_at = now() WHERE state = 'due' AND due_at > now()
"""
"""End of each pause. A job that rests since a flush or since somebody wrote would rest again when it is due:
that flush, or that message, moves an hour into the past."""
ALL = ("web", "bot", "worker", "Postgres", "Valkey")


@dataclass(frozen=True, slots=True, kw_only=True)
class Strikes:
    """Seconds between two kills of a kind, drawn between both; None is never."""

    one: tuple[float, float] | None = None
    """Of the five processes, one."""
    three: tuple[float, float] | None = None
    """Three of them at once."""
    postgres: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    name: str
    seconds: float
    strikes: Strikes


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    phases: tuple[Phase, ...]
    visitors: int = 20
    texters: int = 20
    gap_seconds: float = 3.0
    seed: int = 1
    summaries: bool = True
    answer_chars: int = 0
    """The most of an answer; one line if 0."""


def chaos(minutes: float, *, seed: int = 1) -> Plan:
    """Of thirty minutes one process falls at a time for ten, three at once for ten, Postgres for five."""
    sixth = minutes * 60.0 / 6
    return Plan(
        seed=seed,
        phases=(
            Phase(name="one process killed", seconds=2 * sixth, strikes=Strikes(one=(4.0, 8.0))),
            Phase(name="Postgres killed every 10 s", seconds=sixth, strikes=Strikes(postgres=(10.0, 10.0))),
            Phase(name="three killed at once", seconds=2 * sixth, strikes=Strikes(three=(12.0, 20.0))),
            Phase(name="all of it", seconds=sixth, strikes=_EVERYTHING),
        ),
    )


_EVERYTHING = Strikes(one=(4.0, 8.0), three=(25.0, 35.0), postgres=(15.0, 25.0))


def postgres_killed(seconds: float, *, seed: int = 1) -> Plan:
    """The row of Postgres killed under load."""
    strikes = Strikes(postgres=(6.0, 9.0))
    phase = Phase(name="Postgres killed every 6 to 9 s", seconds=seconds, strikes=strikes)
    return Plan(phases=(phase,), visitors=10, gap_seconds=2.0, seed=seed, summaries=False)


@dataclass(slots=True, kw_only=True)
class Chaos:
    """`await chaos.run()` is what became of it; all it starts is stopped by then."""

    plan: Plan
    plant: Plant
    case: Case
    provider: RunningFake
    telegram: Telegram
    tell: Callable[[str], None] = lambda _: None
    _visitors: list[Visitor] = field(default_factory=list)
    _texters: list[Texter] = field(default_factory=list)
    _processes: dict[str, Process] = field(default_factory=dict)
    _struck: Counter[str] = field(default_factory=Counter)
    _bot_killed_at: list[float] = field(default_factory=list)
    _storage_away: list[tuple[float, float]] = field(default_factory=list)
    _servers: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def run(self) -> Report:
        await self.provider.set_pace(PACE_MS)
        if self.plan.answer_chars:
            longer = {"lengthen": self.plan.answer_chars}
            await self.provider.script([{"match": {"kind": "chat"}, "times": -1, "action": longer}])
        async with AsyncExitStack() as stack:
            for number, module in enumerate(("web", "worker", "bot")):
                process = self.case.process(module, **self._settings(number))
                self._processes[module] = await stack.enter_async_context(process)
            await self._gather_people(stack)
            for phase in self.plan.phases:
                self.tell(f"{phase.name}, for {phase.seconds:.0f} s")
                await self._rage(phase)
            self.tell("everybody waits for their last answers")
            settled = await self._settle()
            return await self._report(settled)

    def _settings(self, number: int) -> dict[str, str]:
        """Settings without the encoder of meanings, whose process only `./evertalk up` keeps."""
        return {
            "EVERTALK_MEANING": "false",
            **self.telegram.settings(),
            "EVERTALK_CAP_TOTAL_PER_DAY_USD": DOLLARS,
            "EVERTALK_CAP_VISITOR_PER_DAY_USD": DOLLARS,
            "EVERTALK_PROCESS_FILE": str(self.plant.folder / f"process.{number}"),
        }

    async def _gather_people(self, stack: AsyncExitStack) -> None:
        for number in range(self.plan.visitors):
            visitor = Visitor([self.case.port], f"p{number}_", self.plan.seed)
            self._visitors.append(await stack.enter_async_context(visitor))
        for number in range(self.plan.texters):
            talker = await self.telegram.talker()
            self._texters.append(Texter(talker.person, f"t{number}_", self.plan.seed))

    @property
    def _people(self) -> list[Visitor | Texter]:
        return [*self._visitors, *self._texters]

    # -- what happens ---------------------------------------------------------------------------------

    async def _rage(self, phase: Phase) -> None:
        work: list[Coroutine[Any, Any, None]] = [one.talk(self.plan.gap_seconds) for one in self._people]
        work += [
            self._again(every, strike, phase.name)
            for every, strike in (
                (phase.strikes.one, self._kill_one),
                (phase.strikes.three, self._kill_three),
                (phase.strikes.postgres, self._kill_postgres),
            )
            if every is not None
        ]
        if self.plan.summaries and self._visitors:
            work.append(self._ask_for_summaries())
        tasks = [asyncio.ensure_future(one) for one in work]
        done, _ = await asyncio.wait(tasks, timeout=phase.seconds, return_when=asyncio.FIRST_EXCEPTION)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        for task in done:
            task.result()
        await self._restart_servers()

    async def _again(
        self, every: tuple[float, float], strike: Callable[[random.Random], Awaitable[None]], name: str
    ) -> None:
        chance = random.Random(f"{self.plan.seed} {name} {strike.__name__}")
        while True:
            await asyncio.sleep(chance.uniform(*every))
            await strike(chance)

    async def _kill_one(self, chance: random.Random) -> None:
        await self._kill([chance.choice(ALL)])

    async def _kill_three(self, chance: random.Random) -> None:
        victims = chance.sample(ALL, 3)
        await self._kill(victims)
        self._struck["three at once"] += 1

    async def _kill_postgres(self, _: random.Random) -> None:
        await self._kill(["Postgres"])

    async def _kill(self, victims: Sequence[str]) -> None:
        """All in one instant; processes are started again by their keeper, servers here."""
        async with self._servers:
            since = time.time()
            for victim in victims:
                self._strike(victim)
            await self._start_servers()
            if "Postgres" in victims:
                self._storage_away.append((since, time.time()))

    def _strike(self, victim: str) -> None:
        servers = self.plant.servers
        match victim:
            case "Postgres" | "Valkey":
                server = servers.postgres if victim == "Postgres" else servers.valkey
                assert server is not None
                assert server.process is not None
                server.process.kill()
            case module:
                process = self._processes[module]
                if not process.runs:
                    return
                if module == "bot":
                    self._bot_killed_at.append(time.time())
                with suppress(ProcessLookupError):
                    process.kill()
        self._struck[victim] += 1

    async def _start_servers(self) -> None:
        for server in (self.plant.servers.postgres, self.plant.servers.valkey):
            assert server is not None
            assert server.process is not None
            with suppress(TimeoutError):
                # A server that was killed just now is not seen as dead at once.
                async with asyncio.timeout(0.2):
                    while server.alive:
                        await asyncio.sleep(0.01)
            if not server.alive:
                await server.start()

    async def _restart_servers(self) -> None:
        """Who was cut off between a kill and the start has left a server lying."""
        async with self._servers:
            await self._start_servers()

    async def _ask_for_summaries(self) -> None:
        while True:
            for visitor in self._visitors:
                await asyncio.sleep(BETWEEN_SUMMARIES_SECONDS)
                await visitor.command("compact", "--force")

    # -- what is left ---------------------------------------------------------------------------------

    async def _settle(self) -> float:
        """Until everybody has every answer; nobody waits for a pause to end."""
        since = time.monotonic()
        hurrying = asyncio.create_task(self._hurry())
        try:
            while self._waits() and time.monotonic() - since < SETTLE_SECONDS:
                await asyncio.sleep(0.5)
                await asyncio.gather(*(texter.glance() for texter in self._texters))
            settled = round(time.monotonic() - since, 2)
            await self._jobs_end()
        finally:
            hurrying.cancel()
            await asyncio.wait([hurrying])
        await asyncio.gather(*(texter.glance() for texter in self._texters))
        return settled

    def _waits(self) -> bool:
        return any(one.missing() for one in self._people)

    async def _hurry(self) -> None:
        while True:
            with suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
                await self.case.run(_END_PAUSES)
            await asyncio.sleep(1.0)

    async def _jobs_end(self) -> None:
        end = time.monotonic() + SETTLE_SECONDS
        while await self.case.value("SELECT count(*) FROM jobs WHERE state IN ('due', 'running')"):
            if time.monotonic() > end:
                return
            await asyncio.sleep(0.2)

    async def _report(self, settled: float) -> Report:
        people = [one.transcript() for one in self._people]
        kills = Kills(bot=self._bot_killed_at, storage_away=self._storage_away)
        by_channel = {
            channel: judged([one for one in people if one.channel == channel], kills=kills)
            for channel in ("web", "Telegram")
        }
        broken = [what for one in by_channel.values() for what in one.broken]
        marks = dict.fromkeys(mark for what in broken for mark in MARK.findall(what))
        contradictions = [f"{one.name}: {what}" for one in self._visitors for what in one.contradictions]
        return Report(
            struck=dict(self._struck),
            by_channel=by_channel,
            other=[*contradictions, *await self._invariants()],
            settled_seconds=settled,
            transcripts=tuple(people),
            logs={name: process.words() for name, process in self._processes.items()},
            evidence={
                mark: [str(row["?column?"]) for row in await self.case.rows(_EVIDENCE, mark)]
                for mark in list(marks)[:MOST_LINES]
            },
        )

    async def _invariants(self) -> list[str]:
        connection = await self.case.connect()
        try:
            broken = [*await check_invariants(connection), *await open_for_too_long(connection)]
            left = await connection.fetch(_OPEN_JOBS)
            faults = await connection.fetch(_FAULTS)
        finally:
            await connection.close(timeout=10)
        found = [str(one) for one in broken]
        found += [f"jobs that never ended: {tuple(row)}" for row in left]
        return found + [f"a fault although only kills happened: {tuple(row)}" for row in faults]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    struck: Mapping[str, int]
    by_channel: Mapping[str, Judgement]
    other: Sequence[str]
    """Of the invariants, and of screens that contradict themselves."""
    settled_seconds: float
    transcripts: Sequence[Transcript]
    logs: Mapping[str, str]
    evidence: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Rows of the database about each message that is broken, by its mark."""

    @property
    def broken(self) -> list[str]:
        of_people = [what for one in self.by_channel.values() for what in one.broken]
        return [*of_people, *self.other]

    def table(self) -> str:
        kills = ", ".join(f"{name} {times}" for name, times in sorted(self.struck.items())) or "none"
        head = (
            f"{'':<10}{'people':>8}{'sent':>8}{'answered':>10}{'lost':>6}{'doubled':>9}{'out of order':>14}"
            f"{'strays':>8}{'flickers':>10}{'p50':>8}{'p99':>8}{'slowest':>9}"
        )
        rows = [_row(channel, one) for channel, one in self.by_channel.items()]
        left = self.broken[:MOST_LINES]
        more = len(self.broken) - len(left)
        return "\n".join(
            [
                f"killed: {kills}", "", head, *rows, "",
                f"the last answer came {self.settled_seconds:.1f} s after the last kills had ended",
                f"invariants: {'hold' if not self.other else 'broken'}",
                *left, *([f"… and {more} more"] if more else []),
                f"result: {'ok' if not self.broken else 'failed'}",
            ]
        )  # fmt: skip


def _row(channel: str, one: Judgement) -> str:
    took = percentiles(one.seconds)
    return (
        f"{channel:<10}{one.people:>8}{one.sent:>8}{one.answered:>10}{len(one.lost):>6}{len(one.doubled):>9}"
        f"{len(one.out_of_order):>14}{one.strays:>8}{one.flickers:>10}"
        f"{took.get('p50', 0):>6.1f} s{took.get('p99', 0):>6.1f} s{took.get('max', 0):>7.1f} s"
    )


@asynccontextmanager
async def a_house(plan: Plan, tell: Callable[[str], None]) -> AsyncIterator[Chaos]:
    """Servers, fakes and a database for one run."""
    folder = short_folder("evx-")
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
            made = Chaos(plan=plan, plant=plant, case=case, provider=provider, telegram=telegram)
            made.tell = tell
            yield made
        finally:
            await servers.stop()
            shutil.rmtree(folder, ignore_errors=True)


async def raged(plan: Plan, tell: Callable[[str], None] = lambda _: None) -> Report:
    async with a_house(plan, tell) as house:
        return await house.run()


def main(arguments: Sequence[str] | None = None) -> int:
    asked = _read(arguments)
    plan = chaos(asked.minutes, seed=asked.seed)
    if asked.postgres_only:
        plan = postgres_killed(asked.minutes * 60.0, seed=asked.seed)
    if asked.people is not None:
        plan = replace(plan, visitors=asked.people // 2, texters=asked.people - asked.people // 2)
    plan = replace(plan, answer_chars=asked.answer_chars)
    began = time.monotonic()

    def tell(what: str) -> None:
        print(f"{time.monotonic() - began:7.1f} s  {what}", file=sys.stderr, flush=True)

    report = asyncio.run(raged(plan, tell))
    print(report.table(), flush=True)
    folder = asked.transcripts
    if folder is None and report.broken:
        folder = Path(tempfile.mkdtemp(prefix="evertalk-chaos-"))
    if folder is not None:
        _write(report, folder)
        tell(f"what each person sent and saw is in {folder}")
    return 1 if report.broken else 0


def _read(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = OneLineParser(prog="evertalk test chaos", description=__doc__)
    parser.add_argument("--minutes", type=_minutes, default=30.0, help="of talk, 30 unless said otherwise")
    parser.add_argument("--people", type=_people, help="half of them on each channel; 40 by default")
    parser.add_argument("--seed", type=int, default=1, help="who is killed when, and who writes when")
    parser.add_argument(
        "--postgres-only", action="store_true", help="nothing but Postgres is killed, every 6 to 9 s"
    )
    parser.add_argument(
        "--answer-chars", type=int, default=0, help="answers of up to so many characters instead of one line"
    )
    parser.add_argument(
        "--transcripts",
        type=Path,
        help="a folder: what each person sent and saw is written there (a new one when it fails)",
    )
    return parser.parse_args(arguments)


def _minutes(word: str) -> float:
    try:
        found = float(word)
    except ValueError:
        found = 0.0
    if not 0.1 <= found <= 24 * 60:
        raise argparse.ArgumentTypeError(f"{word!r} is no number of minutes between 0.1 and 1,440")
    return found


def _people(word: str) -> int:
    found = int(word) if word.isdigit() else 0
    if not 2 <= found <= 1_000:
        raise argparse.ArgumentTypeError(f"{word!r} is no number of people between 2 and 1,000")
    return found


def _write(report: Report, folder: Path) -> None:
    """A file for each person, for each message that is broken, and for the last words of each process."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, words in report.logs.items():
        (folder / f"{name}.log").write_text(f"{words}\n")
    for mark, rows in report.evidence.items():
        (folder / f"{mark}.rows").write_text("\n".join(rows) + "\n")
    for one in report.transcripts:
        lines = [
            f"sent: {' '.join(one.sent)}",
            "",
            *one.flickers,
            "",
            *(f"{line.at:.3f}  {line.text}" for line in one.seen),
        ]
        (folder / f"{one.person}.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main())
