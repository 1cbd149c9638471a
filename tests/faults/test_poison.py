"""A message, a tool's result, an answer or a job stops the process that works at it: it is given up, soon."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from tests.faults.provided import LONG, provided_by
from tests.kit.deployment.breakable_servers import Case
from tests.kit.deployment.inner_faults import CONSTANTS, LOCAL_PAGES, POISON, POISON_WORD
from tests.kit.deployment.person import PATIENCE_SECONDS, WALK, Person
from tests.kit.deployment.processes import Process
from tests.kit.fakes.messages_api.harness import RunningFake
from tests.kit.free_ports import free_port
from tests.kit.night import rest_at_night

pytestmark = pytest.mark.row("F60")

SILENCE_SECONDS = 3.0
SOON = ",".join(
    (
        f"shared.supervision.watchdog.SILENCE_SECONDS={SILENCE_SECONDS}",
        "shared.supervision.watchdog.UNEXPLAINED_SECONDS=1",
        "shared.adapters.postgres.operations.process_faults.RETRY_SECONDS=2",
    )
)
"""Twenty seconds and ten in production; a night has time for them."""
IN_A_TURN = {
    "text": "shared.services.turns.request_builder.build_context",
    "tool result": "shared.services.turns.tool_rounds.spill_results",
    "answer": "shared.services.turns.agent_loop.tool_uses",
    "page": "shared.adapters.files.web_pages.page_text",
    "file": "shared.services.turns.request_builder.build_context",
}
"""By what is foreign, a function of the web process that reads it in the middle of a turn."""
FAULTS = "SELECT count(*) FROM process_faults"


def poisoned(fake: RunningFake, folder: Path, place: str, *, word: str = POISON_WORD) -> dict[str, str]:
    return {
        **provided_by(fake), CONSTANTS: SOON, POISON: f"{place}={word}", "EVERTALK_DATA_DIR": str(folder),
    }  # fmt: skip


async def given_up(person: Person, turn: int) -> dict[str, Any]:
    """Wait for the notice that ends a turn."""

    def notices() -> list[dict[str, Any]]:
        return [one for one in person.seen.values() if one.get("error") == "process_stopped"]

    await person.until(
        lambda: any(one.get("turn") == turn for one in notices()), "the end of a poisoned turn"
    )
    return next(one for one in notices() if one.get("turn") == turn)


async def open_alerts(case: Case) -> list[dict[str, Any]]:
    rows = await case.rows("SELECT detail FROM alerts WHERE kind = 'process_stopped' AND ended_at IS NULL")
    return [json.loads(row["detail"]) for row in rows]


@pytest.mark.parametrize("kind", rest_at_night(IN_A_TURN, by_day=("text", "page")))
async def test_turn_that_stops_its_process_is_given_up(
    case: Case, fake: RunningFake, tmp_path: Path, kind: str
) -> None:
    word = "6060" if kind == "tool result" else POISON_WORD
    async with (
        _poisonous_page() as url,
        case.web(**poisoned(fake, tmp_path, IN_A_TURN[kind], word=word), **{LOCAL_PAGES: "yes"}) as process,
        Person(case.port, name="poison") as person,
        Person(case.port, name="other") as other,
    ):
        await person.ask("Good day.")
        await other.ask("Good day to you.")
        await _send_poison(kind, case, fake, person, url)
        await _fell(process, 1)
        await other.ask("Is anybody there?")
        ended = await given_up(person, 2)
        assert "/retry" in ended["text"]
        assert process.exits == [-signal.SIGKILL] * 2
        await person.ask("Never mind. And now?")
        sent = json.dumps((await fake.requests())[-1]["body"])
        assert "not answered: it stopped the program" in sent
        assert word not in sent
        await other.ask("And here?")
        assert len(process.exits) == 2
        [turn] = await case.rows(
            "SELECT session_id, state, process_faults FROM turns WHERE process_faults > 0"
        )
        assert (turn["state"], turn["process_faults"]) == ("failed", 2)
        await case.until(
            "SELECT count(*) > 0 FROM alerts WHERE kind = 'process_stopped' AND detail ->> 'count' = '2'"
        )
        [alert] = await open_alerts(case)
        assert (alert["turn"], alert["count"]) == (2, 2)
        assert alert["cause"] == "stood_still"
        assert await case.value(
            "SELECT public_id::text FROM sessions WHERE id = $1", turn["session_id"]
        ) == alert["session"]  # fmt: skip
        await case.promises_hold(other)


async def test_retry_of_poison_stops_one_more_process(case: Case, fake: RunningFake, tmp_path: Path) -> None:
    async with (
        case.web(**poisoned(fake, tmp_path, IN_A_TURN["text"])) as web,
        Person(case.port, name="again") as person,
    ):
        await person.ask("Good day.")
        await person.say(f"Look: {POISON_WORD}")
        await given_up(person, 2)
        await person.command("retry")
        await given_up(person, 3)
        assert len(web.exits) == 3
        await person.ask("I give up, too.")
        assert len(web.exits) == 3


async def test_message_that_cannot_be_stored_is_refused(
    case: Case, fake: RunningFake, tmp_path: Path
) -> None:
    """It stops the process before its acknowledgement, and the browser sends it again."""
    place = "shared.services.turns.session_service.estimate_blocks"
    async with (
        case.web(**poisoned(fake, tmp_path, place)) as web,
        Person(case.port, name="unheard") as person,
    ):
        await person.ask("Good day.")
        cid = await person.say(f"Look: {POISON_WORD}")
        await person.until(
            lambda: any(one.get("cid") == cid for one in person.errors), "the refusal of a message"
        )
        assert web.exits == [-signal.SIGKILL] * 2
        assert cid not in person.acks


async def test_job_that_stops_its_worker_is_given_up(case: Case, fake: RunningFake, tmp_path: Path) -> None:
    place = "shared.services.compaction.compactor.plan_compaction"
    async with (
        case.web(**provided_by(fake)) as web,
        case.worker(**poisoned(fake, tmp_path, place)) as worker,
        Person(case.port, name="walker") as person,
    ):
        await person.ask(f"{POISON_WORD}. {WALK}")
        for number in range(7):
            await person.ask(f"Number {number}: we meet on 2026-05-{number + 10} in Lisbon. {WALK}")
        await person.command("compact", "--force")
        await case.until("SELECT count(*) > 0 FROM jobs WHERE state = 'dead' AND kind = 'compact'")
        assert worker.exits == [-signal.SIGKILL] * 2
        await person.ask("Are you still there?")
        assert web.exits == []
        assert await case.value(FAULTS) == 2


async def test_process_killed_from_outside_blames_no_turn(
    case: Case, fake: RunningFake, tmp_path: Path
) -> None:
    async with (
        case.web(**provided_by(fake), EVERTALK_DATA_DIR=str(tmp_path)) as web,
        Person(case.port, name="innocent") as person,
    ):
        await person.ask("Good day.")
        await fake.script([{"match": {"kind": "chat"}, "times": 4, "action": {"text": LONG, "pace_ms": 300}}])
        await person.say("Please tell me something long.")
        for number in range(3):
            await person.until(lambda: bool(person.deltas), "its first words")
            person.deltas.clear()
            web.kill()
            await _fell(web, number + 1)
        await fake.script([{"match": {"kind": "chat"}, "times": 1, "action": {"text": "Here it is."}}])
        await person.answered()
        assert await case.value(FAULTS) == 0
        assert await case.value("SELECT max(process_faults) FROM turns") == 0
        await case.promises_hold(person)


async def test_outage_of_the_database_ends_no_process(case: Case, fake: RunningFake, tmp_path: Path) -> None:
    more = {**provided_by(fake), CONSTANTS: SOON, "EVERTALK_DATA_DIR": str(tmp_path)}
    async with case.web(**more) as web, Person(case.port, name="patient") as person:
        await person.ask("Good day.")
        await case.plant.crash_postgres()
        await asyncio.sleep(3 * SILENCE_SECONDS)
        await case.plant.start_postgres()
        await person.ask("Back again?")
        assert web.exits == []


async def test_fault_is_recorded_once_when_its_recorder_dies(
    case: Case, fake: RunningFake, tmp_path: Path
) -> None:
    """A process ends between the commit and the end of the file."""
    async with (
        case.web(**poisoned(fake, tmp_path, IN_A_TURN["text"]), EVERTALK_HTTP_PORT=str(case.port)) as web,
        Person(case.port, name="twice") as person,
    ):
        await person.ask("Good day.")
        web.crash_point_after_restart = "after_process_fault"
        await person.say(f"Look: {POISON_WORD}")
        await _fell(web, 2)
        web.crash_point_after_restart = None
        await given_up(person, 2)
        assert await case.value(FAULTS) == 2
        assert [code for code in web.exits if code == -signal.SIGKILL] == [-signal.SIGKILL] * 2


@pytest.mark.night
@pytest.mark.parametrize("kind", ["text", "page", "file"])
async def test_everybody_else_waits_half_a_minute_at_most(
    case: Case, fake: RunningFake, tmp_path: Path, kind: str
) -> None:
    """With the numbers of production."""
    more = poisoned(fake, tmp_path, IN_A_TURN[kind]) | {CONSTANTS: "", LOCAL_PAGES: "yes"}
    async with (
        _poisonous_page() as url,
        case.web(**more) as process,
        Person(case.port, name="poison") as person,
        Person(case.port, name="other") as other,
    ):
        await person.ask("Good day.")
        await _send_poison(kind, case, fake, person, url)
        longest = 0.0
        while not any(one.get("error") == "process_stopped" for one in person.seen.values()):
            began = time.monotonic()
            await other.ask("Is anybody there?")
            longest = max(longest, time.monotonic() - began)
            await asyncio.sleep(0.2)
        assert len(process.exits) == 2
        assert longest <= 30
        print(f"{kind}: everybody else waited {longest:.1f} s at most, {len(process.exits)} restarts")


@asynccontextmanager
async def _poisonous_page() -> AsyncIterator[str]:
    """Serve a page with the word; return its address."""

    async def serve(_: web.Request) -> web.Response:
        return web.Response(text=f"<html><p>Tea with {POISON_WORD}.</p></html>", content_type="text/html")

    application = web.Application()
    application.router.add_get("/page", serve)
    runner = web.AppRunner(application)
    await runner.setup()
    port = free_port()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        yield f"http://127.0.0.1:{port}/page"
    finally:
        await runner.cleanup()


async def _send_poison(kind: str, case: Case, fake: RunningFake, person: Person, url: str) -> None:
    """Say something that makes the process meet poison of a kind within the turn."""
    calls = {
        "tool result": {"name": "calculate", "input": {"expression": "6060 * 11"}},
        "page": {"name": "fetch_url", "input": {"url": url}},
    }
    text = {
        "text": f"Look: {POISON_WORD}", "tool result": "Multiply them.", "answer": "Say it.",
        "page": "Read this page.", "file": "Read this file.",
    }[kind]  # fmt: skip
    action: dict[str, Any] = {"tool_use": [calls[kind]]} if kind in calls else {"text": POISON_WORD}
    if kind in calls or kind == "answer":
        await fake.script([{"match": {"kind": "chat", "contains": text}, "times": 2, "action": action}])
    await person.say(text, files=[await _upload_poison(case, person)] if kind == "file" else [])


async def _upload_poison(case: Case, person: Person) -> str:
    url = f"http://127.0.0.1:{case.port}/api/v1/uploads"
    headers = {"Authorization": f"Bearer {person.token}", "Content-Type": "application/octet-stream"}
    async with (
        aiohttp.ClientSession() as browser,
        browser.post(url, data=f"Tea with {POISON_WORD}.".encode(), headers=headers) as answer,
    ):
        assert answer.status == 200, await answer.text()
        return str((await answer.json())["id"])


async def _fell(process: Process, times: int) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while len(process.exits) < times:
        assert time.monotonic() < end, process.words()
        await asyncio.sleep(0.05)


async def test_two_hosts_are_stopped_twice_in_all(case: Case, fake: RunningFake, tmp_path: Path) -> None:
    """Another host takes the turn over as soon as the lease has lapsed; it is stopped by it, too."""
    more = poisoned(fake, tmp_path, IN_A_TURN["text"]) | {
        CONSTANTS: SOON.replace("SILENCE_SECONDS=3.0", "SILENCE_SECONDS=9").replace("=2", "=10")
    }
    async with (
        case.web(**more) as web,
        case.web(**more, EVERTALK_HTTP_PORT=str(free_port())) as second,
        Person(case.port, name="poison") as person,
    ):
        await person.ask("Good day.")
        await person.say(f"Look: {POISON_WORD}")
        await given_up(person, 2)
        assert len(web.exits) + len(second.exits) == 2
