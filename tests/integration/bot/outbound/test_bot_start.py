"""A process takes its bots when it can answer, and sets only what has changed of their profiles."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from structlog.testing import capture_logs

from bot.__main__ import serve
from bot.telegram.client.command_menus import build_command_menus, list_menu_languages
from bot.telegram.runtime.service import TelegramService
from shared.bootstrap.app import open_app
from shared.bootstrap.process import EXIT_CANNOT_START
from shared.config.bots import load_bots
from shared.config.settings import Settings, load_settings
from tests.integration.bot.outbound.delivery_driver import BotProcess
from tests.kit.fakes.bot_api import TOKEN, Person, RunningBotApi

LONG_SECONDS = 60.0
TAKEN = "SELECT count(*) FROM leases WHERE name LIKE 'telegram:%' AND leased_by IS NOT NULL"


class Slow:
    """Stands for the loading of what an answer needs: it takes until it is let go."""

    def __init__(self) -> None:
        self.may_end = asyncio.Event()

    async def __call__(self) -> None:
        async with asyncio.timeout(LONG_SECONDS):
            await self.may_end.wait()


@pytest.fixture
def bot_settings(database_url: str, redis_url: str, strict_api: RunningBotApi, tmp_path: Path) -> Settings:
    return load_settings(
        database_url=database_url, redis_url=redis_url, data_dir=tmp_path, telegram_bot_token=TOKEN,
        telegram_api_url=strict_api.base_url, telegram_access="open",
    )  # fmt: skip


@asynccontextmanager
async def started(settings: Settings, slow: Slow) -> AsyncIterator[None]:
    app = await open_app(settings, role="bot")
    service = TelegramService(app, load_bots(settings), settings=settings, warm_up=slow)
    service.start()
    try:
        yield
    finally:
        slow.may_end.set()
        await service.close()
        await app.close()


async def until(pool: asyncpg.Pool[asyncpg.Record], sql: str) -> None:
    async with asyncio.timeout(LONG_SECONDS):
        while not await pool.fetchval(sql):
            await asyncio.sleep(0.02)


async def test_cold_process_takes_no_lease_and_answers_when_warm(
    bot_settings: Settings,
    strict_api: RunningBotApi,
    ann: Person,
    bot: BotProcess,
    bot_pool: asyncpg.Pool[asyncpg.Record],
) -> None:
    """A turn that was left, and an update that Telegram holds, wait for a process that can answer them."""
    await bot.begin(await bot.place())
    await bot.die()
    await strict_api.forget_calls()
    slow = Slow()
    async with started(bot_settings, slow):
        await until(bot_pool, "SELECT username <> 'ever_bot' FROM telegram_bots")
        assert await bot_pool.fetchval(TAKEN) == 0
        assert [call["method"] for call in await strict_api.calls()] == ["getMe"]
        slow.may_end.set()
        await until(bot_pool, "SELECT count(*) = 1 FROM deliveries WHERE turn_no = 1 AND state = 'delivered'")
        await until(bot_pool, "SELECT count(*) = 0 FROM telegram_updates WHERE handled_at IS NULL")
        assert await bot_pool.fetchval(TAKEN) == 1
        async with asyncio.timeout(LONG_SECONDS):
            while not await strict_api.calls(method="setMyCommands"):
                await asyncio.sleep(0.02)


async def test_warm_process_serves_before_a_cold_one_that_started_earlier(
    bot_settings: Settings, strict_api: RunningBotApi, ann: Person, bot_pool: asyncpg.Pool[asyncpg.Record]
) -> None:
    cold, warm = Slow(), Slow()
    warm.may_end.set()
    async with started(bot_settings, cold):
        await until(bot_pool, "SELECT username <> 'ever_bot' FROM telegram_bots")
        async with started(bot_settings, warm):
            await until(bot_pool, TAKEN.replace("count(*)", "count(*) > 0"))
            await ann.say("Which of you answers?")
            await until(bot_pool, "SELECT count(*) = 1 FROM deliveries WHERE state = 'delivered'")
            assert not cold.may_end.is_set()


async def test_menus_are_set_when_telegram_has_been_asked_for_messages(
    bot_settings: Settings, strict_api: RunningBotApi, bot_pool: asyncpg.Pool[asyncpg.Record]
) -> None:
    await strict_api.forget_calls()
    slow = Slow()
    slow.may_end.set()
    async with started(bot_settings, slow), asyncio.timeout(LONG_SECONDS):
        while not await strict_api.calls(method="setMyShortDescription"):
            await asyncio.sleep(0.02)
        called = [call["method"] for call in await strict_api.calls()]
    assert called.index("getUpdates") < called.index("setMyCommands")
    del bot_pool


async def test_menus_wait_where_telegram_asks_to_wait(
    bot_settings: Settings, strict_api: RunningBotApi, bot_pool: asyncpg.Pool[asyncpg.Record]
) -> None:
    """A call for each language is many; none of them is left out for that."""
    await strict_api.forget_calls()
    await strict_api.fail("setMyCommands", status=429, retry_after=1, times=1)
    slow = Slow()
    slow.may_end.set()
    async with started(bot_settings, slow), asyncio.timeout(LONG_SECONDS):
        while not await strict_api.calls(method="setMyShortDescription"):
            await asyncio.sleep(0.02)
        statuses = [call["status"] for call in await strict_api.calls(method="setMyCommands")]
    assert statuses[:2] == [429, 200]
    assert len(statuses) == 1 + len(build_command_menus("personal"))
    del bot_pool


async def test_start_makes_no_profile_call_that_changes_nothing(
    bot_settings: Settings, strict_api: RunningBotApi, bot_pool: asyncpg.Pool[asyncpg.Record]
) -> None:
    """The profile is stored: other processes and later starts set only what has changed."""
    slow = Slow()
    slow.may_end.set()
    stored = "SELECT count(*) = {} FROM telegram_bots, jsonb_object_keys(profile)"
    calls = len(build_command_menus("personal")) + 2 * len(list_menu_languages())
    async with started(bot_settings, slow):
        await until(bot_pool, stored.format(calls))
    assert len(await profile_calls(strict_api)) == calls
    await strict_api.forget_calls()
    changed = "setMyDescription:de"
    await bot_pool.execute("UPDATE telegram_bots SET profile = profile || $1::jsonb", {changed: "former"})
    async with started(bot_settings, slow):
        await until(bot_pool, f"SELECT profile ->> '{changed}' <> 'former' FROM telegram_bots")
    (only,) = await profile_calls(strict_api)
    assert (only["method"], only["params"]["language_code"]) == ("setMyDescription", "de")


async def profile_calls(fake: RunningBotApi) -> list[dict[str, Any]]:
    return [call for call in await fake.calls() if call["method"].startswith("setMy")]


async def test_profile_goes_on_where_an_outage_broke_it_off(
    bot_settings: Settings, strict_api: RunningBotApi, bot_pool: asyncpg.Pool[asyncpg.Record]
) -> None:
    slow = Slow()
    slow.may_end.set()
    menus = len(build_command_menus("personal"))
    await strict_api.fail("setMyDescription", times=-1, status=500)
    async with started(bot_settings, slow):
        await until(bot_pool, f"SELECT count(*) = {menus} FROM telegram_bots, jsonb_object_keys(profile)")
    await strict_api.script([])
    await strict_api.forget_calls()
    async with started(bot_settings, slow):
        calls = menus + 2 * len(list_menu_languages())
        await until(bot_pool, f"SELECT count(*) = {calls} FROM telegram_bots, jsonb_object_keys(profile)")
    assert len(await profile_calls(strict_api)) == calls - menus


async def test_bot_that_cannot_load_its_library_ends_with_advice(
    bot_settings: Settings, bot_pool: asyncpg.Pool[asyncpg.Record]
) -> None:
    """Else it would poll and answer for ever and never send a word."""

    def broken() -> None:
        raise ModuleNotFoundError("No module named 'aiogram'")

    app = await open_app(bot_settings, role="bot")
    try:
        with capture_logs() as logs:
            async with asyncio.timeout(LONG_SECONDS):
                code = await serve(app, asyncio.Event(), load=broken)
    finally:
        await app.close()
    assert code == EXIT_CANNOT_START
    [told] = [line for line in logs if line["event"] == "aiogram_load_failed"]
    assert "aiogram" in told["reason"]
    assert ".venv" in told["advice"]
    del bot_pool
