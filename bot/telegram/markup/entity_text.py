"""Renders Markdown as text with entities, which every Telegram client shows, and splits it into messages.

Entities count UTF-16 units, as Telegram does.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from operator import itemgetter
from typing import Literal, cast

from bot.telegram.markup.block_tree import parse_blocks
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
from shared.core.session.turns import utf16_units

_JOINER = "\u200d"
_EMOJI_STYLE = "\ufe0f"
_FLAGS = range(0x1F1E6, 0x1F200)
_SKIN_TONES = range(0x1F3FB, 0x1F400)
_TAGS = range(0xE0020, 0xE0080)
_HANGUL_TAILS = range(0x1160, 0x1200)


def is_grapheme_boundary(text: str, at: int) -> bool:
    """Return whether the characters before and at index `at` are seen as separate, not as one emoji or
    letter.
    """
    if not 0 < at < len(text):
        return True
    before, after = text[at - 1], text[at]
    if before.isascii() and after.isascii():
        return (before, after) != ("\r", "\n")
    if before == _JOINER or after == _JOINER or _is_extending(after):
        return False
    return not (_is_flag(before) and _is_flag(after) and _count_flags_before(text, at) % 2)


def _is_extending(char: str) -> bool:
    """Return whether a character belongs to the one before it."""
    code = ord(char)
    in_tail = code in _SKIN_TONES or code in _TAGS or code in _HANGUL_TAILS
    return in_tail or unicodedata.category(char) in ("Mn", "Me", "Mc")


def _is_flag(char: str) -> bool:
    return ord(char) in _FLAGS


def _count_flags_before(text: str, at: int) -> int:
    """Return the number of flag letters directly before index `at`."""
    start = at
    while start and _is_flag(text[start - 1]):
        start -= 1
    return at - start


def is_visible(text: str) -> bool:
    """Return whether Telegram accepts a text: it must contain a letter, digit, punctuation mark or symbol."""
    return any(unicodedata.category(char)[0] in "LNPS" for char in text)


def measure_width(text: str) -> int:
    """Return the columns of a text in a fixed-width font; East Asian characters and emoji take two."""
    if text.isascii():
        return len(text)
    columns, start = 0, 0
    for at in range(1, len(text) + 1):
        if is_grapheme_boundary(text, at):
            columns += _measure_grapheme(text[start:at])
            start = at
    return columns


def _measure_grapheme(cluster: str) -> int:
    """Return the columns of one grapheme."""
    if _EMOJI_STYLE in cluster or _is_flag(cluster[0]):
        return min(2, 2 * len(cluster))
    return max(_measure_char(char) for char in cluster)


def _measure_char(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me", "Cf", "Cc"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


EntityType = Literal["bold", "italic", "strikethrough", "code", "pre", "text_link", "blockquote"]
"""Type of an entity, as in the Bot API."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextEntity:
    """Format of a piece of text; `offset` and `length` count UTF-16 units."""

    type: EntityType
    offset: int
    length: int
    url: str | None = None
    language: str | None = None

    @property
    def end(self) -> int:
        """Offset after the last UTF-16 unit of the entity."""
        return self.offset + self.length

    def to_api(self) -> dict[str, str | int]:
        """Return the entity as a `MessageEntity` of the Bot API, without fields that are None."""
        fields: dict[str, str | int] = {"type": self.type, "offset": self.offset, "length": self.length}
        if self.url is not None:
            fields["url"] = self.url
        if self.language is not None:
            fields["language"] = self.language
        return fields


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedText:
    """Answer of any length as plain text with entities.

    Entities are sorted and not empty; any two are nested or apart.
    """

    text: str = ""
    entities: tuple[TextEntity, ...] = ()

    def append_note(self, note: str) -> RenderedText:
        """Return the text with a note below it, outside of all entities."""
        return RenderedText(text=f"{self.text}\n\n{note}" if self.text else note, entities=self.entities)


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagePart:
    """Text of one message; `gap` is the whitespace before the next part, which is not sent."""

    text: str
    entities: tuple[TextEntity, ...] = ()
    gap: str = ""


