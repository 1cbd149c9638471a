"""Polling against the fake and a real inbox: nothing is confirmed before it is stored, so none is lost."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiogram import Bot
from aiogram.client.telegram import TelegramAPIServer
from structlog.testing import capture_logs

from bot.telegram.client.calls import Backoff
from bot.telegram.client.session import BoundedFile, InvalidBotToken, TelegramSession, create_bot, get_session
from bot.telegram.inbound.inbox import (
    CONFLICTING_POLLER,
    RATE_LIMITED,
    WEBHOOK_RETURNED,
    Poller,
    PollTimeouts,
    fetch_bot_identity,
)
from shared.adapters.postgres.telegram.chats import PostgresTelegramChats
from shared.adapters.postgres.telegram.inbox import PostgresTelegramInbox
from shared.core.values.errors import StorageUnavailable
from tests.integration.bot.inbound.conftest import Pool, texts, texts_come
from tests.kit.fakes.bot_api import TOKEN, Person, RunningBotApi, running_bot_api
from tests.kit.free_ports import free_port
from tests.kit.storage_health import broken_line
from tests.kit.telegram.updates import BOT

ROOT = Path(__file__).parents[4]
QUICK = PollTimeouts(
    poll=2, answer=3.0, first_wait=0.05, max_wait=0.2, conflict_wait=0.1, watchdog=1.0, report_after=0.5
)


class Notes:
    """What operators were told, and a store that can be away."""

    def __init__(self, inbox: PostgresTelegramInbox) -> None:
        self._inbox = inbox
        self.problems: list[str] = []
        self.away = 0
        self.tried = asyncio.Event()

    async def record_problem(self, bot_id: int, problem: str) -> None:
        self.problems.append(problem)

    async def load_next_offset(self, bot_id: int) -> int:
        return await self._inbox.load_next_offset(bot_id)

    async def store(self, bot_id: int, updates: Sequence[Mapping[str, Any]]) -> int:
        if self.away:
            self.away -= 1
            self.tried.set()
            raise StorageUnavailable("away")
        return await self._inbox.store(bot_id, updates)


@pytest.fixture
def notes(inbox: PostgresTelegramInbox) -> Notes:
    return Notes(inbox)


@asynccontextmanager
async def polling(
    api: Bot, notes: Notes, *, times: PollTimeouts = QUICK, rang: Callable[[], None] = lambda: None
) -> AsyncIterator[asyncio.Task[None]]:
    poller = Poller(api, inbox=notes, problems=notes, on_stored=rang, times=times)
    task = asyncio.create_task(poller.run())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task], timeout=5)


async def comes(found: Callable[[], bool], *, within: float = 60.0) -> None:
    async with asyncio.timeout(within):
        while not found():
            await asyncio.sleep(0.02)


async def test_what_people_write_is_stored_in_order_and_rings(
    bot_api: RunningBotApi, newcomer: Person, inbound_bot: Bot, notes: Notes, inbox: PostgresTelegramInbox
) -> None:
    rings: list[int] = []
    async with polling(inbound_bot, notes, rang=lambda: rings.append(1)):
        for word in ("one", "two", "three"):
            await newcomer.say(word)
        assert await texts_come(inbox, 3) == ["one", "two", "three"]
    assert rings
    calls = await bot_api.calls("getUpdates")
    assert not any("drop_pending_updates" in call["params"] for call in calls)
    assert "message_reaction" in calls[0]["params"]["allowed_updates"]
    assert not await bot_api.violations()


async def test_nothing_is_confirmed_while_postgres_is_away_and_nothing_is_lost(
    bot_api: RunningBotApi, newcomer: Person, inbound_bot: Bot, notes: Notes, inbox: PostgresTelegramInbox
) -> None:
    notes.away = 3
    async with polling(inbound_bot, notes):
        await newcomer.say("one")
        await asyncio.wait_for(notes.tried.wait(), 60)
        await newcomer.say("two")
        assert (await bot_api.bot())["pending"] == 2
        assert await texts_come(inbox, 2) == ["one", "two"]
    assert notes.away == 0


async def test_the_same_update_five_times_is_one_row(
    bot_api: RunningBotApi, newcomer: Person, inbound_bot: Bot, notes: Notes, inbox: PostgresTelegramInbox
) -> None:
    await bot_api.duplicate_updates(1, repeats=4)
    async with polling(inbound_bot, notes):
        await newcomer.say("again")
        await newcomer.say("end")
        assert await texts_come(inbox, 2) == ["again", "end"]
        await asyncio.sleep(0.3)
    assert await texts(inbox) == ["again", "end"]


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_kill_right_after_a_hundred_updates_came_loses_and_doubles_none(
    bot_api: RunningBotApi,
    inbound_bot: Bot,
    notes: Notes,
    inbox: PostgresTelegramInbox,
    database_url: str,
    moment: str,
) -> None:
    people = [await bot_api.person(100 + number, first_name=f"P{number}") for number in range(20)]
    for round_ in range(5):
        for person in people:
            await person.say(f"{person.id}:{round_}")
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.integration.bot.inbound.dying_poller",
        bot_api.base_url,
        database_url,
        moment,
        cwd=ROOT,
    )
    assert await asyncio.wait_for(process.wait(), 90) == -9
    assert len(await texts(inbox)) == (0 if moment == "before" else 100)
    async with polling(inbound_bot, notes):
        found = await texts_come(inbox, 100)
        await asyncio.sleep(0.2)
    assert len(await texts(inbox)) == 100
    for person in people:
        assert [text for text in found if text.startswith(f"{person.id}:")] == [
            f"{person.id}:{round_}" for round_ in range(5)
        ]


@pytest.mark.parametrize(
    "fault",
    [
        {"status": 500},
        {"status": 502, "html": True},
        {"truncate": True},
        {"reset": "before"},
        {"reset": "after"},
        {"status": 429, "retry_after": 1},
        {"status": 400, "description": "Bad Request: odd"},
    ],
)
async def test_polling_outlives(
    fault: dict[str, Any],
    bot_api: RunningBotApi,
    newcomer: Person,
    inbound_bot: Bot,
    notes: Notes,
    inbox: PostgresTelegramInbox,
) -> None:
    await bot_api.fail("getUpdates", times=2, **fault)
    await newcomer.say("still")
    async with polling(inbound_bot, notes):
        assert await texts_come(inbox, 1) == ["still"]
    assert all(rule["used"] for rule in await bot_api.rules())


async def test_polling_outlives_a_refused_connection_and_a_stall(
    bot_api: RunningBotApi, newcomer: Person, inbound_bot: Bot, notes: Notes, inbox: PostgresTelegramInbox
) -> None:
    await bot_api.refuse_connections(0.5)
    async with polling(
        inbound_bot, notes, times=PollTimeouts(poll=1, answer=0.5, first_wait=0.05, max_wait=0.2)
    ):
        await asyncio.sleep(0.7)
        await bot_api.fail("getUpdates", stall=30)
        await newcomer.say("still")
        assert await texts_come(inbox, 1) == ["still"]


async def test_retry_after_is_honoured_and_a_long_one_is_reported(
    bot_api: RunningBotApi, newcomer: Person, inbound_bot: Bot, notes: Notes, inbox: PostgresTelegramInbox
) -> None:
    await bot_api.fail("getUpdates", status=429, retry_after=1)
    await newcomer.say("later")
    async with polling(inbound_bot, notes):
        await comes(lambda: RATE_LIMITED in notes.problems)
        assert await texts_come(inbox, 1) == ["later"]
        await comes(lambda: notes.problems[-1] == "")
    first, second = [call["at"] for call in await bot_api.calls("getUpdates")][:2]
    assert second - first >= 1


async def test_a_webhook_from_before_is_taken_away_once_and_keeps_what_waits(
    bot_api: RunningBotApi, newcomer: Person, inbound_bot: Bot, notes: Notes, inbox: PostgresTelegramInbox
) -> None:
    await inbound_bot.set_webhook("http://127.0.0.1:9/hook")
    await newcomer.say("kept")
    async with polling(inbound_bot, notes):
        assert await texts_come(inbox, 1) == ["kept"]
        await bot_api.advance_clock(2)
        await inbound_bot.set_webhook("http://127.0.0.1:9/hook")
        await comes(lambda: notes.problems[-1:] == [WEBHOOK_RETURNED])
    deleted = await bot_api.calls("deleteWebhook")
    assert [call["params"]["drop_pending_updates"] for call in deleted] == [False]


async def test_another_poller_is_reported_and_polling_recovers(
    bot_api: RunningBotApi, newcomer: Person, inbound_bot: Bot, notes: Notes, inbox: PostgresTelegramInbox
) -> None:
    await bot_api.fail("getUpdates", times=2, status=409)
    async with polling(inbound_bot, notes):
        await comes(lambda: CONFLICTING_POLLER in notes.problems)
        await newcomer.say("mine again")
        assert await texts_come(inbox, 1) == ["mine again"]
        await comes(lambda: notes.problems[-1] == "")
    assert not await bot_api.calls("deleteWebhook")


async def test_a_revoked_token_ends_polling_with_advice(
    bot_api: RunningBotApi, inbound_bot: Bot, notes: Notes
) -> None:
    async with polling(inbound_bot, notes) as task:
        await comes(lambda: notes.problems == [""])
        await bot_api.change_bot(revoked=True)
        with pytest.raises(InvalidBotToken, match="401") as caught:
            await asyncio.wait_for(task, 60)
    assert "BotFather" in caught.value.advice
    assert notes.problems[-1] == caught.value.advice


class CountingSession(TelegramSession):
    """Knows how often its connections were thrown away."""

    reconnects = 0

    async def reconnect(self) -> None:
        self.reconnects += 1
        await super().reconnect()


async def test_after_long_silence_the_connections_are_new(
    bot_api: RunningBotApi, newcomer: Person, notes: Notes, inbox: PostgresTelegramInbox
) -> None:
    session = CountingSession(api=TelegramAPIServer.from_base(bot_api.base_url), timeout=30)
    api = Bot(TOKEN, session=session)
    await bot_api.fail("getUpdates", times=-1, reset="before")
    times = PollTimeouts(poll=2, first_wait=0.05, max_wait=0.1, watchdog=0.3)
    async with polling(api, notes, times=times):
        await newcomer.say("back")
        await comes(lambda: session.reconnects > 0)
        await bot_api.script([])
        assert await texts_come(inbox, 1) == ["back"]
    await api.session.close()


async def test_call_under_way_survives_new_connections(
    bot_api: RunningBotApi, newcomer: Person, inbound_bot: Bot
) -> None:
    await bot_api.fail("getMe", stall=0.5)
    running = asyncio.create_task(inbound_bot.get_me())
    await comes(lambda: get_session(inbound_bot)._session is not None)
    await asyncio.sleep(0.1)
    await get_session(inbound_bot).reconnect()
    assert (await inbound_bot.get_webhook_info()).url == ""
    assert (await running).id == BOT.bot_id


async def test_unexpected_updates_do_not_stop_the_others(
    bot_api: RunningBotApi, newcomer: Person, inbound_bot: Bot, notes: Notes, inbox: PostgresTelegramInbox
) -> None:
    deep: Any = "end"
    for _ in range(200):
        deep = [deep]
    await bot_api.push_update({"something": {"new": [1, None, "\x00"]}})
    await bot_api.push_update({"message": deep})
    await newcomer.say("after")
    async with polling(inbound_bot, notes):
        assert await texts_come_anyway(inbox, 3)
    rows = await inbox.list_waiting(BOT.bot_id)
    assert rows[1].body.get("nested_too_deeply") is True
    assert rows[2].body["message"]["text"] == "after"


async def texts_come_anyway(inbox: PostgresTelegramInbox, count: int) -> bool:
    async with asyncio.timeout(30):
        while len(await inbox.list_waiting(BOT.bot_id)) < count:
            await asyncio.sleep(0.02)
    return True


async def test_bot_asks_for_its_identity_until_answered(bot_api: RunningBotApi, inbound_bot: Bot) -> None:
    await bot_api.fail("getMe", status=502, html=True)
    await bot_api.fail("getMe", reset="before")
    await bot_api.fail("getMe", status=429, retry_after=0)
    found = await asyncio.wait_for(
        fetch_bot_identity(inbound_bot, backoff=Backoff(min_seconds=0.02, max_seconds=0.05)), 60
    )
    assert found == BOT
    await bot_api.change_bot(revoked=True)
    with pytest.raises(InvalidBotToken):
        await fetch_bot_identity(inbound_bot)


@pytest.mark.parametrize("token", ["", "12:short", "hello", f"{TOKEN}/../x", "x:AAAAAAAAAAAAAAAAAAAAAAAAAA"])
def test_what_cannot_be_a_token_is_refused_before_any_call(token: str) -> None:
    with pytest.raises(InvalidBotToken):
        create_bot(token)


@pytest.mark.control("S03")
async def test_the_token_is_in_no_log_and_no_error(
    bot_api: RunningBotApi, notes: Notes, capfd: pytest.CaptureFixture[str]
) -> None:
    secret = TOKEN.partition(":")[2]
    heard: list[str] = [repr(create_bot(TOKEN))]
    for base in (
        bot_api.base_url,
        "http://127.0.0.1:9",
        "http://no such host",
        "nonsense://x",
        "http://[broken",
    ):
        api = create_bot(TOKEN, api_url=base)
        await bot_api.fail("getFile", status=500, html=True)
        for call in (api.get_file("x"), api.download_file("x", BoundedFile(9), timeout=5)):
            with pytest.raises(Exception) as caught:
                await call
            error: BaseException | None = caught.value
            while error is not None:
                heard += [str(error), repr(error)]
                error = error.__cause__ or error.__context__
        await api.session.close()
    with capture_logs() as logs:
        api = create_bot(TOKEN, api_url="http://127.0.0.1:9")
        async with polling(api, notes):
            await asyncio.sleep(0.3)
        await api.session.close()
    heard += [str(logs), *capfd.readouterr()]
    assert not [line for line in heard if secret in line]


async def test_a_poller_outlives_a_restarted_telegram(
    inbox: PostgresTelegramInbox, notes: Notes, places: PostgresTelegramChats, bot_pool: Pool
) -> None:
    port = free_port()
    async with running_bot_api(port=port) as first:
        api = create_bot(TOKEN, api_url=first.base_url)
        person = await first.person(42)
        poller = Poller(api, inbox=inbox, problems=places, on_stored=lambda: None, times=QUICK)
        task = asyncio.create_task(poller.run())
        await person.say("before")
        assert await texts_come(inbox, 1) == ["before"]
    async with running_bot_api(port=port) as second:
        await (await second.person(42)).say("after")
        await asyncio.sleep(1.0)
        assert not task.done()
        async with asyncio.timeout(60):
            while await bot_pool.fetchval("SELECT problem FROM telegram_bots") != "":
                await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.wait([task], timeout=5)
    await api.session.close()


async def test_connection_lost_in_mid_protocol_confirms_nothing_and_polling_continues(
    newcomer: Person, inbound_bot: Bot, notes: Notes, inbox: PostgresTelegramInbox, bot_pool: Pool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The driver's own error, of no class that tells of an absence, while no fresh connection answers."""
    tried, answers = asyncio.Event(), type(bot_pool).fetchval

    async def breaks(*_: object, **__: object) -> None:
        tried.set()
        raise broken_line()

    async def no_answer() -> bool:
        return False

    async with polling(inbound_bot, notes) as task:
        monkeypatch.setattr(bot_pool, "can_write", no_answer)
        monkeypatch.setattr(type(bot_pool), "fetchval", breaks)
        await newcomer.say("one")
        await asyncio.wait_for(tried.wait(), 60)
        await newcomer.say("two")
        monkeypatch.setattr(type(bot_pool), "fetchval", answers)
        assert await texts_come(inbox, 2) == ["one", "two"]
        assert not task.done()
