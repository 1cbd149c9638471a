"""Sending, editing, files and buttons through aiogram, which nobody here wrote."""

from __future__ import annotations

import io

import pytest
from aiogram import Bot
from aiogram.exceptions import (
    TelegramBadRequest,
    TelegramEntityTooLarge,
)
from aiogram.types import (
    BufferedInputFile,
    InlineKeyboardButton,
    InlineKeyboardMarkup,
    InputMediaDocument,
    MessageEntity,
    ReplyParameters,
)

from tests.kit.fakes.bot_api import Person, RunningBotApi

STOP = InlineKeyboardMarkup(inline_keyboard=[[InlineKeyboardButton(text="Stop", callback_data="stop:1")]])


async def test_a_streamed_answer_rings_once_and_leaves_every_view(
    bot_api: RunningBotApi, aiobot: Bot, ann: Person
) -> None:
    await aiobot.send_chat_action(42, "typing")
    assert (await ann.screen()).is_typing
    sent = await aiobot.send_message(42, "One", reply_markup=STOP)
    await aiobot.edit_message_text("One two", chat_id=42, message_id=sent.message_id, reply_markup=STOP)
    await aiobot.edit_message_text("One two three", chat_id=42, message_id=sent.message_id)
    await aiobot.send_message(42, "quiet", disable_notification=True)
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
    assert not await bot_api.violations()


async def test_entities_and_replies_come_back_as_they_were_sent(aiobot: Bot, ann: Person) -> None:
    entities = [MessageEntity(type="pre", offset=3, length=4, language="python")]
    sent = await aiobot.send_message(
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


async def test_deleted_message_leaves_the_screen_but_not_the_views(aiobot: Bot, ann: Person) -> None:
    sent = await aiobot.send_message(42, "oops")
    await aiobot.delete_message(42, sent.message_id)
    assert (await ann.screen()).texts == []
    assert [view["kind"] for view in await ann.views(message_id=sent.message_id)] == ["sent", "deleted"]


async def test_a_document_travels_in_both_directions(
    bot_api: RunningBotApi, aiobot: Bot, ann: Person
) -> None:
    sent = await aiobot.send_document(42, BufferedInputFile(b"# Answer", "answer.md"), caption="whole answer")
    assert sent.document is not None
    assert sent.document.mime_type == "text/markdown"
    line = (await ann.screen()).answers[0]
    assert (line.document, line.text) == ("answer.md", "whole answer")
    again = await aiobot.send_document(42, sent.document.file_id)
    assert again.document is not None
    assert again.document.file_name == "answer.md"
    await ann.send_file("notes.txt", b"remember me", media_type="text/plain", caption="read this")
    update = (await aiobot.get_updates(timeout=1))[-1]
    assert update.message is not None
    assert update.message.document is not None
    found = await aiobot.get_file(update.message.document.file_id)
    assert found.file_path is not None
    into = io.BytesIO()
    await aiobot.download_file(found.file_path, into)
    assert into.getvalue() == b"remember me"
    assert [call["files"] for call in await bot_api.calls("sendDocument")] == [{"answer.md": 8}, {}]


async def test_photos_and_albums_are_sent_as_parts_of_a_form(aiobot: Bot, ann: Person) -> None:
    photo = await aiobot.send_photo(42, BufferedInputFile(b"jpeg", "a.jpg"), caption="look")
    assert photo.photo is not None
    parts = [InputMediaDocument(media=BufferedInputFile(b"x", f"{n}.txt")) for n in range(3)]
    album = await aiobot.send_media_group(42, list(parts))
    assert len({part.media_group_id for part in album}) == 1
    names = [line.document for line in (await ann.screen()).answers if line.document]
    assert names == ["0.txt", "1.txt", "2.txt"]


async def test_a_file_of_more_than_20_mb_cannot_be_fetched(aiobot: Bot, ann: Person) -> None:
    sent = await ann.send_file("big.pdf", b"%PDF", size=21 * 1024 * 1024)
    update = (await aiobot.get_updates(timeout=1))[-1]
    assert update.message is not None
    assert update.message.document is not None
    assert update.message.message_id == sent.message_id
    with pytest.raises(TelegramBadRequest, match="file is too big"):
        await aiobot.get_file(update.message.document.file_id)


async def test_an_upload_of_more_than_50_mb_is_too_large(aiobot: Bot, ann: Person) -> None:
    content = bytes(50 * 1024 * 1024 + 1)
    with pytest.raises(TelegramEntityTooLarge):
        await aiobot.send_document(42, BufferedInputFile(content, "huge.bin"))


async def test_a_button_is_tapped_answered_and_toasted(aiobot: Bot, ann: Person) -> None:
    sent = await aiobot.send_message(42, "working", reply_markup=STOP)
    await ann.tap("Stop")
    query = (await aiobot.get_updates(timeout=1))[-1].callback_query
    assert query is not None
    assert query.data == "stop:1"
    assert query.message is not None
    assert query.message.message_id == sent.message_id
    await aiobot.answer_callback_query(query.id, text="Stopping", show_alert=True)
    with pytest.raises(TelegramBadRequest, match="query is too old"):
        await aiobot.answer_callback_query(query.id)
    assert [(toast["text"], toast["alert"]) for toast in (await ann.screen()).toasts] == [("Stopping", True)]
