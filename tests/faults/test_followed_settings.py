"""Processes follow the stored settings while they run: no socket closes, and no answer is written again."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from decimal import Decimal

import pytest

from shared.bootstrap.stored_settings import open_stored_settings
from shared.config.settings import load_settings
from shared.config.stored import StoredSettings, list_storable
from shared.supervision.process_secrets import works_with
from tests.faults.crash_points import IN_A_FOLLOW
from tests.kit.deployment.breakable_servers import SECRET, Case
from tests.kit.deployment.person import Person
from tests.kit.deployment.processes import START_SECONDS, Process, ended
from tests.kit.fakes.bot_api import TOKEN, running_bot_api
from tests.kit.fakes.messages_api.harness import RunningFake
from tests.kit.night import by_night
from web.dashboard.setup.settings import render_settings

NEEDED_WITH: dict[str, dict[str, str]] = {
    "EVERTALK_ALERT_WEBHOOK_URL": {
        "EVERTALK_ALERT_WEBHOOK_SECRET": "another-secret-of-the-hook-that-is-long-enough"
    },
    "EVERTALK_ALERT_SMTP_URL": {
        "EVERTALK_ALERT_EMAIL_FROM": "c@example.org", "EVERTALK_ALERT_EMAIL_TO": "d@example.org",
    },
}  # fmt: skip
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


def saved_values(fake_url: str) -> dict[str, str]:
    """Return values for settings that a web process can follow; the others take `find_other_value`."""
    model = json.dumps([{"name": "other", "wire": "openai", "base_url": "http://127.0.0.1:9/v1"}])
    return {
        "ANTHROPIC_API_KEY": "another-key-for-the-fake",
        "ANTHROPIC_BASE_URL": fake_url.replace("127.0.0.1", "localhost"),
        "OPENAI_API_KEY": "sk-other", "OPENAI_BASE_URL": "http://127.0.0.1:9/v1",
        "EVERTALK_MODEL": "claude-haiku-4-5", "EVERTALK_SUMMARY_MODEL": "claude-haiku-4-5",
        "EVERTALK_FALLBACK_MODELS": "claude-haiku-4-5", "EVERTALK_MODELS": model,
        "EVERTALK_MODEL_KEYS": '{"http://127.0.0.1:9/v1": "sk-of-it"}',
        "CONTEXT_MAX_OUTPUT_TOKENS": "4096",
        "EVERTALK_PICTURE_URL": "http://127.0.0.1:9/v1", "EVERTALK_PICTURE_KEY": "k",
        "EVERTALK_PICTURE_MODEL": "painter", "EVERTALK_PICTURE_USD": "0.05",
        "EVERTALK_TRANSCRIBE_URL": "http://127.0.0.1:9/v1", "EVERTALK_TRANSCRIBE_KEY": "k",
        "EVERTALK_TRANSCRIBE_MODEL": "hearer", "EVERTALK_TRANSCRIBE_PER_MINUTE_USD": "0.01",
        "EVERTALK_TRANSCRIBE_MOST_MINUTES": "5", "EVERTALK_TRANSCRIBE_MOST_MB": "5",
        "EVERTALK_SPEECH_URL": "http://127.0.0.1:9/v1", "EVERTALK_SPEECH_KEY": "k",
        "EVERTALK_SPEECH_MODEL": "speaker", "EVERTALK_SPEECH_VOICE": "nova",
        "EVERTALK_SPEECH_PER_1000_CHARS_USD": "0.02",
        "EVERTALK_MEANING": "false",
        "EVERTALK_RERANK_URL": "http://127.0.0.1:9", "EVERTALK_RERANK_KEY": "k",
        "EVERTALK_RERANK_MODEL": "orderer", "EVERTALK_EMBEDDINGS_URL": "http://127.0.0.1:9/v1",
        "EVERTALK_EMBEDDINGS_KEY": "k", "EVERTALK_EMBEDDINGS_MODEL": "embedder",
        "EVERTALK_MCP_SERVERS": '{"mcpServers": {"files": {"url": "http://127.0.0.1:9/mcp"}}}',
        "EVERTALK_TELEGRAM_ACCESS": "open", "EVERTALK_TELEGRAM_ALLOWED": "42",
        "EVERTALK_TELEGRAM_AUDIENCE": "public", "EVERTALK_TELEGRAM_AGENT": "other",
        "EVERTALK_TELEGRAM_BOTS": "[{}]", "EVERTALK_TELEGRAM_DRAFTS": "true",
        "EVERTALK_TELEGRAM_RICH": "false", "EVERTALK_TELEGRAM_REACTIONS": "true",
        "EVERTALK_TELEGRAM_CHANNELS": "true", "EVERTALK_TELEGRAM_INLINE": "true",
        "EVERTALK_TELEGRAM_GUESTS": "anyone", "EVERTALK_TELEGRAM_GUEST_QUESTIONS": "9",
        "EVERTALK_TELEGRAM_SECRETARY": "drafts", "EVERTALK_TELEGRAM_SECRETARY_CHATS": "listed",
        "EVERTALK_TELEGRAM_SECRETARY_LIST": "42", "EVERTALK_TELEGRAM_SECRETARY_AUTO": "43",
        "EVERTALK_TELEGRAM_SECRETARY_HOURS": "9",
        "EVERTALK_CAP_SECRETARY_PER_DAY_USD": "0.5", "EVERTALK_CAP_CUSTOMER_PER_DAY_USD": "0.1",
        "EVERTALK_CAP_GUESTS_PER_DAY_USD": "0.5", "EVERTALK_BACKUP_COPY_DIR": "/mnt/copies",
        "EVERTALK_ALLOWED_ORIGINS": "https://shop.example", "EVERTALK_TIMEZONE": "Europe/Vienna",
        "EVERTALK_QUIET_HOURS": "22-7", "EVERTALK_PRESET": "chatbox",
        "EVERTALK_CONTEXT_WINDOW": "100000", "EVERTALK_SOFT_BUDGET": "20000", "EVERTALK_RESERVE": "2000",
        "EVERTALK_FLUSH_THRESHOLD": "1500", "EVERTALK_KEEP_TURNS": "7", "EVERTALK_MAX_ROUNDS": "90",
        "EVERTALK_HISTORY_TURNS": "web=50", "EVERTALK_WINDOW_MESSAGES": "60",
        "EVERTALK_TRIM_TOKENS": "90000", "EVERTALK_CAP_TOTAL_PER_DAY_USD": "3.5",
        "EVERTALK_CAP_PERSON_PER_DAY_USD": "2", "EVERTALK_CAP_SESSION_USD": "2",
        "EVERTALK_CAP_VISITOR_PER_DAY_USD": "1", "EVERTALK_CAP_NETWORK_PER_DAY_USD": "2",
        "EVERTALK_CAP_TOKENS_PER_DAY": "900000", "EVERTALK_CAP_VISITORS_PER_HOUR_PERCENT": "50",
        "EVERTALK_HANDOVER": "on", "EVERTALK_HANDOVER_MINUTES": "5",
        "EVERTALK_HANDOVER_SILENCE_MINUTES": "30", "EVERTALK_WORKING_HOURS": "Mo-Fr 9-17",
        "EVERTALK_AWAY_TEXT": "We are back at nine.", "EVERTALK_RETENTION_DAYS": "90",
        "EVERTALK_ALERT_TELEGRAM_CHATS": "42", "EVERTALK_ALERT_WEBHOOK_URL": "https://hook.example/x",
        "EVERTALK_ALERT_WEBHOOK_SECRET": "a-secret-of-the-hook-that-is-long-enough",
        "EVERTALK_COMPACTION_HOOK_SUMMARY": "on",
        "EVERTALK_ALERT_SMTP_URL": "smtp://mail.example.org",
        "EVERTALK_ALERT_EMAIL_FROM": "a@example.org", "EVERTALK_ALERT_EMAIL_TO": "b@example.org",
    }  # fmt: skip


def find_other_value(name: str) -> str:
    """Return a value unlike the default for a setting without one of its own above."""
    rows = render_settings(load_settings(), StoredSettings(version=0))["settings"]
    row = next(row for row in rows if row["name"] == name)
    match row["kind"]:
        case "switch":
            return "false" if row["value"] == "true" else "true"
        case "choice":
            return str(next(choice for choice in row["choices"] if choice != row["value"]))
        case "number":
            return str(Decimal(row["value"] or 6) + 1)
        case "secret":
            return "k" * 40
    return "other"


def test_other_value_differs_from_the_default() -> None:
    found = {name: find_other_value(name) for name in list_storable()}
    assert (found["EVERTALK_TELEGRAM_DRAFTS"], found["EVERTALK_TELEGRAM_REACTIONS"]) == ("false", "true")
    assert found["EVERTALK_TELEGRAM_ACCESS"] == "allowlist"
    assert (found["EVERTALK_HANDOVER_MINUTES"], found["EVERTALK_KEEP_TURNS"]) == ("11.0", "7")


@asynccontextmanager
async def running(case: Case, *modules: str, **more: str) -> AsyncIterator[list[Process]]:
    """Processes with an environment of their own, as a container starts them."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(case.process(name, **more)) for name in modules]


