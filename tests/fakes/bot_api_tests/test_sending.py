"""Sending, editing, files, buttons, drafts and rich messages through aiogram, which nobody here wrote."""

from __future__ import annotations

import io

import pytest
from aiogram import Bot
from aiogram.exceptions import (
    TelegramBadRequest,
    TelegramEntityTooLarge,
    TelegramForbiddenError,
    TelegramMigrateToChat,
    TelegramRetryAfter,
)
from aiogram.types import (
    BotCommand,
    BotCommandScopeAllPrivateChats,
    BufferedInputFile,
    InlineKeyboardButton,
    InlineKeyboardMarkup,
    InputMediaDocument,
    InputRichBlockDetails,
    InputRichBlockList,
    InputRichBlockListItem,
    InputRichBlockParagraph,
    InputRichBlockSectionHeading,
    InputRichBlockTable,
    InputRichBlockThinking,
    InputRichMessage,
    MessageEntity,
    ReactionTypeEmoji,
    ReplyParameters,
    RichBlockTableCell,
    RichTextBold,
)

from tests.fakes.bot_api import Person, RunningBotApi

STOP = InlineKeyboardMarkup(inline_keyboard=[[InlineKeyboardButton(text="Stop", callback_data="stop:1")]])


async def test_a_streamed_answer_rings_once_and_leaves_every_view(
    fake: RunningBotApi, bot: Bot, ann: Person
) -> None:
    await bot.send_chat_action(42, "typing")
    assert (await ann.screen()).is_typing
    sent = await bot.send_message(42, "One", reply_markup=STOP)
    await bot.edit_message_text("One two", chat_id=42, message_id=sent.message_id, reply_markup=STOP)
    await bot.edit_message_text("One two three", chat_id=42, message_id=sent.message_id)
    await bot.send_message(42, "quiet", disable_notification=True)
    seen = await ann.screen()
    assert seen.texts == ["One two three", "quiet"]
    assert seen.answers[0].edited
    assert not seen.answers[0].buttons
    assert seen.answers[1].silent
    assert seen.notifications == 1
    assert not seen.is_typing
    views = await ann.views(message_id=sent.message_id)
    assert [(view["kind"], view["text"]) for view in views] == [
        ("sent", "One"),
        ("edited", "One two"),
        ("edited", "One two three"),
    ]
    assert views[0]["at"] <= views[1]["at"] <= views[2]["at"]
    assert not await fake.violations()


async def test_entities_and_replies_come_back_as_they_were_sent(bot: Bot, ann: Person) -> None:
    entities = [MessageEntity(type="pre", offset=3, length=4, language="python")]
    sent = await bot.send_message(
        42, "😀 x=1\n", entities=entities, reply_parameters=ReplyParameters(message_id=1, quote="hell")
    )
    assert sent.text == "😀 x=1"
    assert sent.entities is not None
    (kept,) = sent.entities
    assert (kept.type, kept.offset, kept.length, kept.language) == ("pre", 3, 3, "python")
    assert sent.quote is not None
    assert sent.quote.text == "hell"
    assert sent.reply_to_message is not None
    assert sent.reply_to_message.text == "hello"


async def test_what_is_deleted_is_gone_from_the_screen_but_not_from_the_views(bot: Bot, ann: Person) -> None:
    sent = await bot.send_message(42, "oops")
    await bot.delete_message(42, sent.message_id)
    assert (await ann.screen()).texts == []
    assert [view["kind"] for view in await ann.views(message_id=sent.message_id)] == ["sent", "deleted"]


async def test_a_document_travels_in_both_directions(fake: RunningBotApi, bot: Bot, ann: Person) -> None:
    sent = await bot.send_document(42, BufferedInputFile(b"# Answer", "answer.md"), caption="whole answer")
    assert sent.document is not None
    assert sent.document.mime_type == "text/markdown"
    line = (await ann.screen()).answers[0]
    assert (line.document, line.text) == ("answer.md", "whole answer")
    again = await bot.send_document(42, sent.document.file_id)
    assert again.document is not None
    assert again.document.file_name == "answer.md"
    await ann.send_file("notes.txt", b"remember me", media_type="text/plain", caption="read this")
    update = (await bot.get_updates(timeout=1))[-1]
    assert update.message is not None
    assert update.message.document is not None
    found = await bot.get_file(update.message.document.file_id)
    assert found.file_path is not None
    into = io.BytesIO()
    await bot.download_file(found.file_path, into)
    assert into.getvalue() == b"remember me"
    assert [call["files"] for call in await fake.calls("sendDocument")] == [{"answer.md": 8}, {}]


