"""The tree as text and entities, which every Telegram client shows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import itemgetter
from typing import cast

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
from bot.telegram.markup.splitting import (
    EntityType,
    MessagePart,
    RenderedText,
    TextEntity,
    is_visible,
    measure_width,
    split,
)
from shared.core.session.events import utf16_units

MAX_COLUMN_CHARS = 32
"""One long cell must not push every row off the screen: it stands out, and its row alone is crooked."""

_BETWEEN = " | "


def render_table(table: TableBlock) -> str:
    rows = [[render_cell(cell) for cell in row] for row in table.rows]
    widths = [min(MAX_COLUMN_CHARS, max(map(measure_width, column))) for column in zip(*rows, strict=True)]
    lines = [_line(row, widths, table.aligns) for row in rows]
    rule = "-+-".join("-" * max(columns, 1) for columns in widths)
    return "\n".join([lines[0], rule, *lines[1:]])


def render_cell(spans: TextSpans) -> str:
    return " ".join("".join(span.text for span in spans).split())


def _line(row: Sequence[str], widths: Sequence[int], aligns: Sequence[str]) -> str:
    """Without empty cells at its end, so that a short row of a wide table stays short."""
    filled = max((n for n, cell in enumerate(row, start=1) if cell), default=0)
    cells = (_padded(*each) for each in zip(row[:filled], widths, aligns, strict=False))
    return _BETWEEN.join(cells).rstrip()


def _padded(cell: str, columns: int, align: str) -> str:
    missing = max(0, columns - measure_width(cell))
    left = {"right": missing, "center": missing // 2}.get(align, 0)
    return " " * left + cell + " " * (missing - left)


def find_table_links(table: TableBlock) -> Iterator[TextSpan]:
    """The links of all cells, for a line below: nothing within fixed-width text can be clicked."""
    seen: set[tuple[str, str]] = set()
    for span in (span for row in table.rows for cell in row for span in cell):
        if span.url and (span.text, span.url) not in seen:
            seen.add((span.text, span.url))
            yield TextSpan(text=span.text.strip() or span.url, url=span.url)


BULLETS = "•◦▪"
RULE = "———"
_INDENT = "   "
_BOXES = {True: "☑", False: "☐"}


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityMark:
    """What an entity says. Equal marks side by side become one; `serial` keeps blocks apart."""

    type: EntityType
    url: str | None = None
    language: str | None = None
    serial: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StyledRun:
    text: str
    marks: frozenset[EntityMark] = frozenset()


def render(markdown: str, *, live: bool = False) -> RenderedText:
    """With `live` the text is still being written: pending markers are held back or closed."""
    return _assemble(_EntityWriter().blocks(parse_blocks(markdown, live=live), indent="", depth=0))


def render_plain(markdown: str) -> RenderedText:
    """No entity at all, addresses of links spelled out: for an answer whose entities were refused."""
    return RenderedText(
        text=_assemble(
            _EntityWriter(spell_links=True).blocks(parse_blocks(markdown), indent="", depth=0)
        ).text
    )


class _EntityWriter:
    """Walks the tree once; counts code blocks and quotes, so that two in a row stay two."""

    def __init__(self, *, spell_links: bool = False) -> None:
        self._spell_links = spell_links
        self._serial = 0

    def blocks(self, blocks: Sequence[MarkdownBlock], *, indent: str, depth: int) -> Iterator[StyledRun]:
        for number, block in enumerate(block for block in blocks if not _is_nothing(block)):
            if number:
                yield StyledRun(text="\n\n" if block.spaced else "\n")
            yield from self._block(block, indent=indent if number else "", rest=indent, depth=depth)

    def _block(self, block: MarkdownBlock, *, indent: str, rest: str, depth: int) -> Iterator[StyledRun]:
        """`indent` stands before the first line, `rest` before the others."""
        match block:
            case CodeBlock(text=text, language=language):
                yield self._fixed(text, language)
            case TableBlock():
                yield from self._table(block)
            case QuoteBlock(blocks=blocks):
                yield from self._quote(blocks)
            case ListBlock():
                yield from self._listing(block, indent=indent, rest=rest, depth=depth)
            case HeadingBlock(spans=spans):
                yield from self._lines(_bold(spans), indent, rest)
            case ParagraphBlock(spans=spans):
                yield from self._lines(spans, indent, rest)
            case FormulaBlock(text=text):
                yield from self._lines((TextSpan(text=text),), indent, rest)
            case DividerBlock():
                yield StyledRun(text=indent + RULE)

    def _fixed(self, text: str, language: str | None = None) -> StyledRun:
        self._serial += 1
        mark = EntityMark(type="pre", language=language, serial=self._serial)
        return StyledRun(text=text, marks=frozenset((mark,)))

    def _table(self, table: TableBlock) -> Iterator[StyledRun]:
        yield self._fixed(render_table(table))
        for number, link in enumerate(find_table_links(table)):
            yield StyledRun(text=" · " if number else "\n")
            yield from self._lines((link,), "", "")

    def _quote(self, blocks: Sequence[MarkdownBlock]) -> Iterator[StyledRun]:
        """Telegram knows no quote in a quote; code within one stands by itself, and so do its line ends."""
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
            label = (rest if number else indent) + _label(listing, number, item, depth)
            yield from self._item(item, label, indent=rest + _INDENT, depth=depth + 1)

    def _item(self, item: ListItem, label: str, *, indent: str, depth: int) -> Iterator[StyledRun]:
        """Only text begins on the label's own line."""
        blocks = [block for block in item.blocks if not _is_nothing(block)]
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
            yield StyledRun(text=span.text.replace("\n", "\n" + rest), marks=_marks(span))
            if span.url and self._spell_links and span.url != span.text:
                yield StyledRun(text=f" ({span.url})")


