"""Tables and columns of a PDF page, found by the positions of its words.

Only the sandbox processes import this.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

_SAME_LINE = 0.5
"""Share of the font's height within which pieces of text are on the same line."""
_JOIN_WIDTH = 0.12
"""Share of the font's height up to which a gap is inside of a word."""
_CELL_WIDTH = 0.85
"""Share of the font's height from which a gap separates two cells: some three blanks."""
_MOST_ROW_GAP = 4.0
"""Maximum gap between two rows of a table, in heights of a line."""
_LONE_ROW_GAP = 1.6
"""Multiple of the smallest gap up to which a line with a single cell belongs to the table above it."""
_LEAST_ROWS = 2
_TIGHT_GAP = 1.15
"""Multiple of the smallest gap up to which a line may continue the cells above it."""
_WIDE_GAP = 1.3
"""Multiple of the smallest gap from which a line begins a new row."""
_PROSE_CHARS = 22
_PROSE_WORDS = 3.5
_LEAST_PROSE_ROWS = 4
_KEPT_SHARE = 0.97
"""Share of the page's signs that the layout must contain; below it, the plain text is used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedText:
    """Text with its horizontal extent on a page, in units of the page from the left."""

    start: float
    end: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PageLine:
    """Pieces of text on one line; `top` is its vertical position and grows downwards."""

    top: float
    height: float
    parts: tuple[PlacedText, ...]

    @property
    def text(self) -> str:
        """Pieces of the line, joined by blanks."""
        return " ".join(part.text for part in self.parts)


Columns = list[tuple[float, float]]
"""Left and right edge of each column, in units of the page, from left to right."""


def read_page(page: Any, *, plainly: bool = False) -> str:
    """Return a page's text: tables as Markdown, columns of prose one after the other.

    `plainly` skips the layout, whose analysis takes as long as the extraction.
    """
    plain = str(page.extract_text()).strip()
    if not plain or plainly:
        return plain
    try:
        lines = _list_lines(page)
    except Exception:  # noqa: BLE001 - a damaged font may fail in any way; the plain text is left
        return plain
    if _count_signs("".join(line.text for line in lines)) < _KEPT_SHARE * _count_signs(plain):
        return plain
    return arrange_lines(lines) or plain


def arrange_lines(lines: list[PageLine]) -> str:
    """Return the lines' text with tables and columns laid out; "" if there are none."""
    blocks: list[str] = []
    found = False
    at = 0
    while at < len(lines):
        end, columns = _find_region(lines, at)
        if columns:
            blocks.append(_write_region(lines[at:end], columns))
            found = True
        else:
            end = at + 1
            gap = lines[at].top - lines[at - 1].top if at else 0.0
            blocks.append(("\n" if gap > 1.8 * lines[at].height else "") + lines[at].text)
        at = end
    return "\n".join(blocks).strip() if found else ""


def _list_lines(page: Any) -> list[PageLine]:
    """Return a page's lines, from the positions that pypdf computes for its layout mode."""
    shown = [
        one for one in _list_shown(page) if one.text.strip() and one.font.interpretable and not one.rotated
    ]
    shown.sort(key=_top)
    lines: list[PageLine] = []
    at = 0
    while at < len(shown):
        top, height = _top(shown[at]), max(1.0, shown[at].font_height)
        end = at
        while end < len(shown) and _top(shown[end]) - top < _SAME_LINE * height:
            end += 1
        pieces = [
            PlacedText(start=one.tx, end=max(one.displaced_tx, one.tx), text=one.text)
            for one in shown[at:end]
        ]
        lines.append(PageLine(top=top, height=height, parts=_join(pieces, height)))
        at = end
    return lines


def _list_shown(page: Any) -> list[Any]:
    from pypdf._text_extraction._layout_mode._fixed_width_page import recurse_to_target_op, set_font_operation
    from pypdf._text_extraction._layout_mode._text_state_manager import TextStateManager
    from pypdf.generic import ContentStream

    fonts, state = page._layout_mode_fonts(), TextStateManager()
    operations = iter(ContentStream(page["/Contents"].get_object(), page.pdf, "bytes").operations)
    shown: list[Any] = []
    for operands, operator in operations:
        if operator in (b"BT", b"q"):
            shown += recurse_to_target_op(operations, state, b"ET" if operator == b"BT" else b"Q", fonts)[1]
        elif operator == b"Tf":
            set_font_operation(state, fonts, operands)
        else:
            state.set_state_param(operator, operands)
    return shown


