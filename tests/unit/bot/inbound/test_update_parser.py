"""Every update becomes one of our values; strange ones are ignored by name, and none raises."""

from __future__ import annotations

import copy
import json
import re
from dataclasses import replace
from typing import Any

import pytest
from aiogram.types import Update
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bot.telegram.inbound.update_parser import MAX_ID_VALUE, list_allowed_updates, parse_update
from bot.telegram.inbound.updates import (
    ForwardOrigin,
    IgnoredUpdate,
    IncomingMessage,
    IncomingUpdate,
    Media,
    MessageAuthor,
    ParsedCommand,
    QuotedMessage,
)
from tests.kit.telegram.updates import BOT, BOT_USER, GROUP_CHAT, NOON, Json, raw, raw_message

PERSON: Json = raw_message()["from"]


def read(update: Json) -> IncomingUpdate:
    return parse_update(update, bot=BOT)


def said(**changes: Any) -> IncomingMessage:
    found = read(raw(**changes))
    assert isinstance(found, IncomingMessage), found
    return found


def entity(kind: str, text: str, part: str, **more: Any) -> Json:
    before = text[: text.index(part)]
    return {
        "type": kind,
        "offset": len(before.encode("utf-16-le")) // 2,
        "length": len(part.encode("utf-16-le")) // 2,
        **more,
    }


def test_a_private_message_is_read_with_its_person_and_place() -> None:
    found = said()
    assert found.sender == MessageAuthor(user_id=42, name="Ada Lovelace", username="ada", language_code="de")
    assert (found.chat.chat_id, found.chat.thread_id, found.chat.kind) == (42, 0, "private")
    assert (found.chat.title, found.text, found.sent_at, found.update_id) == (
        "Ada Lovelace",
        "Hello",
        NOON,
        11,
    )
    assert not found.is_edited
    assert not found.is_addressed


def test_an_edited_message_says_so() -> None:
    found = read({"update_id": 1, "edited_message": raw_message(edit_date=1)})
    assert isinstance(found, IncomingMessage)
    assert found.is_edited


@pytest.mark.parametrize(
    ("thread", "is_topic", "expected"), [(12, True, 12), (1, True, 0), (12, None, 0), (None, None, 0)]
)
def test_only_topics_are_places_and_general_has_no_number(
    thread: int | None, is_topic: bool | None, expected: int
) -> None:
    found = said(chat=GROUP_CHAT, message_thread_id=thread, is_topic_message=is_topic)
    assert found.chat.thread_id == expected
    assert found.chat.is_forum


def test_what_seems_to_answer_the_topics_first_message_answers_nothing() -> None:
    first = raw_message(
        text=None, message_id=5, forum_topic_created={"name": "Cats", "icon_color": 1}, **{"from": BOT_USER}
    )
    found = said(chat=GROUP_CHAT, message_thread_id=5, is_topic_message=True, reply_to_message=first)
    assert (found.quoted, found.reply_to_message_id, found.replies_to_bot) == (None, None, False)
    assert found.chat.topic == "Cats"


@pytest.mark.parametrize(
    ("text", "part", "kind", "expected"),
    [
        ("😀😀 @evertalk_test_bot hi", "@evertalk_test_bot", "mention", True),
        ("@EVERTALK_test_bot hi", "@EVERTALK_test_bot", "mention", True),
        ("@evertalk_test_bot2 hi", "@evertalk_test_bot2", "mention", False),
        ("write to a@evertalk_test_bot", "a@evertalk_test_bot", "email", False),
        ("please /help@evertalk_test_bot", "/help@evertalk_test_bot", "bot_command", True),
    ],
)
def test_a_mention_is_what_telegram_marks_as_one(text: str, part: str, kind: str, expected: bool) -> None:
    assert said(chat=GROUP_CHAT, text=text, entities=[entity(kind, text, part)]).mentions_bot is expected


def test_a_name_without_at_can_be_a_mention() -> None:
    mark = entity("text_mention", "Evertalk?", "Evertalk", user=BOT_USER)
    assert said(chat=GROUP_CHAT, text="Evertalk?", entities=[mark]).is_addressed


