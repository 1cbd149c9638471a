"""A process ends as if cut off from power at each named place; nobody waits in vain or hears it twice."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from shared.services.crash import POINTS
from tests.faults.conftest import TEMPLATE
from tests.faults.person import Person
from tests.faults.plant import Case, Plant, Recovery
from tests.faults.processes import CRASHED, Process
from tests.faults.test_reminders import OWN as REMINDERS
from tests.faults.test_telegram import POINTS as BOT

REMEMBER = "Please remember that my cat is called Miso."
WEB = (
    "before_accept",
    "after_accept",
    "after_claim",
    "mid_stream:3",
    "after_model",
    "after_model:2",
    "after_tool_calls",
    "after_note",
    "after_tool_run",
    "after_tool_results",
    "after_answer",
    "after_delivered",
)
WALK = "We walked along the river and talked of this and that. " * 12
"""Enough words that a summary is shorter than they are."""
WORKER = (
    "after_job_claim",
    "after_flush_model",
    "after_flush",
    "after_summary_model",
    "after_compaction",
    "before_indexing",
)
NIGHT = ("after_tidy",)
LINKED = "after_link"
ERASURE = ("mid_erasure", "mid_erasure:4", "mid_erasure:12")
BY_SIGNAL = {"after_ack"}
"""Whoever hears the acknowledgement ends the process: that is the place."""


def test_every_crash_point_is_tried() -> None:
    tried = {
        point.partition(":")[0] for point in (*WEB, *WORKER, *NIGHT, *BOT, *REMINDERS, LINKED, *ERASURE)
    } | BY_SIGNAL
    assert tried == set(POINTS)


async def test_a_link_is_made_once_though_its_process_dies_before_saying_so(case: Case) -> None:
    """Typed again by the browser that had no answer, the same code has done its work already."""
    async with case.web(crash_point=LINKED) as web:
        async with Person(case.port, name="other") as other:
            await other.ask(REMEMBER)
            asked = await other.command("link")
            await other.until(lambda: asked in other.commands, "a code")
        code = re.search(r"[A-Z2-9]{4}-[A-Z2-9]{4}", other.commands[asked]["result"])
        assert code is not None
        async with Person(case.port) as person:
            typed = await person.command("link", code[0])
            await web.crashed()
            await person.until(lambda: typed in person.commands, "the words about the link")
            assert web.exits == [CRASHED], web.words()
            assert person.commands[typed]["success"] is True
            await person.ask("What is my cat called?")
            await case.promises_hold(person)
        assert await case.value("SELECT count(*) FROM party_links") == 1
        assert await case.value("SELECT count(DISTINCT session_id) FROM addresses") == 1


@pytest.mark.parametrize("point", WEB)
async def test_a_web_process_that_dies_leaves_nobody_without_an_answer(
    case: Case, recovery: Recovery, point: str
) -> None:
    async with case.web(crash_point=point) as web, Person(case.port) as person:
        await person.say(REMEMBER)
        await person.say("And what is my cat called?")
        await web.crashed()
        await person.answered()
        recovery.note(f"web died at {point}", web.fell_at)
        assert web.exits == [CRASHED], web.words()
        await person.ask("What is my cat called now?")
        await case.promises_hold(person)
        assert person.connections >= 2
        assert await case.value("SELECT count(*) FROM notes") == 1


async def test_a_web_process_killed_at_its_acknowledgement_leaves_nobody_without_an_answer(
    case: Case, recovery: Recovery
) -> None:
    async with case.web() as web, Person(case.port) as person:
        await person.say(REMEMBER)
        await person.acknowledged()
        web.kill()
        await web.crashed()
        await person.answered()
        recovery.note("web killed after its ack", web.fell_at)
        await case.promises_hold(person)


@pytest.mark.parametrize("point", ERASURE)
async def test_an_erasure_that_is_cut_off_is_finished_by_a_worker(
    case: Case, recovery: Recovery, point: str
) -> None:
    async with case.web(crash_point=point) as web, case.worker(), Person(case.port) as person:
        await person.ask(REMEMBER)
        asked = await person.command("forget", "everything")
        await person.until(lambda: asked in person.commands, "the preview")
        await person.command("forget", "everything yes")
        await web.crashed()
        await _until(case, "SELECT count(*) = 1 FROM erasures WHERE state = 'done'")
        recovery.note(f"web died at {point}", web.fell_at)
    assert web.exits[:1] == [CRASHED], web.words()
    for table, column in (
        ("entries", "blocks"),
        ("notes", "text"),
        ("events", "payload"),
        ("prompt_parts", "body"),
    ):
        assert await case.value(f"SELECT count(*) FROM {table} WHERE {column}::text LIKE '%Miso%'") == 0
    await case.promises_hold()


async def _until(case: Case, statement: str) -> None:
    end = time.monotonic() + 30
    while not await case.value(statement):
        assert time.monotonic() < end, statement
        await asyncio.sleep(0.1)


@dataclass(slots=True, kw_only=True)
class Talked:
    """People with a conversation behind them, and the web process that serves them."""

    case: Case
    web: Process
    tokens: list[str]


@pytest.fixture(scope="module")
async def talked(plant: Plant) -> AsyncIterator[Talked]:
    case = await plant.case(TEMPLATE)
    async with case.web() as web:
        people = await asyncio.gather(*(_talk(case.port) for _ in WORKER))
        tokens = [person.token for person in people]
        yield Talked(case=case, web=web, tokens=[token for token in tokens if token])
    await plant.drop(case.database)


async def _talk(port: int) -> Person:
    async with Person(port, name="seed") as person:
        for number in range(8):
            await person.ask(f"Number {number}: we meet on 2026-05-{number + 10} in Lisbon. {WALK}")
    return person


@pytest.mark.parametrize("point", WORKER)
async def test_a_worker_that_dies_delays_a_summary_and_nothing_else(
    talked: Talked, recovery: Recovery, point: str
) -> None:
    case = talked.case
    token = talked.tokens[WORKER.index(point)]
    async with case.worker(crash_point=point) as worker, Person(case.port, token=token, name=point) as person:
        asked = await person.command("compact", "--force")
        await worker.crashed()
        await person.ask("Does anybody hear me while it is down?")
        await person.until(lambda: asked in person.commands, "the summary")
        recovery.note(f"worker died at {point}", worker.fell_at)
        assert worker.exits == [CRASHED], worker.words()
        assert person.commands[asked]["success"], person.commands[asked]
        await _worker_rests(case)
        await case.promises_hold(person)
        links = """SELECT count(*) FROM links WHERE active AND kind = 'summary' AND session_id = (
                     SELECT session_id FROM entries WHERE cid = $1)"""
        assert await case.value(links, next(iter(person.said))) == 1


@pytest.mark.parametrize("point", NIGHT)
async def test_a_worker_that_dies_at_night_tidies_again(case: Case, recovery: Recovery, point: str) -> None:
    async with case.web(), Person(case.port) as person:
        await person.ask(REMEMBER)
        await person.ask("Please remember that I am in Rome on 2020-05-01.")
        await case.value(
            "UPDATE notes SET durability = 'ephemeral', event_date = '2020-05-01' WHERE text ~ 'Rome'"
        )
        await case.value(
            """INSERT INTO jobs (kind, session_id, key) SELECT 'tidy', min(session_id), 'tidy:now' FROM notes
               RETURNING id"""
        )
        async with case.worker(crash_point=point) as worker:
            await worker.crashed()
            recovery.note(f"worker died at {point}", worker.fell_at)
            await _worker_rests(case)
            assert worker.exits == [CRASHED], worker.words()
        assert await case.value("SELECT state FROM jobs WHERE kind = 'tidy' AND key = 'tidy:now'") == "done"
        assert await case.value("SELECT count(*) FROM notes WHERE expired_at IS NOT NULL") == 1
        await person.ask("What is my cat called now?")
        await case.promises_hold(person)


async def _worker_rests(case: Case) -> None:
    end = time.monotonic() + 20
    while await case.value("SELECT count(*) FROM jobs WHERE state IN ('due', 'running')"):
        assert time.monotonic() < end, "a job never ended"
        await asyncio.sleep(0.1)
