"""Builders of updates and messages for tests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from bot.telegram.inbound.updates import (
    BotIdentity,
    ChatRef,
    ForwardOrigin,
    IncomingMessage,
    Media,
    MessageAuthor,
    ParsedCommand,
)

BOT = BotIdentity(bot_id=700001, username="evertalk_test_bot")
NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
ADA = MessageAuthor(user_id=42, name="Ada Lovelace", username="ada", language_code="en")
BOB = MessageAuthor(user_id=43, name="Bob")
PRIVATE = ChatRef(chat_id=42, title="Ada Lovelace")
GROUP = ChatRef(chat_id=-100500, kind="supergroup", title="Family")
Json = dict[str, Any]


def after(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def spoken(number: int, text: str = "", **changes: Any) -> IncomingMessage:
    """Return message `number` of Ada in her private chat.

    `changes` replace fields, and a text `/x` is a command.
    """
    made: Json = {
        "update_id": 1000 + number,
        "message_id": number,
        "chat": PRIVATE,
        "sender": ADA,
        "sent_at": NOON,
        "text": text,
    }
    if text.startswith("/"):
        name, _, args = text[1:].partition(" ")
        made["command"] = ParsedCommand(name=name, args=args)
    return IncomingMessage(**{**made, **changes})


def photo(number: int, album: str = "", caption: str = "", **changes: Any) -> IncomingMessage:
    media = Media(kind="photo", file_id=f"file{number}", mime="image/jpeg", width=800, height=600)
    return spoken(number, caption, media=media, media_group_id=album, **changes)


def forward(number: int, text: str, name: str = "Carl", **changes: Any) -> IncomingMessage:
    return spoken(number, text, forward_origin=ForwardOrigin(name=name), **changes)


def raw_message(**changes: Any) -> Json:
    """Return a message as the Bot API writes it."""
    message: Json = {
        "message_id": 7,
        "date": int(NOON.timestamp()),
        "chat": {"id": 42, "type": "private", "first_name": "Ada", "last_name": "Lovelace"},
        "from": {
            "id": 42,
            "is_bot": False,
            "first_name": "Ada",
            "last_name": "Lovelace",
            "username": "ada",
            "language_code": "de",
        },
        "text": "Hello",
    }
    message.update(changes)
    return {name: value for name, value in message.items() if value is not None}


def raw(**changes: Any) -> Json:
    return {"update_id": 11, "message": raw_message(**changes)}


GROUP_CHAT: Json = {"id": -100500, "type": "supergroup", "title": "Family", "is_forum": True}
BOT_USER: Json = {"id": BOT.bot_id, "is_bot": True, "first_name": "Evertalk", "username": BOT.username}