async def test_stored_key_answers_the_next_turn_without_restart(case: Case, fake: RunningFake) -> None:
    await fake.script([{"match": {"kind": "chat"}, "times": 50, "action": {"text": REAL}}])
    async with running(case, "web", "worker") as (web, worker), Person(case.port) as anna:
        assert (await anna.ask("Who are you?"))["text"] != REAL
        pid = web.pid
        await store(case, {"ANTHROPIC_API_KEY": "a-key-for-the-fake", "ANTHROPIC_BASE_URL": fake.base_url})
        await web.until_event("settings_followed")
        await worker.until_event("settings_followed")
        assert (await anna.ask("And now?"))["text"] == REAL
        assert (web.pid, web.exits, worker.exits) == (pid, [], [])
        assert web.events["web_ready"] == 1
        await case.promises_hold(anna)


async def test_process_that_dies_while_following_starts_with_the_change(
    case: Case, fake: RunningFake
) -> None:
    await fake.script([{"match": {"kind": "chat"}, "times": 50, "action": {"text": REAL}}])
    async with running(case, "web", EVERTALK_CRASH_POINT=IN_A_FOLLOW) as (web,), Person(case.port) as anna:
        assert (await anna.ask("Who are you?"))["text"] != REAL
        await store(case, {"ANTHROPIC_API_KEY": "a-key-for-the-fake", "ANTHROPIC_BASE_URL": fake.base_url})
        await web.crashed()
        await web.until_event("web_ready", times=2)
        assert (await anna.ask("And now?"))["text"] == REAL
        await case.promises_hold(anna)


