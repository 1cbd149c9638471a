"""Parses the Markdown of an answer, complete or still being written, into a tree of blocks."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock, table
from markdown_it.rules_block.table import escapedSplit, getLine
from markdown_it.rules_inline import StateInline
from markdown_it.rules_inline.state_inline import Delimiter
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
    TextStyles,
)

# -- the parser: CommonMark with tables and strikethrough, that loses no text --------------------------------

MAX_NESTING = 60
"""Maximum levels of lists (two each) and quotes.

Deeper text is kept as plain text, since the parser drops it.
"""

# Names of Python with two underscores on each side, as in `__init__.py`, `__call__(` or `x.__dict__`.
_DUNDER = re.compile(r"__[A-Za-z0-9_]+?__(?=\.\w|\()|(?<=\.)__[A-Za-z0-9_]+?__(?!\w)")
_MATH_SIGNS = (("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]"))
_MATH_FENCES = {"$$": "$$", "\\[": "\\]"}
_TEX = re.compile(r"[\\^_={}]|\A\s*\w\s*\Z")
MAX_FORMULA_CHARS = 500
"""Maximum characters of a formula in a line; a longer text between math signs is plain text."""
MAX_COLUMNS = 20
"""Maximum columns of a table; each row is padded to the widest one, so that a short text could grow large."""


@cache
def make_parser() -> MarkdownIt:
    """Return the Markdown parser: CommonMark with tables, strikethrough, task lists and formulas.

    References are off, because their definitions vanish from the text. Underlined headings are off, because
    models do not write them, but do write rules below a line.
    """
    made = MarkdownIt("commonmark", {"html": False, "tasklists": True, "maxNesting": MAX_NESTING})
    made.enable(["table", "strikethrough"]).disable(["reference", "lheading", "html_block", "html_inline"])
    # `_list_spans` decides which addresses become links, and shows the others as text.
    made.validateLink = lambda url: True  # type: ignore[method-assign]
    made.normalizeLink = lambda url: url  # type: ignore[method-assign]
    made.normalizeLinkText = lambda url: url  # type: ignore[assignment, method-assign]
    made.block.ruler.at("table", _parse_narrow_table, {"alt": ["paragraph", "reference"]})
    made.inline.ruler.at("emphasis", _parse_emphasis)
    made.inline.ruler.before("escape", "math", _parse_math)
    made.block.ruler.before(
        "fence", "math_block", _parse_math_block, {"alt": ["paragraph", "blockquote", "list"]}
    )
    return made


def _parse_narrow_table(state: StateBlock, first: int, last: int, silent: bool) -> bool:
    """Parse a table of at most MAX_COLUMNS columns; return whether there was one."""
    columns = state.src.count("|", state.bMarks[first], state.eMarks[first])
    began = len(state.tokens)
    if columns > MAX_COLUMNS + 1 or not table(state, first, last, silent):
        return False
    if not silent:
        state.tokens[began:] = _widen_table(state, state.tokens[began:])
    return True


def _widen_table(state: StateBlock, tokens: list[Token]) -> list[Token]:
    """Return the tokens of a table, with all rows as wide as the widest one.

    The parser drops cells beyond the header.
    """
    cells_by_row = {
        row.map[0]: _split_row(state, row.map[0]) for row in tokens if row.type == "tr_open" and row.map
    }
    width = sum(token.type == "th_open" for token in tokens)
    widest = max(map(len, cells_by_row.values()), default=0)
    if widest <= width:
        return tokens
    made: list[Token] = []
    row = 0
    for token in tokens:
        if token.type == "tr_open" and token.map:
            row = token.map[0]
        if token.type == "tr_close":
            cells = cells_by_row[row][width:]
            padded = cells + [""] * (widest - width - len(cells))
            tag = "td" if any(one.type == "tbody_open" for one in made) else "th"
            made += [part for cell in padded for part in _build_cell(tag, cell, row, token.level)]
        made.append(token)
    return made


def _split_row(state: StateBlock, number: int) -> list[str]:
    """Return the cells of a row; cells beyond MAX_COLUMNS are joined into the last one."""
    cells = escapedSplit(getLine(state, number).strip())
    if cells and not cells[0]:
        cells.pop(0)
    if cells and not cells[-1]:
        cells.pop()
    cells = [cell.strip() for cell in cells]
    beyond = cells[MAX_COLUMNS - 1 :]
    return [*cells[: MAX_COLUMNS - 1], " | ".join(beyond)] if beyond else cells


def _build_cell(tag: str, content: str, row: int, level: int) -> tuple[Token, ...]:
    inline = Token("inline", "", 0, content=content, children=[], map=[row, row + 1], level=level + 1)
    return Token(f"{tag}_open", tag, 1, level=level), inline, Token(f"{tag}_close", tag, -1, level=level)


def _parse_emphasis(state: StateInline, silent: bool) -> bool:
    """Parse a run of `*` or `_`; return whether there was one.

    Unlike in CommonMark, 2*3*4 and __init__.py stay as they are, and CJK text needs no spaces around
    emphasis.
    """
    marker = state.src[state.pos]
    if silent or marker not in "*_":
        return False
    dunder = _DUNDER.match(state.src, state.pos) if marker == "_" else None
    if dunder:
        state.append_pending(dunder.group())
        state.pos = dunder.end()
        return True
    end = state.pos
    while end < state.posMax and state.src[end] == marker:
        end += 1
    opens, closes = _find_flanks(state, end)
    length = end - state.pos
    for _ in range(length):
        state.push("text", "", 0).content = marker
        state.delimiters.append(
            Delimiter(
                marker=ord(marker),
                length=length,
                token=len(state.tokens) - 1,
                end=-1,
                open=opens,
                close=closes,
            )
        )
    state.pos = end
    return True


def _find_flanks(state: StateInline, end: int) -> tuple[bool, bool]:
    """Return whether the run of markers up to `end` can open emphasis, and whether it can close it."""
    before = state.src[state.pos - 1] if state.pos else " "
    after = state.src[end] if end < state.posMax else " "
    if end - state.pos == 1 and _is_word(before) and _is_word(after):
        return False, False
    left = not after.isspace() and (not _is_mark(after) or _allows_emphasis_beside(before))
    right = not before.isspace() and (not _is_mark(before) or _allows_emphasis_beside(after))
    if state.src[state.pos] == "*":
        return left, right
    return left and (not right or _is_mark(before)), right and (not left or _is_mark(after))


def _is_word(char: str) -> bool:
    return char.isascii() and (char.isalnum() or char == "_")


def _is_mark(char: str) -> bool:
    return unicodedata.category(char)[0] in "PS"


def _allows_emphasis_beside(char: str) -> bool:
    """Return whether emphasis may border on punctuation next to this character.

    A CJK character counts like a space, since CJK text has no spaces between words.
    """
    return char.isspace() or _is_mark(char) or unicodedata.east_asian_width(char) in "WF"


def _parse_math(state: StateInline, silent: bool) -> bool:
    """Parse a formula in a line, whose text stays as written; return whether there was one."""
    if state.src[state.pos] not in "\\$":
        return False
    for opening, closing in _MATH_SIGNS:
        if not state.src.startswith(opening, state.pos):
            continue
        start = state.pos + len(opening)
        end = state.src.find(closing, start, min(state.posMax, start + MAX_FORMULA_CHARS))
        if end > start and _is_formula(state.src[start:end], opening, state.src[end + len(closing) :][:1]):
            if not silent:
                token = state.push("math", "", 0)
                token.content = state.src[state.pos : end + len(closing)]
                token.info = state.src[start:end].strip()
            state.pos = end + len(closing)
            return True
    return False


def _is_formula(tex: str, opening: str, after: str) -> bool:
    """Return whether the text between math signs is a formula: TeX or a single letter, and not a price.

    `opening` is the sign before it, `after` the character that follows the closing sign.
    """
    if opening == "$$":
        return bool(tex.strip())
    if "\n" in tex or not _TEX.search(tex) or (opening == "\\[" and after == "("):
        return False
    return opening != "$" or (tex == tex.strip() and not after.isdigit() and not tex.isdigit())


def _parse_math_block(state: StateBlock, first: int, last: int, silent: bool) -> bool:
    r"""Parse a formula from `$$` or `\[` at the start of a line to the closing sign at the end of a line.

    Return whether there was one.
    """
    if state.is_code_block(first):
        return False
    line = _get_line(state, first)
    closing = _MATH_FENCES.get(line[:2])
    if closing is None or (line[2:].find(closing) not in (-1, len(line) - 4)):
        return False
    end = next((n for n in range(first, last) if _is_closing_line(state, n, first, closing)), None)
    if end is None or any(_is_outside(state, n) for n in range(first + 1, end + 1)):
        return False
    if not silent:
        token = state.push("math_block", "", 0)
        token.content = "\n".join(_get_line(state, n) for n in range(first, end + 1))
        token.info = token.content[2:-2].strip()
        token.map = [first, end + 1]
        state.line = end + 1
    return True


def _get_line(state: StateBlock, number: int) -> str:
    return state.src[state.bMarks[number] + state.tShift[number] : state.eMarks[number]].rstrip()


def _is_outside(state: StateBlock, number: int) -> bool:
    """Return whether a line is blank or does not belong to the list item or quote that is being parsed."""
    return state.isEmpty(number) or state.sCount[number] < state.blkIndent


def _is_closing_line(state: StateBlock, number: int, first: int, closing: str) -> bool:
    line = _get_line(state, number)
    return line.endswith(closing) and (number > first or len(line) >= 5)


# -- the end of a text that is still being written -----------------------------------------------------------

# A last line of only these characters may become a list, heading, fence, rule, table or quote.
_MARKERS_ONLY = re.compile(r"[-=+*#|:~`_$\\ \t]*|\d{1,9}[.)]?|[-+*] \[[ xX]?\]?")
_PIPE = re.compile(r"(?<!\\)\|")
# Quantifiers are possessive, so that a hostile text cannot cause endless backtracking.
_ADDRESS = (
    r"\]\(\s*+(?:<[^<>\n]*+>?+|(?:[^()\s<]|\([^()\s]*+\)?+)*+)(?:\s++(?:\"[^\"]*+\"?+|'[^']*+'?+)?+)?+\s*+"
)
_OPEN_ADDRESS = re.compile(_ADDRESS + r"\Z")
_TRAILING = re.compile(r"(?:[\s*_~`\\]|!?\[|&[#\w]{0,12}|\$)+\Z")
_TRAILING_CHARS = 64
_AROUND = " \t>"
_TICKS = re.compile(r"(?P<escaped>\\`)|(?P<run>`+)")


def drop_pending_line(source: str) -> str:
    """Return unfinished Markdown without a last line that has only markers or is an incomplete table
    header.
    """
    lines = source.split("\n")
    if _MARKERS_ONLY.fullmatch(lines[-1].strip(_AROUND)) and not _completes_table(lines):
        lines.pop()
    if lines and _is_row(lines[-1]) and not _is_row(lines[-2] if len(lines) > 1 else ""):
        lines.pop()
    return "\n".join(lines)


def _is_row(line: str) -> bool:
    return line.lstrip(_AROUND).startswith("|")


def _completes_table(lines: Sequence[str]) -> bool:
    if len(lines) < 2 or not _is_row(lines[-1]) or set(lines[-1]) - set("|-: \t>"):
        return False
    header, below = (_split_cells(line) for line in lines[-2:])
    return len(header) == len(below) and all("-" in cell for cell in below)


def _split_cells(line: str) -> list[str]:
    return _PIPE.split(line.strip(_AROUND).removeprefix("|").removesuffix("|"))


def close_open_markers(tokens: Sequence[Token]) -> None:
    """Close the emphasis, code and links that are open at the end of the last text token, which is
    changed.
    """
    last = _find_last_text(tokens)
    if last is not None:
        last.content = _close_markers(last.content)


def _find_last_text(tokens: Sequence[Token]) -> Token | None:
    """Return the token that further text would extend; None if that is code or no text."""
    for token in reversed(tokens):
        if token.type == "inline":
            if token.content:
                return token
        elif token.nesting == 0:
            return None
    return None


def _close_markers(content: str) -> str:
    """Return a text whose last line has no open markers and no incomplete ones at its end."""
    head, line = content[: content.rfind("\n") + 1], content[content.rfind("\n") + 1 :]
    ticks = _find_open_code(line)
    if ticks is None:
        line = _drop_open_link(line)
        line = line[:-_TRAILING_CHARS] + _TRAILING.sub("", line[-_TRAILING_CHARS:])
        ticks = _find_open_code(line)
    if ticks is not None:
        line = line.rstrip("` ")
        code = line[ticks[0] :]
        line = line + ticks[1] if code.strip("` ") else line[: ticks[0]].rstrip()
    return head + line + _list_closers(head + line)


def _drop_open_link(line: str) -> str:
    """Return a line with its unfinished last link replaced by the label of the link.

    A visible address would vanish as soon as the link is complete.
    """
    end = line.rfind("](")
    start = _find_label_start(line, end) if end >= 0 and _OPEN_ADDRESS.match(line, end) else None
    if start is None:
        return line
    before = line[:start].removesuffix("!")
    return before + line[start + 1 : end]


def _find_label_start(line: str, end: int) -> int | None:
    """Return the index of the opening bracket that belongs to the closing one at `end`; None without one."""
    depth = 0
    for at in range(end, -1, -1):
        depth += {"]": 1, "[": -1}.get(line[at], 0)
        if depth == 0:
            return at
    return None


def _find_open_code(line: str) -> tuple[int, str] | None:
    """Return index and backticks of the first inline code that is not closed in the line.

    None if there is none.
    """
    at = 0
    while found := _TICKS.search(line, at):
        at = found.end()
        run = found["run"]
        if run is None:
            continue
        closing = re.compile(rf"(?<!`){run}(?!`)").search(line, at)
        if closing is None:
            return found.start(), run
        at = closing.end()
    return None


def _list_closers(content: str) -> str:
    """Return the markers that close the emphasis still open in the last line, innermost first."""
    md = make_parser()
    state = StateInline(content, md, {}, [])
    md.inline.tokenize(state)
    for rule in md.inline.ruler2.getRules("")[:1]:
        rule(state)
    line = max((n for n, token in enumerate(state.tokens) if token.type.endswith("break")), default=-1)
    found = [d for d in state.delimiters if d.open and d.end == -1 and d.token > line]
    return "".join("~~" if d.marker == ord("~") else chr(d.marker) for d in reversed(found))


# -- what stands in a block ----------------------------------------------------------------------------------

MAX_URL_CHARS = 2048
"""Maximum length of an address that becomes a link or is shown."""

# Telegram makes these addresses clickable wherever it finds them, except in code.
_LIVE_SCHEMES = re.compile(r"\b(?:tg|ton|tonsite)://\S*", re.IGNORECASE)
_STYLES = {"strong_open": "bold", "em_open": "italic", "s_open": "strikethrough"}


def parse_spans(tokens: Sequence[Token]) -> TextSpans:
    """Return the text spans of inline tokens; neighbours with equal style and link are merged."""
    merged: list[TextSpan] = []
    for span in _list_spans(tokens):
        last = merged[-1] if merged else None
        if last and not span.tex and not last.tex and (last.styles, last.url) == (span.styles, span.url):
            merged[-1] = TextSpan(text=last.text + span.text, styles=last.styles, url=last.url)
        elif span.text:
            merged.append(span)
    return tuple(piece for span in merged for piece in _defuse_links(span))


def _list_spans(tokens: Sequence[Token]) -> list[TextSpan]:
    """Return the text spans of inline tokens as a flat list, since emphasis can be nested without limit."""
    found: list[TextSpan] = []
    stack: list[TextStyles] = [frozenset()]
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
                found += _append_unlinked_address(
                    address, "".join(span.text for span in found[start:]), stack[-1]
                )
            case "image":
                found += _convert_image(token, stack[-1], url)
            case _:
                found.append(_build_span(token, stack[-1], url))
    return found


def _build_span(token: Token, styles: TextStyles, url: str | None) -> TextSpan:
    match token.type:
        case "softbreak" | "hardbreak":
            return TextSpan(text="\n", styles=styles, url=url)
        case "code_inline":
            # Telegram allows no other style around or in code, so code in a link is shown as plain text.
            return TextSpan(text=token.content, styles=styles if url else frozenset(("code",)), url=url)
        case "math":
            return TextSpan(text=token.content, styles=styles | {"math"}, url=url, tex=token.info)
        case _:
            return TextSpan(text=token.content, styles=styles, url=url)


def _convert_image(token: Token, styles: TextStyles, url: str | None) -> Iterator[TextSpan]:
    """Yield the label of an image, as a link if its address can be one, else with the address after it."""
    address = str(token.attrGet("src") or "")
    label = "🖼 " + (token.content or "image")
    if url is None and is_linkable(address):
        yield TextSpan(text=label, styles=styles, url=address)
    else:
        yield TextSpan(text=label, styles=styles, url=url)
        yield from _append_address(address, styles)


def _append_unlinked_address(address: str, label: str, styles: TextStyles) -> Iterator[TextSpan]:
    """Yield the address in parentheses if it cannot be a link and the label does not show it."""
    if not is_linkable(address) and label != _format_address(address):
        yield from _append_address(address, styles)


def _append_address(address: str, styles: TextStyles) -> Iterator[TextSpan]:
    """Yield an address in parentheses: mail and telephone as text, others as code, which Telegram never
    links.
    """
    if shown := _format_address(address):
        yield TextSpan(text=" (", styles=styles)
        yield TextSpan(text=shown, styles=styles if shown != address else frozenset(("code",)))
        yield TextSpan(text=")", styles=styles)


def _format_address(address: str) -> str:
    """Return an address as shown: mail and telephone without their scheme.

    Empty if the address contains a picture or is longer than MAX_URL_CHARS.
    """
    scheme, _, rest = address.partition(":")
    if scheme.lower() in ("mailto", "tel") and rest:
        return rest
    return "" if scheme.lower() == "data" or len(address) > MAX_URL_CHARS else address


def is_linkable(url: str) -> bool:
    """Return whether Telegram accepts an address as a text link.

    Telegram drops links to names without a dot, and misreads mailto and tel.
    """
    if len(url) > MAX_URL_CHARS or any(char.isspace() or not char.isprintable() for char in url):
        return False
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return False
    dotted = re.fullmatch(r"[^\s.]+(\.[^\s.]+)+\.?", host) is not None
    return parts.scheme.lower() in ("http", "https") and dotted and port != 0


def _defuse_links(span: TextSpan) -> Iterator[TextSpan]:
    """Yield the span with addresses such as `tg://` as code, so that Telegram does not make them
    clickable.
    """
    if "code" in span.styles or not _LIVE_SCHEMES.search(span.text):
        yield span
        return
    at = 0
    for found in _LIVE_SCHEMES.finditer(span.text):
        if found.start() > at:
            yield TextSpan(text=span.text[at : found.start()], styles=span.styles, url=span.url)
        yield TextSpan(text=found.group(), styles=frozenset(("code",)))
        at = found.end()
    if at < len(span.text):
        yield TextSpan(text=span.text[at:], styles=span.styles, url=span.url)


# -- blocks --------------------------------------------------------------------------------------------------

# Characters that Telegram replaces or removes. Bidi overrides could also make code look different.
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_TAKEN_OUT = re.compile(r"[\u2028-\u202e]|\r(?=\n)")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_LANGUAGE = re.compile(r"[\w+#.-]{1,32}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenNode:
    """Token with the nodes between it and its closing token."""

    token: Token
    children: list[TokenNode] = field(default_factory=list)


def clean_text(markdown: str) -> str:
    r"""Return Markdown without characters that Telegram does not keep, and with `\n` as the only line end."""
    text = _TAKEN_OUT.sub("", markdown).replace("\r", "\n")
    return _SURROGATE.sub("\ufffd", _CONTROL.sub(" ", text))


def parse_blocks(markdown: str, *, live: bool = False) -> tuple[MarkdownBlock, ...]:
    """Return the blocks of a Markdown text; text nested too deeply becomes one plain paragraph.

    With `live`, the text is still being written: open markers are closed, and a last line that may become
    markup is left out.
    """
    source = drop_pending_line(clean_text(markdown)) if live else clean_text(markdown)
    tokens = _parse(source, live=live)
    if any(token.level >= MAX_NESTING - 1 for token in tokens):
        return (ParagraphBlock(spans=(TextSpan(text=source.strip()),)),)
    return _build_blocks(_build_tree(tokens), source.split("\n"))


def _parse(source: str, *, live: bool) -> list[Token]:
    """Return the tokens of a text: first its blocks, then their inline text.

    With `live`, open markers are closed between the two steps.
    """
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


def _build_tree(tokens: Sequence[Token]) -> list[TokenNode]:
    """Return flat tokens as a tree."""
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


def _build_blocks(nodes: Sequence[TokenNode], lines: Sequence[str]) -> tuple[MarkdownBlock, ...]:
    return tuple(block for node in nodes for block in _build_block(node, lines))


def _build_block(node: TokenNode, lines: Sequence[str]) -> Iterator[MarkdownBlock]:
    token, spaced = node.token, _is_spaced(node.token, lines)
    match token.type:
        case "paragraph_open":
            yield ParagraphBlock(spans=_read(node.children), spaced=spaced)
        case "heading_open":
            yield HeadingBlock(level=int(token.tag[1]), spans=_read(node.children), spaced=spaced)
        case "fence" | "code_block":
            yield CodeBlock(
                text=token.content.removesuffix("\n"), language=_find_language(token.info), spaced=spaced
            )
        case "math_block":
            yield FormulaBlock(text=token.content, tex=token.info, spaced=spaced)
        case "hr":
            yield DividerBlock(spaced=spaced)
        case "table_open":
            yield _build_table(node, spaced)
        case "bullet_list_open" | "ordered_list_open":
            yield _build_list(node, lines, spaced)
        case "blockquote_open":
            yield QuoteBlock(blocks=_build_blocks(node.children, lines), spaced=spaced)


def _is_spaced(token: Token, lines: Sequence[str]) -> bool:
    """Return whether a blank line precedes the token."""
    above = (token.map or [0])[0] - 1
    return 0 <= above < len(lines) and not lines[above].strip(" \t>")


def _find_language(info: str) -> str | None:
    """Return the language of a code block from its info string; None if it has none."""
    found = _LANGUAGE.match(info.strip().lstrip("{."))
    return found.group() if found else None


def _build_list(node: TokenNode, lines: Sequence[str], spaced: bool) -> ListBlock:
    items = tuple(
        ListItem(
            blocks=_build_blocks(child.children, lines),
            checked=child.token.meta.get("checked"),
            spaced=_is_spaced(child.token, lines),
        )
        for child in node.children
    )
    if node.token.type == "bullet_list_open":
        return ListBlock(items=items, spaced=spaced)
    return ListBlock(items=items, start=int(node.children[0].token.info), spaced=spaced)


def _build_table(node: TokenNode, spaced: bool) -> TableBlock:
    rows = [row for section in node.children for row in section.children]
    return TableBlock(
        aligns=tuple(_find_alignment(cell.token) for cell in rows[0].children),
        rows=tuple(tuple(_read(cell.children) for cell in row.children) for row in rows),
        spaced=spaced,
    )


def _find_alignment(token: Token) -> str:
    return str(token.attrGet("style") or "text-align:left").removeprefix("text-align:")


def _read(nodes: Sequence[TokenNode]) -> TextSpans:
    return parse_spans([token for node in nodes for token in node.token.children or ()])
