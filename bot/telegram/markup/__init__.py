"""Answers as Telegram messages: Markdown becomes text with entities, and long texts become parts."""

from __future__ import annotations

from bot.telegram.markup.entity_text import (
    DOCUMENT_NAME,
    MAX_PARTS,
    AnswerMessages,
    build_messages,
    render,
    render_plain,
)
from bot.telegram.markup.rich_blocks import RichBlock, build_rich_blocks
from bot.telegram.markup.splitting import (
    LIVE_UNITS,
    MESSAGE_UNITS,
    MessagePart,
    RenderedText,
    TextEntity,
    split,
)
from shared.core.session.events import utf16_units

__all__ = [
    "render",
    "render_plain",
    "split",
    "build_messages",
    "build_rich_blocks",
    "TextEntity",
    "RenderedText",
    "MessagePart",
    "AnswerMessages",
    "RichBlock",
    "utf16_units",
    "LIVE_UNITS",
    "MESSAGE_UNITS",
    "MAX_PARTS",
    "DOCUMENT_NAME",
]