async def test_photos_and_albums_are_sent_as_parts_of_a_form(bot: Bot, ann: Person) -> None:
    photo = await bot.send_photo(42, BufferedInputFile(b"jpeg", "a.jpg"), caption="look")
    assert photo.photo is not None
    parts = [InputMediaDocument(media=BufferedInputFile(b"x", f"{n}.txt")) for n in range(3)]
    album = await bot.send_media_group(42, list(parts))
    assert len({part.media_group_id for part in album}) == 1
    names = [line.document for line in (await ann.screen()).answers if line.document]
    assert names == ["0.txt", "1.txt", "2.txt"]


async def test_a_file_of_more_than_20_mb_cannot_be_fetched(bot: Bot, ann: Person) -> None:
    sent = await ann.send_file("big.pdf", b"%PDF", size=21 * 1024 * 1024)
    update = (await bot.get_updates(timeout=1))[-1]
    assert update.message is not None
    assert update.message.document is not None
    assert update.message.message_id == sent.message_id
    with pytest.raises(TelegramBadRequest, match="file is too big"):
        await bot.get_file(update.message.document.file_id)


async def test_an_upload_of_more_than_50_mb_is_too_large(bot: Bot, ann: Person) -> None:
    content = bytes(50 * 1024 * 1024 + 1)
    with pytest.raises(TelegramEntityTooLarge):
        await bot.send_document(42, BufferedInputFile(content, "huge.bin"))


async def test_a_button_is_tapped_answered_and_toasted(bot: Bot, ann: Person) -> None:
    sent = await bot.send_message(42, "working", reply_markup=STOP)
    await ann.tap("Stop")
    query = (await bot.get_updates(timeout=1))[-1].callback_query
    assert query is not None
    assert query.data == "stop:1"
    assert query.message is not None
    assert query.message.message_id == sent.message_id
    await bot.answer_callback_query(query.id, text="Stopping", show_alert=True)
    with pytest.raises(TelegramBadRequest, match="query is too old"):
        await bot.answer_callback_query(query.id)
    assert [(toast["text"], toast["alert"]) for toast in (await ann.screen()).toasts] == [("Stopping", True)]


async def test_a_draft_is_shown_for_thirty_seconds_or_until_the_message(
    fake: RunningBotApi, bot: Bot, ann: Person
) -> None:
    await bot.send_message_draft(42, draft_id=7, text="", can_stop=True)
    await bot.send_message_draft(42, draft_id=7, text="Once upon", can_stop=True)
    assert [draft["text"] for draft in (await ann.screen()).drafts] == ["Once upon"]
    await bot.send_message(42, "Once upon a time")
    seen = await ann.screen()
    assert (seen.drafts, seen.notifications) == ([], 1)
    await bot.send_message_draft(42, draft_id=8, text="forgotten")
    await fake.advance_clock(29)
    assert len((await ann.screen()).drafts) == 1
    await fake.advance_clock(2)
    assert (await ann.screen()).drafts == []
    assert [view.get("reason") for view in await ann.views() if view["kind"] == "draft_gone"] == [
        "message",
        "expired",
    ]


async def test_the_stop_button_of_a_draft_tells_the_bot(bot: Bot, ann: Person) -> None:
    await bot.send_message_draft(42, draft_id=7, text="Once", can_stop=True, keep_on_stop=True)
    await ann.stop_draft()
    stopped = (await bot.get_updates(timeout=1))[-1].stopped_message_generation
    assert stopped is not None
    assert (stopped.draft_id, stopped.chat.id) == (7, 42)
    assert len((await ann.screen()).drafts) == 1
    await bot.send_message_draft(42, draft_id=9, text="Twice", can_stop=True)
    await ann.stop_draft()
    assert (await ann.screen()).drafts == []


