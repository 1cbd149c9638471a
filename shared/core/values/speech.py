"""Text of an answer to be read aloud, without markup and code; its length limit and price."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Literal

SpeechChoice = Literal["off", "on", "auto"]
SPEECH_CHOICES: tuple[SpeechChoice, ...] = ("off", "on", "auto")
"""Choices of reading answers aloud; `auto` does so for answers to voice messages."""
MOST_SPOKEN_CHARS = 1_500
"""Most characters that are read aloud, about a minute and a half."""
LeftOut = Literal["code", "table", "rest"]
"""Parts of an answer that are not read aloud: code or formulas, tables, and the rest above the length
limit.
"""

_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,}).*?(?:^ {0,3}\1[`~]*[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_MATH = re.compile(r"\$\$.+?\$\$", re.DOTALL)
_TABLE = re.compile(r"(?:^[ \t]*\|.*(?:\n|\Z))+", re.MULTILINE)
_NOT_SPOKEN: tuple[tuple[LeftOut, re.Pattern[str]], ...] = (
    ("code", _FENCE),
    ("code", _MATH),
    ("table", _TABLE),
)
_MARKS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"!\[([^\[\]]*+)\]\([^)\[\s]*+\)"), r"\1"),
    (re.compile(r"\[([^\[\]]++)\]\([^)\[\s]*+\)"), r"\1"),
    (re.compile(r"https?://([^/\s)>]+)[^\s)>]*"), r"\1"),
    (re.compile(r"^[ \t]*(?:#{1,6}|>|[-*+])[ \t]+", re.MULTILINE), ""),
    (re.compile(r"^[ \t]*(?:[-*_][ \t]*){3,}$", re.MULTILINE), ""),
    (re.compile(r"`([^`\n]*)`"), r"\1"),
    (re.compile(r"(\*{1,3}|~~|\b_{1,3}|_{1,3}\b)(?=\S|$)|(?<=\S)(\*{1,3}|~~)"), ""),
    (re.compile(r"<[^<>\n]{1,200}>"), ""),
    (re.compile(r"[\U0001F000-\U0001FAFF\u2600-\u27BF\uFE0F\u200D]"), ""),
    (re.compile(r"[ \t]+"), " "),
    (re.compile(r"(?<! ) *+\n\s*+"), "\n"),
)
_ENDS = re.compile(r"[.!?…。！？؟।]+[\s\"”’»)]*|\n")


def spoken_text(markdown: str, say: Callable[[LeftOut], str], *, most: int = MOST_SPOKEN_CHARS) -> str:
    """Return the text of a Markdown answer to read aloud, its beginning cut to `most` characters; empty if
    none.

    Code, formulas, tables, markup and emoji are removed. A sentence from `say` is added for each kind of part
    that was left out, which may exceed `most`.
    """
    left_out: list[LeftOut] = []
    for what, pattern in _NOT_SPOKEN:
        markdown, number = pattern.subn("\n", markdown)
        if number and what not in left_out:
            left_out.append(what)
    for mark, words in _MARKS:
        markdown = mark.sub(words, markdown)
    whole = markdown.strip()
    if not whole:
        return ""
    beginning = _beginning(whole, most)
    if len(beginning) < len(whole):
        left_out.append("rest")
    return "\n".join((beginning, *map(say, left_out)))


def speech_micro(words: str, micro_per_1000_chars: int | None) -> int | None:
    """Return the price of speaking a text in micro-dollars, rounded up; None if the price is unknown."""
    return None if micro_per_1000_chars is None else math.ceil(micro_per_1000_chars * len(words) / 1_000)


def _beginning(words: str, most: int) -> str:
    """Return the beginning of a text in whole sentences, or whole words if the first sentence is too long."""
    if len(words) <= most:
        return words
    ends = [end.end() for end in _ENDS.finditer(words, 0, most)]
    at = ends[-1] if ends else max(words.rfind(" ", 0, most), 0) or most
    return words[:at].strip()