def _bold(spans: TextSpans) -> TextSpans:
    return tuple(
        span
        if "code" in span.styles
        else TextSpan(text=span.text, styles=span.styles | {"bold"}, url=span.url, tex=span.tex)
        for span in spans
    )


def _is_nothing(block: MarkdownBlock) -> bool:
    match block:
        case CodeBlock(text=text):
            return not text.strip()
        case ParagraphBlock(spans=spans) | HeadingBlock(spans=spans):
            return not spans
        case QuoteBlock(blocks=blocks):
            return all(map(_is_nothing, blocks))
        case _:
            return False


def _label(listing: ListBlock, number: int, item: ListItem, depth: int) -> str:
    if item.checked is not None:
        return _BOXES[item.checked]
    if listing.start is None:
        return BULLETS[min(depth, len(BULLETS) - 1)]
    return f"{listing.start + number}."


def _marks(span: TextSpan) -> frozenset[EntityMark]:
    marks = frozenset(EntityMark(type=cast("EntityType", style)) for style in span.styles - {"math"})
    return marks | {EntityMark(type="text_link", url=span.url)} if span.url else marks


def _assemble(runs: Iterable[StyledRun]) -> RenderedText:
    """Joins the runs, without whitespace around the whole; only code keeps its first indentation."""
    pieces = [run for run in runs if run.text]
    if not any(is_visible(run.text) for run in pieces):
        return RenderedText()
    while pieces and (shorter := pieces[-1].text.rstrip()) != pieces[-1].text:
        pieces[-1:] = [StyledRun(text=shorter, marks=pieces[-1].marks)] if shorter else []
    while pieces and not pieces[0].marks and (shorter := pieces[0].text.lstrip()) != pieces[0].text:
        pieces[:1] = [StyledRun(text=shorter)] if shorter else []
    return RenderedText(text="".join(run.text for run in pieces), entities=_entities(pieces))


def _entities(runs: Sequence[StyledRun]) -> tuple[TextEntity, ...]:
    """Marks over neighbouring runs become one entity; those that would cross are cut, so that all nest."""
    starts = [0, *accumulate(utf16_units(run.text) for run in runs)]
    reach = _reach(runs)
    spans: list[tuple[EntityMark, int, int]] = []
    open_marks: list[tuple[EntityMark, int]] = []
    for number, marks in enumerate([*(run.marks for run in runs), frozenset[EntityMark]()]):
        keep = next((n for n, (mark, _) in enumerate(open_marks) if mark not in marks), len(open_marks))
        spans += [(mark, first, number) for mark, first in open_marks[keep:]]
        del open_marks[keep:]
        new = [(-reach[number, mark], mark.type, mark) for mark in marks - {mark for mark, _ in open_marks}]
        open_marks += [(mark, number) for *_, mark in sorted(new, key=itemgetter(0, 1))]
    entities = (
        _entity(mark, starts[first], starts[last])
        for mark, first, last in spans
        if any(run.text.strip() for run in runs[first:last])
    )
    return tuple(sorted(entities, key=lambda entity: (entity.offset, -entity.length)))


def _reach(runs: Sequence[StyledRun]) -> dict[tuple[int, EntityMark], int]:
    """For each run and mark of it, the number of the first run behind that lacks the mark."""
    reach: dict[tuple[int, EntityMark], int] = {}
    for number in range(len(runs) - 1, -1, -1):
        for mark in runs[number].marks:
            reach[number, mark] = reach.get((number + 1, mark), number + 1)
    return reach


def _entity(mark: EntityMark, start: int, end: int) -> TextEntity:
    return TextEntity(type=mark.type, offset=start, length=end - start, url=mark.url, language=mark.language)


MAX_PARTS = 5
DOCUMENT_NAME = "answer.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerMessages:
    """With a `document` the parts are the beginning; the document holds the whole as it was written."""

    parts: tuple[MessagePart, ...]
    document: str | None = None


def build_messages(markdown: str) -> AnswerMessages:
    """No parts at all when nothing in it can be seen."""
    parts = split(render(markdown))
    if len(parts) <= MAX_PARTS:
        return AnswerMessages(parts=parts)
    return AnswerMessages(parts=parts[:MAX_PARTS], document=markdown)
