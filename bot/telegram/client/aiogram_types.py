"""Parts of answers in aiogram's shapes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from bot.telegram.markup import MESSAGE_UNITS, MessagePart, utf16_units

if TYPE_CHECKING:
    from aiogram.types import MessageEntity, ReplyParameters


def to_aiogram_entities(part: MessagePart) -> list[MessageEntity] | None:
    from aiogram.types import MessageEntity

    return [MessageEntity.model_validate(entity.to_api()) for entity in part.entities] or None


def to_reply_parameters(message_id: int | None) -> ReplyParameters | None:
    """A question that was deleted meanwhile is no reason to keep the answer back."""
    from aiogram.types import ReplyParameters

    if message_id is None:
        return None
    return ReplyParameters(message_id=message_id, allow_sending_without_reply=True)


def strip_entities(part: MessagePart) -> MessagePart:
    """For formatting that was refused; addresses of links are spelled out where there is room for them."""
    text, raw = part.text, part.text.encode("utf-16-le")
    for entity in reversed(part.entities):
        if entity.url is not None:
            longer = raw[: 2 * entity.end] + f" ({entity.url})".encode("utf-16-le") + raw[2 * entity.end :]
            spelled = longer.decode("utf-16-le")
            if utf16_units(spelled) <= MESSAGE_UNITS:
                text, raw = spelled, longer
    return replace(part, text=text, entities=())
