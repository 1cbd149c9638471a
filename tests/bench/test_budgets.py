"""The budgets are twenty, their table is complete, and the run of all benches survives any of them."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.bench.all import Ran, kept, main, measure, run_piece, write
from tests.bench.budgets import BUDGETS, budget
from tests.bench.pieces import PIECES, Piece, pieces_for
from tests.bench.table import as_lines, as_markdown, write_docs

ROOT = Path(__file__).resolve().parents[2]
COUNTS = {"commits": 4, "statements": 5, "redis_commands": 2}


async def counted(piece: Piece, quick: bool) -> Ran:
    """As the bench of turns would find it."""
    return Ran(found=COUNTS, seconds=1.0, load=(0.5, 0.6))


async def broken(piece: Piece, quick: bool) -> Ran:
    raise OSError("no servers here")


def test_the_budgets_are_p1_to_p20() -> None:
    assert [one.number for one in BUDGETS] == [f"P{number}" for number in range(1, 21)]
    for one in BUDGETS:
        assert one.in_the_way, one.number
        for limit in one.limits:
            assert limit.verdict(limit.moonshot) == "moonshot"
            assert (limit.moonshot >= limit.must) is limit.at_least or limit.moonshot == limit.must


def test_every_figure_is_measured_by_a_bench() -> None:
    keys = [limit.key for one in BUDGETS for limit in one.limits]
    assert len(keys) == len(set(keys))
    measured = [figure for piece in PIECES for figure in piece.figures]
    assert sorted(measured) == sorted(keys)
    for piece in PIECES:
        assert (ROOT / "tests" / "bench" / f"{piece.module}.py").exists(), piece.module
        assert pieces_for([one.number for one in BUDGETS if set(piece.figures) & set(one.keys)])


def rows_of(page: str) -> list[list[str]]:
    lines = (ROOT / page).read_text().splitlines()
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in lines
        if re.match(r"\| P\d+ \|", line)
    ]


def test_the_page_shows_the_budgets_as_they_are() -> None:
    assert [(row[0], row[3], row[4]) for row in rows_of("docs/budgets.md")] == [
        (one.number, one.must, one.moonshot) for one in BUDGETS
    ]


def test_the_table_stands_once() -> None:
    pages = [path for path in (ROOT / "docs").glob("*.md") if rows_of(f"docs/{path.name}")]
    assert [path.name for path in pages] == ["budgets.md"]
    assert rows_of("README.md") == []


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        (COUNTS, "moonshot"),
        ({**COUNTS, "statements": 7}, "must"),
        ({**COUNTS, "redis_commands": 3}, "missed"),
        ({"commits": 4}, "not measured"),
        ({"commits": 9}, "missed"),
        ({}, "not measured"),
    ],
)
def test_the_worst_figure_of_a_budget_decides(values: dict[str, float], verdict: str) -> None:
    assert budget("P5").verdict(values) == verdict


async def test_the_counts_of_a_turn_are_a_row() -> None:
    rows = await measure(["P5"], quick=True, run=counted)
    assert rows["P5"]["verdict"] == "moonshot"
    assert rows["P5"]["values"] == COUNTS
    assert rows["P5"]["reason"] == ""
    assert rows["P5"]["load"] == [0.5, 0.6]


async def test_a_missed_moonshot_says_what_stands_in_the_way() -> None:
    async def seven(piece: Piece, quick: bool) -> Ran:
        return Ran(found={**COUNTS, "statements": 7})

    rows = await measure(["P5"], quick=True, run=seven)
    assert (rows["P5"]["verdict"], rows["P5"]["reason"]) == ("must", budget("P5").in_the_way)


async def test_a_bench_that_fails_is_a_row_and_not_the_end() -> None:
    async def first_breaks(piece: Piece, quick: bool) -> Ran:
        return await (broken if piece.module == "together" else counted)(piece, quick)

    said: list[str] = []
    rows = await measure(["P2", "P5"], quick=True, run=first_breaks, say=said.append)
    assert rows["P2"]["verdict"] == "not measured"
    assert rows["P2"]["reason"] == "OSError: no servers here"
    assert rows["P5"]["verdict"] == "moonshot"
    assert "together: OSError: no servers here" in said


async def test_rows_are_kept_as_soon_as_all_their_benches_ran() -> None:
    heard: list[list[str]] = []
    await measure(["P5", "P16"], quick=True, run=counted, keep=lambda rows: heard.append(sorted(rows)))
    assert heard == [["P5"], ["P16", "P5"]]


async def test_a_bench_is_ended_when_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Piece(module="none", figures=("commits",), seconds=0.5)
    monkeypatch.setattr(Piece, "command", lambda *_, **__: ("-c", "import time; time.sleep(60)"))
    ran = await run_piece(slow, quick=True)
    assert ran.problem == "not done within 0 s"
    assert ran.seconds < 30


@pytest.mark.parametrize(
    ("program", "problem"),
    [
        ("raise SystemExit('no room')", "ended with 1: no room"),
        ("print('nothing')", "its words are not JSON: nothing was said"),
        ("print('{\"commits\": 4}')", ""),
    ],
)
async def test_what_a_bench_says_is_read(monkeypatch: pytest.MonkeyPatch, program: str, problem: str) -> None:
    monkeypatch.setattr(Piece, "command", lambda *_, **__: ("-c", program))
    ran = await run_piece(Piece(module="none", figures=("commits",), seconds=30), quick=True)
    assert ran.problem == problem
    assert ran.found == ({"commits": 4} if not problem else {})


def test_remeasured_row_leaves_other_rows_unchanged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, page = tmp_path / "budgets.json", tmp_path / "budgets.md"
    page.write_text("# Budgets\n\n<!-- budgets: begin -->\nold\n<!-- budgets: end -->\n\nAfter.\n")
    figures: dict[str, Any] = {"values": {"overhead_ratio": 1.6}, "verdict": "must", "reason": "work"}
    conditions: dict[str, Any] = {"quick": False, "load": [1, 2], "cores": 2, "at": "then"}
    before = {"number": "P1", **figures, **conditions}
    write(table, {"P1": before})
    assert main(["--json", str(table), "--only", "P5", "--docs", str(page)], run=counted) == 0
    rows = kept(table)
    assert (rows["P1"], rows["P5"]["verdict"]) == (before, "moonshot")
    assert json.loads(table.read_text())["budgets"][0]["number"] == "P1"
    shown = capsys.readouterr().out
    assert "1.6 ×" in shown
    assert "4 / 5 / 2" in shown
    assert "old" not in page.read_text()
    assert page.read_text().startswith("# Budgets\n\n<!-- budgets: begin -->\n| ")
    assert page.read_text().endswith("<!-- budgets: end -->\n\nAfter.\n")


def test_a_table_of_nothing_has_all_rows(tmp_path: Path) -> None:
    assert len(as_lines({})) == 20
    assert sum(line.startswith("| P") for line in as_markdown({})) == 20
    page = tmp_path / "page.md"
    marks = "<!-- budgets: begin --><!-- budgets: end -->"
    page.write_text(marks)
    write_docs(page, {})
    assert page.read_text().count("| not measured |") == 20
    page.write_text("Nothing of them.")
    write_docs(page, {})
    assert page.read_text() == "Nothing of them."


def test_the_benches_run_with_this_python() -> None:
    assert PIECES[0].command(quick=True)[:2] == ("-m", "tests.bench.turn")
    assert Path(sys.executable).exists()