async def test_a_draft_is_for_private_chats_and_has_a_number(
    fake: RunningBotApi, bot: Bot, ann: Person
) -> None:
    group = await fake.group("Team", ann)
    with pytest.raises(TelegramBadRequest, match="only to private chats"):
        await bot.send_message_draft(group.id, draft_id=1, text="x")
    with pytest.raises(TelegramBadRequest, match="draft_id must be non-zero"):
        await bot.send_message_draft(42, draft_id=0, text="x")
    assert len(await fake.violations()) == 2


def rich(*blocks: object) -> InputRichMessage:
    return InputRichMessage.model_validate({"blocks": list(blocks)})


async def test_a_rich_message_of_typed_blocks_is_taken_edited_and_drafted(
    fake: RunningBotApi, bot: Bot, ann: Person
) -> None:
    cells = [[RichBlockTableCell(text=word, align="left", valign="top") for word in ("a", "b")]] * 2
    item = InputRichBlockListItem(blocks=[InputRichBlockParagraph(text="milk")], has_checkbox=True)
    message = rich(
        InputRichBlockSectionHeading(text="Plan", size=2),
        InputRichBlockTable(cells=cells),
        InputRichBlockList(items=[item]),
        InputRichBlockDetails(summary="more", blocks=[InputRichBlockParagraph(text=RichTextBold(text="x"))]),
    )
    await bot.send_rich_message_draft(42, draft_id=5, rich_message=rich(InputRichBlockThinking(text="hm")))
    sent = await bot.send_rich_message(42, rich_message=message)
    assert (await ann.screen()).texts == ["Plan\na | b\na | b\nmilk\nmore\nx"]
    shorter = rich(InputRichBlockParagraph(text="done"))
    await bot.edit_message_text(chat_id=42, message_id=sent.message_id, rich_message=shorter)
    assert (await ann.screen()).texts == ["done"]
    assert not await fake.violations()


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (rich(InputRichBlockThinking(text="hm")), "only in drafts"),
        (rich(InputRichBlockParagraph(text="x" * 32_769)), "too long"),
        (rich(*[InputRichBlockParagraph(text="x")] * 501), "too many blocks"),
        (
            rich(
                InputRichBlockTable(cells=[[RichBlockTableCell(text="x", align="left", valign="top")] * 21])
            ),
            "too many columns",
        ),
        (InputRichMessage(html="<b>x</b>", markdown="x"), "exactly one of"),
    ],
)
async def test_rich_messages_have_limits(
    bot: Bot, ann: Person, message: InputRichMessage, words: str
) -> None:
    with pytest.raises(TelegramBadRequest, match=words):
        await bot.send_rich_message(42, rich_message=message)


async def test_who_blocks_the_bot_is_out_of_reach_until_they_unblock(bot: Bot, ann: Person) -> None:
    await ann.block()
    with pytest.raises(TelegramForbiddenError, match="bot was blocked by the user"):
        await bot.send_message(42, "hello?")
    await ann.unblock()
    await bot.send_message(42, "hello!")
    changes = [update.my_chat_member for update in await bot.get_updates(timeout=1)][1:]
    assert [change.new_chat_member.status for change in changes if change] == ["kicked", "member"]


async def test_a_bot_cannot_begin_a_conversation(fake: RunningBotApi, bot: Bot) -> None:
    stranger = await fake.person(77)
    assert (await stranger.screen()).lines == []
    with pytest.raises(TelegramForbiddenError, match="can't initiate conversation"):
        await bot.send_message(77, "hello")


async def test_a_group_that_became_a_supergroup_tells_its_new_id(
    fake: RunningBotApi, bot: Bot, ann: Person
) -> None:
    group = await fake.group("Team", ann, kind="group")
    bigger = await group.migrate()
    with pytest.raises(TelegramMigrateToChat) as caught:
        await bot.send_message(group.id, "hi")
    assert caught.value.migrate_to_chat_id == bigger.id
    await bot.send_message(bigger.id, "hi")
    told = [update.message for update in await bot.get_updates(timeout=1) if update.message]
    assert [message.migrate_to_chat_id for message in told if message.migrate_to_chat_id] == [bigger.id]
    assert [message.migrate_from_chat_id for message in told if message.migrate_from_chat_id] == [group.id]


