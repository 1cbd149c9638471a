"""Faults on demand: what the bot sees of them, and what the person sees nevertheless."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

import aiohttp
import pytest
from aiogram import Bot
from aiogram.exceptions import (
    ClientDecodeError,
    TelegramConflictError,
    TelegramNetworkError,
    TelegramRetryAfter,
    TelegramServerError,
    TelegramUnauthorizedError,
)

from tests.integration.kit.bot_api.conftest import Json, RawCall, aiogram_bot
from tests.kit.fakes.bot_api import TOKEN, Person, Refused, RunningBotApi, running_bot_api


async def test_a_call_is_refused_so_often_and_then_goes_through(
    bot_api: RunningBotApi, aiobot: Bot, ann: Person
) -> None:
    await bot_api.fail("sendMessage", times=2, status=429, retry_after=7)
    for _ in range(2):
        with pytest.raises(TelegramRetryAfter) as caught:
            await aiobot.send_message(42, "hi")
        assert caught.value.retry_after == 7
    await aiobot.send_message(42, "hi")
    assert (await ann.screen()).texts == ["hi"]
    assert [call["status"] for call in await bot_api.calls("sendMessage")] == [429, 429, 200]
    assert [(rule["seen"], rule["used"]) for rule in await bot_api.rules()] == [(3, 2)]
    assert not await bot_api.violations()


async def test_a_429_names_its_wait_in_the_header_too(
    bot_api: RunningBotApi, http: aiohttp.ClientSession, ann: Person
) -> None:
    await bot_api.fail(status=429, retry_after=5)
    async with http.post(f"{bot_api.base_url}/bot{TOKEN}/getMe") as response:
        assert response.headers["Retry-After"] == "5"
        told = await response.json()
    assert told["parameters"] == {"retry_after": 5}
    assert told["description"] == "Too Many Requests: retry after 5"


@pytest.mark.parametrize(
    ("action", "error"),
    [
        ({"status": 500}, TelegramServerError),
        ({"status": 502}, TelegramServerError),
        ({"status": 502, "html": True}, ClientDecodeError),
        ({"status": 401}, TelegramUnauthorizedError),
        ({"status": 409}, TelegramConflictError),
        ({"reset": "before"}, TelegramNetworkError),
        ({"truncate": True}, ClientDecodeError),
    ],
)
async def test_every_kind_of_failure_reaches_the_client_as_it_would(
    bot_api: RunningBotApi, aiobot: Bot, ann: Person, action: Json, error: type[Exception]
) -> None:
    await bot_api.fail("sendMessage", **action)
    with pytest.raises(error):
        await aiobot.send_message(42, "hi")
    processed = "truncate" in action
    assert (await ann.screen()).texts == (["hi"] if processed else [])
    assert (await bot_api.calls("sendMessage"))[0]["processed"] is processed


async def test_a_lost_acknowledgement_leaves_the_message_in_the_chat(
    bot_api: RunningBotApi, aiobot: Bot, ann: Person
) -> None:
    await bot_api.fail("sendMessage", reset="after")
    with pytest.raises(TelegramNetworkError):
        await aiobot.send_message(42, "hi")
    assert (await ann.screen()).texts == ["hi"]
    (call,) = await bot_api.calls("sendMessage")
    assert (call["outcome"], call["processed"], call["fault"]) == ("lost", True, {"reset": "after"})


async def test_faults_choose_their_calls(bot_api: RunningBotApi, call: RawCall, ann: Person) -> None:
    bob = await bot_api.person(43)
    await bob.say("hello")
    await bot_api.script(
        [
            {"match": {"chat": 43, "contains": "bad"}, "times": -1, "action": {"status": 500}},
            {"match": {"has": "entities"}, "action": {"status": 400}},
            {"match": {"method": "sendMessage", "nth": 4}, "action": {"status": 502}},
        ]
    )

    async def status(chat: int, text: str, **more: Any) -> int:
        return (await call("sendMessage", chat_id=chat, text=text, **more))[0]

    assert await status(42, "bad") == 200
    assert await status(43, "bad") == 500
    bold = [{"type": "bold", "offset": 0, "length": 1}]
    assert await status(42, "x", entities=bold) == 400
    assert await status(42, "x", entities=bold) == 502
    assert await status(42, "x", entities=bold) == 200


async def test_polling_meets_only_faults_that_name_it(
    bot_api: RunningBotApi, aiobot: Bot, call: RawCall, ann: Person
) -> None:
    await bot_api.fail(times=-1, status=500)
    assert (await call("getUpdates"))[0] == 200
    await bot_api.script([{"match": {"method": "getUpdates"}, "action": {"status": 409}}])
    with pytest.raises(TelegramConflictError):
        await aiobot.get_updates()


async def test_connections_fail_while_the_fake_is_closed(
    bot_api: RunningBotApi, aiobot: Bot, ann: Person
) -> None:
    await aiobot.send_message(42, "before")
    await bot_api.refuse_connections()
    with pytest.raises(TelegramNetworkError, match="Cannot connect"):
        await aiobot.send_message(42, "during")
    await ann.say("the controls stay")
    await bot_api.accept_connections()
    await aiobot.send_message(42, "after")
    assert (await ann.screen()).texts == ["before", "after"]


async def test_a_call_can_shut_the_door_behind_it_for_a_while(
    bot_api: RunningBotApi, aiobot: Bot, ann: Person
) -> None:
    await bot_api.fail("sendMessage", then_refuse=3, latency=0.01)
    await aiobot.send_message(42, "one")
    with pytest.raises(TelegramNetworkError, match="Cannot connect"):
        await aiobot.send_message(42, "two")
    async with asyncio.timeout(30):
        while (await ann.screen()).texts != ["one", "three"]:
            try:
                await aiobot.send_message(42, "three")
            except TelegramNetworkError:
                await asyncio.sleep(0.05)


async def test_silence_ends_when_the_client_hangs_up(bot_api: RunningBotApi, ann: Person) -> None:
    bot = aiogram_bot(bot_api)
    await bot_api.fail("sendMessage", stall=70)
    with pytest.raises(TelegramNetworkError, match="timeout"):
        await bot.send_message(42, "never", request_timeout=1)
    await bot.session.close()
    async with asyncio.timeout(30):
        while (await bot_api.calls("sendMessage"))[0]["outcome"] != "client_gone":
            await asyncio.sleep(0.02)
    assert (await ann.screen()).texts == []


async def test_silence_can_follow_the_deed_and_bodies_can_drip(
    bot_api: RunningBotApi, aiobot: Bot, ann: Person
) -> None:
    await bot_api.fail("sendMessage", stall_after=70)
    with pytest.raises(TelegramNetworkError, match="timeout"):
        await aiobot.send_message(42, "done", request_timeout=1)
    await bot_api.fail("sendMessage", slow=0.2)
    await aiobot.send_message(42, "slowly")
    assert (await ann.screen()).texts == ["done", "slowly"]


async def test_downloads_can_fail(bot_api: RunningBotApi, aiobot: Bot, ann: Person) -> None:
    await ann.send_file("a.txt", b"content")
    update = (await aiobot.get_updates(timeout=1))[-1]
    assert update.message is not None
    assert update.message.document is not None
    await bot_api.fail("file", status=500)
    with pytest.raises(aiohttp.ClientResponseError):
        await aiobot.download(update.message.document)
    found = await aiobot.download(update.message.document)
    assert found is not None
    assert found.read() == b"content"


@pytest.mark.parametrize(
    "rule",
    [
        {"match": {"weather": "bad"}, "action": {"status": 500}},
        {"action": {"explode": True}},
        {"action": {}},
        {"action": {"status": "500"}},
        {"action": {"reset": "sometimes"}},
    ],
)
async def test_a_rule_that_says_nothing_is_refused(bot_api: RunningBotApi, rule: Json) -> None:
    with pytest.raises(Refused):
        await bot_api.script([rule])


async def test_fake_process_prints_its_address_and_ends_on_request() -> None:
    async with running_bot_api() as own:
        assert own.base_url.startswith("http://127.0.0.1:")
        pid = own.pid
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session,
            session.get(f"{own.base_url}/bot{TOKEN}/getme") as response,
        ):
            assert json.loads(await response.text())["result"]["username"] == "evertalk_test_bot"
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
