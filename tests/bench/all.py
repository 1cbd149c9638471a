"""Every budget in one table: `python -m tests.bench.all [--json PATH] [--only P3 …] [--quick]`.

Each bench runs as a process of its own, one after the other, and is ended when its time is over: all of them
within two hours at the latest, usually within forty minutes; `--quick` is a small scale. What one bench could
not measure is a line with the reason. Rows of PATH that are not measured this time stay as they are;
`--docs docs/budgets.md` writes them into this page.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.bench.budgets import BUDGETS, Budget
from tests.bench.pieces import Piece, pieces_for
from tests.bench.table import as_lines, write_docs

ROOT = Path(__file__).resolve().parents[2]
END_SECONDS = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What one bench said, or why it said nothing."""

    found: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    load: tuple[float, float] = (0.0, 0.0)
    """The machine's average over a minute, before and after."""
    problem: str = ""


Run = Callable[[Piece, bool], Awaitable[Ran]]


async def run_piece(piece: Piece, quick: bool) -> Ran:
    """As a process in a group of its own, so that all it has started ends with it."""
    began, load = time.monotonic(), os.getloadavg()[0]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *piece.command(quick=quick),
        cwd=ROOT, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    found: Mapping[str, Any] = {}
    problem = ""
    try:
        output, errors = await asyncio.wait_for(process.communicate(), piece.seconds)
        found, problem = _read(process.returncode or 0, output.decode(), errors.decode(errors="replace"))
    except TimeoutError:
        problem = f"not done within {piece.seconds:.0f} s"
    finally:
        await _end(process)
    seconds = round(time.monotonic() - began, 1)
    return Ran(found=found, seconds=seconds, load=(load, os.getloadavg()[0]), problem=problem)


def _read(code: int, output: str, errors: str) -> tuple[Mapping[str, Any], str]:
    last = next((line for line in reversed(errors.splitlines()) if line.strip()), "nothing was said")
    if code:
        return {}, f"ended with {code}: {last[:300]}"
    try:
        return json.loads(output[output.index("{") :]), ""
    except ValueError:
        return {}, f"its words are not JSON: {last[:300]}"


async def _end(process: asyncio.subprocess.Process) -> None:
    """Politely first; the group is our own."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.returncode is not None:
            return
        os.killpg(process.pid, number)
        try:
            await asyncio.wait_for(process.wait(), END_SECONDS)
        except TimeoutError:
            continue


async def measure(
    numbers: Sequence[str],
    *,
    quick: bool,
    keep: Callable[[dict[str, dict[str, Any]]], None] = lambda _: None,
    run: Run = run_piece,
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, dict[str, Any]]:
    """A row for each of these budgets, whatever became of its benches; `keep` hears of them as they come."""
    ran: dict[str, Ran] = {}
    rows: dict[str, dict[str, Any]] = {}
    for piece in pieces_for(numbers):
        say(f"{piece.module}, at most {piece.seconds / 60:.0f} minutes")
        try:
            ran[piece.module] = one = await run(piece, quick)
        except Exception as error:
            ran[piece.module] = one = Ran(problem=f"{type(error).__name__}: {error}")
        if one.problem:
            say(f"{piece.module}: {one.problem}")
        done = [one for one in BUDGETS if one.number in numbers and _has_run(one, ran)]
        rows = {budget.number: rows.get(budget.number) or _row(budget, ran, quick=quick) for budget in done}
        keep(rows)
    return rows


def _has_run(budget: Budget, ran: Mapping[str, Ran]) -> bool:
    return all(piece.module in ran for piece in pieces_for([budget.number]))


def _row(budget: Budget, ran: Mapping[str, Ran], *, quick: bool) -> dict[str, Any]:
    mine = {piece: ran[piece.module] for piece in pieces_for([budget.number])}
    values: dict[str, float] = {}
    around: dict[str, Any] = {}
    for piece, one in mine.items():
        values |= {key: value for key, value in piece.read(one.found).items() if key in budget.keys}
        around |= {name: one.found[name] for name in piece.told if name in one.found}
    verdict = budget.verdict(values)
    problem = "; ".join(one.problem for one in mine.values() if one.problem)
    return {
        "number": budget.number,
        "measured": budget.measured,
        "floor": budget.floor,
        "must": budget.must,
        "moonshot": budget.moonshot,
        "values": values,
        "around": around,
        "verdict": verdict,
        "reason": "" if verdict == "moonshot" else problem or budget.in_the_way,
        "quick": quick,
        "seconds": round(sum(one.seconds for one in mine.values()), 1),
        "cores": os.cpu_count(),
        "load": [round(max(one.load[which] for one in mine.values()), 1) for which in (0, 1)],
        "at": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }


def kept(path: Path) -> dict[str, dict[str, Any]]:
    """The rows of an earlier table."""
    if not path.exists():
        return {}
    return {row["number"]: row for row in json.loads(path.read_text())["budgets"]}


def write(path: Path, rows: Mapping[str, Mapping[str, Any]]) -> None:
    ordered = [rows[one.number] for one in BUDGETS if one.number in rows]
    path.write_text(json.dumps({"budgets": ordered}, indent=1, ensure_ascii=False) + "\n")


def main(arguments: Sequence[str] | None = None, *, run: Run = run_piece) -> int:
    given = _given(arguments)
    rows = kept(given.json) if given.json else {}

    def keep(new: dict[str, dict[str, Any]]) -> None:
        rows.update(new)
        if given.json:
            write(given.json, rows)

    if not given.no_run:
        asyncio.run(measure(given.only, quick=given.quick, keep=keep, run=run, say=_say))
    sys.stdout.writelines(f"{line}\n" for line in as_lines(rows))
    for page in given.docs:
        write_docs(page, rows)
    missed = [
        number for number in given.only if rows.get(number, {}).get("verdict") not in ("must", "moonshot")
    ]
    return 1 if missed else 0


def _say(words: str) -> None:
    sys.stderr.write(f"{words}\n")
    sys.stderr.flush()


def _given(arguments: Sequence[str] | None) -> argparse.Namespace:
    known = [one.number for one in BUDGETS]
    parser = argparse.ArgumentParser(prog="python -m tests.bench.all", description=__doc__)
    parser.add_argument("--json", type=Path, metavar="PATH", help="where the table is kept")
    parser.add_argument("--only", nargs="+", choices=known, default=known, metavar="P3")
    parser.add_argument("--quick", action="store_true", help="on a small scale")
    parser.add_argument(
        "--docs", type=Path, nargs="+", default=[], metavar="PATH", help="write the table into these pages"
    )
    parser.add_argument("--no-run", action="store_true", help="only show or write what --json holds")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    raise SystemExit(main())