async def test_topics_of_forums_and_private_chats_are_threads(
    fake: RunningBotApi, bot: Bot, ann: Person
) -> None:
    forum = await fake.group("Forum", ann, forum=True, admin=True)
    topic = await bot.create_forum_topic(forum.id, "Plans")
    thread = topic.message_thread_id
    sent = await bot.send_message(forum.id, "in it", message_thread_id=thread)
    assert sent.is_topic_message
    await ann.say("me too", chat=forum.id, thread=thread)
    heard = (await bot.get_updates(timeout=1))[-1].message
    assert heard is not None
    assert (heard.message_thread_id, heard.is_topic_message) == (thread, True)
    await bot.edit_forum_topic(forum.id, thread, name="Old plans")
    await forum.delete_topic(thread)
    for gone in (thread, 1):
        with pytest.raises(TelegramBadRequest, match="message thread not found"):
            await bot.send_message(forum.id, "lost", message_thread_id=gone)
    await fake.change_bot(topics=True)
    assert (await bot.get_me()).has_topics_enabled
    own = await ann.create_topic("Mine")
    await bot.send_message(42, "here", message_thread_id=own)
    assert [line.thread for line in (await ann.screen()).answers] == [own]


async def test_pins_reactions_and_members(fake: RunningBotApi, bot: Bot, ann: Person) -> None:
    sent = await bot.send_message(42, "pin me")
    await bot.pin_chat_message(42, sent.message_id)
    chat = await bot.get_chat(42)
    assert chat.pinned_message is not None
    assert chat.pinned_message.message_id == sent.message_id
    await bot.unpin_chat_message(42, message_id=sent.message_id)
    assert (await ann.screen()).pinned == []
    await bot.set_message_reaction(42, 1, reaction=[ReactionTypeEmoji(emoji="👀")])
    group = await fake.group("Team", ann)
    assert (await bot.get_chat_member(group.id, 42)).status == "creator"
    assert (await bot.get_chat_member(group.id, bot.id)).status == "member"
    await bot.leave_chat(group.id)
    with pytest.raises(TelegramForbiddenError, match="not a member"):
        await bot.send_message(group.id, "hi")
    await group.add_bot(bot.id, admin=True)
    assert (await bot.get_chat_member(group.id, bot.id)).status == "administrator"
    await group.kick(bot.id)
    with pytest.raises(TelegramForbiddenError, match="kicked from the supergroup"):
        await bot.send_message(group.id, "hi")


async def test_what_a_bot_tells_about_itself_can_be_read_back(fake: RunningBotApi, bot: Bot) -> None:
    commands = [BotCommand(command="help", description="What I can do")]
    scope = BotCommandScopeAllPrivateChats()
    await bot.set_my_commands(commands, scope=scope, language_code="de")
    read_back = await bot.get_my_commands(scope=scope, language_code="de")
    assert [command.command for command in read_back] == ["help"]
    assert await bot.get_my_commands() == []
    await bot.set_my_description("I remember.")
    await bot.set_my_short_description("Remembers.")
    await bot.set_chat_menu_button()
    told = await fake.bot()
    assert told["commands"][0]["scope"] == [{"type": "all_private_chats"}, "de"]
    assert told["texts"] == {"description:": "I remember.", "short_description:": "Remembers."}
    await bot.delete_my_commands(scope=scope, language_code="de")
    assert (await fake.bot())["commands"] == []


async def test_the_limits_of_telegram_can_be_switched_on_and_grow(
    fake: RunningBotApi, bot: Bot, ann: Person
) -> None:
    await fake.set_limits()
    for number in range(3):
        await bot.send_message(42, f"burst {number}")
    waits: list[float] = []
    for _ in range(2):
        with pytest.raises(TelegramRetryAfter) as caught:
            await bot.send_message(42, "too much")
        waits.append(caught.value.retry_after)
        await fake.advance_clock(caught.value.retry_after)
        for number in range(3):
            await bot.send_message(42, f"after {len(waits)} {number}")
    assert all(1 <= wait <= 4 for wait in waits)
    group = await fake.group("Team", ann)
    for number in range(20):
        await bot.send_message(group.id, str(number))
        await fake.advance_clock(0.05)
    with pytest.raises(TelegramRetryAfter) as caught:
        await bot.send_message(group.id, "21")
    assert 50 <= caught.value.retry_after <= 60
    with pytest.raises(TelegramRetryAfter):
        await bot.edit_message_text("19!", chat_id=group.id, message_id=20)
