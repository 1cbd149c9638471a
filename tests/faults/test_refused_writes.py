"""PostgreSQL answers and takes no writes: readiness, doctor and alerts tell, and nothing is acknowledged."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from shared.supervision.liveness import READY_SILENCE_SECONDS, explain_unhealthy
from tests.faults.conftest import TEMPLATE
from tests.faults.followed_case import Followed, followed_case
from tests.faults.house import told
from tests.kit.deployment.breakable_servers import Case, Plant, Recovery
from tests.kit.deployment.forks import Hatchery
from tests.kit.deployment.person import PATIENCE_SECONDS, Person
from tests.kit.deployment.processes import Process, environment, logged
from tests.kit.deployment.telegram import SECONDS, bot_of_its_own
from tests.kit.fakes.bot_api import Screen, running_bot_api
from tests.kit.fakes.messages_api.harness import RunningFake
from tests.kit.fakes.webhook_receiver import Receiver, receiving

ROOT = Path(__file__).resolve().parents[2]
SECRET = "s" * 32
OUTAGE = {"EVERTALK_ALERT_OUTAGE_SECONDS": "5"}
BEGAN, OVER = "The database takes no writes", "Over: the database takes no writes"
_RECORDED = """
SELECT count(*) FROM alerts WHERE kind = 'database_lost' AND ended_at IS NOT NULL
"""


async def _until(true: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < end, what
        await asyncio.sleep(0.1)


async def _readyz(port: int) -> tuple[int, Any]:
    async with (
        aiohttp.ClientSession() as http,
        http.get(f"http://127.0.0.1:{port}/readyz") as answer,
    ):
        return answer.status, await answer.json()


async def _ready(port: int, wanted: tuple[int, str]) -> None:
    end, seen = time.monotonic() + PATIENCE_SECONDS, (0, "")
    while seen != wanted:
        assert time.monotonic() < end, f"{seen} instead of {wanted}"
        status, body = await _readyz(port)
        seen = status, body["database"]
        await asyncio.sleep(0.1)


def _tells(title: str, screen: Screen) -> bool:
    return any(title in text for text in screen.texts)


def _is_ready(file: Path) -> bool:
    return not explain_unhealthy(str(file), now=time.time(), most_seconds=READY_SILENCE_SECONDS)


async def _doctor(case: Case) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-m", "shared", "doctor", cwd="/", stdin=asyncio.subprocess.DEVNULL,
        env=environment(**case.settings(), PYTHONPATH=str(ROOT)), stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    output, _ = await asyncio.wait_for(process.communicate(), SECONDS)
    assert process.returncode is not None
    return process.returncode, output.decode(errors="replace")


def _hook(receiver: Receiver) -> dict[str, str]:
    return {
        "EVERTALK_ALERT_WEBHOOK_URL": receiver.url,
        "EVERTALK_ALERT_WEBHOOK_SECRET": SECRET,
        **OUTAGE,
    }


@pytest.mark.row("F29")
async def test_read_only_database_is_reported_everywhere_and_acknowledges_nothing(
    plant: Plant, hatchery: Hatchery, fake: RunningFake, recovery: Recovery, tmp_path: Path
) -> None:
    files = {name: tmp_path / f"{name}.worker" for name in ("web", "bot", "worker")}
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(running_bot_api())
        receiver = await stack.enter_async_context(receiving(SECRET))
        telegram = await stack.enter_async_context(bot_of_its_own(api, fake, plant, hatchery, TEMPLATE))
        case, operator, anna = telegram.case, await telegram.talker(), await telegram.talker()
        bot_settings = {"EVERTALK_ALERT_TELEGRAM_CHATS": str(operator.id), **_hook(receiver)}
        running: dict[str, Process] = {}
        for name in files:
            settings = {**bot_settings, "EVERTALK_PROCESS_FILE": str(files[name])}
            if name == "bot":
                running[name] = await stack.enter_async_context(telegram.bot(**settings))
            else:
                made = case.process(name, **telegram.settings(**settings))
                running[name] = await stack.enter_async_context(made)
        second = case.process("web", **telegram.settings(**bot_settings, EVERTALK_HTTP_PORT="0"))
        running["web again"] = await stack.enter_async_context(second)
        person = await stack.enter_async_context(Person(case.port, name="reads"))
        await person.ask("Are you there?")
        await operator.ask("Who is there?")
        await anna.ask("Are you there, too?")
        await _ready(case.port, (200, "ok"))
        assert all(_is_ready(file) for file in files.values())
        stored = await case.value("SELECT count(*) FROM entries")

        await case.run(f'ALTER DATABASE "{case.database}" SET default_transaction_read_only = on')
        await case.run(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'evertalk'"
            " AND datname = current_database()"
        )
        try:
            await _ready(case.port, (503, "read-only"))
            await _until(lambda: not any(map(_is_ready, files.values())), "a process is ready")
            await told(person, "Said to a database that only reads.")
            await anna.say("Said while nothing can be stored.")
            code, said = await _doctor(case)
            assert code == 1
            assert "cannot execute INSERT in a read-only transaction" in said
            assert "set by: database" in said
            await _until(lambda: bool(receiver.posts), "no alert came by webhook")
            await operator.person.sees(partial(_tells, BEGAN), within=SECONDS)
            assert await case.value("SELECT count(*) FROM entries") == stored
            assert all("Traceback" not in one.words() for one in running.values())
        finally:
            name = case.database
            await plant.admin(f'ALTER DATABASE "{name}" RESET default_transaction_read_only')
        since = time.monotonic()
        await person.answered()
        recovery.note("answered after Postgres only read", since)
        await _ready(case.port, (200, "ok"))
        await anna.person.sees(lambda screen: len(screen.answers) >= 2, within=SECONDS)
        await _until(lambda: len(receiver.taken) == 2, "the end was not told by webhook")
        await operator.person.sees(partial(_tells, OVER), within=SECONDS)
        assert [one["title"] for one in receiver.taken] == [BEGAN, OVER]
        assert receiver.taken[0]["alert"]["detail"] == {"state": "read-only", "seconds": 5}
        assert (receiver.faults, len(receiver.posts)) == ([], 2)
        texts = (await operator.person.screen()).texts
        assert sum(BEGAN in one for one in texts) == 1
        assert await case.value(_RECORDED) == 1
        await case.promises_hold(person)
        assert [one.exits for one in running.values()] == [[], [], [], []]


async def _starting(stack: AsyncExitStack, process: Process) -> asyncio.Task[Process]:
    """Start a process that is not ready yet; it is stopped with the stack."""
    task = asyncio.create_task(process.__aenter__())
    stack.push_async_callback(process.stop)
    stack.callback(task.cancel)
    await asyncio.sleep(0)
    return task


async def _refusal(port: int) -> tuple[int, str, str]:
    """Return status, text and delay of a refused page for a German reader."""
    headers = {"Accept": "text/html", "Accept-Language": "de"}
    async with (
        aiohttp.ClientSession() as http,
        http.get(f"http://127.0.0.1:{port}/chat", headers=headers) as answer,
    ):
        return answer.status, await answer.text(), answer.headers["Retry-After"]


def _is_listening(port: int) -> bool:
    """Return whether the port is open: only a listening socket has this state and no peer."""
    return f":{port:04X} 00000000:0000 0A" in Path("/proc/net/tcp").read_text()


@pytest.mark.row("F56")
async def test_processes_start_when_the_standby_of_their_address_is_promoted(
    hatchery: Hatchery, fake: RunningFake, recovery: Recovery
) -> None:
    async with AsyncExitStack() as stack:
        case: Followed = await stack.enter_async_context(followed_case(hatchery))
        receiver = await stack.enter_async_context(receiving(SECRET))
        case.line.upstream = case.standby.socket
        provider = {"ANTHROPIC_BASE_URL": fake.base_url, "ANTHROPIC_API_KEY": "a-key-for-the-fake"}
        web = case.web(**_hook(receiver), **provider)
        worker = case.worker(**OUTAGE, **provider)
        starts = [await _starting(stack, web), await _starting(stack, worker)]
        await _until(lambda: logged([web, worker], "database_wait_started") == 2, web.words())
        await _until(lambda: _is_listening(case.port), "the port is not open")
        assert await _readyz(case.port) == (503, {"status": "not ready", "database": "read-only"})
        status, text, retry = await _refusal(case.port)
        assert (status, retry) == (503, "5")
        notice = "Ich kann gerade nicht antworten. Bitte versuchen Sie es in ein paar Minuten noch einmal."
        assert text == notice
        code, said = await _doctor(case)
        assert code == 1
        assert "leads to a standby" in said
        await _until(lambda: bool(receiver.posts), "no alert came by webhook")
        assert not any(start.done() for start in starts)
        await case.standby.hears(
            "SELECT pg_last_wal_replay_lsn() >= pg_last_wal_receive_lsn()", case.database
        )
        since = time.monotonic()
        await case.standby.take_over()
        await asyncio.wait_for(asyncio.gather(*starts), SECONDS)
        recovery.note("ready after the address led to a primary", since)
        async with Person(case.port, name="late-") as person:
            await person.ask("Are you there now?")
            await _until(lambda: len(receiver.taken) == 2, "the end was not told")
            assert [one["title"] for one in receiver.taken] == [BEGAN, OVER]
            assert await case.value(_RECORDED) == 1
            await case.promises_hold(person)
