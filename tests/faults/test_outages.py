"""Postgres only reads, waits or disagrees, Redis freezes, is full or holds nonsense: people talk on."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from shared.adapters.redis.arq_queue import FUNCTIONS, QUEUE, ArqDoorbell
from shared.core.session.turns import DueJob
from shared.services.compaction.flusher import FAULTS_AT_MOST
from tests.faults.house import House, told
from tests.faults.lengths import lasting
from tests.kit.deployment.breakable_servers import Case, Plant, Recovery
from tests.kit.deployment.person import PATIENCE_SECONDS, Person
from tests.kit.deployment.processes import Process, logged

CONNECTIONS = 10
"""Of one process, at most."""
CANCELLED = 1_000
AT_ONCE = 50
PENDING = 50


# -- Postgres ---------------------------------------------------------------------------------------------


@pytest.mark.row("F29")
async def test_connections_to_a_server_that_only_reads_are_let_go_of(
    shared_house: House, recovery: Recovery
) -> None:
    """As after a failover: those who came to the standby are not told when another server is the primary."""
    name = shared_house.case.database
    async with shared_house.person("reads") as person:
        await person.ask("Are you there?")
        await shared_house.case.run(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
        await shared_house.case.run(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'evertalk'"
            " AND datname = current_database()"
        )
        try:
            await told(person, "Said to a standby.")
        finally:
            await shared_house.case.plant.admin(
                f'ALTER DATABASE "{name}" RESET default_transaction_read_only'
            )
        since = time.monotonic()
        await person.answered()
        recovery.note("answered after Postgres only read", since)
        await shared_house.case.promises_hold(person)


@pytest.mark.row("F32")
async def test_a_thousand_callers_who_hang_up_leave_nothing_behind(shared_house: House) -> None:
    async with shared_house.person("stays") as person:
        await person.ask("Are you there?")
        files = _open_files(shared_house.web)
        gate = asyncio.Semaphore(AT_ONCE)
        await asyncio.gather(
            *(_hangs_up(shared_house.case.port, gate, number) for number in range(CANCELLED))
        )
        await person.ask("And are you still there?")
        await shared_house.until(_NONE_OPEN, "a transaction stays open")
        await shared_house.until(_FEW_CONNECTED, "connections of callers who left stay open")
        end = time.monotonic() + PATIENCE_SECONDS
        while _open_files(shared_house.web) > files + CONNECTIONS:
            assert time.monotonic() < end, "sockets are never closed"
            await asyncio.sleep(0.1)
        await shared_house.case.promises_hold(person)


_FEW_CONNECTED = f"""
SELECT count(*) <= {2 * CONNECTIONS} FROM pg_stat_activity
 WHERE application_name = 'evertalk' AND datname = current_database()
