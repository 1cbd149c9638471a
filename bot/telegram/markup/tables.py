"""A table as lines of fixed width, since Telegram's classic messages have none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bot.telegram.markup.blocks import TableBlock, TextSpan, TextSpans
from bot.telegram.markup.graphemes import measure_width

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
