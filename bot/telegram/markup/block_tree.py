"""An answer as a tree of blocks, from which both forms of Telegram messages are made."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from markdown_it.token import Token

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
from bot.telegram.markup.inline_spans import parse_spans
from bot.telegram.markup.markdown_parser import MAX_NESTING, make_parser
from bot.telegram.markup.partial_markdown import close_open_markers, drop_pending_line

# What Telegram turns into spaces or takes out of messages; bidi overrides could also disguise code.
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_TAKEN_OUT = re.compile(r"[\u2028-\u202e]|\r(?=\n)")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_LANGUAGE = re.compile(r"[\w+#.-]{1,32}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenNode:
    """A token with what stands between it and its closing partner."""

    token: Token
    children: list[TokenNode] = field(default_factory=list)


def clean_text(markdown: str) -> str:
    """Only characters that Telegram would keep."""
    text = _TAKEN_OUT.sub("", markdown).replace("\r", "\n")
    return _SURROGATE.sub("\ufffd", _CONTROL.sub(" ", text))


def parse_blocks(markdown: str, *, live: bool = False) -> tuple[MarkdownBlock, ...]:
    """A `live` text is still being written: what its end will mean is guessed, and nothing raw flickers."""
    source = drop_pending_line(clean_text(markdown)) if live else clean_text(markdown)
    tokens = _parse(source, live=live)
    if any(token.level >= MAX_NESTING - 1 for token in tokens):
        return (ParagraphBlock(spans=(TextSpan(text=source.strip()),)),)
    return _blocks(_nest(tokens), source.split("\n"))


def _parse(source: str, *, live: bool) -> list[Token]:
    """Blocks first, then what stands in them, so that a live end can be mended in between."""
    md = make_parser()
    tokens: list[Token] = []
    md.block.parse(source, md, {}, tokens)
    if live:
        close_open_markers(tokens)
    for token in tokens:
        if token.type == "inline":
            token.children = []
            md.inline.parse(token.content, md, {}, token.children)
    return tokens


def _nest(tokens: Sequence[Token]) -> list[TokenNode]:
    top: list[TokenNode] = []
    stack = [top]
    for token in tokens:
        if token.nesting < 0:
            stack.pop()
            continue
        node = TokenNode(token=token)
        stack[-1].append(node)
        if token.nesting > 0:
            stack.append(node.children)
    return top


def _blocks(nodes: Sequence[TokenNode], lines: Sequence[str]) -> tuple[MarkdownBlock, ...]:
    return tuple(block for node in nodes for block in _block(node, lines))


def _block(node: TokenNode, lines: Sequence[str]) -> Iterator[MarkdownBlock]:
    token, spaced = node.token, _is_spaced(node.token, lines)
    match token.type:
        case "paragraph_open":
            yield ParagraphBlock(spans=_read(node.children), spaced=spaced)
        case "heading_open":
            yield HeadingBlock(level=int(token.tag[1]), spans=_read(node.children), spaced=spaced)
        case "fence" | "code_block":
            yield CodeBlock(
                text=token.content.removesuffix("\n"), language=_language(token.info), spaced=spaced
            )
        case "math_block":
            yield FormulaBlock(text=token.content, tex=token.info, spaced=spaced)
        case "hr":
            yield DividerBlock(spaced=spaced)
        case "table_open":
            yield _table(node, spaced)
        case "bullet_list_open" | "ordered_list_open":
            yield _listing(node, lines, spaced)
        case "blockquote_open":
            yield QuoteBlock(blocks=_blocks(node.children, lines), spaced=spaced)


def _is_spaced(token: Token, lines: Sequence[str]) -> bool:
    above = (token.map or [0])[0] - 1
    return 0 <= above < len(lines) and not lines[above].strip(" \t>")


def _language(info: str) -> str | None:
    found = _LANGUAGE.match(info.strip().lstrip("{."))
    return found.group() if found else None


def _listing(node: TokenNode, lines: Sequence[str], spaced: bool) -> ListBlock:
    items = tuple(
        ListItem(
            blocks=_blocks(child.children, lines),
            checked=child.token.meta.get("checked"),
            spaced=_is_spaced(child.token, lines),
        )
        for child in node.children
    )
    if node.token.type == "bullet_list_open":
        return ListBlock(items=items, spaced=spaced)
    return ListBlock(items=items, start=int(node.children[0].token.info), spaced=spaced)


def _table(node: TokenNode, spaced: bool) -> TableBlock:
    rows = [row for section in node.children for row in section.children]
    return TableBlock(
        aligns=tuple(_align(cell.token) for cell in rows[0].children),
        rows=tuple(tuple(_read(cell.children) for cell in row.children) for row in rows),
        spaced=spaced,
    )


def _align(token: Token) -> str:
    return str(token.attrGet("style") or "text-align:left").removeprefix("text-align:")


def _read(nodes: Sequence[TokenNode]) -> TextSpans:
    return parse_spans([token for node in nodes for token in node.token.children or ()])
