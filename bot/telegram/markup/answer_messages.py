"""What an answer is sent as: some messages, and a file where it is longer."""

from __future__ import annotations

from dataclasses import dataclass

from bot.telegram.markup.entity_text import render
from bot.telegram.markup.message_parts import MessagePart
from bot.telegram.markup.splitting import split

MAX_PARTS = 5
DOCUMENT_NAME = "answer.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerMessages:
    """With a `document` the parts are the beginning; the document holds the whole as it was written."""

    parts: tuple[MessagePart, ...]
    document: str | None = None


def build_messages(markdown: str) -> AnswerMessages:
    """No parts at all when nothing in it can be seen."""
    parts = split(render(markdown))
    if len(parts) <= MAX_PARTS:
        return AnswerMessages(parts=parts)
    return AnswerMessages(parts=parts[:MAX_PARTS], document=markdown)
