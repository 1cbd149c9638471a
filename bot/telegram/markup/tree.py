"""An answer as a tree of blocks, from which both forms of Telegram messages are made."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias
from urllib.parse import urlsplit

from markdown_it.token import Token

from bot.telegram.markup.grammar import DEEPEST_NESTING, parser
from bot.telegram.markup.pending import close_pending, hold_pending

LONGEST_URL = 2048

# What Telegram turns into spaces or takes out of messages; bidi overrides could also disguise code.
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_TAKEN_OUT = re.compile(r"[\u2028-\u202e]|\r(?=\n)")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
# Telegram makes these clickable by itself wherever it finds them, but not within code.
_LIVE_SCHEMES = re.compile(r"\b(?:tg|ton|tonsite)://\S*", re.IGNORECASE)
_LANGUAGE = re.compile(r"[\w+#.-]{1,32}")

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
            yield Paragraph(spans=_inline(node.children), spaced=spaced)
        case "heading_open":
            yield Heading(level=int(token.tag[1]), spans=_inline(node.children), spaced=spaced)
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
        rows=tuple(tuple(_inline(cell.children) for cell in row.children) for row in rows),
        spaced=spaced,
    )


def _align(token: Token) -> str:
    return str(token.attrGet("style") or "text-align:left").removeprefix("text-align:")


def _inline(nodes: Sequence[Node]) -> Spans:
    """Merged, so that equal neighbours are one span."""
    merged: list[Span] = []
    for span in (span for node in nodes for span in _spans(node.token.children or ())):
        last = merged[-1] if merged else None
        if last and not span.tex and not last.tex and (last.styles, last.url) == (span.styles, span.url):
            merged[-1] = Span(text=last.text + span.text, styles=last.styles, url=last.url)
        elif span.text:
            merged.append(span)
    return tuple(piece for span in merged for piece in _tame(span))


_STYLES = {"strong_open": "bold", "em_open": "italic", "s_open": "strikethrough"}


def _spans(tokens: Sequence[Token]) -> list[Span]:
    """Flat, for emphasis nests as deep as somebody types stars."""
    found: list[Span] = []
    stack: list[Styles] = [frozenset()]
    links: list[tuple[str, int]] = []
    for token in tokens:
        url = next((address for address, _ in links if is_linkable(address)), None)
        match token.type:
            case "strong_open" | "em_open" | "s_open":
                stack.append(stack[-1] | {_STYLES[token.type]})
            case "strong_close" | "em_close" | "s_close":
                stack.pop()
            case "link_open":
                links.append((str(token.attrGet("href") or ""), len(found)))
            case "link_close":
                address, start = links.pop()
                found += _unlinked(address, "".join(span.text for span in found[start:]), stack[-1])
            case "image":
                found += _image(token, stack[-1], url)
            case _:
                found.append(_span(token, stack[-1], url))
    return found


def _span(token: Token, styles: Styles, url: str | None) -> Span:
    match token.type:
        case "softbreak" | "hardbreak":
            return Span(text="\n", styles=styles, url=url)
        case "code_inline":
            # Telegram lets nothing stand around or inside code, so a link shows it as plain text.
            return Span(text=token.content, styles=styles if url else frozenset(("code",)), url=url)
        case "math":
            return Span(text=token.content, styles=styles | {"math"}, url=url, tex=token.info)
        case _:
            return Span(text=token.content, styles=styles, url=url)


def _image(token: Token, styles: Styles, url: str | None) -> Iterator[Span]:
    address = str(token.attrGet("src") or "")
    label = "🖼 " + (token.content or "image")
    if url is None and is_linkable(address):
        yield Span(text=label, styles=styles, url=address)
    else:
        yield Span(text=label, styles=styles, url=url)
        yield from _beside(address, styles)


def _unlinked(address: str, label: str, styles: Styles) -> Iterator[Span]:
    """What stands behind the label when the address is no link."""
    if not is_linkable(address) and label != _shown(address):
        yield from _beside(address, styles)


def _beside(address: str, styles: Styles) -> Iterator[Span]:
    """An address that is no link: Telegram finds mail and telephone by itself, the rest must not live."""
    if shown := _shown(address):
        yield Span(text=" (", styles=styles)
        yield Span(text=shown, styles=styles if shown != address else frozenset(("code",)))
        yield Span(text=")", styles=styles)


def _shown(address: str) -> str:
    """Mail and telephone without their scheme; pictures inside an address are nothing to read."""
    scheme, _, rest = address.partition(":")
    if scheme.lower() in ("mailto", "tel") and rest:
        return rest
    return "" if scheme.lower() == "data" or len(address) > LONGEST_URL else address


def is_linkable(url: str) -> bool:
    """Whether Telegram takes it as a text link: it drops names without a dot, and misreads mailto and tel."""
    if len(url) > LONGEST_URL or any(char.isspace() or not char.isprintable() for char in url):
        return False
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return False
    dotted = re.fullmatch(r"[^\s.]+(\.[^\s.]+)+\.?", host) is not None
    return parts.scheme.lower() in ("http", "https") and dotted and port != 0


def _tame(span: Span) -> Iterator[Span]:
    if "code" in span.styles or not _LIVE_SCHEMES.search(span.text):
        yield span
        return
    at = 0
    for found in _LIVE_SCHEMES.finditer(span.text):
        if found.start() > at:
            yield Span(text=span.text[at : found.start()], styles=span.styles, url=span.url)
        yield Span(text=found.group(), styles=frozenset(("code",)))
        at = found.end()
    if at < len(span.text):
        yield Span(text=span.text[at:], styles=span.styles, url=span.url)
