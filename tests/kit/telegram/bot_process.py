"""Runs the bot as a process beside a strict fake of Telegram, on real servers."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg

from shared.adapters.postgres.telegram.access import PostgresTelegramAccess
from tests.kit.deployment.forks import hatchery
from tests.kit.fakes.bot_api import TOKEN, BotApi, Person

ROOT = Path(__file__).resolve().parents[3]
BOT_ID = int(TOKEN.partition(":")[0])
SECRET = "journeys-secret-and-nothing-else"
START_SECONDS = 90.0
STOP_SECONDS = 45.0
"""Seconds for a process to stop: up to 10 for an answer to end, up to 10 for what is cancelled, and a
reserve.
"""


@dataclass(slots=True)
class Program:
    """A process of Evertalk, whose output is read line by line."""

    name: str
    environment: Mapping[str, str]
    lines: list[str] = field(default_factory=list)
    _process: asyncio.subprocess.Process | None = None
    _reading: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._process = await self._launch()
        self._reading = asyncio.create_task(self._read())

    async def _launch(self) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", self.name, cwd=ROOT, env=dict(self.environment),
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT, start_new_session=True, limit=1024 * 1024,
        )  # fmt: skip

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def said(self, event: str, *, times: int = 1) -> None:
        async with asyncio.timeout(START_SECONDS):
            while sum(f'"event": "{event}"' in line for line in self.lines) < times:
                assert self._process is not None
                assert self._process.returncode is None, self.words()
                await asyncio.sleep(0.02)

    async def terminate(self) -> int:
        """Ask the process to stop (SIGTERM), and return its exit code."""
        assert self._process is not None
        if self._process.returncode is None:
            self._process.terminate()
        return await self.ended()

    async def kill(self) -> None:
        """Kill the process (SIGKILL), as a power cut would."""
        assert self._process is not None
        if self._process.returncode is None:
            self._process.kill()
        await self.ended()

    def words(self) -> str:
        return "\n".join(self.lines[-40:])

    async def ended(self) -> int:
        """Wait until the process has ended, and return its exit code."""
        assert self._process is not None
        assert self._reading is not None
        async with asyncio.timeout(STOP_SECONDS):
            code = await self._process.wait()
            await self._reading
        return code

    async def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            self.lines.append(line.decode(errors="replace").rstrip())


class HatchedProgram(Program):
    """A process that starts faster, forked from one that has imported the code."""

    async def _launch(self) -> Any:
        return await (await asyncio.to_thread(hatchery)).start(self.name, self.environment)


@dataclass(slots=True)
class TelegramHouse:
    """A deployment with one bot, to which people talk through the fake Telegram."""

    api: BotApi
    database_url: str
    redis_url: str
    settings: dict[str, str]
    bot: Program
    worker: Program | None = None

    async def person(self, number: int = 42, *, allowed: bool = True, **told: Any) -> Person:
        person = await self.api.person(number, **told)
        if allowed:
            await self.let_in(person.id)
        return person

    async def let_in(self, chat_id: int, *, owner: bool = False) -> None:
        pool = await asyncpg.create_pool(self.database_url, min_size=1, max_size=1)
        try:
            access = PostgresTelegramAccess(pool)
            await access.decide(BOT_ID, chat_id, allowed=True, by="test", owner=owner)
        finally:
            await pool.close()

    async def refuse(self, chat_id: int) -> None:
        """Deny a chat access, as an operator does."""
        pool = await asyncpg.create_pool(self.database_url, min_size=1, max_size=1)
        try:
            await PostgresTelegramAccess(pool).decide(BOT_ID, chat_id, allowed=False, by="test")
        finally:
            await pool.close()

    async def one(self, sql: str, *arguments: Any) -> Any:
        connection = await asyncpg.connect(self.database_url)
        try:
            return await connection.fetchval(sql, *arguments)
        finally:
            await connection.close()

    async def row(self, sql: str, *arguments: Any) -> Any:
        connection = await asyncpg.connect(self.database_url)
        try:
            return await connection.fetchrow(sql, *arguments)
        finally:
            await connection.close()

    async def until(self, sql: str, *arguments: Any, seconds: float = 60.0) -> None:
        """Wait until the first value of the query's row is true."""
        async with asyncio.timeout(seconds):
            while not await self.one(sql, *arguments):
                await asyncio.sleep(0.05)

    async def handled(self, *, seconds: float = 60.0) -> None:
        """Wait until the bot has fetched and handled everything that people sent."""
        async with asyncio.timeout(seconds):
            while (await self.api.bot())["pending"]:
                await asyncio.sleep(0.05)
        await self.until(
            "SELECT count(*) = 0 FROM telegram_updates WHERE handled_at IS NULL", seconds=seconds
        )

    async def restart(self, *, how: str = "terminate", **more: str) -> None:
        await (self.bot.terminate() if how == "terminate" else self.bot.kill())
        await self.start(**more)

    async def start(self, **more: str) -> None:
        self.bot = type(self.bot)("bot", {**self.settings, **more})
        await self.bot.start()
        await self.bot.said("bot_serves")


@asynccontextmanager
async def telegram_house(
    api: BotApi,
    database_url: str,
    redis_url: str,
    folder: Path,
    *,
    worker: bool = False,
    program: type[Program] = HatchedProgram,
    **more: str,
) -> AsyncIterator[TelegramHouse]:
    """Yield a deployment with a running bot process.

    On leaving, fail if a call of the bot broke a rule of Telegram.
    """
    settings = {
        "PATH": os.environ["PATH"],
        "DATABASE_URL": database_url,
        "REDIS_URL": redis_url,
        "TELEGRAM_BOT_TOKEN": TOKEN,
        "EVERTALK_TELEGRAM_API_URL": api.base_url,
        "EVERTALK_SECRET_KEY": SECRET,
        "EVERTALK_DATA_DIR": str(folder),
        "EVERTALK_LOG_FORMAT": "json",
        "EVERTALK_TELEGRAM_DRAFTS": "false",  # these tests watch bubbles; drafts have separate tests
        **more,
    }
    house = TelegramHouse(api, database_url, redis_url, settings, program("bot", settings))
    try:
        await house.start()
        if worker:
            house.worker = program("worker", settings)
            await house.worker.start()
            await house.worker.said("worker_ready")
        yield house
    finally:
        codes = [await house.bot.terminate()]
        if house.worker is not None:
            codes.append(await house.worker.terminate())
    assert codes == [0] * len(codes), house.bot.words()
    assert not await api.violations()
