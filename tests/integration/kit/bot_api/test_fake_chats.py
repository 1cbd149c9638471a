"""Blocks, groups, topics, pins, members, profiles and limits, through aiogram."""

from __future__ import annotations

import pytest
from aiogram import Bot
from aiogram.exceptions import (
    TelegramBadRequest,
    TelegramForbiddenError,
    TelegramMigrateToChat,
    TelegramRetryAfter,
)
from aiogram.types import (
    BotCommand,
    BotCommandScopeAllPrivateChats,
    ReactionTypeEmoji,
)

from tests.kit.fakes.bot_api import Person, RunningBotApi


async def test_who_blocks_the_bot_is_out_of_reach_until_they_unblock(aiobot: Bot, ann: Person) -> None:
    await ann.block()
    with pytest.raises(TelegramForbiddenError, match="bot was blocked by the user"):
        await aiobot.send_message(42, "hello?")
    await ann.unblock()
    await aiobot.send_message(42, "hello!")
    changes = [update.my_chat_member for update in await aiobot.get_updates(timeout=1)][1:]
    assert [change.new_chat_member.status for change in changes if change] == ["kicked", "member"]


async def test_a_bot_cannot_begin_a_conversation(bot_api: RunningBotApi, aiobot: Bot) -> None:
    stranger = await bot_api.person(77)
    assert (await stranger.screen()).lines == []
    with pytest.raises(TelegramForbiddenError, match="can't initiate conversation"):
        await aiobot.send_message(77, "hello")


async def test_a_group_that_became_a_supergroup_tells_its_new_id(
    bot_api: RunningBotApi, aiobot: Bot, ann: Person
) -> None:
    group = await bot_api.group("Team", ann, kind="group")
    bigger = await group.migrate()
    with pytest.raises(TelegramMigrateToChat) as caught:
        await aiobot.send_message(group.id, "hi")
    assert caught.value.migrate_to_chat_id == bigger.id
    await aiobot.send_message(bigger.id, "hi")
    told = [update.message for update in await aiobot.get_updates(timeout=1) if update.message]
    assert [message.migrate_to_chat_id for message in told if message.migrate_to_chat_id] == [bigger.id]
    assert [message.migrate_from_chat_id for message in told if message.migrate_from_chat_id] == [group.id]


async def test_topics_of_forums_and_private_chats_are_threads(
    bot_api: RunningBotApi, aiobot: Bot, ann: Person
) -> None:
    forum = await bot_api.group("Forum", ann, forum=True, admin=True)
    topic = await aiobot.create_forum_topic(forum.id, "Plans")
    thread = topic.message_thread_id
    sent = await aiobot.send_message(forum.id, "in it", message_thread_id=thread)
    assert sent.is_topic_message
    await ann.say("me too", chat=forum.id, thread=thread)
    heard = (await aiobot.get_updates(timeout=1))[-1].message
    assert heard is not None
    assert (heard.message_thread_id, heard.is_topic_message) == (thread, True)
    await aiobot.edit_forum_topic(forum.id, thread, name="Old plans")
    await forum.delete_topic(thread)
    for gone in (thread, 1):
        with pytest.raises(TelegramBadRequest, match="message thread not found"):
            await aiobot.send_message(forum.id, "lost", message_thread_id=gone)
    await bot_api.change_bot(topics=True)
    assert (await aiobot.get_me()).has_topics_enabled
    own = await ann.create_topic("Mine")
    await aiobot.send_message(42, "here", message_thread_id=own)
    assert [line.thread for line in (await ann.screen()).answers] == [own]


async def test_pins_reactions_and_members(bot_api: RunningBotApi, aiobot: Bot, ann: Person) -> None:
    sent = await aiobot.send_message(42, "pin me")
    await aiobot.pin_chat_message(42, sent.message_id)
    chat = await aiobot.get_chat(42)
    assert chat.pinned_message is not None
    assert chat.pinned_message.message_id == sent.message_id
    await aiobot.unpin_chat_message(42, message_id=sent.message_id)
    assert (await ann.screen()).pinned == []
    await aiobot.set_message_reaction(42, 1, reaction=[ReactionTypeEmoji(emoji="👀")])
    group = await bot_api.group("Team", ann)
    assert (await aiobot.get_chat_member(group.id, 42)).status == "creator"
    assert (await aiobot.get_chat_member(group.id, aiobot.id)).status == "member"
    await aiobot.leave_chat(group.id)
    with pytest.raises(TelegramForbiddenError, match="not a member"):
        await aiobot.send_message(group.id, "hi")
    await group.add_bot(aiobot.id, admin=True)
    assert (await aiobot.get_chat_member(group.id, aiobot.id)).status == "administrator"
    await group.kick(aiobot.id)
    with pytest.raises(TelegramForbiddenError, match="kicked from the supergroup"):
        await aiobot.send_message(group.id, "hi")


async def test_what_a_bot_tells_about_itself_can_be_read_back(bot_api: RunningBotApi, aiobot: Bot) -> None:
    commands = [BotCommand(command="help", description="What I can do")]
    scope = BotCommandScopeAllPrivateChats()
    await aiobot.set_my_commands(commands, scope=scope, language_code="de")
    read_back = await aiobot.get_my_commands(scope=scope, language_code="de")
    assert [command.command for command in read_back] == ["help"]
    assert await aiobot.get_my_commands() == []
    await aiobot.set_my_description("I remember.")
    await aiobot.set_my_short_description("Remembers.")
    await aiobot.set_chat_menu_button()
    told = await bot_api.bot()
    assert told["commands"][0]["scope"] == [{"type": "all_private_chats"}, "de"]
    assert told["texts"] == {"description:": "I remember.", "short_description:": "Remembers."}
    await aiobot.delete_my_commands(scope=scope, language_code="de")
    assert (await bot_api.bot())["commands"] == []


async def test_the_limits_of_telegram_can_be_switched_on_and_grow(
    bot_api: RunningBotApi, aiobot: Bot, ann: Person
) -> None:
    await bot_api.set_limits()
    for number in range(3):
        await aiobot.send_message(42, f"burst {number}")
    waits: list[float] = []
    for _ in range(2):
        with pytest.raises(TelegramRetryAfter) as caught:
            await aiobot.send_message(42, "too much")
        waits.append(caught.value.retry_after)
        await bot_api.advance_clock(caught.value.retry_after)
        for number in range(3):
            await aiobot.send_message(42, f"after {len(waits)} {number}")
    assert all(1 <= wait <= 4 for wait in waits)
    group = await bot_api.group("Team", ann)
    for number in range(20):
        await aiobot.send_message(group.id, str(number))
        await bot_api.advance_clock(0.05)
    with pytest.raises(TelegramRetryAfter) as caught:
        await aiobot.send_message(group.id, "21")
    assert 50 <= caught.value.retry_after <= 60
    with pytest.raises(TelegramRetryAfter):
        await aiobot.edit_message_text("19!", chat_id=group.id, message_id=20)