# -- the tree as text with entities --------------------------------------------------------------------------

MAX_COLUMN_CHARS = 32
"""Maximum columns to which a table's column is padded; a longer cell makes only its own row uneven."""

_BETWEEN = " | "


def render_table(table: TableBlock) -> str:
    """Return a table as lines of text with padded columns."""
    rows = [[render_cell(cell) for cell in row] for row in table.rows]
    widths = [min(MAX_COLUMN_CHARS, max(map(measure_width, column))) for column in zip(*rows, strict=True)]
    lines = [_build_row_line(row, widths, table.aligns) for row in rows]
    rule = "-+-".join("-" * max(columns, 1) for columns in widths)
    return "\n".join([lines[0], rule, *lines[1:]])


def render_cell(spans: TextSpans) -> str:
    """Return the text of a table cell on one line."""
    return " ".join("".join(span.text for span in spans).split())


def _build_row_line(row: Sequence[str], widths: Sequence[int], aligns: Sequence[str]) -> str:
    """Return a table row as a line of text; empty cells at its end are left out."""
    filled = max((n for n, cell in enumerate(row, start=1) if cell), default=0)
    cells = (_pad_cell(*each) for each in zip(row[:filled], widths, aligns, strict=False))
    return _BETWEEN.join(cells).rstrip()


