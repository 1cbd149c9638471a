"""Writes the result of a replay: as a table for people, as a JSON object for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from tests.kit.replay.verdict import ReplayVerdict, total

_COLUMNS = {
    "id": "conversation", "sent": "sent", "answered": "answered", "lost": "lost", "doubled": "doubled",
    "out_of_order": "disorder", "uncertain": "uncertain", "strays": "strays", "turns": "turns",
    "flushes": "flushes", "compactions": "compactions", "notes": "notes", "max_context": "max",
    "limit": "limit", "hard": "hard", "over_hard": "over hard", "over_limit_outside": "over limit",
    "reconnects": "fell", "usd": "usd",
}  # fmt: skip
_ON_TELEGRAM = ("uncertain", "strays")


def as_json(verdicts: Sequence[ReplayVerdict], facts: Mapping[str, object]) -> str:
    whole = total(verdicts).as_json()
    for name in ("id", "session", "given_up"):
        whole.pop(name)
    return json.dumps({**whole, **facts, "conversations": [verdict.as_json() for verdict in verdicts]})


def as_table(verdicts: Sequence[ReplayVerdict], facts: Mapping[str, object]) -> str:
    telegram = any(verdict.uncertain is not None for verdict in verdicts)
    columns = {name: head for name, head in _COLUMNS.items() if telegram or name not in _ON_TELEGRAM}
    rows = [list(columns.values()), *(_row(verdict, columns) for verdict in (*verdicts, total(verdicts)))]
    widths = [max(len(row[column]) for row in rows) for column in range(len(columns))]
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
    notes += _mishaps(facts)
    notes += [f"{verdict.id}: given up, {verdict.given_up}." for verdict in verdicts if verdict.given_up]
    notes.append("`over limit` counts requests above the limit outside of trigger … commit; it should be 0.")
    return "\n".join([lines[0], rule, *lines[1:-1], rule, lines[-1], "", *notes])


def _mishaps(facts: Mapping[str, object]) -> list[str]:
    """Return the lines that list the failures which the conversations met on Telegram.

    None on other channels.
    """
    faults = facts.get("faults")
    if not isinstance(faults, Mapping):
        return []
    met = ", ".join(f"{count} × {name}" for name, count in faults.items() if count) or "no failing calls"
    violations = facts.get("violations")
    return [
        *([f"{violations} calls of the bot were such as no careful bot makes."] if violations else []),
        f"On the way: {facts['restarts']} restarts of the bot in the middle of an answer, {met}.",
        f"{facts.get('pressed', 0)} answers were missing, and came when the button was pressed that told so.",
        "`uncertain` parts are in the chat, but their acknowledgement was lost.",
        "`strays` are halves of answers that lost their acknowledgement in the same way, before the whole.",
    ]


def _row(verdict: ReplayVerdict, columns: Iterable[str]) -> list[str]:
    return [_shown(getattr(verdict, name)) for name in columns]


def _shown(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.4f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _cell(cell: str, width: int, column: int) -> str:
    return cell.ljust(width) if column == 0 else cell.rjust(width)
