"""The end of an answer that is still being written: what is shown of it before its meaning is known."""

from __future__ import annotations

import re
from collections.abc import Sequence

from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

from bot.telegram.markup.markdown_parser import make_parser

# A last line of nothing but these may become a list, a heading, a fence, a rule, a table or a quote.
_MARKERS_ONLY = re.compile(r"[-=+*#|:~`_$\\ \t]*|\d{1,9}[.)]?|[-+*] \[[ xX]?\]?")
_PIPE = re.compile(r"(?<!\\)\|")
# Possessive, so that a hostile end cannot make the search try every way.
_ADDRESS = (
    r"\]\(\s*+(?:<[^<>\n]*+>?+|(?:[^()\s<]|\([^()\s]*+\)?+)*+)(?:\s++(?:\"[^\"]*+\"?+|'[^']*+'?+)?+)?+\s*+"
)
_OPEN_ADDRESS = re.compile(_ADDRESS + r"\Z")
_TRAILING = re.compile(r"(?:[\s*_~`\\]|!?\[|&[#\w]{0,12}|\$)+\Z")
_TRAILING_CHARS = 64
_AROUND = " \t>"
_TICKS = re.compile(r"(?P<escaped>\\`)|(?P<run>`+)")


def drop_pending_line(source: str) -> str:
    """Without a last line that is only markers, and without a table's header before it is one."""
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
    header, below = (_cells(line) for line in lines[-2:])
    return len(header) == len(below) and all("-" in cell for cell in below)


def _cells(line: str) -> list[str]:
    return _PIPE.split(line.strip(_AROUND).removeprefix("|").removesuffix("|"))


def close_open_markers(tokens: Sequence[Token]) -> None:
    """Closes in the last text what is still open there."""
    last = _last_text(tokens)
    if last is not None:
        last.content = _closed(last.content)


def _last_text(tokens: Sequence[Token]) -> Token | None:
    """The token that the next character will belong to, when that is text and not code."""
    for token in reversed(tokens):
        if token.type == "inline":
            if token.content:
                return token
        elif token.nesting == 0:
            return None
    return None


def _closed(content: str) -> str:
    head, line = content[: content.rfind("\n") + 1], content[content.rfind("\n") + 1 :]
    ticks = _open_code(line)
    if ticks is None:
        line = _without_open_link(line)
        line = line[:-_TRAILING_CHARS] + _TRAILING.sub("", line[-_TRAILING_CHARS:])
        ticks = _open_code(line)
    if ticks is not None:
        line = line.rstrip("` ")
        code = line[ticks[0] :]
        line = line + ticks[1] if code.strip("` ") else line[: ticks[0]].rstrip()
    return head + line + _closers(head + line)


def _without_open_link(line: str) -> str:
    """With the label alone of a link whose address is not complete: it would vanish as soon as it is."""
    end = line.rfind("](")
    start = _label_start(line, end) if end >= 0 and _OPEN_ADDRESS.match(line, end) else None
    if start is None:
        return line
    before = line[:start].removesuffix("!")
    return before + line[start + 1 : end]


def _label_start(line: str, end: int) -> int | None:
    """The bracket that the one at `end` closes."""
    depth = 0
    for at in range(end, -1, -1):
        depth += {"]": 1, "[": -1}.get(line[at], 0)
        if depth == 0:
            return at
    return None


def _open_code(line: str) -> tuple[int, str] | None:
    """Where inline code begins that nobody has closed, and with which run of backticks."""
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


def _closers(content: str) -> str:
    """The markers, innermost first, that end the emphasis still open in the last line."""
    md = make_parser()
    state = StateInline(content, md, {}, [])
    md.inline.tokenize(state)
    for rule in md.inline.ruler2.getRules("")[:1]:
        rule(state)
    line = max((n for n, token in enumerate(state.tokens) if token.type.endswith("break")), default=-1)
    found = [d for d in state.delimiters if d.open and d.end == -1 and d.token > line]
    return "".join("~~" if d.marker == ord("~") else chr(d.marker) for d in reversed(found))
