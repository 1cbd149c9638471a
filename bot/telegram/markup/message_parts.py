"""What Telegram takes: text and entities that point into it by UTF-16 units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

EntityType = Literal["bold", "italic", "strikethrough", "code", "pre", "text_link", "blockquote"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TextEntity:
    """`offset` and `length` count UTF-16 code units."""

    type: EntityType
    offset: int
    length: int
    url: str | None = None
    language: str | None = None

    @property
    def end(self) -> int:
        return self.offset + self.length

    def to_api(self) -> dict[str, str | int]:
        """The Bot API's MessageEntity."""
        fields: dict[str, str | int] = {"type": self.type, "offset": self.offset, "length": self.length}
        if self.url is not None:
            fields["url"] = self.url
        if self.language is not None:
            fields["language"] = self.language
        return fields


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedText:
    """A whole answer, of any length. Entities are sorted, never empty, and one inside another or apart."""

    text: str = ""
    entities: tuple[TextEntity, ...] = ()

    def followed_by(self, note: str) -> RenderedText:
        """With a word of ours below, which no open fence of the answer can swallow."""
        return RenderedText(text=f"{self.text}\n\n{note}" if self.text else note, entities=self.entities)


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagePart:
    """One message. `gap` is what nobody would see between it and the next part; it is not sent."""

    text: str
    entities: tuple[TextEntity, ...] = ()
    gap: str = ""


def count_units(text: str) -> int:
    """Length as Telegram's entities count it: UTF-16 code units."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2
