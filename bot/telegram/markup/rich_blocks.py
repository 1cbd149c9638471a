"""Converts Markdown to the blocks of a rich message, for answers that text with entities shows poorly."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from bot.telegram.markup.block_tree import parse_blocks
from bot.telegram.markup.blocks import (
    CodeBlock,
    DividerBlock,
    FormulaBlock,
    HeadingBlock,
    ListBlock,
    ListItem,
    MarkdownBlock,
    ParagraphBlock,
    QuoteBlock,
    TableBlock,
    TextSpan,
    TextSpans,
)
from shared.core.session.turns import utf16_units

# Limits of rich messages, from TDLib of July 2026; list items and table rows count as blocks.
RICH_UNITS = 32_768
"""Maximum UTF-16 units of a rich message."""
RICH_BLOCKS = 500
"""Maximum blocks of a rich message."""
RICH_DEPTH = 16
"""Maximum levels of blocks and formats in a rich message."""
RICH_COLUMNS = 20
"""Maximum columns of a table in a rich message."""

_OPENING = re.compile(
    r"<details(?P<open>\s+open)?>\s*+(?:<summary>(?P<summary>.*?)</summary>)?\s*+", re.DOTALL
)
_CLOSING = re.compile(r"(?<!\s)\s*+</details>\s*+\Z")
_STYLES = ("bold", "italic", "strikethrough", "code")

RichBlock: TypeAlias = dict[str, Any]
"""InputRichBlock of the Bot API, which has typed blocks since version 10.2."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DetailsBlock:
    """Block that a person can unfold; `is_open` means that it is shown unfolded."""

    summary: TextSpans
    blocks: tuple[FoldedBlock, ...]
    is_open: bool


FoldedBlock: TypeAlias = MarkdownBlock | DetailsBlock


@dataclass(frozen=True, slots=True, kw_only=True)
class _Size:
    units: int = 0
    blocks: int = 0
    depth: int = 0

    @property
    def fits(self) -> bool:
        return self.units <= RICH_UNITS and self.blocks <= RICH_BLOCKS and self.depth <= RICH_DEPTH


def build_rich_blocks(markdown: str) -> tuple[RichBlock, ...] | None:
    """Return an answer as blocks of a rich message; None if it is sent as text with entities.

    None if no block gains from a rich message, if a block is not possible in one, or if a limit is exceeded.
    """
    tree = _fold(parse_blocks(markdown))
    if not any(map(_is_worth_it, tree)) or not all(map(_is_possible, tree)):
        return None
    blocks = tuple(map(_block, tree))
    return blocks if _estimate_size(blocks).fits else None


def _fold(blocks: Sequence[MarkdownBlock]) -> tuple[FoldedBlock, ...]:
    """Return the blocks, with all blocks between `<details>` tags folded into one.

    An unmatched tag stays text.
    """
    folded: list[FoldedBlock] = []
    rest = list(blocks)
    while rest:
        found = _split_details(rest)
        if found is None:
            folded.append(rest.pop(0))
        else:
            details, rest = found
            folded.append(details)
    return tuple(folded)


def _split_details(blocks: Sequence[MarkdownBlock]) -> tuple[DetailsBlock, list[MarkdownBlock]] | None:
    """Return the folded block at the beginning, and the blocks after it; None if there is none."""
    opening = _OPENING.match(_text(blocks[0]))
    end = _find_closing_block(blocks) if opening else None
    if opening is None or end is None:
        return None
    inner = list(blocks[: end + 1])
    inner[-1] = _cut(inner[-1], 0, _CLOSING.search(_text(inner[-1])))
    first = inner[0]
    assert isinstance(first, ParagraphBlock)
    summary = _slice_spans(first.spans, *opening.span("summary")) if opening["summary"] else ()
    inner[0] = replace(first, spans=_slice_spans(first.spans, opening.end(), len(_text(first))))
    details = DetailsBlock(
        summary=summary or (TextSpan(text="…"),),
        blocks=_fold([block for block in inner if not isinstance(block, ParagraphBlock) or block.spans]),
        is_open=opening["open"] is not None,
    )
    return details, list(blocks[end + 1 :])


def _find_closing_block(blocks: Sequence[MarkdownBlock]) -> int | None:
    """Return the index of the block with the tag that closes the first block's; None without one."""
    depth = 0
    for number, block in enumerate(blocks):
        depth += bool(_OPENING.match(_text(block)))
        depth -= bool(_CLOSING.search(_text(block)))
        if depth == 0:
            return number
    return None


def _text(block: MarkdownBlock) -> str:
    return "".join(span.text for span in block.spans) if isinstance(block, ParagraphBlock) else ""


def _cut(block: MarkdownBlock, start: int, found: re.Match[str] | None) -> MarkdownBlock:
    if not isinstance(block, ParagraphBlock) or found is None:
        return block
    return replace(block, spans=_slice_spans(block.spans, start, found.start()))


def _slice_spans(spans: TextSpans, start: int, end: int) -> TextSpans:
    """Return the spans between two indexes of their joined text."""
    pieces, at = [], 0
    for span in spans:
        text = span.text[max(0, start - at) : max(0, end - at)]
        at += len(span.text)
        if text:
            pieces.append(span if text == span.text else replace(span, text=text))
    return tuple(pieces)


