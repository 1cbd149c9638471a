"""What an answer is sent as: some messages, or its beginning and a file."""

from __future__ import annotations

from dataclasses import dataclass

from bot.telegram.markup.classic import render
from bot.telegram.markup.splitting import split
from bot.telegram.markup.values import Part

MOST_PARTS = 5
DOCUMENT_NAME = "answer.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class Messages:
    """With a `document` there is one part, the beginning; the document holds the whole as it was written."""

    parts: tuple[Part, ...]
    document: str | None = None


def as_messages(markdown: str) -> Messages:
    """No parts at all when nothing in it can be seen."""
    parts = split(render(markdown))
    if len(parts) <= MOST_PARTS:
        return Messages(parts=parts)
    return Messages(parts=parts[:1], document=markdown)
