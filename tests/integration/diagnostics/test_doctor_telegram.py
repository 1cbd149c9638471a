"""The doctor's look at Telegram, against a fake of it and real rows."""

from __future__ import annotations

import os
from typing import Any

import pytest
from pydantic import SecretStr

from shared.adapters.postgres.db.leases import PostgresLeases
from shared.adapters.postgres.db.pool import open_pool
from shared.adapters.postgres.db.workers import PostgresWorkers
from shared.adapters.postgres.telegram.chats import PostgresTelegramChats
from shared.adapters.telegram_probe import TelegramUnreachable, TokenRefused, probe_bot
from shared.config.settings import Settings, load_settings
from shared.diagnostics.server_checks import check_bots, check_bots_in_service
from tests.kit.fakes.bot_api import TOKEN, USERNAME, RunningBotApi
from tests.kit.telegram.fixtures import bot_api, bot_api_process

__all__ = ["bot_api", "bot_api_process"]

BOT = int(TOKEN.partition(":")[0])


def settings(fake: RunningBotApi, **changes: object) -> Settings:
    given: dict[str, Any] = {
        "telegram_bot_token": SecretStr(TOKEN),
        "telegram_api_url": fake.base_url,
        "public_url": "https://chat.example.org",
    }
    return load_settings(**{**given, **changes})


async def looked(fake: RunningBotApi, **changes: object) -> str:
    return "\n".join(map(str, await check_bots(settings(fake, **changes))))


async def test_a_bot_that_telegram_knows_is_named(bot_api: RunningBotApi) -> None:
    assert await looked(bot_api) == f"ok    Telegram confirms @{USERNAME} (polling, access pairing)"
    seen = await probe_bot(SecretStr(TOKEN), api_url=bot_api.base_url)
    assert (seen.bot_id, seen.reads_all_group_messages) == (BOT, False)


async def test_without_a_token_there_is_nothing_to_say() -> None:
    assert await check_bots(load_settings()) == []


@pytest.mark.control("S03")
async def test_a_token_that_telegram_refuses_is_a_failure_and_is_not_shown(bot_api: RunningBotApi) -> None:
    wrong = "700001:" + "w" * 35
    said = await looked(bot_api, telegram_bot_token=SecretStr(wrong))
    assert said.startswith("fail  TELEGRAM_BOT_TOKEN: Telegram does not know a bot with this token")
    assert "wwww" not in said
    with pytest.raises(TokenRefused):
        await probe_bot(SecretStr(wrong), api_url=bot_api.base_url)


@pytest.mark.control("S03")
async def test_a_silent_telegram_is_a_warning_and_the_token_stays_hidden(bot_api: RunningBotApi) -> None:
    nowhere = load_settings(telegram_bot_token=SecretStr(TOKEN), telegram_api_url="http://127.0.0.1:1")
    (finding,) = await check_bots(nowhere)
    assert finding.level == "warn"
    assert "127.0.0.1 did not answer" in finding.what
    assert "FAKE" not in str(finding)
    await bot_api.fail("getMe", status=502, html=True)
    with pytest.raises(TelegramUnreachable) as silent:
        await probe_bot(SecretStr(TOKEN), api_url=bot_api.base_url)
    assert "FAKE" not in str(silent.value)


async def test_what_waits_at_telegram_is_counted(bot_api: RunningBotApi) -> None:
    ada = await bot_api.person(42)
    await ada.say("Hello")
    await ada.say("Are you there?")
    assert f"messages for @{USERNAME} waiting at Telegram: 2" in await looked(bot_api)


async def test_missing_webhook_is_reported(bot_api: RunningBotApi) -> None:
    said = await looked(bot_api, telegram_mode="webhook", telegram_webhook_secret=SecretStr("s" * 32))
    assert f"Telegram has no webhook for @{USERNAME}" in said


async def test_an_open_bot_is_warned_about(bot_api: RunningBotApi) -> None:
    assert "spend up to $5.00 a day" in await looked(bot_api, telegram_access="open")


async def in_service(fake: RunningBotApi, database_url: str) -> str:
    return "\n".join(map(str, await check_bots_in_service(settings(fake), database_url)))


async def test_doctor_names_who_serves_a_bot_and_its_complaints(
    bot_api: RunningBotApi, database_url: str
) -> None:
    assert "has not been started yet" in await in_service(bot_api, database_url)
    pool = await open_pool(database_url, size=2)
    try:
        places = PostgresTelegramChats(pool)
        await places.enrol(
            BOT, username=USERNAME, agent="default", audience="personal", access="pairing", mode="polling"
        )
        assert f"no process serves @{USERNAME}" in await in_service(bot_api, database_url)
        worker_id = await PostgresWorkers(pool).register("bot")
        await PostgresLeases(pool).take(f"telegram:{BOT}", worker_id=worker_id)
        await places.record_problem(BOT, "Another program polls this bot.")
        said = await in_service(bot_api, database_url)
    finally:
        await pool.close()
    assert f"@{USERNAME} is served by process {os.getpid()}" in said
    assert f"warn  @{USERNAME}: Another program polls this bot." in said
