"""Blocks of an answer, and spans of their text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

TextStyles: TypeAlias = frozenset[str]
"""Styles of a span: bold, italic, strikethrough, code and math."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextSpan:
    """`tex` is the formula without its signs, which `text` has."""

    text: str
    styles: TextStyles = frozenset()
    url: str | None = None
    tex: str | None = None


TextSpans: TypeAlias = tuple[TextSpan, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ParagraphBlock:
    spans: TextSpans
    spaced: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadingBlock:
    level: int
    spans: TextSpans
    spaced: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeBlock:
    text: str
    language: str | None = None
    spaced: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FormulaBlock:
    """`text` as it was written, `tex` without the signs around."""

    text: str
    tex: str
    spaced: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DividerBlock:
    spaced: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TableBlock:
    """The first row is the header; `aligns` has left, center or right for each column."""

    aligns: tuple[str, ...]
    rows: tuple[tuple[TextSpans, ...], ...]
    spaced: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ListItem:
    blocks: tuple[MarkdownBlock, ...]
    checked: bool | None = None
    spaced: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ListBlock:
    """`start` is the first number, None means bullets."""

    items: tuple[ListItem, ...]
    start: int | None = None
    spaced: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class QuoteBlock:
    blocks: tuple[MarkdownBlock, ...]
    spaced: bool = False


# Every block's `spaced` says whether a blank line stood before it.
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
