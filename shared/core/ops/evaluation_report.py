"""Result of an evaluation, as a text table and as a picture."""

from __future__ import annotations

import html
from collections.abc import Sequence

from shared.core.ops.evaluation import EvalRow

_HEADS = (
    "preset",
    "kept",
    "judged",
    "compactions",
    "fresh",
    "cached",
    "written",
    "out",
    "dollars",
    "seconds",
)
_WIDTH, _ROW, _TOP, _LEFT, _BAR = 900, 30, 74, 130, 360
_INK, _MUTED, _GRID, _COLOUR = "#0f172a", "#64748b", "#e2e8f0", "#0f766e"


def render_table(rows: Sequence[EvalRow]) -> str:
    """Return a text table with a headline and a line for each preset, without a newline at its end.

    The column "judged" is shown only if a judging model was asked.
    """
    cells = [_HEADS, *map(_cells, rows)]
    shown = [
        at
        for at, head in enumerate(_HEADS)
        if head != "judged" or any(row.judged is not None for row in rows)
    ]
    widths = [max(len(line[at]) for line in cells) for at in range(len(_HEADS))]
    return "\n".join(
        "  ".join(line[at].rjust(widths[at]) if at else line[at].ljust(widths[at]) for at in shown)
        for line in cells
    )


def _cells(row: EvalRow) -> tuple[str, ...]:
    asked, figures = len(row.answers), row.figures
    return (
        row.preset, f"{row.kept}/{asked}", "–" if row.judged is None else f"{row.judged}/{asked}",
        str(figures.compactions), f"{figures.fresh:,}", f"{figures.cached:,}", f"{figures.written:,}",
        f"{figures.out:,}", _dollars(row), f"{figures.seconds:.0f}",
    )  # fmt: skip


def _dollars(row: EvalRow) -> str:
    return "unknown" if row.dollars is None else f"{row.dollars:.4f}"


def draw_picture(rows: Sequence[EvalRow], *, title: str) -> str:
    """Return an SVG picture with a bar of kept facts for each preset, besides its compactions, dollars and
    seconds.
    """
    height = _TOP + _ROW * len(rows) + 20
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
        f'viewBox="0 0 {_WIDTH} {height}" font-family="system-ui, sans-serif" font-size="13" role="img" '
        f'aria-label="{html.escape(title, quote=True)}">'
    )
    parts = [
        opening,
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        _text(20, 30, title, size=17),
        _text(_LEFT, 58, "facts kept", colour=_MUTED),
        _text(_WIDTH - 250, 58, "compactions", colour=_MUTED, anchor="end"),
        _text(_WIDTH - 135, 58, "dollars", colour=_MUTED, anchor="end"),
        _text(_WIDTH - 20, 58, "seconds", colour=_MUTED, anchor="end"),
    ]
    for place, row in enumerate(rows):
        parts += _bar(row, _TOP + _ROW * place)
    return "\n".join([*parts, "</svg>", ""])


def _bar(row: EvalRow, y: int) -> Sequence[str]:
    asked, middle = len(row.answers), y + 18
    length = max(1.0, _BAR * row.kept / max(1, asked))
    return (
        f'<line x1="20" x2="{_WIDTH - 20}" y1="{y + _ROW - 2}" y2="{y + _ROW - 2}" stroke="{_GRID}"/>',
        _text(20, middle, row.preset),
        f'<rect x="{_LEFT}" y="{y + 6}" width="{length:.1f}" height="16" rx="3" fill="{_COLOUR}"/>',
        _text(_LEFT + length + 8, middle, f"{row.kept}/{asked}"),
        _text(_WIDTH - 250, middle, str(row.figures.compactions), anchor="end"),
        _text(_WIDTH - 135, middle, _dollars(row), anchor="end"),
        _text(_WIDTH - 20, middle, f"{row.figures.seconds:.0f}", anchor="end"),
    )


def _text(
    x: float, y: float, words: str, *, colour: str = _INK, anchor: str = "start", size: int = 13
) -> str:
    where = f'x="{x:.1f}" y="{y}" fill="{colour}" text-anchor="{anchor}" font-size="{size}"'
    return f"<text {where}>{html.escape(words)}</text>"