def test_a_caption_can_mention_the_bot() -> None:
    caption = "@evertalk_test_bot what is this"
    found = said(
        text=None,
        caption=caption,
        caption_entities=[entity("mention", caption, "@evertalk_test_bot")],
        photo=[
            {"file_id": "small", "file_unique_id": "s", "width": 90, "height": 90},
            {"file_id": "large", "file_unique_id": "l", "width": 1280, "height": 960, "file_size": 5},
            {"file_id": "mid", "file_unique_id": "m", "width": 320, "height": 240},
        ],
    )
    assert found.mentions_bot
    assert found.text == caption
    assert found.media == Media(
        kind="photo", file_id="large", unique_id="l", size=5, mime="image/jpeg", width=1280, height=960
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/compact the cats", ParsedCommand(name="compact", args="the cats")),
        ("/Help@evertalk_test_bot", ParsedCommand(name="help", is_for_this_bot=True)),
        ("/help@other_bot", ParsedCommand(name="help", is_for_other_bot=True)),
        ("no /help here", None),
        ("/etc/passwd what is that?", None),
        ("/r/python is full of snakes", None),
        ("/help: what is that?", None),
    ],
)
def test_a_command_stands_at_the_beginning(text: str, expected: ParsedCommand | None) -> None:
    marked = re.search(r"/\w+(?:@\w+)?", text)
    assert marked is not None
    found = said(text=text, entities=[entity("bot_command", text, marked[0])])
    assert found.command == expected


@pytest.mark.parametrize(("payload", "kept"), [("abc_-9", "abc_-9"), ("two words", ""), ("x" * 65, "")])
def test_start_brings_its_payload_along(payload: str, kept: str) -> None:
    text = f"/start {payload}"
    assert said(text=text, entities=[entity("bot_command", text, "/start")]).deep_link == kept


def test_a_reply_to_the_bot_is_known_and_quoted() -> None:
    answer = raw_message(message_id=3, text="Earlier words", **{"from": BOT_USER})
    found = said(chat=GROUP_CHAT, reply_to_message=answer)
    assert found.replies_to_bot
    assert found.is_addressed
    assert found.reply_to_message_id == 3
    assert found.quoted == QuotedMessage(author="Evertalk", text="Earlier words", by_bot=True)


def test_chosen_words_win_over_the_whole_message() -> None:
    other = raw_message(message_id=3, text="Earlier words of mine")
    found = said(reply_to_message=other, quote={"text": "words", "position": 8, "is_manual": True})
    whole = "Earlier words of mine"
    assert found.quoted == QuotedMessage(
        author="Ada Lovelace", text="words", chosen=True, own=True, whole=whole
    )


def test_a_reply_into_another_chat_and_a_forward_name_their_source() -> None:
    origin = {"type": "hidden_user", "sender_user_name": "Carl", "date": 1}
    found = said(external_reply={"origin": origin}, quote={"text": "so he said", "position": 0})
    assert found.quoted == QuotedMessage(author="Carl", text="so he said", chosen=True, elsewhere=True)
    channel = {
        "type": "channel",
        "chat": {"id": -1, "type": "channel", "title": "News"},
        "message_id": 1,
        "date": 1,
    }
    assert said(forward_origin=channel).forward_origin == ForwardOrigin(name="News")
    own = {"type": "user", "sender_user": BOT_USER, "date": 1}
    assert said(forward_origin=own).forward_origin == ForwardOrigin(name="Evertalk", from_this_bot=True)


def test_a_forwarded_command_is_nobodys_command() -> None:
    origin = {"type": "hidden_user", "sender_user_name": "Carl", "date": 1}
    assert (
        said(text="/new", entities=[entity("bot_command", "/new", "/new")], forward_origin=origin).command
        is None
    )


