"""Passages of an agent's files, which recall can find and cite."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

PASSAGE_WORDS = 300
"""Most words of a passage, which are at least one per eight characters."""
_WORD_CHARS = 8
"""Characters that count as one word in scripts without blanks."""
_PATH = " › "
_HEADING = re.compile(r" {0,3}(#{1,6})[ \t]++(.*)$")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_SENTENCE = re.compile(r"(?<=[.!?…])\s+|(?<=[。！？])|\n")
_DELIMITERS = ",;\t|"
_TABLE = re.compile(r"(\|[^\n]*\n\|(?: --- \|)+\n)\|[^\n]*(?:\n\|[^\n]*)*")
"""Whole Markdown table; the group is its head."""
_SAMPLE_CHARS = 8_192
_HEADING_CHARS = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """Part of a file that is understood alone; `heading` says where it stands, such as `Returns ›
    Deadlines`.
    """

    heading: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KnowledgeHit:
    """Passage that matches a search, and the path of its file; `place` is its number within the file."""

    path: str
    place: int
    heading: str
    text: str


def _title(heading: str) -> str:
    """Return a heading's text without closing number signs."""
    return heading.rstrip(" \t").rstrip("#").rstrip(" \t") or heading[:1] or " "


def split_markdown(text: str) -> tuple[Passage, ...]:
    """Return the passages of a Markdown text in order, split at headings; a heading includes those above it.

    Text before the first heading has an empty one. Headings in code blocks do not count. A section of more
    than 300 words gives several passages.
    """
    passages: list[Passage] = []
    way: list[tuple[int, str]] = []
    lines: list[str] = []
    fence = ""
    for line in text.split("\n"):
        if (mark := _FENCE.match(line)) and (not fence or mark[1].startswith(fence)):
            fence = "" if fence else mark[1]
        heading = None if fence or mark else _HEADING.match(line)
        if heading is None:
            lines.append(line)
            continue
        passages += _section(way, lines)
        level = len(heading[1])
        way = [*(one for one in way if one[0] < level), (level, _title(heading[2])[:_HEADING_CHARS])]
        lines = []
    return tuple(passages + _section(way, lines))


def split_text(text: str) -> tuple[Passage, ...]:
    """Return the passages of a plain text in order, of whole paragraphs if possible.

    The heading names the lines, such as `lines 3–9`.
    """
    passages: list[Passage] = []
    for paragraphs in _pack(_number_paragraphs(text)):
        first, last = paragraphs[0][0], paragraphs[-1][1]
        parts = _split_text("\n\n".join(words for _, _, words in paragraphs))
        passages += [Passage(heading=_range("line", first, last), text=part) for part in parts]
    return tuple(passages)


def split_csv(text: str) -> tuple[Passage, ...]:
    """Return the passages of a CSV table, with rows written as `column: value` by the names in the first row.

    The heading names the rows, such as `rows 2–40`. Raises ValueError for text that is no CSV table.
    """
    try:
        rows = list(csv.reader(io.StringIO(text), delimiter=_delimiter(text), strict=True))
    except csv.Error as error:
        raise ValueError(f"is not a table: {error}") from error
    if not rows:
        return ()
    names = [name.strip() for name in rows[0]]
    told = [(number, number, _row(names, row)) for number, row in enumerate(rows[1:], 2) if any(row)]
    passages: list[Passage] = []
    for group in _pack(told):
        heading = _range("row", group[0][0], group[-1][1])
        parts = _split_text("\n".join(words for _, _, words in group))
        passages += [Passage(heading=heading, text=part) for part in parts]
    return tuple(passages)


def split_pages(pages: Sequence[str]) -> tuple[Passage, ...]:
    """Return the passages of a document's pages in order; the heading is the page number, such as `page
    2`.
    """
    return tuple(
        Passage(heading=f"page {number}", text=part)
        for number, page in enumerate(pages, 1)
        for part in _split_text(page.strip())
    )


def _section(way: Sequence[tuple[int, str]], lines: Sequence[str]) -> list[Passage]:
    heading = _PATH.join(name for _, name in way)
    return [Passage(heading=heading, text=part) for part in _split_text("\n".join(lines).strip())]


_Numbered = tuple[int, int, str]
"""First line number, last line number, and text."""


def _number_paragraphs(text: str) -> Iterator[_Numbered]:
    start = 1
    lines: list[str] = []
    for number, line in enumerate([*text.split("\n"), ""], 1):
        if line.strip():
            start = start if lines else number
            lines.append(line)
        elif lines:
            yield start, number - 1, "\n".join(lines)
            lines = []


def _pack(parts: Iterable[_Numbered]) -> Iterator[list[_Numbered]]:
    """Yield groups of neighbouring parts with at most `PASSAGE_WORDS` words each.

    A longer part is a separate group.
    """
    held: list[_Numbered] = []
    weight = 0
    for part in parts:
        own = _weight(part[2])
        if held and weight + own > PASSAGE_WORDS:
            yield held
            held, weight = [], 0
        held.append(part)
        weight += own
    if held:
        yield held


def _split_text(text: str) -> Iterator[str]:
    """Yield the text in parts of at most `PASSAGE_WORDS` words.

    It is split at paragraphs, else at sentences, else at words, else anywhere. A table is split between rows,
    and a long row stays whole.
    """
    if not text:
        return
    if _weight(text) <= PASSAGE_WORDS:
        yield text
        return
    if (table := _TABLE.fullmatch(text)) is not None:
        yield from _split_table(table[1], text[table.end(1) :].split("\n"))
        return
    for separator, pieces in (
        ("\n\n", text.split("\n\n")),
        (" ", [piece for piece in _SENTENCE.split(text) if piece]),
        (" ", text.split()),
    ):
        if len(pieces) > 1:
            for group in _pack((0, 0, piece) for piece in pieces if piece.strip()):
                yield from _split_text(separator.join(words for _, _, words in group).strip())
            return
    step = PASSAGE_WORDS * _WORD_CHARS
    yield from (text[at : at + step] for at in range(0, len(text), step))


def _split_table(head: str, rows: Sequence[str]) -> Iterator[str]:
    """Yield a table in parts of whole rows, each below `head`, the names of the columns."""
    for group in _pack((0, 0, row) for row in rows if row.strip()):
        yield head + "\n".join(row for _, _, row in group)


def _weight(text: str) -> int:
    return max(len(text.split()), -(-len(text) // _WORD_CHARS))


def _delimiter(text: str) -> str:
    """Return the delimiter that occurs most often in the first line; a comma if none occurs."""
    first = text[:_SAMPLE_CHARS].split("\n", 1)[0]
    return max(_DELIMITERS, key=first.count)


def _row(names: Sequence[str], row: Sequence[str]) -> str:
    cells = ((names[place] if place < len(names) else "", cell.strip()) for place, cell in enumerate(row))
    return "; ".join(f"{name}: {cell}" if name else cell for name, cell in cells if cell)


def _range(what: str, first: int, last: int) -> str:
    return f"{what} {first}" if first == last else f"{what}s {first}–{last}"