def _top(shown: Any) -> float:
    return float(shown.ty if shown.flip_vertical else -shown.ty)


def _join(pieces: list[PlacedText], height: float) -> tuple[PlacedText, ...]:
    """Join pieces of text to cells, where the gap between them is less than _CELL_WIDTH."""
    joined: list[PlacedText] = []
    for piece in sorted(pieces, key=lambda one: one.start):
        if not piece.text.strip():
            continue
        before = joined[-1] if joined else None
        gap = piece.start - before.end if before else 0.0
        if before is None or gap >= _CELL_WIDTH * height:
            joined.append(PlacedText(start=piece.start, end=piece.end, text=piece.text.strip()))
            continue
        blank = " " if gap > _JOIN_WIDTH * height or piece.text[0] == " " else ""
        text = f"{before.text}{blank}{piece.text.strip()}"
        joined[-1] = PlacedText(start=before.start, end=max(before.end, piece.end), text=text)
    return tuple(joined)


def _find_region(lines: list[PageLine], at: int) -> tuple[int, Columns]:
    """Return the end of the table or columns that begin at line `at`, and their columns.

    Returns (`at`, []) if none begin there.
    """
    if len(lines[at].parts) < 2:
        return at, []
    columns = _merge([], lines[at])
    end, rows = at + 1, 1
    gaps: list[float] = []
    for above, line in pairwise(lines[at:]):
        gap = line.top - above.top
        merged = _merge(columns, line)
        lone = len(line.parts) == 1
        if gap > _MOST_ROW_GAP * line.height or len(merged) < len(columns):
            break
        if lone and (len(merged) > len(columns) or (gaps and gap > _LONE_ROW_GAP * min(gaps))):
            break
        columns, end = merged, end + 1
        rows += not lone
        gaps.append(gap)
    return (end, columns) if rows >= _LEAST_ROWS else (at, [])


def _merge(columns: Columns, line: PageLine) -> Columns:
    merged: Columns = []
    for start, end in sorted([*columns, *((part.start, part.end) for part in line.parts)]):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


def _fill(line: PageLine, columns: Columns) -> list[str]:
    return [
        " ".join(part.text for part in line.parts if part.start <= end and start <= part.end)
        for start, end in columns
    ]


def _join_wrapped(rows: list[list[str]], tops: list[float]) -> list[list[str]]:
    """Return rows with the lines of wrapped cells joined; unchanged if gaps do not separate rows clearly.

    Joining needs one line in each row's first column, and half of the columns without wrapped cells.
    """
    gaps = [below - above for above, below in pairwise(tops)]
    least = min(gaps)
    if max(gaps) < _WIDE_GAP * least or any(_TIGHT_GAP * least < gap < _WIDE_GAP * least for gap in gaps):
        return rows
    groups = [[rows[0]]]
    for row, gap in zip(rows[1:], gaps, strict=True):
        if gap > _TIGHT_GAP * least:
            groups.append([])
        groups[-1].append(row)
    width = len(rows[0])
    full = [[sum(bool(row[place]) for row in group) for place in range(width)] for group in groups]
    single = sum(all(counts[place] <= 1 for counts in full) for place in range(width))
    if any(counts[0] != 1 for counts in full) or 2 * single < width:
        return rows
    return [
        [" ".join(filter(None, (row[place] for row in group))) for place in range(width)] for group in groups
    ]


def _write_region(lines: list[PageLine], columns: Columns) -> str:
    rows = [_fill(line, columns) for line in lines]
    width = len(columns)
    if len(rows) >= _LEAST_PROSE_ROWS and all(
        _is_prose([row[place] for row in rows]) for place in range(width)
    ):
        return "\n\n".join("\n".join(filter(None, (row[place] for row in rows))) for place in range(width))
    rows = _join_wrapped(rows, [line.top for line in lines])
    drawn = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(["", drawn[0], "|" + " --- |" * width, *drawn[1:], ""])


def _is_prose(cells: list[str]) -> bool:
    full = [cell for cell in cells if cell]
    if len(full) < _LEAST_PROSE_ROWS:
        return False
    words = sum(len(cell.split()) for cell in full) / len(full)
    return sum(map(len, full)) / len(full) >= _PROSE_CHARS and words >= _PROSE_WORDS


def _count_signs(text: str) -> int:
    return len("".join(text.split()))
