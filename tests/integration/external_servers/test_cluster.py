"""Two hosts, set up as docs/cluster.md has it word for word: one dies, and nobody loses a word."""

from __future__ import annotations

import asyncio
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from shared.adapters.postgres.db.connecting import connect
from shared.adapters.postgres.operations.invariants import check_invariants
from tests.integration.external_servers.cluster import Cluster, build_cluster
from tests.integration.external_servers.own_postgres import OwnPostgres
from tests.kit.deployment.person import Person
from tests.kit.temp_folders import short_folder

PEOPLE, TURNS = 3, 2
"""From one address twenty messages in a minute are let in, by both hosts together."""


@pytest.fixture
async def cluster(own_server: OwnPostgres, own_database: str, redis_url: str) -> AsyncIterator[Cluster]:
    folder = short_folder("evc-")
    try:
        async with AsyncExitStack() as stack:
            yield await build_cluster(stack, folder, own_server, own_database, redis_url)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.faults
@pytest.mark.timeout(400)
async def test_death_of_a_database_host_loses_no_message(cluster: Cluster) -> None:
    one, other = cluster.hosts
    migrated = await asyncio.to_thread(one.run, "migrate")
    assert migrated.returncode == 0, migrated.stderr
    async with other.up(), one.up() as dying, AsyncExitStack() as stack:
        await _until(cluster, _SERVING, 2)
        people = [
            await stack.enter_async_context(Person(cluster.port, name=f"p{n}", tls=cluster.tls))
            for n in range(PEOPLE)
        ]
        await _talk(people)
        await _until(cluster, _WITH_SCREENS, 2)
        looked = await asyncio.to_thread(other.run, "doctor")
        assert looked.returncode == 0, looked.stdout
        assert "2 hosts with the same setup" in looked.stdout
        assert "PostgreSQL is reached through a connection pooler" in looked.stdout
        talking = [asyncio.ensure_future(_talk([person])) for person in people]
        dying.send_signal(signal.SIGKILL)
        await dying.wait()
        await asyncio.gather(*talking)
        await _talk(people)
        for person in people:
            assert person.contradictions == []
            assert len(person.finals) == len(person.said) == 3 * TURNS
        saved = await asyncio.to_thread(other.run, "backup")
        assert saved.returncode == 0, saved.stderr
        await _until(cluster, _SERVING, 1)
    connection = await connect(cluster.direct)
    try:
        assert [str(line) for line in await check_invariants(connection)] == []
    finally:
        await connection.close()


async def _talk(people: list[Person]) -> None:
    for _ in range(TURNS):
        for person in people:
            await person.say("Let us go on.")
        for person in people:
            await person.answered()


async def _until(cluster: Cluster, count: str, wanted: int) -> None:
    connection = await connect(cluster.direct)
    try:
        async with asyncio.timeout(90):
            while await connection.fetchval(count) != wanted:
                await asyncio.sleep(0.2)
    except TimeoutError:
        logs = [(host.folder / "up.log").read_text()[-2000:] for host in cluster.hosts]
        raise AssertionError(f"{count} is not {wanted}\n" + "\n".join(logs)) from None
    finally:
        await connection.close()


_LIVES = "role = 'web' AND stopped_at IS NULL AND beat > now() - interval '4 seconds'"
_SERVING = f"SELECT count(*) FROM workers WHERE {_LIVES}"
_WITH_SCREENS = f"SELECT count(*) FROM workers WHERE {_LIVES} AND health ? 'screens'"
