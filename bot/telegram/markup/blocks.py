"""Values of an answer's Markdown: blocks, and spans of their text.

The field `spaced` of a block says whether a blank line precedes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

TextStyles: TypeAlias = frozenset[str]
"""Styles of a text span: bold, italic, strikethrough, code and math."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextSpan:
    """Piece of text with one style; `url` is the address if it is a link.

    `tex` is a formula without its math signs, None for other text.
    """

    text: str
    styles: TextStyles = frozenset()
    url: str | None = None
    tex: str | None = None


TextSpans: TypeAlias = tuple[TextSpan, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ParagraphBlock:
    """Paragraph."""

    spans: TextSpans
    spaced: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadingBlock:
    """Heading of level 1 to 6."""

    level: int
    spans: TextSpans
    spaced: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeBlock:
    """Block of code; `language` is None if unknown."""

    text: str
    language: str | None = None
    spaced: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FormulaBlock:
    """Formula on separate lines: `text` as it was written, `tex` without the math signs."""

    text: str
    tex: str
    spaced: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DividerBlock:
    """Horizontal rule."""

    spaced: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TableBlock:
    """Table whose first row is the header; `aligns` has left, center or right for each column."""

    aligns: tuple[str, ...]
    rows: tuple[tuple[TextSpans, ...], ...]
    spaced: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ListItem:
    """Item of a list; `checked` is None unless it is a task."""

    blocks: tuple[MarkdownBlock, ...]
    checked: bool | None = None
    spaced: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ListBlock:
    """List; `start` is its first number, None for bullets."""

    items: tuple[ListItem, ...]
    start: int | None = None
    spaced: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class QuoteBlock:
    """Quote with its blocks."""

    blocks: tuple[MarkdownBlock, ...]
    spaced: bool = False


# `spaced` is True if a blank line precedes the block.
MarkdownBlock: TypeAlias = (
    ParagraphBlock
    | HeadingBlock
    | CodeBlock
    | FormulaBlock
    | DividerBlock
    | TableBlock
    | ListBlock
    | QuoteBlock
)
