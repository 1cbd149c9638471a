"""Takes comments and spaces out of scripts and style sheets; no name and no value is changed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from web.bundling.scripts import Token

_ENDS = frozenset({")", "]", "}", "++", "--"})
"""Marks a statement may end with: behind any other one a line break means nothing."""
_INNER = ") ] } , ; : ? . ?. = => == === != !== < > <= >= && || ?? & | ^ * % ** += -= *= ??= ||= &&="
_CONTINUES = frozenset(_INNER.split())
"""Marks no statement begins with: before them a line break means nothing."""
_QUOTED = re.compile(r"(\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*')", re.DOTALL)
_IDENT = re.compile(r"[A-Za-z][\w-]*", re.ASCII)
"""A value of an attribute that means the same without quotes."""
_REMARK = re.compile(_QUOTED.pattern + r"|/\*.*?\*/", re.DOTALL)


def script(tokens: Sequence[Token]) -> str:
    """The tokens again, with as little as possible between them."""
    kept = list(_needed(tokens))
    if not kept:
        return ""
    return _text(kept[0]) + "".join(_between(last, token) + _text(token) for last, token in pairwise(kept))


def style(text: str) -> str:
    """CSS with the same rules; what is quoted stays as it is."""
    pieces = _QUOTED.split(_REMARK.sub(lambda found: found.group(1) or " ", text))
    pieces[::2] = [_plain_style(piece) for piece in pieces[::2]]
    for at in range(1, len(pieces), 2):
        if (
            pieces[at - 1].endswith("=")
            and pieces[at + 1].startswith("]")
            and _IDENT.fullmatch(pieces[at][1:-1])
        ):
            pieces[at] = pieces[at][1:-1]
    return "".join(pieces)


def _plain_style(piece: str) -> str:
    piece = re.sub(r"\s+", " ", piece)
    piece = re.sub(r" ?([{};,>!]) ?", r"\1", piece)
    piece = re.sub(r"(?<=[:(]) | (?=\))", "", piece)
    return piece.replace(";}", "}")


def _text(token: Token) -> str:
    # A backslash may be an escape of the script or of the sheet: then nothing is touched.
    if not token.css or "\\" in token.text:
        return token.text
    end = 2 if token.text.endswith("${") else 1
    return token.text[0] + style(token.text[1:-end]) + token.text[-end:]


def _needed(tokens: Sequence[Token]) -> Iterator[Token]:
    for at, token in enumerate(tokens):
        if token.text == ";" and 0 < at < len(tokens) - 1 and tokens[at + 1].text == "}":
            last = tokens[at - 1]
            ends = last.kind != "mark" or (last.text in _ENDS and not last.header)
            if ends and last.text not in ("else", "do"):
                continue
        yield token


def _between(last: Token, token: Token) -> str:
    if token.newline and not _joins(last, token):
        return "\n"
    if last.kind in ("word", "number", "regex") and token.kind in ("word", "number"):
        return " "
    doubled = last.text[-1] == token.text[0] and token.text[0] in "+-/"
    return " " if doubled or (last.kind == "number" and token.text[0] == ".") else ""


def _joins(last: Token, token: Token) -> bool:
    """Whether a line break between the two may go."""
    if last.kind == "template" and last.text.endswith("${"):
        return True
    if token.kind == "template" and token.text[0] == "}":
        return True
    if last.kind == "mark" and last.text not in _ENDS:
        return True
    return token.kind == "mark" and token.text in _CONTINUES
