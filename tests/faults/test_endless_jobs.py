"""A job that does not end by itself is ended, and says so in Postgres: dead, or due and done again."""

from __future__ import annotations

from typing import Any

import pytest

from tests.faults.provided import provided_by
from tests.kit.deployment.breakable_servers import Case
from tests.kit.deployment.inner_faults import CONSTANTS
from tests.kit.deployment.person import WALK, Person
from tests.kit.fakes.messages_api.harness import RunningFake

OURS = "shared.services.compaction.job_runner.JOB_TIMEOUT_SECONDS=10"
ARQS = "worker.jobs.JOB_SECONDS=10"
JOBS = "SELECT state, epoch, last_error FROM jobs WHERE kind = 'compact' ORDER BY id"
LOOKED = """SELECT count(*) > 0 FROM workers WHERE role = 'worker' AND stopped_at IS NULL
              AND beat > started_at + interval '2 seconds'"""
NEVER = {"match": {"kind": "summary"}, "times": -1, "action": {"latency": 600.0}}
ONCE = {**NEVER, "times": 1}


@pytest.mark.row("F39")
async def test_endless_job_is_ended_by_its_limit_with_a_notice(case: Case, fake: RunningFake) -> None:
    async with case.web(**provided_by(fake)), Person(case.port) as person:
        await _has_much_to_summarise(person)
        await fake.script([NEVER])
        async with case.worker(**provided_by(fake), **{CONSTANTS: OURS}) as worker:
            told = await _compacts(person)
            assert not told["success"], told
            rows = await case.rows(JOBS)
            assert [(row["state"], row["epoch"]) for row in rows] == [("dead", 1)], worker.words()
            assert "TimeoutError" in rows[0]["last_error"]
            await fake.script([])
            assert (await _compacts(person))["success"], worker.words()
            await case.promises_hold(person)


@pytest.mark.row("F39")
async def test_job_cut_off_by_arq_is_due_again_and_completes(case: Case, fake: RunningFake) -> None:
    async with case.web(**provided_by(fake)), Person(case.port) as person:
        await _has_much_to_summarise(person)
        await fake.script([ONCE])
        async with case.worker(**provided_by(fake), **{CONSTANTS: ARQS}) as worker:
            # At its first look a worker does itself what it finds in the queue, without arq.
            await case.until(LOOKED)
            told = await _compacts(person)
            assert told["success"], told
            rows = await case.rows(JOBS)
            assert [(row["state"], row["last_error"]) for row in rows] == [("done", "")], worker.words()
            assert rows[0]["epoch"] > 1, "cut off, and begun again"
            await case.promises_hold(person)


async def _has_much_to_summarise(person: Person) -> None:
    for number in range(8):
        await person.ask(f"Number {number}: we meet on 2026-05-{number + 10} in Lisbon. {WALK}")


async def _compacts(person: Person) -> dict[str, Any]:
    return await person.result_of(await person.command("compact", "--force"), "the end of the job")