@pytest.mark.timeout(400)
async def test_streaming_visitors_lose_nothing_while_each_setting_is_saved(
    case: Case, fake: RunningFake
) -> None:
    """Two answers stream all the time: no socket closes, no answer begins again, each is paid once.

    By day each fourth setting is saved, and those that others have to come with.
    """
    words = " ".join(f"word{number}" for number in range(600))
    await fake.script([
        {"match": {"kind": "chat"}, "times": 50, "action": {"text": words, "pace_ms": 150}},
    ])  # fmt: skip
    values = saved_values(fake.base_url)
    names = list_storable()
    used = {name for name, field in names.items() if works_with("web", field)}
    assert values.keys() <= used
    values |= {name: find_other_value(name) for name in used - values.keys()}
    given = {"ANTHROPIC_API_KEY": "a-key-for-the-fake", "ANTHROPIC_BASE_URL": fake.base_url}
    await store(case, given)
    async with (
        running(case, "web", "worker") as (web, worker),
        Person(case.port) as anna,
        Person(case.port, name="b") as bert,
    ):
        for person in (anna, bert):
            await person.say("Tell me a long story.")
            await person.acknowledged()
        former: dict[str, str | None] = {}
        tried = dict(list(values.items())[:: by_night(1, else_=4)]) | {
            one: values[one] for one in NEEDED_WITH
        }
        for number, (name, value) in enumerate(tried.items(), start=1):
            began = time.monotonic()
            saved = {**NEEDED_WITH.get(name, {}), name: value}
            await store(case, {**former, **saved})
            await web.until_event("settings_followed", times=number)
            print(f"{name}: {time.monotonic() - began:.2f} s")
            former = {one: given.get(one) for one in saved}
        for person in (anna, bert):
            await person.answered(within_seconds=200)
        assert (anna.connections, bert.connections) == (1, 1), "sockets stay open"
        assert (web.exits, worker.exits, web.events["web_ready"]) == ([], [], 1)
        assert await case.value("SELECT max(attempt) FROM turns") in (0, 1)
        assert await case.value("SELECT count(*) FROM usage WHERE purpose = 'chat'") == 2
        await case.promises_hold(anna, bert)


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
        await web.until_event("settings_followed")
        await worker.until_event("settings_followed")
        assert web.events["settings_followed"] == 1, "once, for the mail server"


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