def _is_worth_it(block: FoldedBlock) -> bool:
    """Return whether a rich message shows a block better: a table, formula, task list or folded block."""
    match block:
        case TableBlock() | FormulaBlock() | DetailsBlock():
            return True
        case ListBlock(items=items):
            return any(item.checked is not None or any(map(_is_worth_it, item.blocks)) for item in items)
        case QuoteBlock(blocks=blocks):
            return any(map(_is_worth_it, blocks))
        case ParagraphBlock(spans=spans) | HeadingBlock(spans=spans):
            return any(span.tex for span in spans)
        case _:
            return False


def _is_possible(block: FoldedBlock) -> bool:
    """Return whether a rich message can contain a block: not empty, and not a table of more than 20 columns.

    The same applies to the blocks within it.
    """
    match block:
        case TableBlock(aligns=aligns):
            return len(aligns) <= RICH_COLUMNS
        case ListBlock(items=items):
            return all(item.blocks and all(map(_is_possible, item.blocks)) for item in items)
        case QuoteBlock(blocks=blocks) | DetailsBlock(blocks=blocks):
            return bool(blocks) and all(map(_is_possible, blocks))
        case ParagraphBlock(spans=spans) | HeadingBlock(spans=spans):
            return any(span.text.strip() for span in spans)
        case CodeBlock(text=text):
            return bool(text.strip())
        case _:
            return True


def _block(block: FoldedBlock) -> RichBlock:
    match block:
        case ParagraphBlock(spans=spans):
            return {"type": "paragraph", "text": _build_rich_text(spans)}
        case HeadingBlock(spans=spans, level=level):
            return {"type": "heading", "text": _build_rich_text(spans), "size": level}
        case CodeBlock(text=text, language=language):
            return {"type": "pre", "text": text} | ({"language": language} if language else {})
        case FormulaBlock(tex=tex):
            return {"type": "mathematical_expression", "expression": tex}
        case DividerBlock():
            return {"type": "divider"}
        case TableBlock():
            return {"type": "table", "cells": list(_rows(block)), "is_bordered": True}
        case ListBlock(items=items):
            return {
                "type": "list",
                "items": [_item(block, number, item) for number, item in enumerate(items)],
            }
        case QuoteBlock(blocks=blocks):
            return {"type": "blockquote", "blocks": list(map(_block, blocks))}
        case DetailsBlock(summary=summary, blocks=inner, is_open=is_open):
            return {
                "type": "details",
                "summary": _build_rich_text(summary),
                "blocks": list(map(_block, inner)),
            } | ({"is_open": True} if is_open else {})


def _rows(table: TableBlock) -> Iterator[list[RichBlock]]:
    for number, row in enumerate(table.rows):
        yield [
            {"text": _build_rich_text(cell), "align": align, "valign": "middle"}
            | ({} if number else {"is_header": True})
            for cell, align in zip(row, table.aligns, strict=True)
        ]


def _item(listing: ListBlock, number: int, item: ListItem) -> RichBlock:
    fields: RichBlock = {"blocks": list(map(_block, item.blocks))}
    if item.checked is not None:
        fields |= {"has_checkbox": True, "is_checked": item.checked}
    if listing.start is not None:
        fields |= {"value": listing.start + number, "type": "1"}
    return fields


def _build_rich_text(spans: TextSpans) -> Any:
    """Return spans as a `RichText` of the Bot API: a string, an object, or a list of both."""
    pieces = [_piece(span) for span in spans]
    return pieces[0] if len(pieces) == 1 else pieces or ""


def _piece(span: TextSpan) -> Any:
    piece: Any = span.text
    if span.tex:
        piece = {"type": "mathematical_expression", "expression": span.tex}
    for style in _STYLES:
        if style in span.styles:
            piece = {"type": style, "text": piece}
    return {"type": "url", "text": piece, "url": span.url} if span.url else piece


def _estimate_size(value: Any, depth: int = 0) -> _Size:
    """Return the largest size that Telegram could count for a value.

    Every object counts as a level; every block, list item and table row counts as a block.
    """
    if isinstance(value, str):
        return _Size(units=utf16_units(value), depth=depth)
    if isinstance(value, dict):
        texts = (each for key, each in value.items() if key not in ("type", "align", "valign", "language"))
        return _sum(
            depth,
            ("blocks" in value or _is_block(value)),
            (_estimate_size(each, depth + 1) for each in texts),
        )
    if isinstance(value, list | tuple):
        is_row = bool(value) and isinstance(value[0], dict) and "valign" in value[0]
        return _sum(depth, is_row, (_estimate_size(each, depth) for each in value))
    return _Size(depth=depth)


def _is_block(value: RichBlock) -> bool:
    return value.get("type") in (
        "paragraph",
        "heading",
        "pre",
        "divider",
        "table",
        "list",
        "mathematical_expression",
    )


def _sum(depth: int, counts: bool, sizes: Iterable[_Size]) -> _Size:
    """Return the sizes added up, with one more block if `counts`, and with the greatest depth."""
    found = list(sizes)
    return _Size(
        units=sum(each.units for each in found),
        blocks=counts + sum(each.blocks for each in found),
        depth=max((each.depth for each in found), default=depth),
    )
