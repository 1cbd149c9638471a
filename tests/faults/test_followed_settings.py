"""Processes that nobody supervises follow the stored settings: by a renewal that loses no turn."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

import aiohttp
import pytest

from shared.bootstrap.stored_settings import open_stored_settings
from shared.config.settings import load_settings
from tests.kit.deployment.breakable_servers import SECRET, Case
from tests.kit.deployment.person import Person
from tests.kit.deployment.processes import START_SECONDS, Process, ended
from tests.kit.fakes.bot_api import TOKEN, running_bot_api
from tests.kit.fakes.messages_api.harness import RunningFake

REAL = "The words of the stored model."
BAD_SETTINGS = 2
OTHER_KEY = "another-key-than-that-of-the-case"
MAIL = {
    "EVERTALK_ALERT_SMTP_URL": "smtp://mail.example.org",
    "EVERTALK_ALERT_EMAIL_FROM": "a@example.org",
    "EVERTALK_ALERT_EMAIL_TO": "b@example.org",
}


async def store(case: Case, changes: Mapping[str, str | None], *, secret: str | None = None) -> None:
    """Change the table as a form does, without asking whether the values fit each other."""
    settings = load_settings(database_url=case.database_url, secret_key=secret or SECRET)
    async with open_stored_settings(case.database_url, settings) as stored:
        assert await stored.change(changes, seen=await stored.load_version(), by="ada") is not None


@asynccontextmanager
async def running(case: Case, *modules: str, **more: str) -> AsyncIterator[list[Process]]:
    """Real processes with an environment of their own, as a container starts them."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(Process(name, case.settings(**more))) for name in modules]


async def test_stored_key_answers_the_next_turn_without_restart(case: Case, fake: RunningFake) -> None:
    await fake.script([{"match": {"kind": "chat"}, "times": 50, "action": {"text": REAL}}])
    async with running(case, "web", "worker") as (web, worker), Person(case.port) as anna:
        assert (await anna.ask("Who are you?"))["text"] != REAL
        pid = web.pid
        await store(case, {"ANTHROPIC_API_KEY": "a-key-for-the-fake", "ANTHROPIC_BASE_URL": fake.base_url})
        await web.until_event("web_ready", times=2)
        await worker.until_event("worker_ready", times=2)
        assert (await anna.ask("And now?"))["text"] == REAL
        assert (web.pid, web.exits, worker.exits) == (pid, [], []), "the process renews itself"
        await case.promises_hold(anna)


async def test_message_sent_during_a_renewal_is_answered_once(case: Case, fake: RunningFake) -> None:
    await fake.script(
        [{"match": {"kind": "chat"}, "times": 50, "action": {"text": "word " * 40, "pace_ms": 100}}]
    )
    given = {"ANTHROPIC_API_KEY": "a-key-for-the-fake", "ANTHROPIC_BASE_URL": fake.base_url}
    async with running(case, "web", **given) as (web,), Person(case.port) as anna:
        await anna.ask("Good day.")
        await anna.say("This answer is interrupted.")
        await anna.acknowledged()
        await store(case, {"EVERTALK_CAP_TOTAL_PER_DAY_USD": "3.5"})
        while web.events["web_ready"] < 2:
            assert not web.exits, web.words()
            await anna.say("And one more.")
            await anna.acknowledged()
        await anna.answered()
        await case.promises_hold(anna)


async def test_connections_wait_while_the_web_process_renews_itself(case: Case) -> None:
    async with running(case, "web") as (web,), aiohttp.ClientSession() as client:
        await store(case, {"EVERTALK_QUIET_HOURS": "22-7"})
        while web.events["web_ready"] < 2:
            assert not web.exits, web.words()
            # A connection that is cut is tried again by every client; one that is refused is an outage.
            with contextlib.suppress(aiohttp.ServerDisconnectedError, ConnectionResetError):
                async with client.get(f"http://127.0.0.1:{case.port}/healthz") as response:
                    assert response.status == 200


