"""The result for eyes (a table) and for programs (one JSON object)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from shared.replay.verdict import Verdict, total

_COLUMNS = {
    "id": "conversation", "sent": "sent", "answered": "answered", "lost": "lost", "doubled": "doubled",
    "out_of_order": "disorder", "turns": "turns", "flushes": "flushes", "compactions": "compactions",
    "notes": "notes", "max_context": "max", "limit": "limit", "hard": "hard", "over_hard": "over hard",
    "over_limit_outside": "over limit", "reconnects": "fell", "usd": "usd",
}  # fmt: skip


def as_json(verdicts: Sequence[Verdict], facts: Mapping[str, object]) -> str:
    whole = total(verdicts).as_json()
    for name in ("id", "session", "given_up"):
        whole.pop(name)
    return json.dumps({**whole, **facts, "conversations": [verdict.as_json() for verdict in verdicts]})


def as_table(verdicts: Sequence[Verdict], facts: Mapping[str, object]) -> str:
    rows = [list(_COLUMNS.values()), *(_row(verdict) for verdict in (*verdicts, total(verdicts)))]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
    lines = ["  ".join(_cell(cell, width, n) for n, (cell, width) in enumerate(zip(row, widths, strict=True)))
             for row in rows]  # fmt: skip
    rule = "─" * len(lines[0])
    notes = [
        f"Played on {facts['system']}, answered by {facts['model'] or 'its model'}, {facts['seconds']} s."
    ]
    if facts["checked_by"] == "screen":
        notes.append("Only the screen was checked: the database of that system is not reachable from here.")
    if facts["jobs_left"]:
        notes.append(f"{facts['jobs_left']} silent jobs were still not done at the end.")
    notes += [f"{verdict.id}: given up, {verdict.given_up}." for verdict in verdicts if verdict.given_up]
    notes.append("`over limit` counts requests above the limit outside of trigger … commit; it should be 0.")
    return "\n".join([lines[0], rule, *lines[1:-1], rule, lines[-1], "", *notes])


def _row(verdict: Verdict) -> list[str]:
    return [_shown(getattr(verdict, name)) for name in _COLUMNS]


def _shown(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.4f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _cell(cell: str, width: int, column: int) -> str:
    return cell.ljust(width) if column == 0 else cell.rjust(width)
