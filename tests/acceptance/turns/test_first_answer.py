"""Whoever writes first after a start does not pay for it: what an answer needs is there by then."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest

from tests.bench.rest import rss_mib
from tests.kit.deployment.person import Person
from tests.kit.fakes.bot_api import TOKEN, running_bot_api
from tests.kit.fakes.messages_api.harness import RunningFake
from tests.kit.free_ports import free_port
from tests.kit.telegram.bot_process import ROOT, Program

SECONDS = 60.0
LIBRARY_MIB = 30.0
"""The provider's SDK and the vocabulary take some 60: a ready process has loaded both."""
SHARE = 0.25
"""Of what the start took. A first answer with everything to load took nearly as much again."""
OFFLINE = """
import asyncio, sys
from shared.adapters.models.token_counter import VocabularyCounter
from shared.adapters.models.routing import open_configured_models
from shared.config.settings import load_settings
from shared.bootstrap.foundation import WarmUp

async def main():
    counter = VocabularyCounter()
    warm_up = WarmUp(open_configured_models(load_settings(), counter), counter)
    assert await warm_up.run()
    assert not await warm_up.run()
    print(sorted({"anthropic", "aiogram", "tiktoken"} & set(sys.modules)))

asyncio.run(main())
"""


@pytest.fixture
def answer_environment(
    database_url: str, redis_url: str, fake: RunningFake, tmp_path: Path
) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "DATABASE_URL": database_url,
        "REDIS_URL": redis_url,
        "EVERTALK_DATA_DIR": str(tmp_path),
        "EVERTALK_SECRET_KEY": "for-a-first-answer-and-nothing-else-at-all",
        "EVERTALK_LOG_FORMAT": "json",
        "ANTHROPIC_BASE_URL": fake.base_url,
        "ANTHROPIC_API_KEY": "a-key-for-the-fake",
    }


def cpu_of(pid: int) -> float:
    """Seconds of a processor so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def wait_until_ready(port: int) -> None:
    async with asyncio.timeout(SECONDS), aiohttp.ClientSession() as http:
        while True:
            async with http.get(f"http://127.0.0.1:{port}/readyz") as answer:
                if answer.status == 200:
                    return
            await asyncio.sleep(0.02)


@pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="the system does not tell what a process used"
)
async def test_worker_loads_provider_client_before_its_first_job(answer_environment: dict[str, str]) -> None:
    worker = Program("worker", answer_environment)
    await worker.start()
    try:
        await worker.said("worker_warmed_up")
        assert b"pydantic_core" in Path(f"/proc/{worker.pid}/maps").read_bytes()
        assert b"jiter" in Path(f"/proc/{worker.pid}/maps").read_bytes()
    finally:
        await worker.terminate()


@pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="the system does not tell what a process used"
)
async def test_web_process_is_ready_when_provider_client_is_loaded(
    answer_environment: dict[str, str],
) -> None:
    """The first visitor of a ready process waits for no import."""
    port = free_port()
    web = Program("web", {**answer_environment, "EVERTALK_HTTP_PORT": str(port)})
    await web.start()
    try:
        await web.said("web_ready")
        await wait_until_ready(port)
        start, held = cpu_of(web.pid), rss_mib(web.pid)
        async with Person(port) as person:
            await person.ask("Good morning.")
        assert cpu_of(web.pid) - start < SHARE * start
        after = rss_mib(web.pid)
        assert held is not None
        assert after is not None
        assert after - held < LIBRARY_MIB
    finally:
        await web.terminate()


async def test_first_answer_of_ready_web_process_imports_nothing(answer_environment: dict[str, str]) -> None:
    port = free_port()
    told = {"EVERTALK_HTTP_PORT": str(port), "PYTHONPROFILEIMPORTTIME": "1"}
    web = Program("web", {**answer_environment, **told})
    await web.start()
    try:
        await web.said("web_warmed_up")
        await wait_until_ready(port)
        assert any("import time:" in line for line in web.lines), "imports are told"
        before = len(web.lines)
        async with Person(port) as person:
            await person.ask("Good morning.")
        imported = [line for line in web.lines[before:] if line.startswith("import time:")]
        assert imported == []
    finally:
        await web.terminate()


@pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="the system does not tell what a process used"
)
async def test_warm_bot_spends_equal_cpu_on_first_and_second_answer(
    answer_environment: dict[str, str],
) -> None:
    async with running_bot_api() as api:
        telegram = {
            "TELEGRAM_BOT_TOKEN": TOKEN,
            "EVERTALK_TELEGRAM_API_URL": api.base_url,
            "EVERTALK_TELEGRAM_ACCESS": "open",
        }
        bot = Program("bot", {**answer_environment, **telegram})
        await bot.start()
        try:
            await bot.said("bots_warmed_up")
            ada = await api.person(42)
            start = cpu_of(bot.pid)
            await ada.say("Good morning.")
            await ada.sees(lambda screen: len(screen.answers) == 1, within=SECONDS)
            assert cpu_of(bot.pid) - start < SHARE * start
        finally:
            await bot.terminate()


def test_without_a_provider_no_client_of_one_is_loaded(tmp_path: Path) -> None:
    environment = {"PATH": os.environ["PATH"], "EVERTALK_DATA_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", OFFLINE],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert (done.returncode, done.stdout) == (0, "['tiktoken']\n"), done.stderr
