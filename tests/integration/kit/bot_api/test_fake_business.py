"""Business accounts of the fake: connections, rights, a day to answer, and whose message it is."""

from __future__ import annotations

import pytest
from aiogram import Bot
from aiogram.exceptions import TelegramBadRequest
from aiogram.types import InlineKeyboardButton, InlineKeyboardMarkup

from tests.kit.fakes.bot_api import Person, RunningBotApi
from tests.kit.fakes.bot_api.client import Refused


@pytest.fixture
async def cara(bot_api: RunningBotApi) -> Person:
    await bot_api.change_bot(business=True)
    return await bot_api.person(4_242, first_name="Cara")


async def test_bot_without_business_mode_cannot_be_connected(bot_api: RunningBotApi, ann: Person) -> None:
    await bot_api.change_bot(business=False)
    with pytest.raises(Refused, match="business mode"):
        await ann.connects_business()


async def test_bot_hears_customers_and_answers_as_their_owner(aiobot: Bot, ann: Person, cara: Person) -> None:
    connection = await ann.connects_business()
    await cara.writes_to_owner(ann, "Are you open?")
    sent = await aiobot.send_message(cara.id, "Yes.", business_connection_id=connection)
    assert sent.from_user is not None
    assert sent.from_user.id == ann.id
    assert sent.sender_business_bot is not None
    assert [(one["from"], one["by_bot"]) for one in await ann.business_chat(cara)] == [
        (cara.id, False), (ann.id, True),
    ]  # fmt: skip
    updates = await aiobot.get_updates(timeout=1, allowed_updates=["business_connection", "business_message"])
    kinds = [update.event_type for update in updates]
    assert kinds.count("business_connection") == 1
    assert kinds.count("business_message") == 2
    found = await aiobot.get_business_connection(connection)
    assert (found.user.id, found.is_enabled) == (ann.id, True)


async def test_answer_is_refused_without_right_connection_or_recent_message(
    bot_api: RunningBotApi, aiobot: Bot, ann: Person, cara: Person
) -> None:
    connection = await ann.connects_business()
    with pytest.raises(TelegramBadRequest, match="BUSINESS_PEER_INVALID"):
        await aiobot.send_message(cara.id, "Hello", business_connection_id=connection)
    await cara.writes_to_owner(ann, "Are you open?")
    with pytest.raises(TelegramBadRequest, match="BUSINESS_CONNECTION_INVALID"):
        await aiobot.send_message(cara.id, "Yes", business_connection_id="another")
    await ann.changes_business(can_reply=False)
    with pytest.raises(TelegramBadRequest, match="BUSINESS_CONNECTION_NOT_ALLOWED"):
        await aiobot.send_message(cara.id, "Yes", business_connection_id=connection)
    await ann.changes_business(can_reply=True)
    await bot_api.advance_clock(25 * 3_600)
    with pytest.raises(TelegramBadRequest, match="BUSINESS_PEER_INVALID"):
        await aiobot.send_message(cara.id, "Yes", business_connection_id=connection)
    await ann.changes_business(enabled=False)
    with pytest.raises(TelegramBadRequest, match="BUSINESS_CONNECTION_INVALID"):
        await aiobot.send_message(cara.id, "Yes", business_connection_id=connection)


async def test_buttons_in_a_business_chat_are_a_violation(
    bot_api: RunningBotApi, aiobot: Bot, ann: Person, cara: Person
) -> None:
    connection = await ann.connects_business()
    await cara.writes_to_owner(ann, "Are you open?")
    keyboard = InlineKeyboardMarkup(inline_keyboard=[[InlineKeyboardButton(text="a", callback_data="b")]])
    with pytest.raises(TelegramBadRequest, match="strict"):
        await aiobot.send_message(cara.id, "Yes", business_connection_id=connection, reply_markup=keyboard)
    assert await bot_api.violations()
    await bot_api.reset()
