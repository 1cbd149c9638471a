"""Tables of HTML pages and mails as Markdown; tables that serve only the layout become paragraphs."""

from __future__ import annotations

import html
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

MOST_COLUMNS = 500
"""Maximum columns of a table, so that a hostile `colspan` makes no long row."""
MOST_SPANNED = 200_000
"""Maximum empty cells of a table for spans and short rows; beyond it, spans are ignored."""
_PARTS = frozenset({"table", "thead", "tbody", "tfoot", "tr", "td", "th", "caption", "colgroup", "col"})
_BLOCKS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "pre", "blockquote", "hr"})
"""Elements whose presence shows that a table serves the layout."""


@dataclass(slots=True, eq=False)
class _PageTable:
    node: Any
    rows: list[list[Any]] = field(default_factory=list)
    parts: list[Any] = field(default_factory=list)
    is_layout: bool = False


@dataclass(frozen=True, slots=True)
class LiftedTables:
    """Tables taken out of a page as Markdown; a mark and a number stand in the page for each."""

    mark: str
    tables: tuple[str, ...]

    def put_back(self, text: str) -> str:
        """Return `text` with each mark replaced by its table."""
        head, *rest = text.split(self.mark)
        pieces = [head]
        for piece in rest:
            number, _, tail = piece.partition("x")
            pieces += (f"\n{self.tables[int(number)]}\n", tail)
        return "".join(pieces)


def lift_tables(page: Any) -> LiftedTables:
    """Take tables of values out of a page.

    The page is changed: each table leaves a mark, and cells of other tables become paragraphs.
    """
    from justhtml import Text

    mark, lifted = secrets.token_hex(12), list[str]()
    for table in reversed(_find_tables(page)):  # those within others first
        table.is_layout = table.is_layout or len(table.rows) < 2 or max(map(len, table.rows)) < 2
        if table.is_layout:
            for part in table.parts:
                part.name = "div"
            continue
        lines = _render(table.rows)
        for child in list(table.node.children):
            table.node.remove_child(child)
        table.node.name = "p"
        table.node.append_child(Text(f"{mark}{len(lifted)}x"))
        lifted.append(lines)
    return LiftedTables(mark, tuple(lifted))


def _find_tables(page: Any) -> list[_PageTable]:
    """Return all tables of a page in document order, each with its rows and whether it serves the layout."""
    found: list[_PageTable] = []
    stack: list[tuple[Any, _PageTable | None]] = [(page, None)]
    while stack:
        node, table = stack.pop()
        name = getattr(node, "name", "")
        if name == "table":
            if table is not None:
                table.is_layout = True
            role = str((node.attrs or {}).get("role") or "").lower()
            table = _PageTable(node, is_layout=role in ("presentation", "none"))
            found.append(table)
        if table is not None:
            _note(node, name, table)
        stack += ((child, table) for child in reversed(getattr(node, "children", None) or ()))
    return found


def _note(node: Any, name: str, table: _PageTable) -> None:
    if name in _BLOCKS:
        table.is_layout = True
    if name in _PARTS:
        table.parts.append(node)
    if name == "tr":
        table.rows.append([])
    elif name in ("td", "th"):
        if not table.rows:
            table.rows.append([])
        table.rows[-1].append(node)


def _render(rows: Iterable[list[Any]]) -> str:
    """Return rows as a Markdown table; spans leave cells empty, so that each value is under its heading."""
    lines: list[list[str]] = []
    below: dict[int, int] = {}
    spare = MOST_SPANNED
    for row in rows:
        line: list[str] = []
        for cell in row:
            spare -= _skip(line, below)
            across, down = min(_span(cell, "colspan"), spare + 1), _span(cell, "rowspan")
            spare -= across - 1
            if down > 1 and spare > 0:
                below |= dict.fromkeys(range(len(line), len(line) + across), down)
            line += (_text(cell), *[""] * (across - 1))
        _skip(line, below)
        below = {place: left - 1 for place, left in below.items() if left > 1}
        lines.append(_trim(line[:MOST_COLUMNS]))
    lines = [line for line in lines if line]
    width = max(map(len, lines), default=0)
    fill = width if width * len(lines) <= MOST_SPANNED else 0
    written = [f"| {' | '.join([*line, *[''] * (fill - len(line))])} |" for line in lines]
    return "\n".join([*written[:1], f"|{' --- |' * width}", *written[1:]]) if lines else ""


def _skip(line: list[str], below: dict[int, int]) -> int:
    """Append empty cells that rows above span, and return their number."""
    before = len(line)
    while len(line) in below and len(line) < MOST_COLUMNS:
        line.append("")
    return len(line) - before


def _trim(line: list[str]) -> list[str]:
    while line and not line[-1]:
        line.pop()
    return line


def _span(cell: Any, name: str) -> int:
    told = str((cell.attrs or {}).get(name) or "1").strip()
    return max(1, min(int(told), MOST_COLUMNS)) if told.isdecimal() and len(told) < 6 else 1


def _text(cell: Any) -> str:
    cell.name = "div"
    return " ".join(html.unescape(cell.to_markdown()).split()).replace("|", "\\|")
