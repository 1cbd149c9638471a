"""getUpdates as Telegram does it: waiting, confirming, conflicts, expiry, and updates gone astray."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiogram import Bot, Dispatcher
from aiogram.exceptions import TelegramConflictError
from aiogram.types import Message

from tests.integration.kit.bot_api.conftest import Json, RawCall, aiogram_bot
from tests.kit.fakes.bot_api import Person, RunningBotApi
from tests.kit.fakes.bot_api.refusals import OTHER_POLLER, WEBHOOK_ACTIVE, WEBHOOK_SET

NOWHERE = "http://127.0.0.1:9/hook"


async def polled(call: RawCall, **params: Any) -> list[Json]:
    status, answer = await call("getUpdates", **params)
    assert status == 200, answer
    found: list[Json] = answer["result"]
    return found


async def arrived(fake: RunningBotApi, *, polls: int) -> None:
    """So many polls have come to Telegram since the start of the test."""
    async with asyncio.timeout(60):
        while len(await fake.calls("getUpdates")) < polls:
            await asyncio.sleep(0.02)


async def test_a_dispatcher_polls_answers_and_confirms(bot_api: RunningBotApi, ann: Person) -> None:
    dispatcher = Dispatcher(disable_fsm=True)

    @dispatcher.message()
    async def echo(message: Message) -> None:
        await message.answer(f"echo {message.text}")

    bot = aiogram_bot(bot_api)
    polling = asyncio.create_task(
        dispatcher.start_polling(bot, polling_timeout=5, handle_signals=False, handle_as_tasks=False)
    )
    try:
        for word in ("one", "two", "three"):
            await ann.say(word)
        seen = await ann.sees("echo three")
        assert seen.texts == ["echo hello", "echo one", "echo two", "echo three"]
    finally:
        await dispatcher.stop_polling()
        await asyncio.wait([polling], timeout=10)
    assert not await bot_api.violations()


async def test_updates_stay_until_a_higher_offset_confirms_them(call: RawCall, ann: Person) -> None:
    await ann.say("two")
    first, second = await polled(call)
    assert [first["message"]["text"], second["message"]["text"]] == ["hello", "two"]
    assert await polled(call, offset=first["update_id"]) == [first, second]
    assert await polled(call, offset=second["update_id"]) == [second]
    assert await polled(call, offset=second["update_id"] + 1, timeout=0) == []
    for word in ("three", "four", "five"):
        await ann.say(word)
    assert [update["message"]["text"] for update in await polled(call, offset=-2)] == ["four", "five"]
    assert [update["message"]["text"] for update in await polled(call, limit=1)] == ["four"]


async def test_a_long_poll_ends_with_the_first_update(call: RawCall, ann: Person) -> None:
    (first,) = await polled(call)
    waiting = asyncio.create_task(polled(call, offset=first["update_id"] + 1, timeout=15))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    await ann.say("now")
    (update,) = await asyncio.wait_for(waiting, 30)
    assert update["message"]["text"] == "now"


async def test_a_long_poll_waits_no_longer_than_it_asked(
    bot_api: RunningBotApi, call: RawCall, ann: Person
) -> None:
    (first,) = await polled(call)
    waiting = asyncio.create_task(polled(call, offset=first["update_id"] + 1, timeout=500))
    await arrived(bot_api, polls=2)
    await bot_api.advance_clock(49)
    await asyncio.sleep(0.1)
    assert not waiting.done()
    await bot_api.advance_clock(1.5)
    assert await asyncio.wait_for(waiting, 30) == []


async def test_second_poller_ends_the_first_and_repeats_come_late(
    bot_api: RunningBotApi, call: RawCall, ann: Person
) -> None:
    bot = aiogram_bot(bot_api)
    (first,) = await polled(call)
    offset = first["update_id"] + 1
    losing = asyncio.create_task(bot.get_updates(offset=offset, timeout=15))
    await arrived(bot_api, polls=2)
    second = asyncio.create_task(call("getUpdates", offset=offset, timeout=15))
    with pytest.raises(TelegramConflictError, match=OTHER_POLLER):
        await asyncio.wait_for(losing, 30)
    third = asyncio.create_task(call("getUpdates", offset=offset, timeout=15))
    await arrived(bot_api, polls=4)
    assert not second.done()
    await bot_api.advance_clock(3)
    assert (await asyncio.wait_for(second, 30))[0] == 409
    await ann.say("end")
    assert (await asyncio.wait_for(third, 30))[0] == 200
    await bot.session.close()


async def test_a_webhook_excludes_polling(bot_api: RunningBotApi, call: RawCall, ann: Person) -> None:
    (first,) = await polled(call)
    waiting = asyncio.create_task(call("getUpdates", offset=first["update_id"] + 1, timeout=15))
    await arrived(bot_api, polls=2)
    await call("setWebhook", url=NOWHERE)
    status, answer = await asyncio.wait_for(waiting, 30)
    assert (status, answer["description"]) == (409, f"Conflict: {WEBHOOK_SET}")
    await bot_api.advance_clock(4)
    status, answer = await call("getUpdates")
    assert (status, answer["description"]) == (409, f"Conflict: {WEBHOOK_ACTIVE}")
    await call("deleteWebhook")
    assert (await call("getUpdates"))[0] == 200


async def test_messages_expire_after_a_day_and_presses_after_150_seconds(
    bot_api: RunningBotApi, aiobot: Bot, call: RawCall, ann: Person
) -> None:
    sent = await aiobot.send_message(42, "hi")
    await ann.forge_tap(sent.message_id, "x" * 200)
    assert (await bot_api.bot())["pending"] == 2
    await bot_api.advance_clock(151)
    assert [list(update)[1] for update in await polled(call)] == ["message"]
    await bot_api.advance_clock(24 * 3600)
    assert (await bot_api.bot())["pending"] == 0


async def test_only_kinds_that_were_asked_for_come_and_the_wish_is_remembered(
    call: RawCall, ann: Person
) -> None:
    await ann.react(1, "👍")
    assert [list(update)[1] for update in await polled(call)] == ["message"]
    await polled(call, allowed_updates=["message_reaction"])
    await ann.say("not wanted")
    await ann.react(1, "❤")
    (_, update) = await polled(call, offset=1)
    reaction = update["message_reaction"]
    assert (reaction["old_reaction"][0]["emoji"], reaction["new_reaction"][0]["emoji"]) == ("👍", "❤")


async def test_an_update_can_come_again_although_it_was_confirmed(
    bot_api: RunningBotApi, call: RawCall, ann: Person
) -> None:
    (first,) = await polled(call)
    await bot_api.duplicate_updates(1, repeats=2)
    await ann.say("twice")
    (update,) = await polled(call, offset=first["update_id"] + 1)
    behind = update["update_id"] + 1
    assert await polled(call, offset=behind) == [update]
    assert await polled(call, offset=behind) == [update]
    await ann.say("once")
    assert [found["message"]["text"] for found in await polled(call, offset=behind)] == ["once"]


async def test_updates_can_come_in_reverse(bot_api: RunningBotApi, call: RawCall, ann: Person) -> None:
    await bot_api.reorder_updates(3)
    for word in ("one", "two", "three"):
        await ann.say(word)
    words = [update["message"]["text"] for update in await polled(call)]
    assert words == ["hello", "three", "two", "one"]


async def test_an_update_of_any_shape_can_be_pushed(bot_api: RunningBotApi, call: RawCall) -> None:
    number = await bot_api.push_update({"update_id": 5_000_000_000, "moon_phase": {"full": True}})
    assert await polled(call) == [{"update_id": number, "moon_phase": {"full": True}}]