def _pad_cell(cell: str, columns: int, align: str) -> str:
    missing = max(0, columns - measure_width(cell))
    left = {"right": missing, "center": missing // 2}.get(align, 0)
    return " " * left + cell + " " * (missing - left)


def find_table_links(table: TableBlock) -> Iterator[TextSpan]:
    """Yield each different link in a table.

    They are repeated below the table, because links in fixed-width text cannot be clicked.
    """
    seen: set[tuple[str, str]] = set()
    for span in (span for row in table.rows for cell in row for span in cell):
        if span.url and (span.text, span.url) not in seen:
            seen.add((span.text, span.url))
            yield TextSpan(text=span.text.strip() or span.url, url=span.url)


BULLETS = "•◦▪"
"""Bullets of a list by its depth; deeper lists have the last one."""
RULE = "———"
"""Text of a horizontal rule."""
_INDENT = "   "
_BOXES = {True: "☑", False: "☐"}


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityMark:
    """Style of an entity.

    Neighbours with equal marks become one entity, so `serial` keeps two blocks apart.
    """

    type: EntityType
    url: str | None = None
    language: str | None = None
    serial: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StyledRun:
    """Piece of text with its marks."""

    text: str
    marks: frozenset[EntityMark] = frozenset()


def render(markdown: str, *, live: bool = False) -> RenderedText:
    """Return Markdown as text with Telegram's entities.

    With `live`, the text is still being written: open markers are closed, and a last line that may become
    markup is left out.
    """
    return _join_runs(_EntityWriter().blocks(parse_blocks(markdown, live=live), indent="", depth=0))


class _EntityWriter:
    """Writer of a tree of blocks as styled runs.

    Numbers code blocks and quotes, so that two in a row stay two.
    """

    def __init__(self) -> None:
        self._serial = 0

    def blocks(self, blocks: Sequence[MarkdownBlock], *, indent: str, depth: int) -> Iterator[StyledRun]:
        for number, block in enumerate(block for block in blocks if not _is_empty(block)):
            if number:
                yield StyledRun(text="\n\n" if block.spaced else "\n")
            yield from self._block(block, indent=indent if number else "", rest=indent, depth=depth)

    def _block(self, block: MarkdownBlock, *, indent: str, rest: str, depth: int) -> Iterator[StyledRun]:
        """Yield the styled runs of a block; `indent` precedes its first line, `rest` all others."""
        match block:
            case CodeBlock(text=text, language=language):
                yield self._make_code_run(text, language)
            case TableBlock():
                yield from self._table(block)
            case QuoteBlock(blocks=blocks):
                yield from self._quote(blocks)
            case ListBlock():
                yield from self._listing(block, indent=indent, rest=rest, depth=depth)
            case HeadingBlock(spans=spans):
                yield from self._lines(_make_bold(spans), indent, rest)
            case ParagraphBlock(spans=spans):
                yield from self._lines(spans, indent, rest)
            case FormulaBlock(text=text):
                yield from self._lines((TextSpan(text=text),), indent, rest)
            case DividerBlock():
                yield StyledRun(text=indent + RULE)

    def _make_code_run(self, text: str, language: str | None = None) -> StyledRun:
        self._serial += 1
        mark = EntityMark(type="pre", language=language, serial=self._serial)
        return StyledRun(text=text, marks=frozenset((mark,)))

    def _table(self, table: TableBlock) -> Iterator[StyledRun]:
        yield self._make_code_run(render_table(table))
        for number, link in enumerate(find_table_links(table)):
            yield StyledRun(text=" · " if number else "\n")
            yield from self._lines((link,), "", "")

    def _quote(self, blocks: Sequence[MarkdownBlock]) -> Iterator[StyledRun]:
        """Yield the styled runs of a quote.

        Nested quotes become one, and code in a quote stays outside of it.
        """
        self._serial += 1
        mark = EntityMark(type="blockquote", serial=self._serial)
        runs = list(self.blocks(blocks, indent="", depth=0))
        fixed = [any(each.type == "pre" for each in run.marks) for run in runs]
        for number, run in enumerate(runs):
            beside = any(fixed[max(0, number - 1) : number + 2])
            if fixed[number] or (beside and not run.text.strip()):
                yield run
            else:
                kept = frozenset(each for each in run.marks if each.type != "blockquote")
                yield StyledRun(text=run.text, marks=kept | {mark})

    def _listing(self, listing: ListBlock, *, indent: str, rest: str, depth: int) -> Iterator[StyledRun]:
        for number, item in enumerate(listing.items):
            if number:
                yield StyledRun(text="\n\n" if item.spaced else "\n")
            label = (rest if number else indent) + _make_label(listing, number, item, depth)
            yield from self._item(item, label, indent=rest + _INDENT, depth=depth + 1)

    def _item(self, item: ListItem, label: str, *, indent: str, depth: int) -> Iterator[StyledRun]:
        """Yield the styled runs of a list item.

        Paragraphs, headings and formulas begin on the line of the label.
        """
        blocks = [block for block in item.blocks if not _is_empty(block)]
        if not blocks:
            yield StyledRun(text=label)
        elif isinstance(blocks[0], ParagraphBlock | HeadingBlock | FormulaBlock):
            yield StyledRun(text=label + " ")
        else:
            yield StyledRun(
                text=label + ("\n" + indent if isinstance(blocks[0], ListBlock | DividerBlock) else "\n")
            )
        yield from self.blocks(blocks, indent=indent, depth=depth)

    def _lines(self, spans: TextSpans, indent: str, rest: str) -> Iterator[StyledRun]:
        if indent:
            yield StyledRun(text=indent)
        for span in spans:
            yield StyledRun(text=span.text.replace("\n", "\n" + rest), marks=_make_marks(span))


def _make_bold(spans: TextSpans) -> TextSpans:
    """Return the spans in bold, except code."""
    return tuple(
        span
        if "code" in span.styles
        else TextSpan(text=span.text, styles=span.styles | {"bold"}, url=span.url, tex=span.tex)
        for span in spans
    )


def _is_empty(block: MarkdownBlock) -> bool:
    match block:
        case CodeBlock(text=text):
            return not text.strip()
        case ParagraphBlock(spans=spans) | HeadingBlock(spans=spans):
            return not spans
        case QuoteBlock(blocks=blocks):
            return all(map(_is_empty, blocks))
        case _:
            return False


def _make_label(listing: ListBlock, number: int, item: ListItem, depth: int) -> str:
    """Return the bullet, number or box in front of a list item."""
    if item.checked is not None:
        return _BOXES[item.checked]
    if listing.start is None:
        return BULLETS[min(depth, len(BULLETS) - 1)]
    return f"{listing.start + number}."


def _make_marks(span: TextSpan) -> frozenset[EntityMark]:
    marks = frozenset(EntityMark(type=cast("EntityType", style)) for style in span.styles - {"math"})
    return marks | {EntityMark(type="text_link", url=span.url)} if span.url else marks


def _join_runs(runs: Iterable[StyledRun]) -> RenderedText:
    """Return the runs as one text without surrounding whitespace.

    A formatted beginning keeps its indentation. Empty if nothing is visible.
    """
    pieces = [run for run in runs if run.text]
    if not any(is_visible(run.text) for run in pieces):
        return RenderedText()
    while pieces and (shorter := pieces[-1].text.rstrip()) != pieces[-1].text:
        pieces[-1:] = [StyledRun(text=shorter, marks=pieces[-1].marks)] if shorter else []
    while pieces and not pieces[0].marks and (shorter := pieces[0].text.lstrip()) != pieces[0].text:
        pieces[:1] = [StyledRun(text=shorter)] if shorter else []
    return RenderedText(text="".join(run.text for run in pieces), entities=_build_entities(pieces))


def _build_entities(runs: Sequence[StyledRun]) -> tuple[TextEntity, ...]:
    """Return the entities of all marks, one for neighbouring runs with the same mark.

    Crossing ones are cut.
    """
    starts = [0, *accumulate(utf16_units(run.text) for run in runs)]
    reach = _find_mark_ends(runs)
    spans: list[tuple[EntityMark, int, int]] = []
    open_marks: list[tuple[EntityMark, int]] = []
    for number, marks in enumerate([*(run.marks for run in runs), frozenset[EntityMark]()]):
        keep = next((n for n, (mark, _) in enumerate(open_marks) if mark not in marks), len(open_marks))
        spans += [(mark, first, number) for mark, first in open_marks[keep:]]
        del open_marks[keep:]
        new = [(-reach[number, mark], mark.type, mark) for mark in marks - {mark for mark, _ in open_marks}]
        open_marks += [(mark, number) for *_, mark in sorted(new, key=itemgetter(0, 1))]
    entities = (
        _build_entity(mark, starts[first], starts[last])
        for mark, first, last in spans
        if any(run.text.strip() for run in runs[first:last])
    )
    return tuple(sorted(entities, key=lambda entity: (entity.offset, -entity.length)))


def _find_mark_ends(runs: Sequence[StyledRun]) -> dict[tuple[int, EntityMark], int]:
    """Return the number of the next run without the mark, by each run's number and mark."""
    reach: dict[tuple[int, EntityMark], int] = {}
    for number in range(len(runs) - 1, -1, -1):
        for mark in runs[number].marks:
            reach[number, mark] = reach.get((number + 1, mark), number + 1)
    return reach


def _build_entity(mark: EntityMark, start: int, end: int) -> TextEntity:
    return TextEntity(type=mark.type, offset=start, length=end - start, url=mark.url, language=mark.language)


# -- a text as messages --------------------------------------------------------------------------------------

MESSAGE_UNITS = 4_096
"""Maximum UTF-16 units of a message."""
LIVE_UNITS = 3_800
"""UTF-16 units of a message while an answer is being written, so that its next words still fit."""
MESSAGE_ENTITIES = 100
"""Maximum entities of a message."""
ENTITY_BYTES = 8_000
"""Maximum bytes of a message's entities; Telegram refuses about 9,500. Link addresses take most of them."""

_ENTITY_OVERHEAD_BYTES = 24
"""Bytes counted for an entity besides its address or language."""
_EMPTIEST = 2
"""Divisor of a part's length: a part is cut in its last half at the earliest."""
_CUT_UNITS = 800
"""UTF-16 units at the end of a part in which it may be cut, so that a growing answer holds back few words."""
_BEST = 5
"""Rank of the best place for a cut: a blank line outside of code."""
MAX_PARTS = 5
"""Maximum messages of one answer; a longer answer is also sent as a file."""
DOCUMENT_NAME = "answer.md"
"""Name of the file with the whole text of an answer that is too long for messages."""


def split(
    rendered: RenderedText, *, limit: int = MESSAGE_UNITS, grows: bool = False
) -> tuple[MessagePart, ...]:
    """Return a text as message parts of at most `limit` UTF-16 units each; empty if nothing is visible.

    Texts and gaps together are the rendered text. While a text grows, all parts but the last two stay the
    same for the same limit. With `grows`, words at the end of an almost full message are left out, since they
    may move to the next message: no message becomes shorter then.
    """
    text = _MeasuredText.measure(rendered)
    parts: list[MessagePart] = []
    start = 0
    while start < len(text.text):
        end = text.find_end(start, limit)
        is_last = end >= len(text.text)
        cut = (
            end
            if is_last and not (grows and text.is_full(start, limit))
            else text.find_cut(start, end, limit)
        )
        part, start = text.make_part(start, cut)
        if is_visible(part.text):
            parts.append(part)
        elif parts:  # nothing visible, such as thousands of spaces in a line of code
            parts[-1] = replace(parts[-1], gap=parts[-1].gap + part.text + part.gap)
        if is_last:
            break
    return tuple(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class _MeasuredText:
    """Text with the offsets needed to split it into messages.

    `offsets` are the UTF-16 offsets of all characters and of the end. `blocks` are the ranges of code blocks
    in characters. `ends` has for each entity the largest end up to it, for a binary search.
    """

    text: str
    offsets: list[int]
    entities: tuple[TextEntity, ...]
    ends: list[int]
    blocks: tuple[tuple[int, int], ...]

    @classmethod
    def measure(cls, rendered: RenderedText) -> _MeasuredText:
        """Return the text with its offsets."""
        offsets = [0, *accumulate(2 if ord(char) > 0xFFFF else 1 for char in rendered.text)]
        code = (entity for entity in rendered.entities if entity.type == "pre")
        blocks = tuple((bisect_left(offsets, one.offset), bisect_left(offsets, one.end)) for one in code)
        ends = list(accumulate((entity.end for entity in rendered.entities), max))
        return cls(text=rendered.text, offsets=offsets, entities=rendered.entities, ends=ends, blocks=blocks)

    def _entities_from(self, offset: int) -> Iterator[TextEntity]:
        """Yield the entities in order, from the first one whose end is after `offset`, in UTF-16 units.

        Later ones may end before the offset.
        """
        first = bisect_right(self.ends, offset)
        return (self.entities[number] for number in range(first, len(self.entities)))

    def find_end(self, start: int, limit: int) -> int:
        """Return the largest index at which a part from `start` can end within the limits of a message.

        The limits are `limit` UTF-16 units, and the number and bytes of entities.
        """
        end = bisect_right(self.offsets, self.offsets[start] + limit) - 1
        first, last = self.offsets[start], self.offsets[end]
        count = size = 0
        for entity in self._entities_from(first):
            if entity.end <= first:
                continue
            if entity.offset >= last:
                break
            count += 1
            size += _ENTITY_OVERHEAD_BYTES + len((entity.url or entity.language or "").encode())
            if (count > MESSAGE_ENTITIES or size > ENTITY_BYTES) and entity.offset > first:
                return bisect_right(self.offsets, entity.offset) - 1
        return end

    def is_full(self, start: int, limit: int) -> bool:
        """Return whether a part from `start` to the end of the text has a length at which more words may cut
        it.
        """
        return len(self.text) > self._find_first_cut(start, limit)

    def _find_first_cut(self, start: int, limit: int) -> int:
        """Return the index after which a part that begins at `start` may be cut.

        A cut up to there would make the part needlessly short; `limit` is its maximum length in UTF-16 units.
        """
        kept = max(limit // _EMPTIEST, limit - _CUT_UNITS)
        return bisect_right(self.offsets, self.offsets[start] + kept) - 1

    def find_cut(self, start: int, end: int, limit: int) -> int:
        """Return the best index up to `end` at which a part from `start` is cut.

        Preferred in this order: the end of a line, best a blank line outside of code; a space; any place
        between two characters.
        """
        first = self._find_first_cut(start, limit)
        if first >= end:  # shortened by the number of its entities
            first = start + (end - start) // _EMPTIEST
        best, best_rank = 0, 0
        for at in range(min(end, len(self.text) - 1), first, -1):
            rank = self._rank(at)
            if rank > best_rank:
                best, best_rank = at, rank
                if rank == _BEST:
                    break
        if best:
            return best
        return next((at for at in range(end, start, -1) if is_grapheme_boundary(self.text, at)), end)

    def _rank(self, at: int) -> int:
        """Return the rank of a cut before index `at`, from 0 for no suitable place to `_BEST`."""
        char, before = self.text[at], self.text[at - 1]
        if char == "\n":
            blank = self.text.startswith("\n\n", at) or before == "\n"
            return (3 if blank else 2) if self.is_in_block(at) else (_BEST if blank else 4)
        return 1 if char in " \t" and not before.isspace() else 0

    def is_in_block(self, at: int) -> bool:
        """Return whether index `at` is inside a code block."""
        number = bisect_right(self.blocks, (at, -1)) - 1
        return number >= 0 and self.blocks[number][0] < at < self.blocks[number][1]

    def make_part(self, start: int, cut: int) -> tuple[MessagePart, int]:
        """Return the part from `start` to `cut`, and the index at which the next part begins; all in
        characters.

        Whitespace before and after the cut becomes the part's `gap`; only the indentation of code begins the
        next part.
        """
        end = cut
        while end > start + 1 and self.text[end - 1].isspace():
            end -= 1
        after = cut
        while after < len(self.text) and self.text[after].isspace():
            after += 1
        if self.is_in_block(cut) and after < len(self.text):
            line = self.text.rfind("\n", cut, after)
            after = line + 1 if line >= 0 else cut
        gap = self.text[end:after]
        return MessagePart(
            text=self.text[start:end], entities=self._slice_entities(start, end), gap=gap
        ), after

    def _slice_entities(self, start: int, end: int) -> tuple[TextEntity, ...]:
        """Return the entities between two indexes, cut to that range and shifted to its beginning."""
        first, last = self.offsets[start], self.offsets[end]
        found = []
        for entity in self._entities_from(first):
            offset, until = max(entity.offset, first), min(entity.end, last)
            if entity.offset >= last:
                break
            if offset < until:
                found.append(replace(entity, offset=offset - first, length=until - offset))
        return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerMessages:
    """Answer as message parts.

    If the answer is too long, the parts are its beginning and `document` is the whole Markdown; else None.
    """

    parts: tuple[MessagePart, ...]
    document: str | None = None


def build_messages(markdown: str) -> AnswerMessages:
    """Return an answer as message parts; no part if nothing is visible.

    An answer of more than MAX_PARTS parts is cut, and `document` is its whole Markdown.
    """
    parts = split(render(markdown))
    if len(parts) <= MAX_PARTS:
        return AnswerMessages(parts=parts)
    return AnswerMessages(parts=parts[:MAX_PARTS], document=markdown)
