"""The Markdown that models write: CommonMark with tables and strikethrough, that loses no text."""

from __future__ import annotations

import re
import unicodedata
from functools import cache

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock, table
from markdown_it.rules_block.table import escapedSplit, getLine
from markdown_it.rules_inline import StateInline
from markdown_it.rules_inline.state_inline import Delimiter
from markdown_it.token import Token

MAX_NESTING = 60
"""Levels of lists (two each) and quotes; the parser drops what lies deeper, so such text is never parsed."""

# Python's names with two underscores around them, used as in `__init__.py`, `__call__(` or `x.__dict__`.
_DUNDER = re.compile(r"__[A-Za-z0-9_]+?__(?=\.\w|\()|(?<=\.)__[A-Za-z0-9_]+?__(?!\w)")
_MATH_SIGNS = (("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]"))
_MATH_FENCES = {"$$": "$$", "\\[": "\\]"}
_TEX = re.compile(r"[\\^_={}]|\A\s*\w\s*\Z")
MAX_FORMULA_CHARS = 500
MAX_COLUMNS = 20
"""The parser fills short rows up to the header's width, so a wide header makes much of few characters."""


@cache
def make_parser() -> MarkdownIt:
    """References are off, because definitions vanish from the text; so are underlined headings, which
    models do not write, while their rules below a line are common."""
    made = MarkdownIt("commonmark", {"html": False, "tasklists": True, "maxNesting": MAX_NESTING})
    made.enable(["table", "strikethrough"]).disable(["reference", "lheading", "html_block", "html_inline"])
    # Which addresses become links is decided by the tree, which can show the others as text.
    made.validateLink = lambda url: True  # type: ignore[method-assign]
    made.normalizeLink = lambda url: url  # type: ignore[method-assign]
    made.normalizeLinkText = lambda url: url  # type: ignore[assignment, method-assign]
    made.block.ruler.at("table", _narrow_table, {"alt": ["paragraph", "reference"]})
    made.inline.ruler.at("emphasis", _emphasis)
    made.inline.ruler.before("escape", "math", _math)
    made.block.ruler.before("fence", "math_block", _math_block, {"alt": ["paragraph", "blockquote", "list"]})
    return made


def _narrow_table(state: StateBlock, first: int, last: int, silent: bool) -> bool:
    columns = state.src.count("|", state.bMarks[first], state.eMarks[first])
    began = len(state.tokens)
    if columns > MAX_COLUMNS + 1 or not table(state, first, last, silent):
        return False
    if not silent:
        state.tokens[began:] = _with_whole_rows(state, state.tokens[began:])
    return True


def _with_whole_rows(state: StateBlock, tokens: list[Token]) -> list[Token]:
    """The parser drops the cells of a row that its header has no columns for: the table becomes wider."""
    told = {row.map[0]: _cells(state, row.map[0]) for row in tokens if row.type == "tr_open" and row.map}
    width = sum(token.type == "th_open" for token in tokens)
    widest = max(map(len, told.values()), default=0)
    if widest <= width:
        return tokens
    made: list[Token] = []
    row = 0
    for token in tokens:
        if token.type == "tr_open" and token.map:
            row = token.map[0]
        if token.type == "tr_close":
            cells = told[row][width:]
            padded = cells + [""] * (widest - width - len(cells))
            tag = "td" if any(one.type == "tbody_open" for one in made) else "th"
            made += [part for cell in padded for part in _cell(tag, cell, row, token.level)]
        made.append(token)
    return made


def _cells(state: StateBlock, number: int) -> list[str]:
    """Of one row, as the parser splits it; what lies beyond the widest table stands in its last cell."""
    cells = escapedSplit(getLine(state, number).strip())
    if cells and not cells[0]:
        cells.pop(0)
    if cells and not cells[-1]:
        cells.pop()
    cells = [cell.strip() for cell in cells]
    beyond = cells[MAX_COLUMNS - 1 :]
    return [*cells[: MAX_COLUMNS - 1], " | ".join(beyond)] if beyond else cells


def _cell(tag: str, content: str, row: int, level: int) -> tuple[Token, ...]:
    inline = Token("inline", "", 0, content=content, children=[], map=[row, row + 1], level=level + 1)
    return Token(f"{tag}_open", tag, 1, level=level), inline, Token(f"{tag}_close", tag, -1, level=level)


def _emphasis(state: StateInline, silent: bool) -> bool:
    """CommonMark's rule, except that 2*3*4 and __init__.py stay, and that CJK needs no spaces."""
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
    opens, closes = _flanks(state, end)
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


def _flanks(state: StateInline, end: int) -> tuple[bool, bool]:
    """Whether the run of markers from the state's position to `end` can open, and can close."""
    before = state.src[state.pos - 1] if state.pos else " "
    after = state.src[end] if end < state.posMax else " "
    if end - state.pos == 1 and _is_word(before) and _is_word(after):
        return False, False
    left = not after.isspace() and (not _is_mark(after) or _lets_open(before))
    right = not before.isspace() and (not _is_mark(before) or _lets_open(after))
    if state.src[state.pos] == "*":
        return left, right
    return left and (not right or _is_mark(before)), right and (not left or _is_mark(after))


def _is_word(char: str) -> bool:
    return char.isascii() and (char.isalnum() or char == "_")


def _is_mark(char: str) -> bool:
    return unicodedata.category(char)[0] in "PS"


def _lets_open(char: str) -> bool:
    """Whether emphasis may meet punctuation on its other side: CJK sets no spaces between words."""
    return char.isspace() or _is_mark(char) or unicodedata.east_asian_width(char) in "WF"


def _math(state: StateInline, silent: bool) -> bool:
    """Formulas are kept as they were written: neither emphasis nor escapes reach inside."""
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
    """Prices and escaped brackets are none: TeX stands between the signs, or a letter alone."""
    if opening == "$$":
        return bool(tex.strip())
    if "\n" in tex or not _TEX.search(tex) or (opening == "\\[" and after == "("):
        return False
    return opening != "$" or (tex == tex.strip() and not after.isdigit() and not tex.isdigit())


def _math_block(state: StateBlock, first: int, last: int, silent: bool) -> bool:
    """`$$` or `\\[` at the beginning of a line, up to a line that ends with its partner."""
    if state.is_code_block(first):
        return False
    line = _line(state, first)
    closing = _MATH_FENCES.get(line[:2])
    if closing is None or (line[2:].find(closing) not in (-1, len(line) - 4)):
        return False
    end = next((n for n in range(first, last) if _closes(state, n, first, closing)), None)
    if end is None or any(_leaves(state, n) for n in range(first + 1, end + 1)):
        return False
    if not silent:
        token = state.push("math_block", "", 0)
        token.content = "\n".join(_line(state, n) for n in range(first, end + 1))
        token.info = token.content[2:-2].strip()
        token.map = [first, end + 1]
        state.line = end + 1
    return True


def _line(state: StateBlock, number: int) -> str:
    return state.src[state.bMarks[number] + state.tShift[number] : state.eMarks[number]].rstrip()


def _leaves(state: StateBlock, number: int) -> bool:
    """Whether the line is blank, or no longer belongs to the list item or quote that is being read."""
    return state.isEmpty(number) or state.sCount[number] < state.blkIndent


def _closes(state: StateBlock, number: int, first: int, closing: str) -> bool:
    line = _line(state, number)
    return line.endswith(closing) and (number > first or len(line) >= 5)
