"""Answers as Telegram messages: Markdown becomes text with entities, and long texts become parts."""

from __future__ import annotations

from bot.telegram.markup.classic import plain, render
from bot.telegram.markup.messages import DOCUMENT_NAME, MOST_PARTS, Messages, as_messages
from bot.telegram.markup.rich import RichBlock, rich_blocks
from bot.telegram.markup.splitting import LIVE_UNITS, MESSAGE_UNITS, split
from bot.telegram.markup.values import Entity, Part, Rendered, units

__all__ = [
    "render",
    "plain",
    "split",
    "as_messages",
    "rich_blocks",
    "Entity",
    "Rendered",
    "Part",
    "Messages",
    "RichBlock",
    "units",
    "LIVE_UNITS",
    "MESSAGE_UNITS",
    "MOST_PARTS",
    "DOCUMENT_NAME",
]
