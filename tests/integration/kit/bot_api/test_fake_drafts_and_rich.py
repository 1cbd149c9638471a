"""Drafts with their Stop button, and rich messages with their limits, through aiogram."""

from __future__ import annotations

import pytest
from aiogram import Bot
from aiogram.exceptions import (
    TelegramBadRequest,
)
from aiogram.types import (
    InputRichBlockDetails,
    InputRichBlockList,
    InputRichBlockListItem,
    InputRichBlockParagraph,
    InputRichBlockSectionHeading,
    InputRichBlockTable,
    InputRichBlockThinking,
    InputRichMessage,
    RichBlockTableCell,
    RichTextBold,
)

from tests.kit.fakes.bot_api import Person, RunningBotApi


async def test_a_draft_is_shown_for_thirty_seconds_or_until_the_message(
    bot_api: RunningBotApi, aiobot: Bot, ann: Person
) -> None:
    await aiobot.send_message_draft(42, draft_id=7, text="", can_stop=True)
    await aiobot.send_message_draft(42, draft_id=7, text="Once upon", can_stop=True)
    assert [draft["text"] for draft in (await ann.screen()).drafts] == ["Once upon"]
    await aiobot.send_message(42, "Once upon a time")
    seen = await ann.screen()
    assert (seen.drafts, seen.notifications) == ([], 1)
    await aiobot.send_message_draft(42, draft_id=8, text="forgotten")
    await bot_api.advance_clock(29)
    assert len((await ann.screen()).drafts) == 1
    await bot_api.advance_clock(2)
    assert (await ann.screen()).drafts == []
    assert [view.get("reason") for view in await ann.views() if view["kind"] == "draft_gone"] == [
        "message",
        "expired",
    ]


async def test_the_stop_button_of_a_draft_tells_the_bot(aiobot: Bot, ann: Person) -> None:
    await aiobot.send_message_draft(42, draft_id=7, text="Once", can_stop=True, keep_on_stop=True)
    await ann.stop_draft()
    stopped = (await aiobot.get_updates(timeout=1))[-1].stopped_message_generation
    assert stopped is not None
    assert (stopped.draft_id, stopped.chat.id) == (7, 42)
    assert len((await ann.screen()).drafts) == 1
    await aiobot.send_message_draft(42, draft_id=9, text="Twice", can_stop=True)
    await ann.stop_draft()
    assert (await ann.screen()).drafts == []


async def test_a_draft_is_for_private_chats_and_has_a_number(
    bot_api: RunningBotApi, aiobot: Bot, ann: Person
) -> None:
    group = await bot_api.group("Team", ann)
    with pytest.raises(TelegramBadRequest, match="only to private chats"):
        await aiobot.send_message_draft(group.id, draft_id=1, text="x")
    with pytest.raises(TelegramBadRequest, match="draft_id must be non-zero"):
        await aiobot.send_message_draft(42, draft_id=0, text="x")
    assert len(await bot_api.violations()) == 2


def rich(*blocks: object) -> InputRichMessage:
    return InputRichMessage.model_validate({"blocks": list(blocks)})


async def test_a_rich_message_of_typed_blocks_is_taken_edited_and_drafted(
    bot_api: RunningBotApi, aiobot: Bot, ann: Person
) -> None:
    cells = [[RichBlockTableCell(text=word, align="left", valign="top") for word in ("a", "b")]] * 2
    item = InputRichBlockListItem(blocks=[InputRichBlockParagraph(text="milk")], has_checkbox=True)
    message = rich(
        InputRichBlockSectionHeading(text="Plan", size=2),
        InputRichBlockTable(cells=cells),
        InputRichBlockList(items=[item]),
        InputRichBlockDetails(summary="more", blocks=[InputRichBlockParagraph(text=RichTextBold(text="x"))]),
    )
    await aiobot.send_rich_message_draft(42, draft_id=5, rich_message=rich(InputRichBlockThinking(text="hm")))
    sent = await aiobot.send_rich_message(42, rich_message=message)
    assert (await ann.screen()).texts == ["Plan\na | b\na | b\nmilk\nmore\nx"]
    shorter = rich(InputRichBlockParagraph(text="done"))
    await aiobot.edit_message_text(chat_id=42, message_id=sent.message_id, rich_message=shorter)
    assert (await ann.screen()).texts == ["done"]
    assert not await bot_api.violations()


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
    aiobot: Bot, ann: Person, message: InputRichMessage, words: str
) -> None:
    with pytest.raises(TelegramBadRequest, match=words):
        await aiobot.send_rich_message(42, rich_message=message)