@pytest.mark.parametrize(
    ("content", "kind", "note"),
    [
        ({"voice": {"file_id": "v", "file_unique_id": "u", "duration": 3}}, "voice", ""),
        ({"document": {"file_id": "d", "file_unique_id": "u", "file_name": "a.py"}}, "document", ""),
        ({"location": {"latitude": 48.1, "longitude": 11.5}}, "location", "48.10000, 11.50000"),
        ({"contact": {"phone_number": "+49", "first_name": "Eve"}}, "contact", "Eve +49"),
        ({"dice": {"emoji": "🎲", "value": 4}}, "dice", "🎲 4"),
    ],
)
def test_non_text_content_is_named_by_kind(content: Json, kind: str, note: str) -> None:
    media = said(text=None, **content).media
    assert media is not None
    assert (media.kind, media.note) == (kind, note)


@pytest.mark.parametrize(
    "other",
    [
        {"callback_query": {"id": "q", "from": PERSON, "chat_instance": "c", "data": "stop:1"}},
        {
            "callback_query": {
                "id": "q", "from": PERSON, "chat_instance": "c", "data": "stop:1",
                "message": {"message_id": 9, "date": 0, "chat": {"id": 42, "type": "private"}},
            }
        },
        {"stopped_message_generation": {"chat": {"id": 42, "type": "private"}, "draft_id": 77}},
        {"message": raw_message(text=None, migrate_to_chat_id=-100500)},
        {"message": raw_message(text=None, migrate_from_chat_id=-5)},
        {"message": raw_message(text=None, pinned_message=raw_message(message_id=3))},
    ],
)  # fmt: skip
def test_other_updates_are_left_to_the_routers(other: Json) -> None:
    found = read({"update_id": 2, **other})
    assert isinstance(found, Update)
    assert found.update_id == 2


@pytest.mark.parametrize("side", [2**53 + 1, -9, 0])
def test_an_impossible_size_of_a_picture_is_none(side: int) -> None:
    found = said(text=None, photo=[{"file_id": "f", "file_unique_id": "u", "width": side, "height": 9}])
    assert found.media is not None
    assert (found.media.width, found.media.height) == (0, 9)


@pytest.mark.parametrize(
    "update",
    [
        {},
        {"update_id": 1},
        {"update_id": 1, "channel_post": raw_message(chat={"id": -1, "type": "channel", "title": "x"})},
        {"update_id": 1, "something_new": {"a": 1}},
        {"update_id": 1, "message": "no object"},
        {"update_id": 1, "message": []},
        {"update_id": 1, "message": {"text": "no chat"}},
        raw(text=None),
        raw(text="  \n "),
        raw(**{"from": None}),
        raw(**{"from": {**BOT_USER, "id": 5}}),
        raw(text=None, new_chat_members=[BOT_USER]),
        raw(text=None, forum_topic_created={"name": "x", "icon_color": 1}),
        raw(date=10**30),
        raw(chat={"id": MAX_ID_VALUE + 1, "type": "private"}),
        {
            "update_id": 1,
            "message_reaction": {
                "chat": {"id": 42, "type": "private"},
                "message_id": MAX_ID_VALUE + 1,
                "date": 1,
                "old_reaction": [],
                "new_reaction": [],
            },
        },
        raw(text=None, migrate_to_chat_id=-(2**60)),
        raw(text=None, pinned_message=raw_message(message_id=2**60)),
        raw(message_id=-(10**40)),
        raw(chat={"id": 1, "type": "a new kind"}),
    ],
)
def test_the_rest_is_ignored_with_a_reason(update: Json) -> None:
    found = read(update)
    assert isinstance(found, IgnoredUpdate)
    assert found.reason


def test_posts_of_channels_are_read_only_where_that_is_switched_on() -> None:
    where = {"id": -100, "type": "channel", "title": "News"}
    post = {"message_id": 3, "date": 1, "chat": where, "sender_chat": where, "text": "/help@ever_bot"}
    update = {"update_id": 1, "channel_post": post}
    assert isinstance(read(update), IgnoredUpdate)
    reads = replace(BOT, reads_channels=True)
    found = parse_update(update, bot=reads)
    assert isinstance(found, IncomingMessage)
    assert (found.chat.kind, found.sender.user_id, found.sender.name) == ("channel", -100, "News")
    assert "channel_post" in list_allowed_updates(reads)
    assert "channel_post" not in list_allowed_updates(BOT)


