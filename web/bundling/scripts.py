"""Reads the words and marks of a script, so that it can be made smaller without being misread."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass


class NotUnderstood(Exception):
    """The text can be read in more than one way, or not at all: it must be served as it is."""

    advice = "Write it in plainer JavaScript; until then the files are served as they are."


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    kind: str
    """word, number, string, template, regex or mark; a template comes in pieces around its expressions."""
    text: str
    newline: bool
    """A line ended between the token before and this one."""
    css: bool = False
    """A piece of a template that the comment `/* css */` stands before."""
    header: bool = False
    """The `)` that ends what stands behind if, for, while or with."""


_BLANK = re.compile(
    r"(?:[ \t\r\n\v\f\ufeff\u00a0\u2028\u2029]+|//[^\n\r\u2028\u2029]*|/\*.*?\*/)+", re.DOTALL
)
_WORD = re.compile(r"#?[A-Za-z_$\u0080-\U0010ffff][\w$\u0080-\U0010ffff]*")
_NUMBER = re.compile(r"0[xXbBoO][\da-fA-F_]+n?|(?:\d[\d_]*\.?[\d_]*|\.\d[\d_]*)(?:[eE][+-]?\d+)?n?")
_STRING = re.compile(r"\"(?:[^\"\\\r\n]|\\.)*\"|'(?:[^'\\\r\n]|\\.)*'", re.DOTALL)
_PIECE = re.compile(r"[`}](?:[^`\\$]|\\.|\$(?!\{))*(?:`|\$\{)", re.DOTALL)
_REGEX = re.compile(r"/(?:[^/\\\[\r\n]|\\.|\[(?:[^\]\\\r\n]|\\.)*\])+/[a-z]*")
_MARK = re.compile(
    r">>>=|\.\.\.|===|!==|\*\*=|<<=|>>=|>>>|&&=|\|\|=|\?\?=|=>|==|!=|<=|>=|&&|\|\||\?\?|\?\.(?!\d)|\+\+|--|"
    r"\+=|-=|\*=|/=|%=|&=|\|=|\^=|<<|>>|\*\*|[{}()\[\];,<>+\-*/%&|^!~?:=.@]"
)
_CSS = re.compile(r"/\*\s*css\s*\*/\s*$")
_NEWLINE = re.compile(r"[\r\n\u2028\u2029]")
_WORDS = "return typeof case in of delete void throw new else do instanceof await yield"
_BEFORE_REGEX = frozenset(_WORDS.split())
_HEADERS = frozenset({"if", "for", "while", "with"})
_PAIRS = {")": "(", "]": "[", "}": "{"}


def tokens(text: str) -> list[Token]:
    """Raises NotUnderstood where a slash or a bracket could mean two things."""
    return list(_TokenReader(text).read())


class _TokenReader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._last: Token | None = None
        self._open: list[tuple[str, bool]] = []

    def read(self) -> Iterator[Token]:
        while True:
            blank = _BLANK.match(self._text, self._at)
            between = blank.group() if blank else ""
            self._at += len(between)
            if self._at >= len(self._text):
                break
            self._last = self._next(bool(between and _NEWLINE.search(between)), between)
            yield self._last
        if self._open:
            raise self._unclear("a bracket is never closed")

    def _next(self, newline: bool, between: str) -> Token:
        char = self._text[self._at]
        if char == "`":
            return self._piece(newline, css=bool(_CSS.search(between)))
        if char == "}" and self._open and self._open[-1][0] == "${":
            return self._piece(newline, css=self._open.pop()[1])
        for kind, pattern in (("string", _STRING), ("word", _WORD), ("number", _NUMBER)):
            if found := pattern.match(self._text, self._at):
                return self._take(kind, found, newline)
        if char == "/" and self._regex_may_start():
            return self._take("regex", self._must(_REGEX), newline)
        return self._bracket(self._take("mark", self._must(_MARK), newline))

    def _must(self, pattern: re.Pattern[str]) -> re.Match[str]:
        found = pattern.match(self._text, self._at)
        if found is None:
            raise self._unclear("this is no JavaScript")
        return found

    def _take(self, kind: str, found: re.Match[str], newline: bool) -> Token:
        self._at = found.end()
        return Token(kind=kind, text=found.group(), newline=newline)

    def _piece(self, newline: bool, *, css: bool) -> Token:
        found = self._must(_PIECE)
        self._at = found.end()
        if found.group().endswith("${"):
            self._open.append(("${", css))
        return Token(kind="template", text=found.group(), newline=newline, css=css)

    def _bracket(self, token: Token) -> Token:
        if token.text in "([{":
            last = self._last
            headed = last is not None and last.kind == "word" and last.text in _HEADERS
            self._open.append((token.text, headed))
        elif token.text in _PAIRS:
            if not self._open or self._open[-1][0] != _PAIRS[token.text]:
                raise self._unclear("a bracket closes what is not open")
            if self._open.pop()[1]:
                return Token(kind="mark", text=token.text, newline=token.newline, header=True)
        return token

    def _regex_may_start(self) -> bool:
        last = self._last
        if last is None:
            return True
        if last.kind == "word":
            return last.text in _BEFORE_REGEX
        if last.kind == "template":
            return last.text.endswith("${")
        if last.kind != "mark" or last.text == "]":
            return False
        if last.text == ")":
            return last.header
        if last.text in ("}", "++", "--"):
            raise self._unclear(f"after {last.text} a slash may divide or begin a pattern")
        return True

    def _unclear(self, why: str) -> NotUnderstood:
        line = self._text.count("\n", 0, self._at) + 1
        return NotUnderstood(f"line {line}: {why}")
