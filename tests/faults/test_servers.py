"""Redis is emptied, killed or away, Postgres falls in mid-conversation: nothing accepted is lost."""

from __future__ import annotations

import asyncio
import signal
import time

import pytest

from tests.faults.house import House
from tests.faults.lengths import lasting
from tests.kit.deployment.breakable_servers import Case, Plant, Recovery
from tests.kit.deployment.person import PATIENCE_SECONDS, WALK, Person

PEOPLE = 3


async def with_history(person: Person) -> None:
    for number in range(7):
        await person.ask(f"Number {number}: we meet on 2026-05-{number + 10} in Lisbon. {WALK}")


async def summarised(people: list[Person], asked: list[str]) -> None:
    for person, cid in zip(people, asked, strict=True):
        told = await person.result_of(cid, "the summary")
        assert told["success"], told
        assert "Summarised" in told["result"], told


@pytest.mark.row("F34")
@pytest.mark.parametrize("how", ["emptied", "killed and empty"])
async def test_jobs_outlive_redis(shared_house: House, plant: Plant, recovery: Recovery, how: str) -> None:
    async with (
        shared_house.person("a") as one,
        shared_house.person("b") as two,
        shared_house.person("c") as three,
    ):
        people = [one, two, three]
        await asyncio.gather(*map(with_history, people))
        shared_house.worker.send(signal.SIGSTOP)
        asked = [await person.command("compact", "--force") for person in people]
        await _jobs_are_due(shared_house.case, PEOPLE)
        if how == "emptied":
            await plant.flush_redis()
        else:
            await plant.kill_redis(emptied=True)
            await plant.start_redis()
        shared_house.worker.send(signal.SIGCONT)
        since = time.monotonic()
        await summarised(people, asked)
        recovery.note(f"jobs done after Redis was {how}", since)
        await asyncio.gather(*(person.ask("And now?") for person in people))
        await shared_house.case.promises_hold(*people)


_JOBS = "SELECT count(*) FROM jobs WHERE kind = 'compact' AND state IN ('due', 'running')"


async def _jobs_are_due(case: Case, number: int) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while (
        await case.value("SELECT count(*) FROM jobs WHERE kind = 'compact' AND state IN ('due', 'running')")
        != number
    ):
        assert time.monotonic() < end, "the jobs were never asked for"
        await asyncio.sleep(0.05)


@pytest.mark.row("F35")
async def test_people_talk_on_while_redis_is_away(
    shared_house: House, plant: Plant, recovery: Recovery
) -> None:
    async with shared_house.person("d") as one, shared_house.person("e") as two:
        await plant.kill_redis(emptied=True)
        try:
            await asyncio.gather(with_history(one), two.ask("Please remember that my cat is called Miso."))
            await asyncio.sleep(lasting(0.0, 55.0))
            asked = await one.command("compact", "--force")
            await _jobs_are_due(shared_house.case, 1)
        finally:
            await plant.start_redis()
        since = time.monotonic()
        await summarised([one], [asked])
        recovery.note("job done after Redis was away", since)
        await shared_house.case.promises_hold(one, two)


@pytest.mark.row("F27")
async def test_postgres_falls_in_the_middle_and_comes_back(
    shared_house: House, plant: Plant, recovery: Recovery
) -> None:
    async with (
        shared_house.person("f") as one,
        shared_house.person("g") as two,
        shared_house.person("h") as three,
    ):
        people = [one, two, three]
        talking = [asyncio.create_task(_keeps_talking(person)) for person in people]
        await asyncio.sleep(0.6)
        await plant.crash_postgres()
        await asyncio.sleep(1.0)
        await plant.start_postgres()
        since = time.monotonic()
        await asyncio.gather(*talking)
        await asyncio.gather(*(person.answered() for person in people))
        recovery.note("all answered after Postgres fell", since)
        await shared_house.case.promises_hold(*people)


async def _keeps_talking(person: Person) -> None:
    for number in range(8):
        await person.say(f"Message {number} of {person.name}: please remember the number {number}.")
        await asyncio.sleep(0.25)


@pytest.mark.row("F27", "F28")
async def test_an_outage_of_postgres_acknowledges_nothing(shared_house: House, plant: Plant) -> None:
    async with shared_house.person("i") as person:
        await person.ask("Are you there?")
        await plant.crash_postgres()
        try:
            await person.say("Said into the void.")
            await person.until(lambda: bool(person.errors), "a word about the outage")
            assert len(person.acks) == 1
        finally:
            await plant.start_postgres()
        assert person.errors[-1]["advice"]
        await person.answered()
        await shared_house.case.promises_hold(person)


@pytest.mark.row("F30")
async def test_a_full_disk_acknowledges_nothing_and_is_survived(shared_house: House) -> None:
    """The server refuses to grow a table with the code that a full disk has; reading still works."""
    async with shared_house.person("j") as person:
        await person.ask("Is there room for me?")
        await shared_house.case.run(_FULL)
        try:
            await person.say("Said onto a full disk.")
            await person.until(lambda: bool(person.errors), "a word about the disk")
            assert len(person.acks) == 1
            assert person.errors[-1]["code"] == "storage_unavailable"
            assert person.errors[-1]["advice"]
        finally:
            await shared_house.case.run("DROP FUNCTION no_room() CASCADE")
        await person.answered()
        await shared_house.case.promises_hold(person)
    assert "No space left on device" in shared_house.web.words()


_FULL = """
CREATE FUNCTION no_room() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = 'disk_full';
END $$;
CREATE TRIGGER no_room BEFORE INSERT ON entry_rows FOR EACH ROW EXECUTE FUNCTION no_room();
"""
