"""The program of before, taken from the history, works through an upgrade and beside the new one."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from shared.adapters.postgres.db.migrate import migrate, read_schema_state
from shared.adapters.postgres.db.readiness import VERSIONS, load_releases
from shared.runtime import read_version
from tests.faults.former import Former, former
from tests.faults.provided import LONG, provided_by
from tests.faults.slow_answers import SLOW_ANSWER
from tests.faults.summarised_talks import summarised, talks
from tests.kit.deployment.breakable_servers import Case, Plant
from tests.kit.deployment.forks import Hatchery
from tests.kit.deployment.person import Person
from tests.kit.deployment.processes import Process
from tests.kit.deployment.telegram import SECONDS, Telegram
from tests.kit.fakes.bot_api import running_bot_api
from tests.kit.fakes.messages_api.harness import RunningFake
from tests.kit.former_schemas import NoHistory
from tests.kit.free_ports import free_port
from tests.kit.schema_contracts import find_contracts

MIGRATIONS = 2
"""What no process uses any more may go two versions later."""
EMPTY = "template0"


def count_migrations_since_release() -> int:
    """Return how many migrations came after the last numbered version before this one."""
    last = [one for one in load_releases() if one.version != read_version()][-1]
    return sum(path.name[:4] > last.newest for path in VERSIONS.glob("[0-9]*.py"))


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(MIGRATIONS, id="two", marks=pytest.mark.night),
        pytest.param(count_migrations_since_release(), id="release"),
    ],
)
def older(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Former:
    """Program of the numbered version before; at night also that of two migrations before."""
    try:
        found = former(tmp_path_factory.mktemp("former"), migrations=request.param)
    except NoHistory as error:
        pytest.skip(f"the program of before cannot be had, only its imitations were tried: {error}")
    if cause := find_contracts(after=found.revision):
        pytest.skip(cause)
    return found


@pytest.mark.row("F52")
@pytest.mark.timeout(240)
async def test_the_program_of_before_works_on_while_it_is_replaced(
    plant: Plant, fake: RunningFake, older: Former
) -> None:
    """The schema changes under it, the new one comes beside it, each takes over what the other one leaves."""
    more, port = provided_by(fake), free_port()
    async with (
        _database(plant, older.revision) as case,
        older.process("web", case, **more) as web,
        older.process("worker", case, **more) as worker,
        Person(case.port, name="before") as person,
    ):
        await _upgraded_in_mid_conversation(case, person)
        async with (
            case.worker(**more) as successor,
            case.web(**more, EVERTALK_HTTP_PORT=str(port)) as new,
            Person(port, token=person.token, name="after") as other,
        ):
            await asyncio.gather(talks(person), talks(other))
            await summarised(other)
            assert (web.exits, worker.exits, new.exits) == ([], [], [])
            await _taken_over(fake, web, person, other)
            await _taken_over(fake, new, other, person)
            await worker.stop()
            await asyncio.gather(talks(person), talks(other))
            await summarised(person)
            await case.promises_hold(person, other)
            await web.stop()
            await other.ask("Is everything as it was?")
            await case.promises_hold(other)
            assert successor.exits == []


@pytest.mark.row("F52")
async def test_new_bot_continues_the_bubble_of_the_former_version(
    plant: Plant, hatchery: Hatchery, fake: RunningFake, older: Former
) -> None:
    """It answers through the upgrade, is killed in the middle of an answer, and the new one ends it."""
    await Telegram.answers_of(
        fake, {"slowly": {"text": SLOW_ANSWER, "pace_ms": 150}, "walk": {"text": "Yes."}}
    )
    async with running_bot_api() as api, _database(plant, older.revision) as case:
        telegram = Telegram(api=api, provider=fake, case=case, hatchery=hatchery)
        ada = await telegram.talker()
        async with older.process("bot", case, **telegram.settings()) as one:
            await telegram.serves(one)
            await ada.ask("Do you walk by the river?")
            await migrate(case.database_url)
            await ada.ask("And do you walk up the hill?")
            async with telegram.bot() as other:
                await ada.say("Tell me slowly of the sea.")
                # The number of a bubble that is edited is known.
                await ada.person.sees(
                    lambda screen: [line.edited for line in screen.answers][2:] == [True], within=SECONDS
                )
                await one.kill_for_good()
                await telegram.serves(other)
                await telegram.promises_hold()
                assert (one.exits, other.exits) == ([], [])
        assert (await ada.person.screen()).texts == ["Yes.", "Yes.", SLOW_ANSWER]


def test_missing_history_never_counts_as_a_tried_former_program(tmp_path: Path) -> None:
    shallow, nowhere, folder = (tmp_path / name for name in ("shallow", "nowhere", "program"))
    nowhere.mkdir()
    shutil.copytree(VERSIONS, shallow / "migrations" / "versions")
    _commit(shallow)
    for history in (shallow, nowhere):
        with pytest.raises(NoHistory):
            former(folder, migrations=MIGRATIONS, history=history)


def test_much_older_program_is_not_taken_for_the_supported_one(tmp_path: Path) -> None:
    """Nobody promises that it works beside the newest schema."""
    history, folder = tmp_path / "history", tmp_path / "program"
    versions = history / "migrations" / "versions"
    known = sorted(VERSIONS.glob("[0-9]*.py"))
    versions.mkdir(parents=True)
    (versions / "0001_long_before.py").write_text("revision = '0001'")
    _commit(history)
    for one in known:
        shutil.copy(one, versions)
    _commit(history)
    with pytest.raises(NoHistory, match=known[-MIGRATIONS - 1].name):
        former(folder, migrations=MIGRATIONS, history=history)


def _commit(folder: Path) -> None:
    who = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
    for words in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", "All at once"]):
        subprocess.run(["git", *who, *words], cwd=folder, check=True, timeout=60)


async def _upgraded_in_mid_conversation(case: Case, person: Person) -> None:
    talking = asyncio.create_task(talks(person))
    await person.until(lambda: len(person.finals) > 1, "the first answers")
    await migrate(case.database_url)
    await talking
    await summarised(person)


@asynccontextmanager
async def _database(plant: Plant, revision: str) -> AsyncIterator[Case]:
    case = await plant.case(EMPTY)
    try:
        await migrate(case.database_url, revision=revision)
        assert (await read_schema_state(case.database_url)).found == revision
        yield case
    finally:
        await plant.drop(case.database)


async def _taken_over(fake: RunningFake, falls: Process, one: Person, other: Person) -> None:
    """Killed in the middle of an answer, which then comes from a process of the other version."""
    slowly = {"match": {"kind": "chat"}, "times": 1, "action": {"text": LONG, "pace_ms": 1_000}}
    await fake.script([slowly])
    turn, fallen = len(one.finals) + 1, len(falls.exits)
    begun = len(one.deltas)
    cid = await one.say(f"Please tell me something long, number {turn}.")
    await one.until(lambda: len(one.deltas) > begun, "its first words")
    falls.kill()
    await one.answered()
    assert len(falls.exits) == fallen + 1
    answer = one.answer_to(cid)
    assert answer is not None
    assert answer["role"] == "assistant"
    assert answer["text"] != LONG, "begun again"
    await other.until(lambda: answer["event_seq"] in other.seen, "the same answer on the other screen")
