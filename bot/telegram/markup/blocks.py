"""What an answer is made of: blocks, and spans of text in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

Styles: TypeAlias = frozenset[str]
"""Of bold, italic, strikethrough, code and math."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """`tex` is the formula without its signs, which `text` has."""

    text: str
    styles: Styles = frozenset()
    url: str | None = None
    tex: str | None = None


Spans: TypeAlias = tuple[Span, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Paragraph:
    spans: Spans
    spaced: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Heading:
    level: int
    spans: Spans
    spaced: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    text: str
    language: str | None = None
    spaced: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Formula:
    """`text` as it was written, `tex` without the signs around."""

    text: str
    tex: str
    spaced: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    spaced: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The first row is the header; `aligns` has left, center or right for each column."""

    aligns: tuple[str, ...]
    rows: tuple[tuple[Spans, ...], ...]
    spaced: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    blocks: tuple[Block, ...]
    checked: bool | None = None
    spaced: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """`start` is the first number, None means bullets."""

    items: tuple[Item, ...]
    start: int | None = None
    spaced: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    blocks: tuple[Block, ...]
    spaced: bool = False


# Every block's `spaced` says whether a blank line stood before it.
Block: TypeAlias = Paragraph | Heading | Code | Formula | Rule | Table | Listing | Quote
