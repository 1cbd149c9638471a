"""The budgets as a table: on a terminal and in `docs/budgets.md`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.bench.budgets import BUDGETS, Budget

BEGIN, END = "<!-- budgets: begin -->", "<!-- budgets: end -->"
HEADINGS = ("", "what is measured", "floor", "must", "moonshot", "measured", "reached", "conditions")
NOT_YET = "not measured"

Rows = Mapping[str, Mapping[str, Any]]


def as_lines(rows: Rows) -> list[str]:
    """For a terminal: a line each, and below it what stands in the way."""
    lines = []
    for one in BUDGETS:
        row = rows.get(one.number, {})
        figures = _figures(one, row.get("values", {}))
        lines.append(f"{one.number:<4} {one.must:<28} {one.moonshot:<28} {figures:<44} {_reached(row)}")
        if row.get("reason"):
            lines.append(f"     {row['reason']}")
    return lines


def as_markdown(rows: Rows) -> list[str]:
    lines = [_line(HEADINGS), _line(["---"] * len(HEADINGS))]
    for one in BUDGETS:
        row = rows.get(one.number, {})
        figures = _figures(one, row.get("values", {})) or "–"
        lines.append(
            _line(
                (
                    one.number,
                    one.measured,
                    one.floor,
                    one.must,
                    one.moonshot,
                    figures,
                    _reached(row),
                    _when(row),
                )
            )
        )
    reasons = [
        f"* **{one.number}** {rows[one.number]['reason']}"
        for one in BUDGETS
        if rows.get(one.number, {}).get("reason")
    ]
    return [*lines, "", "What stands between a figure and its moonshot:", "", *reasons] if reasons else lines


def write_docs(path: Path, rows: Rows) -> None:
    """Between the marks of the page; the rest of it is written by people."""
    path.write_text(_between(path.read_text(), BEGIN, END, as_markdown(rows)))


def _between(page: str, begin: str, end: str, lines: Sequence[str]) -> str:
    if begin not in page:
        return page
    before, _, rest = page.partition(begin)
    _, _, after = rest.partition(end)
    return "\n".join([before + begin, *lines, end]) + after


def _figures(budget: Budget, values: Mapping[str, float]) -> str:
    shown = [
        f"{values[limit.key]:g} {limit.unit}".rstrip() if limit.key in values else "?"
        for limit in budget.limits
    ]
    return " / ".join(shown) if values else ""


def _reached(row: Mapping[str, Any]) -> str:
    verdict = str(row.get("verdict", NOT_YET))
    return f"{verdict} (small scale)" if row.get("quick") else verdict


def _when(row: Mapping[str, Any]) -> str:
    if not row:
        return "–"
    before, after = row["load"]
    return f"{row['at']}, {row['cores']} cores, load {before:g} – {after:g}"


def _line(cells: Any) -> str:
    return "| " + " | ".join(cells) + " |"
