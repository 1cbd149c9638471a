"""The table of faults: each row has tests, the page says what the rows say, the command tells the truth."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.faults import __main__ as command
from tests.faults.__main__ import main
from tests.faults.lengths import AT_LENGTH
from tests.faults.rows import NUMBERS, ROWS, as_markdown
from tests.faults.verdicts import Verdict, Verdicts, seeds_of
from tests.kit.markers import marked

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = """
import pytest

@pytest.fixture(scope="session")
def seed():
    return 1

@pytest.mark.row("F01", "F02")
def test_good(): pass

@pytest.mark.row("F02")
def test_bad(): assert 1 == 2, "as if lost"

@pytest.mark.row("F03")
def test_skipped(): pytest.skip("no Chromium")

@pytest.mark.row("F04")
def test_drawn(seed): assert seed < 3

@pytest.mark.row("F06")
def test_of_another_row(): raise SystemError

@pytest.mark.parametrize("point", [pytest.param("a", marks=pytest.mark.row("F07")), "b"])
def test_of_some_cases(point): assert point == "a"
"""


def test_every_row_has_a_test_and_no_mark_is_of_another_table() -> None:
    proven = set(marked("row"))
    assert proven - set(NUMBERS) == set()
    assert [number for number in NUMBERS if number not in proven] == [], "rows without a test"


def test_the_rows_are_numbered_without_a_gap() -> None:
    assert [f"F{number:02d}" for number in range(1, len(ROWS) + 1)] == list(NUMBERS)
    assert all(row.fault and row.cause and row.holds for row in ROWS)


def test_the_page_says_what_the_rows_say() -> None:
    page = ROOT / "docs" / "faults.md"
    assert page.read_text() == as_markdown(), "write it: python -m tests.faults.rows > docs/faults.md"


def verdicts_of(folder: Path, *, rows: str, seeds: str = "") -> Verdicts:
    (folder / "test_sample.py").write_text(SAMPLE)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = row(*numbers): a row\n")
    told = folder / "verdicts.json"
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "tests.faults.verdicts", "-p", "no:cacheprovider",
         "-c", str(folder / "pytest.ini"), f"--rows={rows}", f"--seeds={seeds}", f"--verdicts={told}",
         str(folder)],
        cwd=ROOT, capture_output=True, timeout=300, check=False,
    )  # fmt: skip
    return Verdicts.read(told)


def test_each_row_ends_in_ok_or_in_the_reason(tmp_path: Path) -> None:
    found = verdicts_of(tmp_path, rows="F01,F02,F03,F04,F05,F07", seeds="2-4")
    assert found.broken == []
    reasons = {number: verdict.reason for number, verdict in found.rows.items()}
    assert reasons["F01"] == "ok"
    assert reasons["F02"].startswith("failed: ")
    assert "test_bad: AssertionError: as if lost" in reasons["F02"]
    assert reasons["F03"].startswith("skipped: ")
    assert "no Chromium" in reasons["F03"]
    assert "test_drawn[seed3]" in reasons["F04"]
    assert reasons["F04"].endswith("(and 1 more)")
    assert (found.rows["F04"].tests, found.rows["F04"].passed) == (3, 1)
    assert reasons["F05"] == "no test"
    assert reasons["F07"] == "ok", "only the case that is marked"


def test_a_run_that_is_killed_tells_what_it_has_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    sample = tmp_path / "test_sample.py"
    killed = "@pytest.mark.row('F02')\ndef test_killed(): import os; os.kill(os.getpid(), 9)\n"
    sample.write_text(f"import pytest\n@pytest.mark.row('F01')\ndef test_good(): pass\n{killed}")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = row(*numbers): a row\n")
    monkeypatch.setattr(command, "marked", lambda _: {"F01": {sample}, "F02": {sample}})
    assert main(["--row", "F01", "F02", "F03"]) == 1
    told = capfd.readouterr()
    assert [line.rsplit("  ", 1)[1] for line in told.out.splitlines()] == [
        "ok", "not run: 1 of 1 tests", "no test",
    ]  # fmt: skip
    assert "the run cannot be read: pytest ended with -9" in told.err


def test_unreadable_test_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "test_broken.py").write_text("import nothing_of_this_name\n")
    found = verdicts_of(tmp_path, rows="F01")
    assert [path for path, _ in found.broken] == ["test_broken.py"]
    assert "nothing_of_this_name" in found.broken[0][1]
    assert Verdict(tests=2, passed=1).reason == "not run: 1 of 2 tests"


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        (["--row", "F99"], f"F01 to {NUMBERS[-1]}"),
        (["--row", "S09"], "docs/faults.md"),
        (["--row", "F01", "FF"], f"F01 to {NUMBERS[-1]}"),
        (["--seeds", "0"], "from 1 on"),
        (["--seeds", "many"], "from 1 on"),
        (["--seeds", "9-3"], "from 1 on"),
        (["--row"], "at least one"),
    ],
)
def test_what_is_no_row_and_no_seed_is_said_before_anything_runs(
    capsys: pytest.CaptureFixture[str], words: list[str], advice: str
) -> None:
    with pytest.raises(SystemExit) as left:
        main(words)
    assert left.value.code == 2
    assert advice in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "rows", "seeds"),
    [
        ([], list(NUMBERS), ""),
        (["--row", "f9", "F30", "--row", "F9"], ["F09", "F30"], ""),
        (["--seeds", "20"], list(NUMBERS), "20"),
    ],
)
def test_without_words_every_row_is_tried_and_with_them_what_they_say(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    rows: list[str],
    seeds: str,
) -> None:
    def tried(numbers: Sequence[str], drawn: str, files: Sequence[Path]) -> Verdicts:
        assert (list(numbers), drawn) == (rows, seeds)
        assert files
        return Verdicts(rows={number: Verdict(tests=2, passed=2, seconds=1.5) for number in numbers})

    monkeypatch.setattr(command, "_tried", tried)
    assert main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line[:3] for line in lines] == rows
    assert all(line.endswith("1.5 s  ok") for line in lines)


@pytest.mark.parametrize(("words", "seconds"), [([], 2.0), (["--at-length"], 60.0)])
def test_outages_are_as_long_as_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, words: list[str], seconds: float
) -> None:
    def tried(*_: object) -> Verdicts:
        told = subprocess.check_output([sys.executable, "-c", LASTS], cwd=ROOT, text=True, timeout=300)
        assert float(told) == seconds
        return Verdicts()

    monkeypatch.setenv(AT_LENGTH, "")
    monkeypatch.setattr(command, "_tried", tried)
    main([*words, "--row", "F28"])


LASTS = "from tests.faults.lengths import lasting; print(lasting(2.0, 60.0))"


def test_seeds_are_a_number_of_them_or_a_range() -> None:
    assert list(seeds_of("3")) == [1, 2, 3]
    assert list(seeds_of("417-418")) == [417, 418]