async def test_bot_without_token_starts_polling_when_one_is_stored(case: Case) -> None:
    async with running_bot_api() as api:
        more = {"EVERTALK_TELEGRAM_API_URL": api.base_url, "EVERTALK_TELEGRAM_ACCESS": "open"}
        process = Process("bot", case.settings(**more))
        process.begin()
        try:
            await process.until_event("bot_waits_for_token")
            await store(case, {"TELEGRAM_BOT_TOKEN": TOKEN})
            person = await api.person(5_001)
            await person.say("Good day.")
            screen = await person.sees(lambda screen: len(screen.answers) > 0, within=START_SECONDS)
            assert screen.answers
            assert process.exits == []
            assert TOKEN not in process.words()
        finally:
            await process.stop()


async def test_setting_of_another_process_does_not_disturb_this_one(case: Case) -> None:
    async with running(case, "web", "worker") as (web, worker):
        await store(case, {"TELEGRAM_BOT_TOKEN": TOKEN})
        await store(case, MAIL)
        await web.until_event("web_ready", times=2)
        assert web.events["web_ready"] == 2, "once, for the mail server"
        await worker.until_event("worker_ready", times=2)


async def test_unusable_stored_settings_leave_the_former_ones_in_force(case: Case) -> None:
    async with running(case, "web") as (web,), Person(case.port) as anna:
        await store(case, {"EVERTALK_PRESET": "nonsense"})
        await web.until_event("stored_settings_unusable")
        assert (await anna.ask("Are you there?"))["text"]
        await store(
            case, {"EVERTALK_PRESET": None, "OPENAI_API_KEY": "sealed-by-another-key"}, secret=OTHER_KEY
        )
        await web.until_event("stored_settings_unusable", times=2)
        assert (await anna.ask("And now?"))["text"]
        assert (web.events["web_ready"], web.exits) == (1, [])


async def test_stored_settings_are_in_force_from_the_start(case: Case, fake: RunningFake) -> None:
    await fake.script([{"match": {"kind": "chat"}, "times": 50, "action": {"text": REAL}}])
    await store(case, {"ANTHROPIC_API_KEY": "a-key-for-the-fake", "ANTHROPIC_BASE_URL": fake.base_url})
    async with running(case, "web") as (web,), Person(case.port) as anna:
        assert (await anna.ask("Who are you?"))["text"] == REAL
        assert web.events["web_ready"] == 1
        assert "a-key-for-the-fake" not in web.words()


async def test_environment_wins_over_the_stored_setting(case: Case, fake: RunningFake) -> None:
    await fake.script([{"match": {"kind": "chat"}, "times": 50, "action": {"text": REAL}}])
    await store(case, {"ANTHROPIC_API_KEY": "a-wrong-one", "ANTHROPIC_BASE_URL": "http://127.0.0.1:9"})
    given = {"ANTHROPIC_API_KEY": "a-key-for-the-fake", "ANTHROPIC_BASE_URL": fake.base_url}
    async with running(case, "web", **given), Person(case.port) as anna:
        assert (await anna.ask("Who are you?"))["text"] == REAL


@pytest.mark.parametrize("module", ["web", "worker", "bot"])
async def test_process_refuses_stored_secrets_of_another_key(case: Case, module: str) -> None:
    await store(case, {"ANTHROPIC_API_KEY": "sealed-by-another-key"}, secret=OTHER_KEY)
    code, words = await ended(module, case.settings())
    assert code == BAD_SETTINGS
    assert "EVERTALK_SECRET_KEY is not the one" in words
    assert "Traceback" not in words


async def test_stop_during_a_renewal_ends_the_process(case: Case) -> None:
    async with running(case, "web") as (web,):
        await store(case, {"EVERTALK_QUIET_HOURS": "22-7"})
        await web.until_event("web_stopping")
        web.send(signal.SIGTERM)
        await web.until_event("web_ready", times=2)
        assert len(web.exits) == 1, "only the keeper started it again"
