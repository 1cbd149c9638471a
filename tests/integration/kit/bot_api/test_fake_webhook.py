"""Webhooks: the secret, one queue per chat, patience with failures, and calls in the answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiogram import Bot, Dispatcher
from aiogram.exceptions import TelegramBadRequest
from aiogram.types import InlineKeyboardButton, InlineKeyboardMarkup, Message
from aiogram.webhook.aiohttp_server import SimpleRequestHandler
from aiohttp import web

from tests.integration.kit.bot_api.conftest import Json, RawCall
from tests.kit.fakes.bot_api import Person, RunningBotApi

SECRET = "secret-token_of-at-least-32-characters"
Answer = Callable[[Json], web.Response]
SECONDS = 10.0


class Hook:
    """A webhook that writes down what it gets and answers as `answer` says."""

    def __init__(self) -> None:
        self.updates: list[Json] = []
        self.secrets: list[str | None] = []
        self.moments: list[float] = []
        self.hold: dict[str, asyncio.Event] = {}
        self.answer: Answer = lambda _: web.Response()
        self.url = ""
        self._news = asyncio.Event()

    @property
    def texts(self) -> list[str]:
        return [update["message"]["text"] for update in self.updates if "message" in update]

    async def got(self, count: int) -> None:
        async with asyncio.timeout(SECONDS):
            while len(self.updates) < count:
                self._news.clear()
                await self._news.wait()

    async def take(self, request: web.Request) -> web.Response:
        update: Json = await request.json()
        self.updates.append(update)
        self.moments.append(time.monotonic())
        self.secrets.append(request.headers.get("X-Telegram-Bot-Api-Secret-Token"))
        self._news.set()
        held = self.hold.get(update.get("message", {}).get("text", ""))
        if held is not None:
            await asyncio.wait_for(held.wait(), SECONDS)
        return self.answer(update)


async def serve(app: web.Application) -> tuple[web.AppRunner, str]:
    runner = web.AppRunner(app, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return runner, f"http://127.0.0.1:{runner.addresses[0][1]}/hook"


async def posted(fake: RunningBotApi, counts: dict[str, int]) -> None:
    """Until the fake has seen so many answers of each status."""
    async with asyncio.timeout(SECONDS):
        while (await fake.bot())["posts"] != counts:
            await asyncio.sleep(0.01)


@pytest.fixture
async def hook(bot_api: RunningBotApi, call: RawCall) -> AsyncIterator[Hook]:
    made = Hook()
    app = web.Application()
    app.router.add_post("/hook", made.take)
    runner, made.url = await serve(app)
    yield made
    await call("deleteWebhook")
    await runner.cleanup()


async def test_updates_are_posted_with_the_secret(hook: Hook, aiobot: Bot, ann: Person) -> None:
    await aiobot.set_webhook(hook.url, secret_token=SECRET, max_connections=10)
    await ann.say("two")
    await hook.got(2)
    assert hook.texts == ["hello", "two"]
    assert hook.secrets == [SECRET, SECRET]
    info = await aiobot.get_webhook_info()
    assert (info.url, info.max_connections, info.last_error_message) == (hook.url, 10, None)


async def test_a_chat_waits_for_its_last_update_but_other_chats_do_not(
    bot_api: RunningBotApi, hook: Hook, aiobot: Bot, ann: Person
) -> None:
    bob = await bot_api.person(43)
    released = hook.hold["slow"] = asyncio.Event()
    await aiobot.set_webhook(hook.url)
    await hook.got(1)
    markup = InlineKeyboardMarkup(inline_keyboard=[[InlineKeyboardButton(text="Go", callback_data="go")]])
    await aiobot.send_message(42, "press", reply_markup=markup)
    await ann.say("slow")
    await hook.got(2)
    await ann.say("behind")
    await bob.say("meanwhile")
    await ann.tap("Go")
    await hook.got(4)
    assert set(hook.texts) == {"hello", "slow", "meanwhile"}
    assert "callback_query" in hook.updates[-1] or "callback_query" in hook.updates[-2]
    released.set()
    await hook.got(5)
    assert hook.texts[-1] == "behind"


async def test_failures_are_repeated_at_once_then_after_2_4_8_seconds(
    bot_api: RunningBotApi, hook: Hook, aiobot: Bot, ann: Person
) -> None:
    await bot_api.set_speed(20)
    statuses = iter([500, 403, 301, 500])
    hook.answer = lambda _: web.Response(status=next(statuses, 200))
    await aiobot.set_webhook(hook.url)
    await hook.got(5)
    waits = [20 * (later - earlier) for earlier, later in zip(hook.moments, hook.moments[1:], strict=False)]
    for wait, least in zip(waits, (0, 2, 4, 8), strict=True):
        assert wait >= least
    info = await aiobot.get_webhook_info()
    assert info.last_error_message == "Wrong response from the webhook: 500 Internal Server Error"
    await posted(bot_api, {"500": 2, "403": 1, "301": 1, "200": 1})
    assert (await bot_api.bot())["pending"] == 0


async def test_a_busy_bot_may_ask_for_time(
    bot_api: RunningBotApi, hook: Hook, aiobot: Bot, ann: Person
) -> None:
    hook.answer = lambda _: web.Response(status=503, headers={"Retry-After": "500"})
    await aiobot.set_webhook(hook.url)
    await posted(bot_api, {"503": 1})
    await bot_api.advance_clock(490)
    await asyncio.sleep(0.1)
    assert len(hook.updates) == 1
    hook.answer = lambda _: web.Response()
    await bot_api.advance_clock(11)
    await hook.got(2)
    assert hook.texts == ["hello", "hello"]


async def test_a_bot_that_is_away_gets_all_when_it_is_back(
    bot_api: RunningBotApi, hook: Hook, aiobot: Bot, ann: Person
) -> None:
    await aiobot.set_webhook("http://127.0.0.1:9/hook")
    await ann.say("two")
    async with asyncio.timeout(SECONDS):
        while not (await bot_api.bot())["posts"]:
            await asyncio.sleep(0.01)
    info = await aiobot.get_webhook_info()
    assert (info.pending_update_count, info.last_error_message) == (2, "Connection refused")
    await bot_api.advance_clock(2)
    await aiobot.set_webhook(hook.url)
    await hook.got(2)
    assert hook.texts == ["hello", "two"]


async def test_the_same_update_can_be_posted_twice_at_once_and_again(
    bot_api: RunningBotApi, hook: Hook, aiobot: Bot
) -> None:
    await aiobot.set_webhook(hook.url)
    await bot_api.duplicate_updates(1, repeats=1, copies=2)
    ann = await bot_api.person(42)
    await ann.say("many")
    await hook.got(4)
    assert len({update["update_id"] for update in hook.updates}) == 1


async def test_an_answer_may_be_a_call(bot_api: RunningBotApi, hook: Hook, aiobot: Bot, ann: Person) -> None:
    hook.answer = lambda _: web.json_response(
        {"method": "sendMessage", "chat_id": 42, "text": "in the answer"}
    )
    await aiobot.set_webhook(hook.url)
    await ann.sees("in the answer")
    assert (await bot_api.calls("sendMessage"))[0]["outcome"] == "in_webhook"


async def test_a_bad_call_in_the_answer_is_noted_and_stops_nothing(
    bot_api: RunningBotApi, hook: Hook, aiobot: Bot, ann: Person
) -> None:
    hook.answer = lambda _: web.json_response({"method": "sendMessage", "chat_id": 42})
    await aiobot.set_webhook(hook.url)
    await ann.say("two")
    await posted(bot_api, {"200": 2})
    assert [found["problem"] for found in await bot_api.violations()] == [
        "Bad Request: message text is empty"
    ] * 2


async def test_a_webhook_has_a_form(aiobot: Bot, hook: Hook) -> None:
    with pytest.raises(TelegramBadRequest, match="loopback addresses only"):
        await aiobot.set_webhook("https://bot.example.org/hook")
    with pytest.raises(TelegramBadRequest, match="unallowed characters"):
        await aiobot.set_webhook(hook.url, secret_token="ä")
    with pytest.raises(TelegramBadRequest, match="max_connections"):
        await aiobot.set_webhook(hook.url, max_connections=101)
    with pytest.raises(TelegramBadRequest, match="no update of the kind"):
        await aiobot.set_webhook(hook.url, allowed_updates=["moon_phase"])


async def test_aiograms_own_webhook_server_is_served(
    bot_api: RunningBotApi, aiobot: Bot, call: RawCall, ann: Person
) -> None:
    dispatcher = Dispatcher(disable_fsm=True)

    @dispatcher.message()
    async def echo(message: Message) -> Any:
        await message.answer(f"echo {message.text}")

    app = web.Application()
    handler = SimpleRequestHandler(dispatcher, aiobot, handle_in_background=False, secret_token=SECRET)
    app.router.add_post("/hook", handler.handle)
    runner, url = await serve(app)
    try:
        await aiobot.set_webhook(url, secret_token=SECRET)
        await ann.say("one")
        assert (await ann.sees("echo one")).texts == ["echo hello", "echo one"]
    finally:
        await call("deleteWebhook")
        await runner.cleanup()
    assert not await bot_api.violations()
