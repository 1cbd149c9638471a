"""How tests look at a message."""

from __future__ import annotations

from bot.telegram.markup.entity_text import MessagePart, RenderedText


def covered(message: RenderedText | MessagePart, kind: str) -> tuple[str, ...]:
    """The texts under the entities of a type."""
    raw = message.text.encode("utf-16-le")
    return tuple(
        raw[2 * each.offset : 2 * each.end].decode("utf-16-le")
        for each in message.entities
        if each.type == kind
    )


def seen(message: RenderedText | MessagePart) -> int:
    """How many characters a person sees."""
    return sum(not char.isspace() for char in message.text)