"""
_NONE_OPEN = """
SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'evertalk' AND state LIKE 'idle in%')
"""


async def _hangs_up(port: int, gate: asyncio.Semaphore, number: int) -> None:
    """In the middle of a request that Postgres is asked for."""
    body = b'{"t": "hello", "v": 1, "site": "default", "last_seq": 0}'
    asked = (
        f"POST /api/v1/stream HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nOrigin: http://127.0.0.1:{port}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode()
    async with gate:
        async with asyncio.timeout(PATIENCE_SECONDS):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(asked + body)
        await writer.drain()
        await asyncio.sleep((number % 7) / 1_000)
        writer.transport.abort()


def _open_files(process: Process) -> int:
    return sum(1 for _ in Path(f"/proc/{process.pid}/fd").iterdir())


_LOSES = """
CREATE SEQUENCE tries;
CREATE FUNCTION loses() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF nextval('tries') <= {times} THEN RAISE EXCEPTION 'a rival won' USING ERRCODE = '{code}'; END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER loses BEFORE INSERT ON entry_rows FOR EACH ROW EXECUTE FUNCTION loses();
"""
_NO_MORE = "DROP FUNCTION loses() CASCADE; DROP SEQUENCE tries"


@pytest.mark.row("F33")
@pytest.mark.parametrize("code", ["40P01", "40001"])
async def test_statement_that_loses_a_conflict_is_retried_a_few_times(shared_house: House, code: str) -> None:
    async with shared_house.person(f"rival{code}") as person:
        await person.ask("Are you there?")
        await shared_house.case.run(_LOSES.format(times=3, code=code))
        try:
            await person.ask("Said against three rivals.")
            assert person.errors == []
        finally:
            await shared_house.case.run(_NO_MORE)
        await shared_house.case.run(_LOSES.format(times=100_000, code=code))
        try:
            await told(person, "Said against too many.")
        finally:
            await shared_house.case.run(_NO_MORE)
        await person.answered()
        await shared_house.case.promises_hold(person)


# -- Redis ------------------------------------------------------------------------------------------------


@asynccontextmanager
async def jobs(
    house: House, people: list[Person], number: int, *, name: str = "tidy"
) -> AsyncIterator[list[str]]:
    """So many are due, and none is begun; they are done when the worker goes on behind this."""
    house.worker.send(signal.SIGSTOP)
    try:
        keys = [f"{name}:{people[0].name}:{one}" for one in range(number)]
        for one, key in enumerate(keys):
            cid = next(iter(people[one % len(people)].said))
            await house.case.value(
                """INSERT INTO jobs (kind, session_id, key)
                   SELECT 'tidy', session_id, $2 FROM entries WHERE cid = $1 RETURNING id""",
                cid, key,
            )  # fmt: skip
        yield keys
    finally:
        house.worker.send(signal.SIGCONT)


async def all_done(house: House, keys: list[str]) -> None:
    named = ", ".join(f"'{key}'" for key in keys)
    await house.until(
        f"SELECT count(*) = {len(keys)} FROM jobs WHERE key IN ({named}) AND state = 'done'",
        "not every job was done",
    )


@pytest.mark.row("F34")
async def test_fifty_pending_jobs_outlive_a_redis_that_is_killed_and_empty(
    shared_house: House, plant: Plant, recovery: Recovery
) -> None:
    people = [shared_house.person(f"fifty{number}") for number in range(5)]
    for person in people:
        await person.__aenter__()
    try:
        await asyncio.gather(*(person.ask("Good day.") for person in people))
        async with jobs(shared_house, people, PENDING) as keys:
            await _rung(shared_house, keys)
            await plant.kill_redis(emptied=True)
            await plant.start_redis()
        since = time.monotonic()
        await all_done(shared_house, keys)
        recovery.note(f"{PENDING} jobs done after Redis was killed", since)
        await shared_house.case.promises_hold(*people)
    finally:
        for person in people:
            await person.__aexit__()


async def _rung(house: House, keys: list[str]) -> None:
    """All of them wait in Redis, from where they will be lost."""
    bell = ArqDoorbell(house.case.redis_url)
    async with house.case.queue() as queue:
        before = await queue.zcard(QUEUE)
        try:
            for key in keys:
                job = await house.case.rows("SELECT id, kind FROM jobs WHERE key = $1", key)
                assert await bell.ring(DueJob(**job[0]))
        finally:
            await bell.close()
        assert await queue.zcard(QUEUE) == before + len(keys)


@pytest.mark.row("F36")
async def test_people_talk_on_and_jobs_are_done_while_redis_is_frozen(
    shared_house: House, plant: Plant
) -> None:
    """It takes connections and says nothing: every wait for it has an end."""
    valkey = plant.servers.valkey
    assert valkey is not None
    assert valkey.process is not None
    async with shared_house.person("frozen") as person:
        await person.ask("Good day.")
        valkey.process.send_signal(signal.SIGSTOP)
        try:
            until = time.monotonic() + lasting(3.0, 20.0)
            await person.ask("Is it cold?")
            async with jobs(shared_house, [person], 3) as keys:
                pass
            while time.monotonic() < until:
                await person.ask("And now?")
                await asyncio.sleep(0.5)
        finally:
            valkey.process.send_signal(signal.SIGCONT)
        await all_done(shared_house, keys)
        await shared_house.case.promises_hold(person)


@pytest.mark.row("F37")
async def test_people_talk_on_and_jobs_are_done_while_redis_is_full(shared_house: House) -> None:
    async with shared_house.person("full") as person, shared_house.case.queue() as redis:
        await person.ask("Good day.")
        silent = logged([shared_house.worker], "job_announcement_failed")
        await redis.config_set("maxmemory-policy", "noeviction")
        await redis.config_set("maxmemory", "1")
        try:
            async with jobs(shared_house, [person], 3) as keys:
                pass
            await person.ask("Is there room for me?")
            await all_done(shared_house, keys)
            await shared_house.until(_RINGS_COUNTED, "nobody counted what Redis did not take")
            async with jobs(shared_house, [person], 3, name="waited") as waited:
                pass
        finally:
            await redis.config_set("maxmemory", "0")
        await all_done(shared_house, waited)
        assert logged([shared_house.worker], "job_announcement_failed") > silent, (
            "nobody said that Redis was full"
        )
        await shared_house.case.promises_hold(person)


_RINGS_COUNTED = """
SELECT EXISTS (SELECT FROM workers
                WHERE stopped_at IS NULL AND (health -> 'redis_errors' ->> 'enqueue')::int > 0)