def test_inline_queries_are_read_only_where_that_is_switched_on() -> None:
    query = {"id": "7", "from": raw_message()["from"], "query": "why?", "offset": ""}
    assert isinstance(read({"update_id": 1, "inline_query": query}), IgnoredUpdate)
    found = parse_update({"update_id": 1, "inline_query": query}, bot=replace(BOT, answers_inline=True))
    assert isinstance(found, Update)
    assert found.inline_query is not None
    assert found.inline_query.query == "why?"


def test_text_survives_an_unknown_decoration() -> None:
    found = said(reply_to_message={"message_id": 1, "of": "a kind"}, entities=[{"type": "new"}])
    assert (found.text, found.quoted) == ("Hello", None)


SAMPLES: list[Json] = [
    raw(
        chat=GROUP_CHAT,
        text="/ask@evertalk_test_bot 😀 now",
        entities=[entity("bot_command", "/ask@evertalk_test_bot 😀 now", "/ask@evertalk_test_bot")],
        reply_to_message=raw_message(message_id=3, **{"from": BOT_USER}),
        quote={"text": "Hel", "position": 0},
        message_thread_id=4,
        is_topic_message=True,
    ),
    raw(
        text=None,
        caption="look",
        media_group_id="g",
        photo=[{"file_id": "f", "file_unique_id": "u", "width": 9, "height": 9, "file_size": 1}],
        forward_origin={"type": "user", "sender_user": BOT_USER, "date": 1},
    ),
    {
        "update_id": 2,
        "callback_query": {
            "id": "q",
            "from": raw_message()["from"],
            "chat_instance": "c",
            "data": "x",
            "message": raw_message(),
        },
    },
    {
        "update_id": 3,
        "my_chat_member": {
            "chat": GROUP_CHAT,
            "from": raw_message()["from"],
            "date": 1,
            "old_chat_member": {"status": "left", "user": BOT_USER},
            "new_chat_member": {"status": "member", "user": BOT_USER},
        },
    },
]
JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(), max_size=20)
    | st.sampled_from(["private", "\ud800", "/start", 2**63, -1, 10**400]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


def paths(found: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = found.items() if isinstance(found, dict) else enumerate(found) if isinstance(found, list) else ()
    return [one for key, item in items for one in ((*here, key), *paths(item, (*here, key)))]


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_no_mutation_of_a_real_update_raises(data: st.DataObject) -> None:
    update = copy.deepcopy(data.draw(st.sampled_from(SAMPLES)))
    for _ in range(data.draw(st.integers(1, 3))):
        found = paths(update)
        if not found:
            break
        *way, last = data.draw(st.sampled_from(found))
        inside: Any = update
        for key in way:
            inside = inside[key]
        if data.draw(st.booleans()):
            inside[last] = data.draw(JUNK)
        else:
            del inside[last]
    found_value = read(update)
    numbers = [value for value in flat(found_value) if isinstance(value, int)]
    assert all(abs(number) <= MAX_ID_VALUE for number in numbers[1:])


def flat(value: Any) -> list[Any]:
    slots = getattr(type(value), "__slots__", None)
    if slots and not isinstance(value, type):
        return [one for name in slots if name != "size" for one in flat(getattr(value, name))]
    return [value]


@settings(max_examples=200)
@given(JUNK)
def test_no_junk_raises(junk: Any) -> None:
    for update in (
        {"update_id": 1, "message": junk},
        junk if isinstance(junk, dict) else {"callback_query": junk},
    ):
        assert read(update) is not None


def test_a_value_is_made_from_json_alone() -> None:
    assert all(json.loads(json.dumps(one)) == one for one in SAMPLES)
    assert not any(isinstance(read(one), IgnoredUpdate) for one in SAMPLES)
