"""The primary of docs/cluster.md dies: through its own PgBouncer and HAProxy people wait for seconds only."""

from __future__ import annotations

import asyncio
import shutil
import signal
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass

import pytest

from shared.adapters.postgres.db.connecting import connect
from shared.adapters.postgres.operations.invariants import check_invariants
from tests.integration.external_servers.cluster import Cluster, build_cluster
from tests.integration.external_servers.own_postgres import OwnPostgres, own_postgres
from tests.integration.external_servers.standby_postgres import promote, standby_of
from tests.kit.deployment.person import Person
from tests.kit.fakes.tcp_proxy import TcpProxy
from tests.kit.suite.time_limit import count_times
from tests.kit.temp_folders import short_folder

PEOPLE = 2
SILENCE_SECONDS = 10.0
"""Longest time without an answer that the document promises, on a machine at rest."""
NOTICED_SECONDS = 1.2
"""Time that a failover manager takes to notice that the primary is gone."""
DATABASE = "evertalk"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A cluster whose database can fail over."""

    cluster: Cluster
    primary: OwnPostgres
    standby: OwnPostgres
    line: TcpProxy
    """Where the name of the primary leads."""

    async def fail_over(self) -> None:
        """Kill the primary as with its machine, promote the standby, and move the name."""
        self.line.refuses = True
        self.primary.process.send_signal(signal.SIGQUIT)
        self.line.cut()
        await asyncio.sleep(NOTICED_SECONDS)
        await promote(self.standby)
        self.line.upstream, self.line.refuses = ("127.0.0.1", self.standby.port), False


@pytest.fixture
async def pair(redis_url: str) -> AsyncIterator[Pair]:
    folder, other = short_folder("evr-"), short_folder("evs-")
    try:
        async with AsyncExitStack() as stack:
            primary = await stack.enter_async_context(own_postgres(folder))
            await primary.create(DATABASE)
            standby = await stack.enter_async_context(standby_of(primary, other))
            line = await stack.enter_async_context(TcpProxy(upstream=("127.0.0.1", primary.port)))
            places = folder / "cluster"
            places.mkdir()
            places.chmod(0o755)
            cluster = await build_cluster(
                stack, places, primary, DATABASE, redis_url, name_port=line.port, standby_port=standby.port
            )
            yield Pair(cluster=cluster, primary=primary, standby=standby, line=line)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(other, ignore_errors=True)


@pytest.mark.faults
@pytest.mark.row("F57")
@pytest.mark.timeout(400)
async def test_failover_through_the_documents_files_takes_seconds(pair: Pair) -> None:
    one, other = pair.cluster.hosts
    migrated = await asyncio.to_thread(one.run, "migrate")
    assert migrated.returncode == 0, migrated.stderr
    async with other.up(), one.up(), AsyncExitStack() as stack:
        await _both_serve(pair)
        people = [
            await stack.enter_async_context(Person(pair.cluster.port, name=f"f{n}", tls=pair.cluster.tls))
            for n in range(PEOPLE)
        ]
        for person in people:
            await person.ask("Before the failover.")
        last = time.monotonic()
        await pair.fail_over()
        promoted = time.monotonic()
        for person in people:
            await person.say("After the failover.")
        first = await _first_answer(people)
        for person in people:
            await person.answered()
            assert person.contradictions == []
            assert len(person.finals) == len(person.said) == 2
        silence = first - last
        print(f"promoted after {promoted - last:.1f} s, silent for {silence:.1f} s")
        assert silence <= SILENCE_SECONDS * count_times()
    connection = await connect(pair.standby.url(DATABASE))
    try:
        assert [str(line) for line in await check_invariants(connection)] == []
    finally:
        await connection.close()


async def _first_answer(people: list[Person]) -> float:
    """Return when the first answer after the failover came."""
    async with asyncio.timeout(90):
        while not any(len(person.finals) == 2 for person in people):
            await asyncio.sleep(0.02)
    return time.monotonic()


async def _both_serve(pair: Pair) -> None:
    connection = await connect(pair.primary.url(DATABASE))
    try:
        async with asyncio.timeout(120):
            while await connection.fetchval(_SERVING) != 2:
                await asyncio.sleep(0.2)
    finally:
        await connection.close()


_SERVING = """
SELECT count(*) FROM workers
 WHERE role = 'web' AND stopped_at IS NULL AND beat > now() - interval '4 seconds' AND health ? 'screens'
"""