"""
"""What `/metrics` adds up."""


@pytest.mark.row("F39")
async def test_whatever_arq_is_made_to_lose_every_job_is_done(shared_house: House) -> None:
    """An id that is done, a function that nobody has, a job that expired, and bytes of nobody."""
    async with shared_house.person("arq") as person, shared_house.case.queue() as queue:
        await person.ask("Good day.")
        async with jobs(shared_house, [person], 4) as keys:
            ids = [await shared_house.case.value("SELECT id FROM jobs WHERE key = $1", key) for key in keys]
            await queue.set(f"arq:result:{ids[0]}:0", b"{}", ex=3600)
            assert await queue.enqueue_job(FUNCTIONS["flush"], ids[0], _job_id=f"{ids[0]}:0") is None
            await queue.enqueue_job("unheard_of", ids[1], _job_id=f"{ids[1]}:0")
            await queue.enqueue_job(FUNCTIONS["flush"], ids[2], _job_id=f"{ids[2]}:0", _expires=0.01)
            await queue.set(f"arq:job:{ids[3]}:0", b"\x80\x04nonsense", ex=3600)
            await queue.zadd(QUEUE, {f"{ids[3]}:0": 1})
        await all_done(shared_house, keys)
        await person.ask("And now?")
        await shared_house.case.promises_hold(person)


_FAILS = """
CREATE FUNCTION fails() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'nobody has thought of this'; END $$;
CREATE TRIGGER fails BEFORE INSERT OR UPDATE ON compactions FOR EACH ROW EXECUTE FUNCTION fails();
"""


@pytest.mark.row("F39")
async def test_job_that_always_fails_is_ended_and_the_person_notified(shared_house: House) -> None:
    async with shared_house.person("fails") as person:
        for number in range(7):
            await person.ask(f"Number {number}: we met in Lisbon. {'We walked along the river. ' * 20}")
        await shared_house.case.run(_FAILS)
        try:
            asked = await person.command("compact", "--force")
            hurrying = asyncio.create_task(_hurry(shared_house.case))
            try:
                await person.until(lambda: asked in person.commands, "the end of the job")
            finally:
                hurrying.cancel()
                await asyncio.wait([hurrying])
        finally:
            await shared_house.case.run("DROP FUNCTION fails() CASCADE")
        assert not person.commands[asked]["success"], person.commands[asked]
        failed: list[Any] = [
            await shared_house.case.value("SELECT state FROM jobs WHERE kind = 'compact' ORDER BY id DESC")
        ]
        assert failed == ["dead"]
        await person.ask("And do you still answer?")
        await shared_house.case.promises_hold(person)


_RAISES = """
CREATE FUNCTION raises() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'nobody has thought of this'; END $$;
CREATE TRIGGER raises BEFORE UPDATE ON jobs FOR EACH ROW
  WHEN (NEW.state = 'done' AND OLD.faults < {times}) EXECUTE FUNCTION raises();
"""


@pytest.mark.row("F39")
@pytest.mark.parametrize(("times", "state", "tried"), [(1, "done", 2), (1_000, "dead", FAULTS_AT_MOST)])
async def test_a_job_that_raises_is_run_again_a_bounded_number_of_times(
    shared_house: House, times: int, state: str, tried: int
) -> None:
    async with shared_house.person(f"raises{times}") as person:
        await person.ask("Good day.")
        await shared_house.case.run(_RAISES.format(times=times))
        hurrying = asyncio.create_task(_hurry(shared_house.case))
        try:
            async with jobs(shared_house, [person], 1) as keys:
                pass
            ended = f"SELECT state IN ('done', 'dead') FROM jobs WHERE key = '{keys[0]}'"
            await shared_house.until(ended, "the job was tried for ever")
        finally:
            hurrying.cancel()
            await asyncio.wait([hurrying])
            await shared_house.case.run("DROP FUNCTION raises() CASCADE")
        found = await shared_house.case.rows(
            "SELECT state, attempt, last_error FROM jobs WHERE key = $1", keys[0]
        )
        assert [(row["state"], row["attempt"]) for row in found] == [(state, tried)]
        assert ("nobody has thought of this" in found[0]["last_error"]) == (state == "dead")
        await shared_house.case.promises_hold(person)


async def _hurry(case: Case) -> None:
    """Nobody waits for a pause to end."""
    while True:
        with contextlib.suppress(asyncpg.DeadlockDetectedError):
            await case.run("UPDATE jobs SET due_at = now() WHERE state = 'due' AND due_at > now()")
        await asyncio.sleep(0.2)
