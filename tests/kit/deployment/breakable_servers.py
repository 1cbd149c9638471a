"""Servers that a test can kill, databases for its cases, and the verdict at the end of each case."""

from __future__ import annotations

import asyncio
import shutil
import signal
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import asyncpg
from arq.connections import ArqRedis
from redis.asyncio import Redis

from shared.adapters.embedded import EmbeddedServers
from shared.adapters.embedded.process import wait_until
from shared.adapters.postgres.operations.invariants import Violation, check_activity, check_invariants
from shared.adapters.redis.arq_queue import open_queue
from tests.kit.deployment.forks import HatchedProcess, Hatchery
from tests.kit.deployment.person import PATIENCE_SECONDS, Person
from tests.kit.deployment.processes import Process
from tests.kit.free_ports import free_port

_numbers = count(1)
SECRET = "for-the-fault-suite-and-nothing-else"


@dataclass(slots=True, kw_only=True)
class Plant:
    """PostgreSQL and Valkey in a separate folder; PostgreSQL with full durability."""

    servers: EmbeddedServers
    folder: Path
    hatchery: Hatchery | None = None
    """Server that forks processes; None starts them as in production."""

    def database_url(self, name: str) -> str:
        assert self.servers.postgres is not None
        return self.servers.postgres.url(name)

    async def admin(self, statement: str) -> None:
        connection = await asyncpg.connect(self.database_url("postgres"), timeout=PATIENCE_SECONDS)
        try:
            await connection.execute(statement, timeout=60)
        finally:
            await connection.close(timeout=PATIENCE_SECONDS)

    async def create(self, template: str) -> str:
        name = f"case_{next(_numbers)}"
        await self.admin(f'create database "{name}" template "{template}" strategy file_copy')
        return name

    async def drop(self, name: str) -> None:
        await self.admin(f'drop database if exists "{name}" with (force)')

    async def case(self, template: str) -> Case:
        """Return a case with a new database, and a Redis database without marks of jobs from earlier
        cases.
        """
        number = next(_numbers)
        case = Case(
            plant=self,
            database=await self.create(template),
            redis_url=f"{self.servers.redis_url}?db={number // 2 % 16}",
            port=free_port(),
        )
        async with case.queue() as redis:
            await redis.flushdb()
        return case

    # What tests do to it.

    async def crash_postgres(self) -> None:
        """Kill PostgreSQL like a power cut, so that it must recover from its log."""
        postgres = self.servers.postgres
        assert postgres is not None
        assert postgres.process is not None
        postgres.process.send_signal(signal.SIGQUIT)
        assert await wait_until(lambda: not postgres.alive, timeout_seconds=PATIENCE_SECONDS)

    async def start_postgres(self) -> None:
        assert self.servers.postgres is not None
        await self.servers.postgres.start()

    async def kill_redis(self, *, emptied: bool) -> None:
        valkey = self.servers.valkey
        assert valkey is not None
        assert valkey.process is not None
        valkey.process.kill()
        assert await wait_until(lambda: not valkey.alive, timeout_seconds=PATIENCE_SECONDS)
        if emptied:
            shutil.rmtree(self.folder / "servers" / "valkey", ignore_errors=True)

    async def start_redis(self) -> None:
        assert self.servers.valkey is not None
        await self.servers.valkey.start()

    async def flush_redis(self) -> None:
        client = Redis.from_url(self.servers.redis_url)
        try:
            await client.flushall()
        finally:
            await client.aclose()


@dataclass(slots=True, kw_only=True)
class Case:
    """One database, the processes that use it, and what must hold at the end."""

    plant: Plant
    database: str
    redis_url: str
    port: int

    @property
    def database_url(self) -> str:
        return self.plant.database_url(self.database)

    def settings(self, **more: str) -> dict[str, str]:
        return {
            "DATABASE_URL": self.database_url,
            "REDIS_URL": self.redis_url,
            "EVERTALK_HTTP_PORT": str(self.port),
            "EVERTALK_SECRET_KEY": SECRET,
            "EVERTALK_DATA_DIR": str(self.plant.folder / "data"),
            **more,
        }

    def web(self, *, crash_point: str | None = None, **more: str) -> Process:
        return self.process("web", crash_point=crash_point, **more)

    def worker(self, *, crash_point: str | None = None, **more: str) -> Process:
        return self.process("worker", crash_point=crash_point, **more)

    def process(self, module: str, *, crash_point: str | None = None, **more: str) -> Process:
        settings = self.settings(**more)
        if self.plant.hatchery is None:
            return Process(module, settings, crash_point=crash_point)
        return HatchedProcess(self.plant.hatchery, module, settings, crash_point=crash_point)

    @asynccontextmanager
    async def queue(self) -> AsyncIterator[ArqRedis]:
        """Open the queue as the worker sees it."""
        pool = open_queue(self.redis_url)
        try:
            yield pool
        finally:
            await pool.aclose()

    async def connect(self) -> asyncpg.Connection[asyncpg.Record]:
        return await asyncpg.connect(self.database_url, timeout=PATIENCE_SECONDS)

    async def value(self, sql: str, *arguments: object) -> Any:
        connection = await self.connect()
        try:
            return await connection.fetchval(sql, *arguments, timeout=PATIENCE_SECONDS)
        finally:
            await connection.close(timeout=PATIENCE_SECONDS)

    async def until(self, sql: str, *, within_seconds: float = PATIENCE_SECONDS) -> None:
        end = time.monotonic() + within_seconds
        while not await self.value(sql):
            assert time.monotonic() < end, sql
            await asyncio.sleep(0.1)

    async def rows(self, sql: str, *arguments: object) -> list[dict[str, Any]]:
        connection = await self.connect()
        try:
            return [dict(row) for row in await connection.fetch(sql, *arguments, timeout=PATIENCE_SECONDS)]
        finally:
            await connection.close(timeout=PATIENCE_SECONDS)

    async def run(self, sql: str) -> None:
        """Run several statements for their effect."""
        connection = await self.connect()
        try:
            await connection.execute(sql, timeout=PATIENCE_SECONDS)
        finally:
            await connection.close(timeout=PATIENCE_SECONDS)

    async def promises_hold(self, *people: Person) -> None:
        """Check that nothing is lost, doubled or out of order, in Postgres and on the screens of these
        people.
        """
        connection = await self.connect()
        try:
            for person in people:
                await _answered_once(connection, person)
                newest = await _is_told(connection, person)
                await _screen_shows_the_log(connection, person, newest)
            async with _judging:
                broken = [*await check_invariants(connection), *await open_for_too_long(connection)]
        finally:
            await connection.close(timeout=PATIENCE_SECONDS)
        assert broken == [], "\n".join(map(str, broken))


