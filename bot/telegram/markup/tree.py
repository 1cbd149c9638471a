"""An answer as a tree of blocks, from which both forms of Telegram messages are made."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from markdown_it.token import Token

from bot.telegram.markup.blocks import (
    Block,
    Code,
    Formula,
    Heading,
    Item,
    Listing,
    Paragraph,
    Quote,
    Rule,
    Span,
    Spans,
    Table,
)
from bot.telegram.markup.grammar import DEEPEST_NESTING, parser
from bot.telegram.markup.inline import read_spans
from bot.telegram.markup.pending import close_pending, hold_pending

# What Telegram turns into spaces or takes out of messages; bidi overrides could also disguise code.
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_TAKEN_OUT = re.compile(r"[\u2028-\u202e]|\r(?=\n)")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_LANGUAGE = re.compile(r"[\w+#.-]{1,32}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A token with what stands between it and its closing partner."""

    token: Token
    children: list[Node] = field(default_factory=list)


def clean(markdown: str) -> str:
    """Only characters that Telegram would keep."""
    text = _TAKEN_OUT.sub("", markdown).replace("\r", "\n")
    return _SURROGATE.sub("\ufffd", _CONTROL.sub(" ", text))


def read(markdown: str, *, live: bool = False) -> tuple[Block, ...]:
    """A `live` text is still being written: what its end will mean is guessed, and nothing raw flickers."""
    source = hold_pending(clean(markdown)) if live else clean(markdown)
    tokens = _parse(source, live=live)
    if any(token.level >= DEEPEST_NESTING - 1 for token in tokens):
        return (Paragraph(spans=(Span(text=source.strip()),)),)
    return _blocks(_nest(tokens), source.split("\n"))


def _parse(source: str, *, live: bool) -> list[Token]:
    """Blocks first, then what stands in them, so that a live end can be mended in between."""
    md = parser()
    tokens: list[Token] = []
    md.block.parse(source, md, {}, tokens)
    if live:
        close_pending(tokens)
    for token in tokens:
        if token.type == "inline":
            token.children = []
            md.inline.parse(token.content, md, {}, token.children)
    return tokens


def _nest(tokens: Sequence[Token]) -> list[Node]:
    top: list[Node] = []
    stack = [top]
    for token in tokens:
        if token.nesting < 0:
            stack.pop()
            continue
        node = Node(token=token)
        stack[-1].append(node)
        if token.nesting > 0:
            stack.append(node.children)
    return top


def _blocks(nodes: Sequence[Node], lines: Sequence[str]) -> tuple[Block, ...]:
    return tuple(block for node in nodes for block in _block(node, lines))


def _block(node: Node, lines: Sequence[str]) -> Iterator[Block]:
    token, spaced = node.token, _is_spaced(node.token, lines)
    match token.type:
        case "paragraph_open":
            yield Paragraph(spans=_read(node.children), spaced=spaced)
        case "heading_open":
            yield Heading(level=int(token.tag[1]), spans=_read(node.children), spaced=spaced)
        case "fence" | "code_block":
            yield Code(text=token.content.removesuffix("\n"), language=_language(token.info), spaced=spaced)
        case "math_block":
            yield Formula(text=token.content, tex=token.info, spaced=spaced)
        case "hr":
            yield Rule(spaced=spaced)
        case "table_open":
            yield _table(node, spaced)
        case "bullet_list_open" | "ordered_list_open":
            yield _listing(node, lines, spaced)
        case "blockquote_open":
            yield Quote(blocks=_blocks(node.children, lines), spaced=spaced)


def _is_spaced(token: Token, lines: Sequence[str]) -> bool:
    above = (token.map or [0])[0] - 1
    return 0 <= above < len(lines) and not lines[above].strip(" \t>")


def _language(info: str) -> str | None:
    found = _LANGUAGE.match(info.strip().lstrip("{."))
    return found.group() if found else None


def _listing(node: Node, lines: Sequence[str], spaced: bool) -> Listing:
    items = tuple(
        Item(
            blocks=_blocks(child.children, lines),
            checked=child.token.meta.get("checked"),
            spaced=_is_spaced(child.token, lines),
        )
        for child in node.children
    )
    if node.token.type == "bullet_list_open":
        return Listing(items=items, spaced=spaced)
    return Listing(items=items, start=int(node.children[0].token.info), spaced=spaced)


def _table(node: Node, spaced: bool) -> Table:
    rows = [row for section in node.children for row in section.children]
    return Table(
        aligns=tuple(_align(cell.token) for cell in rows[0].children),
        rows=tuple(tuple(_read(cell.children) for cell in row.children) for row in rows),
        spaced=spaced,
    )


def _align(token: Token) -> str:
    return str(token.attrGet("style") or "text-align:left").removeprefix("text-align:")


def _read(nodes: Sequence[Node]) -> Spans:
    return read_spans([token for node in nodes for token in node.token.children or ()])