SLOW_SECONDS = 20.0
"""Seconds that a busy machine may need to finish open statements."""


async def open_for_too_long(connection: asyncpg.Connection[asyncpg.Record]) -> list[Violation]:
    """Return statements and transactions that stay open although no work is left.

    Waits up to SLOW_SECONDS.
    """
    end = time.monotonic() + SLOW_SECONDS
    while (found := await check_activity(connection)) and time.monotonic() < end:
        await asyncio.sleep(0.2)
    return found


_judging = asyncio.Lock()
"""Lock for one verdict at a time: another would find the first one's transaction open for too long."""


async def _answered_once(connection: asyncpg.Connection[asyncpg.Record], person: Person) -> None:
    rows = await connection.fetch(
        """SELECT e.cid, count(DISTINCT e.seq) AS stored, count(DISTINCT t.turn_no) AS turns,
                  bool_and(t.ended_at IS NOT NULL) AS ended,
                  count(DISTINCT a.seq) FILTER (WHERE NOT a.blocks @> '[{"type": "tool_use"}]') AS answers,
                  min(e.seq) AS seq, min(t.turn_no) AS turn_no
             FROM entries e JOIN turn_entries te USING (session_id, seq)
             JOIN turns t USING (session_id, turn_no)
             LEFT JOIN turn_entries ta ON ta.session_id = te.session_id AND ta.turn_no = te.turn_no
             LEFT JOIN entries a ON a.session_id = ta.session_id AND a.seq = ta.seq AND a.author = 'assistant'
            WHERE e.cid = ANY ($1::text[]) GROUP BY e.cid ORDER BY min(e.seq)""",
        list(person.said),
        timeout=PATIENCE_SECONDS,
    )
    assert [row["cid"] for row in rows] == list(person.said), "lost, or stored in another order"
    for row in rows:
        assert (row["stored"], row["turns"], row["ended"]) == (1, 1, True), dict(row)
        assert row["answers"] == 1, dict(row)
    turns = [row["turn_no"] for row in rows]
    assert turns == sorted(turns)


async def _is_told(connection: asyncpg.Connection[asyncpg.Record], person: Person) -> int:
    """Wait until the person's screen shows the newest event; return its number."""
    end, newest = time.monotonic() + PATIENCE_SECONDS, 0
    while person.acks and time.monotonic() < end:
        newest = await connection.fetchval(
            """SELECT max(event_seq) FROM events
                WHERE session_id = (SELECT session_id FROM entries WHERE cid = $1)""",
            next(iter(person.acks)),
            timeout=PATIENCE_SECONDS,
        )
        if max(person.seen, default=0) >= newest:
            break
        await asyncio.sleep(0.05)
    return newest


async def _screen_shows_the_log(
    connection: asyncpg.Connection[asyncpg.Record], person: Person, newest: int
) -> None:
    """Check that a person's screen shows the log up to event `newest`; jobs may add events at any time."""
    assert person.contradictions == []
    assert set(person.said) <= set(person.acks)
    first = next(iter(person.acks.values()), None)
    if first is None:
        return
    stored = await connection.fetch(
        """SELECT v.event_seq, v.kind, v.turn_no FROM events v
            WHERE v.session_id = (SELECT session_id FROM entries WHERE cid = $1) AND v.event_seq <= $2
            ORDER BY v.event_seq""",
        next(iter(person.acks)),
        newest,
        timeout=PATIENCE_SECONDS,
    )
    shown = [(number, person.seen[number]["t"]) for number in sorted(person.seen) if number <= newest]
    oldest = shown[0][0]
    assert shown == [(row["event_seq"], row["kind"]) for row in stored if row["event_seq"] >= oldest]
    turns = [frame["turn"] for frame in person.finals]
    assert turns == sorted(set(turns)), f"answered twice or out of order: {turns}"
    for frame in person.finals:
        assert frame["text"], frame


class Recovery:
    """Recorder of how long recoveries take; printed only, since tests do not depend on time."""

    def __init__(self) -> None:
        self._rows: list[tuple[str, float]] = []

    def note(self, what: str, since: float | None) -> None:
        if since is not None:
            self._rows.append((what, time.monotonic() - since))

    def report(self) -> Sequence[str]:
        return [f"  {what:<44} {seconds:5.1f} s" for what, seconds in self._rows]
